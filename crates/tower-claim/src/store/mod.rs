//! The claim protocol as traits: [`ClaimStore`] for one key, [`ClaimMany`] for several at once,
//! [`ClaimAdmin`] for operators, [`FenceStore`] at the resource.
//!
//! Each has an object-safe twin (`DynClaimStore`, …) whose methods begin with `dyn_`. Layers keep
//! `Arc<dyn DynClaimStore>`; `MemoryStore`, `Arc<MemoryStore>` and `Arc<dyn DynClaimStore>` are all
//! [`ClaimStore`]s.

mod admin;
mod answer;
mod capabilities;
mod claim;
mod fence;
mod many;
mod promises;
mod time;

pub use admin::{
    Broken, ClaimAdmin, DynClaimAdmin, Purged, Resolution, Resolved, ScanPage, break_and_fence,
    resolve_and_fence,
};
pub use answer::{
    Busy, Claimed, Cooling, DoneRecord, Finish, Grant, LostReason, Marked, RecordView, Release,
    Renewed, State, TookOver, Unknown, Value, Watched,
};
pub use capabilities::{Capabilities, JudgingClock, KeeperConnection, MultiKey};
pub use claim::{
    Beat, ClaimRequest, ClaimStore, DynClaimStore, FinishRequest, Owner, ReleaseRequest,
};
pub use fence::{Admission, DynFenceStore, FenceStore};
pub use many::{ClaimMany, ClaimManyRequest, ClaimedMany, DynClaimMany};
pub use promises::{Event, Promise, Weakened};
pub use time::StoreTime;
