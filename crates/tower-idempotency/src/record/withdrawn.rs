//! The record of a key under which nothing was done, and which is free in a moment: its run was not told whether its
//! point of no return was written, and so did not begin. One byte, 0xC2, where the other records have their version.

use bytes::Bytes;
use tower_claim::store::{DoneRecord, Value};

const WITHDRAWN: &[u8] = &[0xC2];

pub(crate) fn withdrawn() -> Value {
    Value::Kept(Bytes::from_static(WITHDRAWN))
}

pub(crate) fn is_withdrawn(done: &DoneRecord) -> bool {
    matches!(&done.value, Value::Kept(bytes) if bytes == WITHDRAWN)
}
