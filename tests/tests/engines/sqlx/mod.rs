//! The calls inside a user's sqlx transaction, beside a store that speaks tokio-postgres.

mod beside_others;
mod finish;
mod shop;
