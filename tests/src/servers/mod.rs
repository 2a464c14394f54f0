//! Servers of the engines as private processes: on free ports of this machine, in folders of their own,
//! gone when the test ends, however it ends.

mod etcd;
mod leash;
mod moved_clock;
mod pgbouncer;
mod place;
mod postgres;
mod process;
mod redis;
mod stillness;

pub use etcd::Etcd;
pub use leash::Leash;
pub use moved_clock::MovedClock;
pub use pgbouncer::PgBouncer;
pub use place::free_port;
pub use postgres::Postgres;
pub use process::Process;
pub use redis::Redis;
pub use stillness::stop;
