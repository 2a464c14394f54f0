//! What is written is read, and nothing else.

use tower_claim::store::{Beat, Owner};

use super::*;
use crate::moves;
use crate::record::{Kept, Seen};

fn sample(phase: Phase) -> Record {
    let mut terms = Settings::new(Duration::from_secs(10));
    terms.cooling = Duration::from_millis(1500);
    terms.min_hold = Duration::from_secs(3);
    terms.label = Arc::from("lease 1a2b3c4d");
    terms.on_lapse = LapsePolicy::Hold;
    Record {
        phase,
        nonce: Nonce::from_bytes([7; 16]),
        token: Token::new(4711).unwrap(),
        by_revision: false,
        fingerprint: Some(Fingerprint::from_bytes([9; 32])),
        terms,
        lease_secs: 10,
        attempt: 2,
        progress: 42,
        marked: true,
        revoke_asked: true,
        since: 1_700_000_000_000,
        last_beat: 1_700_000_004_000,
        until: 1_700_000_010_000,
        leases: Leases {
            live: On::Old(0x1122),
            cool: On::Old(0x3344),
            keep: On::Old(0x5566),
        },
    }
}

fn phases() -> [(&'static str, Phase); 5] {
    [
        ("held", Phase::Held),
        ("done", Phase::Done(Some(Bytes::from_static(b"result")))),
        ("tombstone", Phase::Done(None)),
        ("unknown", Phase::Unknown),
        ("freed", Phase::Freed),
    ]
}

#[test]
fn a_record_comes_back_as_it_was() {
    for (_, phase) in phases() {
        let record = sample(phase);
        assert_eq!(decode(&encode(&record, &[]), 1), Ok(record));
    }
    let mut plain = sample(Phase::Held);
    plain.fingerprint = None;
    (plain.marked, plain.revoke_asked) = (false, false);
    plain.terms.on_lapse = LapsePolicy::TakeOver;
    plain.terms.label = Arc::from("");
    assert_eq!(decode(&encode(&plain, &[]), 1), Ok(plain));
}

#[test]
fn the_stored_bytes_of_version_1_are_read_for_ever() {
    let golden = include_str!("../../tests/golden/record-v1.txt");
    let mut lines = golden.lines();
    for (name, phase) in phases() {
        let record = sample(phase);
        let written: String = encode(&record, &[])
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(lines.next(), Some(format!("{name} {written}").as_str()));
    }
}

#[test]
fn a_token_by_revision_is_not_below_it() {
    let mut record = sample(Phase::Held);
    record.by_revision = true;
    let bytes = encode(&record, &[]);
    assert_eq!(
        decode(&bytes, 5000).unwrap().token,
        Token::new(5000).unwrap()
    );
    assert_eq!(decode(&bytes, 3).unwrap().token, record.token);
    record.by_revision = false;
    assert_eq!(
        decode(&encode(&record, &[]), 5000).unwrap().token,
        record.token
    );
}

#[test]
fn what_is_cut_off_foreign_or_of_the_future_is_refused() {
    let key = Key::from_bytes([0xab; 32]);
    let whole = encode(
        &sample(Phase::Done(Some(Bytes::from_static(b"result")))),
        &[],
    );
    for len in 0..whole.len() {
        let error = decode(&whole[..len], 1).map_err(|bad| bad.of(&key));
        assert!(
            matches!(&error, Err(StoreError::Garbled { key_prefix, .. }) if key_prefix == "abababab"),
            "cut at {len}: {error:?}"
        );
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(decode(&longer, 1), Err(Bad::Field("length")));
    let mut future = whole.clone();
    future[3] = 2;
    assert_eq!(decode(&future, 1), Err(Bad::Version(2)));
    assert_eq!(decode(b"{\"json\":1}", 1), Err(Bad::Foreign));
    assert!(matches!(
        Bad::Foreign.of(&key),
        StoreError::Garbled { key_prefix, .. } if key_prefix == "abababab"
    ));
}

/// A small generator of our own (SplitMix64): the same bytes in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        match self.below(4) {
            0 => 0,
            1 => 0xff,
            _ => self.roll() as u8,
        }
    }

    /// Turns, cuts, doubles, swells and overwrites.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 | 1 if !bytes.is_empty() => bytes[at] = self.byte(),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            3 => bytes.truncate(at),
            4 => {
                let byte = self.byte();
                bytes.insert(at, byte);
            }
            _ => {
                let until = (at + 8).min(bytes.len());
                for byte in &mut bytes[at..until] {
                    *byte = self.byte();
                }
            }
        }
    }
}

/// Whatever is read must be safe to judge, to show, and to write again.
fn use_it(bytes: &[u8], revision: i64) -> Result<(), Bad> {
    let record = decode(bytes, revision)?;
    let again = decode(&encode(&record, &[]), revision);
    assert_eq!(again.as_ref(), Ok(&record), "it is written as it was read");
    let (nonce, token) = (record.nonce, record.token);
    let seen = Seen {
        record: Some(Kept {
            record,
            revision,
            lease: 7,
        }),
        live: (token.get() % 2 == 0).then_some(9),
        ..Seen::default()
    };
    let key = Key::from_bytes([7; 32]);
    let owner = Owner { key, nonce, token };
    for now in [0, 1_700_000_000_000, 1 << 50] {
        let _ = seen.peek(key, now);
        let _ = seen.refusal(Nonce::from_bytes([8; 16]), None, now);
        let _ = seen.took_over(now);
        let _ = seen.watch(token, now);
        let _ = moves::renew(&seen, &Beat { owner, progress: 1 }, now);
        let _ = moves::break_claim(&seen, token, now);
    }
    Ok(())
}

#[test]
fn no_mutant_of_a_record_and_no_noise_makes_a_panic() {
    let mut dice = Dice(0x7477_6331);
    let mut whole = Vec::new();
    for (_, phase) in phases() {
        let mut record = sample(phase);
        whole.push(encode(&record, &[]));
        (record.fingerprint, record.by_revision) = (None, true);
        (record.marked, record.terms.on_lapse) = (false, LapsePolicy::TakeOver);
        whole.push(encode(&record, &[]));
    }
    let (mut read, mut refused) = (0, 0);
    for nth in 0..250_000 {
        let mut mutant = whole[nth % whole.len()].clone();
        for _ in 0..=dice.below(3) {
            dice.spoil(&mut mutant);
        }
        let revision = dice.roll() as i64;
        match use_it(&mutant, revision) {
            Ok(()) => read += 1,
            Err(_) => refused += 1,
        }
    }
    // Both happen, else it is no test: most of a record is numbers, and lengths are checked.
    assert!(
        read > 20_000 && refused > 20_000,
        "{read} read, {refused} refused"
    );
    for _ in 0..50_000 {
        let mut noise = b"twc\x01".to_vec();
        noise.truncate(dice.below(6));
        noise.resize_with(dice.below(400).max(noise.len()), || dice.byte());
        let _ = use_it(&noise, dice.roll() as i64);
    }
}

#[test]
fn every_other_version_is_refused_by_its_number() {
    let mut bytes = encode(&sample(Phase::Held), &[]);
    for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
        bytes[3] = version;
        assert_eq!(decode(&bytes, 1), Err(Bad::Version(version)));
        bytes.truncate(20);
        assert_eq!(decode(&bytes, 1), Err(Bad::Version(version)), "cut off");
    }
}
