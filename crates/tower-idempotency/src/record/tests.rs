//! What the bytes of a record are, and that foreign ones do no harm.

use proptest::prelude::*;

use super::*;

fn encode(
    status: StatusCode,
    headers: &HeaderMap,
    rules: &HeaderRules,
    body: &[Bytes],
    trailers: Option<&HeaderMap>,
) -> Bytes {
    Head::new(status, headers, rules).with_body(body.iter(), trailers)
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

/// The bytes of version 1, for ever: records of one release are read by the next.
#[test]
fn version_1_looks_like_this() {
    let (headers, trailers) = example();
    let body = [Bytes::from_static(b"he"), Bytes::from_static(b"llo")];
    let bytes = encode(
        StatusCode::CREATED,
        &headers,
        &HeaderRules::default(),
        &body,
        Some(&trailers),
    );
    let golden: &[u8] = b"\x01\x00\xC9\
        \x00\x00\x00\x04\
        \x00\x08location\x00\x00\x00\x09/orders/1\
        \x00\x04link\x00\x00\x00\x03<a>\
        \x00\x04link\x00\x00\x00\x03<b>\
        \x00\x06x-name\x00\x00\x00\x04caf\xE9\
        \x00\x00\x00\x02\
        \x00\x0Bgrpc-status\x00\x00\x00\x010\
        \x00\x00\x00\x00\x00\x00\x00\x05hello";
    assert_eq!(bytes, golden);
    assert_eq!(
        decode(&Bytes::from_static(golden)),
        Ok(KeptResponse {
            status: StatusCode::CREATED,
            headers,
            body: Bytes::from_static(b"hello"),
            trailers: Some(trailers),
        })
    );
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
    future[0] = 2;
    assert_eq!(decode(&future.into()), Err(Unreadable::Version(2)));
    let mut no_status = whole.to_vec();
    no_status[1..3].copy_from_slice(&[0, 7]);
    assert_eq!(decode(&no_status.into()), Err(Unreadable::NoResponse));
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
    fn a_flipped_byte_never_panics(at in 0usize..90, to in any::<u8>()) {
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
