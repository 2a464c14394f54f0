//! The claim protocol on PostgreSQL: one statement per step, also inside your own transaction.
