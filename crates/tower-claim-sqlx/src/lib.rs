//! Claims, finishes and fences inside your own sqlx transaction.
