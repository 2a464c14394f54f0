//! The suite on postgres.
