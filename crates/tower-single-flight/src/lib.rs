//! Concurrent equal requests become one upstream call.
