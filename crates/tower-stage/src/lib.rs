//! See where every request is stuck: stages, wait reasons, a live board, a watchdog.

mod current;
mod handle;
mod names;
mod outcome;
#[path = "row_inert.rs"]
mod row;
mod stage;
mod wait;

pub use handle::{StageHandle, mark, wait_on};
pub use names::NameError;
pub use outcome::{Cause, Outcome};
pub use stage::{CustomStage, Stage};
pub use wait::{Blocker, CustomReason, WaitReason, Waiting};
