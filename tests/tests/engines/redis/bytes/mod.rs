//! What lies in Redis: golden hashes of format version 1, and what is no record of ours.

mod garbled;
mod guard;
mod lifetime;
mod purged;
mod version_1;

use redis::aio::MultiplexedConnection;
use tower_claim::store::Owner;
use tower_claim::{Key, Nonce, Token};
use tower_claim_redis::RedisStore;

use super::{key, raw};

const HELD: &str = include_str!("golden/held.txt");
const DONE: &str = include_str!("golden/done.txt");
const UNKNOWN: &str = include_str!("golden/unknown.txt");
const FREE: &str = include_str!("golden/free.txt");

type Fields = Vec<(String, Vec<u8>)>;

fn fields(golden: &str) -> Fields {
    let pairs = golden.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .collect()
}

async fn put(raw: &mut MultiplexedConnection, name: &str, fields: &Fields) {
    let _: () = redis::cmd("DEL").arg(name).query_async(raw).await.unwrap();
    let mut command = redis::cmd("HSET");
    command.arg(name);
    for (field, value) in fields {
        command.arg(field).arg(&value[..]);
    }
    let _: () = command.query_async(raw).await.unwrap();
}

/// A key with this record.
async fn with(store: &RedisStore, golden: &str) -> Key {
    let key = key();
    put(&mut raw().await, &store.name_of(&key), &fields(golden)).await;
    key
}

fn owner(key: Key) -> Owner {
    Owner {
        key,
        nonce: Nonce::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        token: Token::new(1_810_000_000_000_000).unwrap(),
    }
}
