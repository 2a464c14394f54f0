//! A record as bytes, for engines that keep it as a value.
//!
//! | Bytes | |
//! |---|---|
//! | 1 | version, now 1 |
//! | 1 | phase: 0 vacant, 1 free, 2 held, 3 done, 4 unknown |
//! | 1 | flags: 1 fingerprint, 2 terms, 4 body, 8 marked, 16 revoke asked, 32 spent nonces, 64 stays taken |
//! | 1–8 | token |
//! | 16 | nonce |
//! | 1–10 each | since, until |
//! | 1–10 | all but vacant: the last nonce's `not_after` |
//! | 32 | with a fingerprint |
//! | | held: last beat, progress, attempt; unknown: "not before", last beat, progress |
//! | | with terms: lease, cooling, minimum hold, unfinished keep; policy (0 take over, 1 hold); length and UTF-8 of the label |
//! | | with spent nonces: folded, latest, how many; each nonce with its `not_after`, in order of both |
//! | | with a body: its length, and the body |
//! | 4 | checksum of all before: FNV-1a, big-endian |
//!
//! Numbers are LEB128 in their shortest form; instants are microseconds of the engine's clock; spans are
//! whole seconds, then nanoseconds. One record has one form, so equal bytes mean that a move changed nothing.
//!
//! A later version may add fields. It reads this one; this one refuses it
//! ([`UnreadableRecord::FutureVersion`]) rather than misread it. So in a rolling deploy the new version must
//! not write before the last old one is gone, or must write the old form until then.

mod error;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::UnreadableRecord;

/// What this code writes, and the latest that it reads.
const VERSION: u8 = 1;

const FINGERPRINT: u8 = 1;
const TERMS: u8 = 2;
const BODY: u8 = 4;
const MARKED: u8 = 8;
const REVOKE_ASKED: u8 = 16;
const SPENT: u8 = 32;
/// Of a done record: the minimum hold is what was left of it, counted from `since`.
const STAYS_TAKEN: u8 = 64;
const ALL_FLAGS: u8 = 127;

const CHECKSUM: usize = 4;

/// FNV-1a of 32 bits: each step is a bijection of the state, so no change of a single byte goes unnoticed.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step).to_be_bytes()
}
