//! How values look in the board's JSON.

use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;
use serde::{Serialize, Serializer};

use super::live::Live;
use super::recent::Finished;
use super::times::millis as millis_of;

#[derive(Serialize)]
pub(crate) struct Page {
    pub(crate) version: u32,
    pub(crate) totals: super::Totals,
    pub(crate) live: Vec<Live>,
    pub(crate) recent: Vec<Finished>,
}

pub(crate) fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis_of(*time))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn nanos<S: Serializer>(nanos: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&Duration::from_nanos(*nanos), serializer)
}

#[expect(clippy::ref_option, reason = "serde's signature")]
pub(crate) fn status<S: Serializer>(
    status: &Option<StatusCode>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    status.map(|status| status.as_u16()).serialize(serializer)
}
