//! A request's hold on its slot: what a handle points at.

use std::fmt;
use std::sync::Arc;

use crate::board::Sent;
use crate::board::slot::{RowId, Slot};
use crate::{Blocker, Cause, Stage, WaitReason};

#[derive(Clone)]
pub(crate) struct Row {
    slot: Arc<Slot>,
    generation: u32,
}

impl Row {
    pub(crate) fn new(slot: Arc<Slot>, generation: u32) -> Self {
        Self { slot, generation }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn row_id(&self) -> RowId {
        self.slot.id(self.generation)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.slot.is_live(self.generation)
    }

    pub(crate) fn id(&self) -> String {
        self.row_id().to_string()
    }

    pub(crate) fn mark(&self, stage: Stage) {
        self.slot.mark(self.generation, stage);
    }

    pub(crate) fn begin_wait(&self, reason: WaitReason, blocker: Blocker) -> Option<u32> {
        self.slot.begin_wait(self.generation, reason, blocker)
    }

    pub(crate) fn end_wait(&self, wait: u32) {
        self.slot.end_wait(self.generation, wait);
    }

    /// Ends the row, if it has not ended.
    pub(crate) fn close(&self, seen: Cause, sent: Sent) {
        let shared = self.slot.shared();
        shared.close(&self.slot, self.generation, seen, sent);
    }

    pub(crate) fn ends_as(&self, cause: Cause) {
        self.slot.ends_as(self.generation, cause);
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.row_id(), f)
    }
}
