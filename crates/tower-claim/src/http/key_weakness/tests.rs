//! The rule, and how often it is wrong.

use std::time::Duration;

use super::time::days_since_1970;
use super::*;
use crate::testing::ManualClock;

/// 2026-11-29T20:21:11Z.
const NOW: u64 = 1_795_983_671;

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.jump_unix_ahead(Duration::from_secs(NOW) - clock.unix_time());
    clock
}

#[track_caller]
fn assert_all(weakness: Option<KeyWeakness>, keys: &[&str]) {
    let clock = clock();
    for key in keys {
        assert_eq!(KeyWeakness::of(key, &clock), weakness, "{key}");
    }
}

#[test]
fn the_time_of_the_attempt_is_no_intent() {
    assert_all(
        Some(KeyWeakness::Timestamp),
        &[
            "1795983671",
            "1795983671123",
            "1795983671123456",
            "1795983671123456789",
            "1795983671.123",
            "1795900000",
            "2026-11-29T20:21:11Z",
            "2026-11-29T20:21:11.123456+01:00",
            "2026-11-29T21:21",
            "2026-11-29 20:21:11",
            "20261129T202111Z",
            "20261129202111",
            "20261129202111123",
            "2026-11-29_20-21-11",
            "order-1795983671123",
            "create-payment-intent-1795983671123",
            "user-8812-1795983671123",
            "user8812@2026-11-29T20:21:11Z",
        ],
    );
}

#[test]
fn another_time_than_now_may_be_the_intent() {
    assert_all(
        None,
        &[
            "1495983671",
            "2027-03-01T10:00:00Z",
            "slot-2027-03-01T10:00",
            "invoice-2026-11-29",
            "20261129-000123",
            "ORD-20261129-0001",
        ],
    );
}

#[test]
fn a_time_with_enough_beside_it_is_a_key() {
    assert_all(
        None,
        &[
            "1795983671123-8f3a9c2e5b7d",
            "req_1795983671_k3v9x2m8q1zt",
            "8e03978e-40d5-43dd-bc93-179598367112",
        ],
    );
}

#[test]
fn small_numbers_are_counters() {
    assert_all(
        Some(KeyWeakness::Counter),
        &["0", "1", "42", "007", "100000001", "795983671"],
    );
}

#[test]
fn plain_keys_are_anybodys() {
    assert_all(
        Some(KeyWeakness::LowEntropy),
        &[
            "k",
            "key",
            "test",
            "null",
            "undefined",
            "[object Object]",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "abcdefghijklmnop",
            "0000000000000",
            "12345678901234567890",
            "00000000-0000-0000-0000-000000000000",
            "00000000-0000-0000-0000-000000000042",
            "A-17",
        ],
    );
    assert_all(
        None,
        &[
            "ORD-2025-000000",
            "order-17-of-ada",
            "8e03978e",
            "inv/7/2025",
        ],
    );
}

#[test]
fn days_are_counted_right() {
    for (date, days) in [
        ((1970, 1, 1), 0),
        ((1972, 2, 29), 789),
        ((2000, 3, 1), 11_017),
        ((2026, 11, 29), NOW / 86_400),
        ((2100, 3, 1), 47_541),
    ] {
        assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
    }
}

/// SplitMix64: the same keys in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        let one = |_| {
            let n = self.next() % alphabet.len() as u64;
            char::from(alphabet[usize::try_from(n).unwrap()])
        };
        (0..length).map(one).collect()
    }
}

fn uuid(bits: u128, version: u128) -> String {
    let bits = bits & !(0xF << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn ulid(bits: u128) -> String {
    let alphabet = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let one = |i: u32| {
        let index = usize::try_from((bits >> (125 - 5 * i)) & 31).unwrap();
        char::from(alphabet[index])
    };
    (0..26).map(one).collect()
}

#[test]
fn the_documented_rates_are_the_measured_ones() {
    const N: usize = 100_000;
    const MS: u128 = NOW as u128 * 1_000;
    let nanoid = b"useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";
    type Kind<'a> = (&'a str, usize, Box<dyn Fn(&mut Random) -> String + 'a>);
    let kinds: [Kind<'_>; 8] = [
        ("UUIDv4", 0, Box::new(|r| uuid(r.wide(), 4))),
        (
            "UUIDv7",
            0,
            Box::new(|r| {
                uuid(
                    (MS + u128::from(r.next() % 1_000)) << 80 | r.wide() >> 48,
                    7,
                )
            }),
        ),
        ("ULID", 0, Box::new(|r| ulid(MS << 80 | r.wide() >> 48))),
        ("nanoid", 0, Box::new(|r| r.text(nanoid, 21))),
        (
            "ORD-2025-000123",
            0,
            Box::new(|r| format!("ORD-2025-{:06}", r.next() % 1_000_000)),
        ),
        (
            "ORD-20261129-0001",
            0,
            Box::new(|r| format!("ORD-20261129-{:04}", r.next() % 10_000)),
        ),
        (
            "ten digits",
            50,
            Box::new(|r| format!("{}{}", 1 + r.next() % 9, r.text(b"0123456789", 9))),
        ),
        ("nine digits", N, Box::new(|r| r.text(b"0123456789", 9))),
    ];
    let clock = clock();
    let mut random = Random(1);
    for (kind, documented, make) in kinds {
        let weak = (0..N)
            .filter(|_| KeyWeakness::of(&make(&mut random), &clock).is_some())
            .count();
        if documented == 0 || documented == N {
            assert_eq!(weak, documented, "{kind}");
        } else {
            assert!(weak < documented, "{kind}: {weak}");
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~]{0,60}", digits in "[0-9 T:.-]{0,60}") {
        let clock = clock();
        let _ = KeyWeakness::of(&text, &clock);
        let _ = KeyWeakness::of(&digits, &clock);
    }
}
