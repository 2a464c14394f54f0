//! The suite on redb, kills, and churn.

mod kills;
mod laws;
