//! The suite on redis.
