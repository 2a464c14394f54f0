//! What is written is read as the same record, and nothing else is read as one.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{CHECKSUM, UnreadableRecord, checksum};
use crate::record::{At, Record, Spent};
use crate::store::*;
use crate::{Fingerprint, Key, LapsePolicy, Nonce, Settings, Token};

const KEY: Key = Key::from_bytes([7; 32]);

fn at(second: u64) -> At {
    At {
        now: StoreTime::from_micros(second * 1_000_000 + 7),
        unix_ms: 1_700_000_000_000 + second * 1000,
    }
}

fn nonce(n: u8) -> Nonce {
    Nonce::from_bytes([n; 16])
}

fn settings(hold: bool) -> Settings {
    let mut settings = Settings::new(Duration::from_secs(10));
    settings.cooling = Duration::from_millis(1500);
    settings.min_hold = Duration::from_secs(1);
    settings.unfinished_keep = Duration::from_secs(60);
    settings.label = Arc::from("idem prüf…");
    if hold {
        settings.on_lapse = LapsePolicy::Hold;
    }
    settings
}

fn claim(record: &mut Record, n: u8, settings: &Settings, second: u64) -> Claimed {
    let request = ClaimRequest {
        key: KEY,
        nonce: nonce(n),
        fingerprint: (!n.is_multiple_of(3)).then(|| Fingerprint::from_bytes([n % 3; 32])),
        settings,
        floor: Token::ZERO,
        not_after: match n % 5 {
            0 => StoreTime::NEVER,
            _ => at(second + u64::from(n % 5)).now,
        },
    };
    let terms = |settings: &Settings| Arc::new(settings.clone());
    record.claim(&request, at(second), terms).unwrap()
}

fn owner(record: &Record, n: u8) -> Owner {
    Owner {
        key: KEY,
        nonce: nonce(n),
        token: record.token,
    }
}

/// A move on a record at a second. Its answer, as text, so that two records can be compared by it.
fn moved(record: &mut Record, (which, n, second): (u8, u8, u64)) -> String {
    let now = at(second);
    let owner = owner(record, n);
    match which {
        0..=2 => format!("{:?}", claim(record, n, &settings(which == 2), second)),
        3 => {
            let beat = Beat {
                owner,
                progress: second,
            };
            format!("{:?}", record.renew(&beat, now))
        }
        4 => format!("{:?}", record.mark(owner, now)),
        5 => {
            let value = match n % 2 {
                0 => Value::Kept(Bytes::from(vec![n; usize::from(n) * 3])),
                _ => Value::Tombstone,
            };
            let keep = Duration::from_secs(20);
            let mut request = FinishRequest { owner, value, keep };
            format!("{:?}", record.finish(&mut request, now))
        }
        6 => {
            let request = ReleaseRequest {
                key: KEY,
                nonce: owner.nonce,
                token: None,
                not_after: at(second + u64::from(n)).now,
            };
            format!("{:?}", record.release(&request, now))
        }
        7 => format!("{:?}", record.break_claim(record.token, now)),
        8 => {
            let resolution = match n % 2 {
                0 => Resolution::Absent,
                _ => Resolution::Done(Value::Tombstone, Duration::from_secs(9)),
            };
            format!("{:?}", record.resolve(record.token, resolution, now))
        }
        9 => format!("{:?}", record.ask_revoke(record.token, now)),
        11 => format!("{:?}", record.purge(record.token, now)),
        _ => {
            record.settle(now.now);
            format!("{} {:?}", record.is_forgettable(now), record.due_at())
        }
    }
}

fn moves() -> impl Strategy<Value = Vec<(u8, u8, u64)>> {
    let step = (0..=11_u8, 0..12_u8, 0..8_u64);
    vec(step, 0..60).prop_map(|steps| {
        let mut second = 0;
        let add = |(which, n, after)| {
            second += after;
            (which, n, second)
        };
        steps.into_iter().map(add).collect()
    })
}

fn any_record() -> impl Strategy<Value = Record> {
    moves().prop_map(|moves| {
        let mut record = Record::vacant();
        for one in moves {
            moved(&mut record, one);
        }
        record
    })
}

/// Bytes under a right checksum: so that a change reaches what lies behind it.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let content = bytes.len().saturating_sub(CHECKSUM);
    bytes.truncate(content);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Bytes that are read must be a record that is written as just these bytes, and can be moved.
fn read_or_refused(bytes: &[u8]) {
    if let Ok(mut record) = Record::from_bytes(bytes) {
        assert_eq!(record.to_bytes(), bytes, "one record, two forms");
        moved(&mut record, (0, 3, 30));
        moved(&mut record, (10, 0, 1 << 30));
    }
}

proptest! {
    #[test]
    fn a_record_that_is_kept_as_bytes_answers_as_one_that_is_not(moves in moves()) {
        let (mut kept, mut live) = (Record::vacant(), Record::vacant());
        for one in moves {
            kept = Record::from_bytes(&kept.to_bytes()).unwrap();
            prop_assert_eq!(moved(&mut kept, one), moved(&mut live, one));
            prop_assert_eq!(kept.to_bytes(), live.to_bytes());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), version in any::<bool>()) {
        let mut bytes = sealed(bytes);
        if let (Some(first), true) = (bytes.first_mut(), version) {
            *first = 1;
        }
        read_or_refused(&bytes);
        read_or_refused(&sealed(bytes));
    }

    #[test]
    fn a_changed_byte_is_noticed(record in any_record(), place in any::<prop::sample::Index>(), by in 1..=255_u8) {
        let mut bytes = record.to_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= by;
        prop_assert!(Record::from_bytes(&bytes).is_err());
    }

    #[test]
    fn a_record_cut_short_is_refused(record in any_record()) {
        let bytes = record.to_bytes();
        for len in 0..bytes.len() {
            prop_assert!(Record::from_bytes(&bytes[..len]).is_err());
            // The end that is missing is noticed without the checksum too.
            let cut = sealed(bytes[..len].to_vec());
            prop_assert!(Record::from_bytes(&cut).is_err(), "cut to {}", len);
        }
    }
}

/// Changes, cuts and insertions at random places of real records.
#[test]
fn half_a_million_mutants_are_read_or_refused() {
    let seeds: Vec<Vec<u8>> = golden().map(|(_, record)| record.to_bytes()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut read = 0;
    for _ in 0..500_000 {
        let mut bytes = seeds[draw(seeds.len())].clone();
        for _ in 0..=draw(3) {
            let place = draw(bytes.len());
            match draw(4) {
                0 => bytes[place] = draw(256) as u8,
                1 => bytes[place] ^= 1 << draw(8),
                2 => bytes.insert(place, draw(256) as u8),
                _ => drop(bytes.remove(place)),
            }
        }
        let bytes = sealed(bytes);
        read += usize::from(Record::from_bytes(&bytes).is_ok());
        read_or_refused(&bytes);
    }
    assert!(read > 50_000, "only {read} reached past the first checks");
}

#[test]
fn a_future_version_is_named() {
    let mut bytes = Record::vacant().to_bytes();
    bytes[0] = 9;
    let error = Record::from_bytes(&bytes).unwrap_err();
    assert_eq!(error, UnreadableRecord::FutureVersion(9));
    let told = error.of_key(&KEY);
    assert_eq!(told.to_string(), "the record 07070707… cannot be read");
    let source = std::error::Error::source(&told).unwrap().to_string();
    assert!(source.contains("version 9"), "{source}");
}

#[test]
fn a_count_that_the_bytes_do_not_hold_allocates_nothing() {
    let mut record = Record::vacant();
    claim(&mut record, 1, &settings(false), 1);
    moved(&mut record, (6, 2, 1));
    let bytes = record.to_bytes();
    // The one spent nonce: its count stands before 16 bytes of nonce and the time.
    let count = bytes
        .windows(17)
        .position(|w| w[0] == 1 && w[1..] == [2; 16]);
    let count = count.unwrap();
    let mut huge = bytes[..count].to_vec();
    huge.extend([0xff; 9]);
    huge.push(1);
    huge.extend_from_slice(&bytes[count + 1..]);
    let error = Record::from_bytes(&sealed(huge)).unwrap_err();
    assert_eq!(error, UnreadableRecord::Truncated);
}

/// One record for each state, by the name of its file.
fn golden() -> impl Iterator<Item = (&'static str, Record)> {
    let made = |moves: &[(u8, u8, u64)]| {
        let mut record = Record::vacant();
        for one in moves {
            moved(&mut record, *one);
        }
        record
    };
    let mut crowded = made(&[(0, 1, 1)]);
    let spent = (0..20).map(|n| (at(9 + n / 7).now, nonce(40 + n as u8)));
    crowded.spent = Spent::from_parts((at(8).now, at(12).now, spent.collect())).unwrap();
    [
        ("vacant", Record::vacant()),
        ("free", made(&[(0, 1, 1), (6, 1, 4)])),
        ("refused", made(&[(6, 4, 4)])),
        ("held", made(&[(0, 1, 1), (3, 1, 5), (9, 1, 5)])),
        ("held-marked", made(&[(2, 2, 1), (4, 2, 2)])),
        (
            "taken-over",
            made(&[(0, 1, 1), (3, 1, 3), (6, 9, 3), (0, 4, 30)]),
        ),
        ("done", made(&[(0, 4, 1), (5, 4, 2)])),
        ("done-tombstone", made(&[(0, 1, 1), (5, 1, 2)])),
        ("resolved", made(&[(2, 2, 1), (7, 2, 2), (8, 1, 3)])),
        ("unknown", made(&[(0, 2, 1), (4, 2, 2), (6, 2, 3)])),
        ("broken", made(&[(0, 5, 1), (7, 5, 2)])),
        ("crowded", crowded),
    ]
    .into_iter()
}

/// The files say how version 1 is written, for ever. A version 2 keeps reading them.
#[test]
fn records_of_version_1_are_read_and_written_as_they_were() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/record-v1");
    for (name, record) in golden() {
        let file = folder.join(name);
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, record.to_bytes()).unwrap();
        }
        let kept = fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            record.to_bytes() == kept,
            "{name} is written in another form"
        );
        let read = Record::from_bytes(&kept).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(read.to_bytes() == kept, "{name} is read as another record");
        let shown = |record: &Record| format!("{:?}", record.peek(KEY, at(5)));
        assert_eq!(shown(&read), shown(&record), "{name}");
    }
}
