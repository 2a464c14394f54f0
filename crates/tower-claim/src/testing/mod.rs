//! Tools for tests: time driven by hand, and a store that fails on command.

mod clock;
mod fault;
mod fault_store;

pub use clock::ManualClock;
pub use fault::{Calls, Fault, Faults, InvalidFault, Operation};
pub use fault_store::FaultStore;
