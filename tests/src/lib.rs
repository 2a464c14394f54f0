//! Tests of the whole house: real programs, real clients, the model of the claim protocol, licences.

pub mod claim_model;
pub mod client;
pub mod programs;
