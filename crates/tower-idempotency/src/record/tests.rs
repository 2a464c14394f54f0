//! What the bytes of a record are, and that foreign ones do no harm.

use proptest::prelude::*;
use tower_claim::store::Value;

use super::*;

/// 2025-11-29T12:00:00Z.
const FIRST_SEEN: Duration = Duration::from_secs(1_764_417_600);

fn encode(
    status: StatusCode,
    headers: &HeaderMap,
    rules: &HeaderRules,
    body: &[Bytes],
    trailers: Option<&HeaderMap>,
) -> Bytes {
    let head = Head::new(status, headers, rules, FIRST_SEEN);
    head.with_body(body.iter(), trailers, rules).bytes
}

fn example() -> (HeaderMap, HeaderMap) {
    let mut headers = HeaderMap::new();
    headers.insert("location", HeaderValue::from_static("/orders/1"));
    headers.append("link", HeaderValue::from_static("<a>"));
    headers.append("link", HeaderValue::from_static("<b>"));
    headers.insert("x-name", HeaderValue::from_bytes(b"caf\xE9").unwrap());
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    (headers, trailers)
}

/// What follows the first fields, in either version.
const RESPONSE: &[u8] = b"\x00\xC9\
    \x00\x00\x00\x04\
    \x00\x08location\x00\x00\x00\x09/orders/1\
    \x00\x04link\x00\x00\x00\x03<a>\
    \x00\x04link\x00\x00\x00\x03<b>\
    \x00\x06x-name\x00\x00\x00\x04caf\xE9\
    \x00\x00\x00\x02\
    \x00\x0Bgrpc-status\x00\x00\x00\x010\
    \x00\x00\x00\x00\x00\x00\x00\x05hello";

fn response(first_seen: Option<Duration>) -> KeptResponse {
    let (headers, trailers) = example();
    KeptResponse {
        status: StatusCode::CREATED,
        headers,
        body: Bytes::from_static(b"hello"),
        trailers: Some(trailers),
        first_seen,
        is_whole: true,
        upload: None,
    }
}

/// The bytes of each version, for ever: records of one release are read by the next.
#[test]
fn version_2_looks_like_this() {
    let (headers, trailers) = example();
    let body = [Bytes::from_static(b"he"), Bytes::from_static(b"llo")];
    let rules = HeaderRules::default();
    let bytes = encode(
        StatusCode::CREATED,
        &headers,
        &rules,
        &body,
        Some(&trailers),
    );
    let golden = [b"\x02\x00\x00\x01\x9A\xCF\x7B\xFA\x00\x01", RESPONSE].concat();
    assert_eq!(bytes, golden);
    assert_eq!(decode(&golden.into()), Ok(response(Some(FIRST_SEEN))));
}

#[test]
fn version_3_has_the_digest_of_its_upload_before_the_body() {
    let (headers, trailers) = example();
    let rules = HeaderRules::default();
    let head = || {
        let head = Head::new(StatusCode::CREATED, &headers, &rules, FIRST_SEEN);
        head.of_upload(&UploadFate::known([0xD1; 32]))
    };
    let body = [Bytes::from_static(b"hello")];
    let bytes = head().with_body(body.iter(), Some(&trailers), &rules).bytes;
    let (before, behind) = RESPONSE.split_at(RESPONSE.len() - 13);
    let first = b"\x03\x00\x00\x01\x9A\xCF\x7B\xFA\x00\x01";
    let golden = [first, before, &[0xD1; 32], behind].concat();
    assert_eq!(bytes, golden);
    let with_upload = KeptResponse {
        upload: Some([0xD1; 32]),
        ..response(Some(FIRST_SEEN))
    };
    assert_eq!(decode(&golden.into()), Ok(with_upload));
    for end in 0..bytes.len() {
        assert_eq!(decode(&bytes.slice(..end)), Err(Unreadable::Cut), "{end}");
    }
    let alone = decode(&head().alone().bytes).unwrap();
    assert_eq!((alone.is_whole, alone.upload), (false, Some([0xD1; 32])));
}

#[test]
fn version_1_is_read_still() {
    let golden = [b"\x01", RESPONSE].concat();
    assert_eq!(decode(&golden.into()), Ok(response(None)));
}

#[test]
fn a_tombstone_keeps_the_head_alone() {
    let (headers, _) = example();
    let rules = HeaderRules::default();
    let head = Head::new(StatusCode::CREATED, &headers, &rules, FIRST_SEEN);
    let record = head.alone();
    assert!(!record.is_whole);
    let golden = [
        b"\x02\x00\x00\x01\x9A\xCF\x7B\xFA\x00\x00",
        &RESPONSE[..RESPONSE.len() - 35],
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    assert_eq!(record.bytes, golden.concat());
    let read = decode(&record.bytes).unwrap();
    assert!(!read.is_whole && read.body.is_empty() && read.trailers.is_none());
    assert_eq!((read.headers, read.first_seen), (headers, Some(FIRST_SEEN)));
}

#[test]
fn a_marker_is_no_response() {
    let before = Before {
        was_marked: true,
        progress: 258,
        first_seen: Some(FIRST_SEEN),
    };
    for (marker, golden) in [
        (
            Marker::Ask(before),
            b"\xC1\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x01\x9A\xCF\x7B\xFA\x00",
        ),
        (
            Marker::Run,
            b"\xC1\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ),
    ] {
        let bytes = marker.to_bytes();
        assert_eq!(bytes, golden.as_slice());
        assert_eq!(Marker::read(&bytes), Some(marker));
        assert_eq!(decode(&bytes), Err(Unreadable::Moved));
    }
    for other in [[0xC1, 2, 0], [0xC1, 0, 2], [0xC2, 0, 0]] {
        let bytes = [other.as_slice(), &[0; 8]].concat();
        assert_eq!(Marker::read(&bytes), None, "{other:?}");
    }
    for cut in [0, 7, 9, 15, 17] {
        let bytes = [[0xC1, 0, 0].as_slice(), &vec![0; cut]].concat();
        assert_eq!(Marker::read(&bytes), None, "{cut}");
    }
}

#[test]
fn a_marker_that_does_not_say_when_it_began_is_read_still() {
    let golden = b"\xC1\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02";
    let before = Before {
        was_marked: true,
        progress: 258,
        first_seen: None,
    };
    assert_eq!(Marker::read(golden), Some(Marker::Ask(before)));
    let run = b"\xC1\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    assert_eq!(Marker::read(run), Some(Marker::Run));
}

#[test]
fn the_word_that_a_run_was_withdrawn_is_no_response() {
    let Value::Kept(bytes) = withdrawn() else {
        panic!("it says something");
    };
    assert_eq!(bytes, b"\xC2".as_slice());
    assert_eq!(Marker::read(&bytes), None);
    assert_eq!(decode(&bytes), Err(Unreadable::Version(0xC2)));
}

#[test]
fn a_record_that_is_cut_or_foreign_is_told_apart_from_a_response() {
    let (headers, trailers) = example();
    let whole = encode(
        StatusCode::OK,
        &headers,
        &HeaderRules::default(),
        &[Bytes::from_static(b"hello")],
        Some(&trailers),
    );
    for end in 0..whole.len() {
        assert_eq!(
            decode(&whole.slice(..end)),
            Err(Unreadable::Cut),
            "at {end}"
        );
    }
    let mut long = whole.to_vec();
    long.push(0);
    assert_eq!(decode(&long.into()), Err(Unreadable::Cut));
    let mut future = whole.to_vec();
    future[0] = 4;
    assert_eq!(decode(&future.into()), Err(Unreadable::Version(4)));
    let mut no_status = whole.to_vec();
    no_status[10..12].copy_from_slice(&[0, 7]);
    assert_eq!(decode(&no_status.into()), Err(Unreadable::NoResponse));
    let mut half_whole = whole.to_vec();
    half_whole[9] = 2;
    assert_eq!(decode(&half_whole.into()), Err(Unreadable::NoResponse));
    let mut sealed = whole.to_vec();
    sealed[0] = SEALED;
    let no_keys = Unreadable::Sealed(SealError::NoKeys);
    assert_eq!(decode(&sealed.into()), Err(no_keys));
}

fn header_map() -> impl Strategy<Value = HeaderMap> {
    let value = prop::collection::vec(prop_oneof![0x20u8..0x7F, 0x80u8..=0xFF], 0..20);
    prop::collection::vec(("[a-c]{1,2}", value), 0..8).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(format!("z-{name}").as_bytes()).unwrap(),
                HeaderValue::from_bytes(&value).unwrap(),
            );
        }
        headers
    })
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..200),
        version in prop_oneof![Just(VERSION), any::<u8>()],
    ) {
        let mut bytes = vec![version];
        bytes.extend(body);
        let _ = decode(&bytes.into());
    }

    #[test]
    fn a_flipped_byte_never_panics(at in 0usize..99, to in any::<u8>()) {
        let (headers, trailers) = example();
        let rules = HeaderRules::default();
        let body = [Bytes::from_static(b"hello")];
        let mut bytes = encode(StatusCode::OK, &headers, &rules, &body, Some(&trailers)).to_vec();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = decode(&bytes.into());
    }

    #[test]
    fn what_is_kept_is_replayed(
        status in 100u16..1000,
        headers in header_map(),
        body in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4),
        trailers in prop::option::of(header_map()),
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let chunks: Vec<Bytes> = body.iter().cloned().map(Bytes::from).collect();
        let bytes = encode(status, &headers, &HeaderRules::default(), &chunks, trailers.as_ref());
        let kept = decode(&bytes).unwrap();
        prop_assert_eq!(kept.status, status);
        // As lists: equality of maps does not look at the order.
        prop_assert_eq!(
            kept.headers.iter().collect::<Vec<_>>(),
            headers.iter().collect::<Vec<_>>()
        );
        prop_assert_eq!(kept.trailers, trailers);
        prop_assert_eq!(kept.body, body.concat());
    }
}
