//! See where every request is stuck: stages, wait reasons, a live board, a watchdog.
