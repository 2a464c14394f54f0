//! The suite on redb.
