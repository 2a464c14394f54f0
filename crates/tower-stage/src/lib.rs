//! See where every request is stuck: stages, wait reasons, a live board, a watchdog.

#[cfg(feature = "layer")]
mod board;
#[cfg(feature = "layer")]
mod body;
mod current;
#[cfg(feature = "axum")]
mod extract;
#[cfg(feature = "layer")]
mod future;
#[cfg(feature = "layer")]
mod grpc;
mod handle;
#[cfg(feature = "layer")]
mod layer;
mod names;
mod outcome;
#[cfg(feature = "layer")]
mod queue_aware;
#[cfg_attr(not(feature = "layer"), path = "row_inert.rs")]
mod row;
#[cfg(feature = "layer")]
mod service;
mod stage;
#[cfg(feature = "layer")]
mod tracked;
mod wait;
#[cfg(feature = "layer")]
mod watchdog;

#[cfg(feature = "layer")]
pub use board::{
    BadFilter, Board, BoardBuilder, Filter, Finished, Live, RowId, StageTimes, Totals, Wait,
};
#[cfg(feature = "layer")]
pub use body::StageBody;
#[cfg(feature = "layer")]
pub use future::ResponseFuture;
pub use handle::{StageHandle, mark, wait_on};
#[cfg(feature = "layer")]
pub use layer::{StageLayer, StageLayerBuilder};
pub use names::NameError;
pub use outcome::{Cause, Outcome};
#[cfg(feature = "layer")]
pub use queue_aware::{QueueAwareFuture, QueueAwareLayer, QueueAwareService};
#[cfg(feature = "layer")]
pub use service::StageService;
pub use stage::{CustomStage, Stage};
pub use wait::{Blocker, CustomReason, WaitReason, Waiting};
#[cfg(feature = "layer")]
pub use watchdog::{Motion, Report, Watchdog};
