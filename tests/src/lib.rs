//! Tests of the whole house: real programs, real clients, the model of the claim protocol, licences.

pub mod claim_model;
pub mod client;
pub mod programs;
pub mod relay;
pub mod servers;

/// The first example of the project's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
