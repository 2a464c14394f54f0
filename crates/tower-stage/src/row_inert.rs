//! Without the feature `layer` nothing makes a row, and the compiler knows it: every handle is inert, every
//! mark is nothing.

use crate::{Blocker, Cause, Stage, WaitReason};

#[derive(Debug, Clone)]
pub(crate) enum Row {}

impl Row {
    pub(crate) fn is_live(&self) -> bool {
        match *self {}
    }

    pub(crate) fn id(&self) -> String {
        match *self {}
    }

    pub(crate) fn mark(&self, _: Stage) {
        match *self {}
    }

    pub(crate) fn begin_wait(&self, _: WaitReason, _: Blocker) -> Option<u32> {
        match *self {}
    }

    pub(crate) fn end_wait(&self, _: u32) {
        match *self {}
    }

    pub(crate) fn ends_as(&self, _: Cause) {
        match *self {}
    }
}
