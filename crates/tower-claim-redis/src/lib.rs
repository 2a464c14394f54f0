//! The claim protocol on Redis and Valkey: one key and one script per step.
