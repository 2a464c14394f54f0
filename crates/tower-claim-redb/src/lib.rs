//! The claim protocol in one file: embedded, durable, crash-safe.
