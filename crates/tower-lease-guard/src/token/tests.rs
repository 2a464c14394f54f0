use proptest::prelude::*;

use super::*;

const NONCE: &str = "000102030405060708090a0b0c0d0e0f";

fn token(resource: &str, token: u64, nonce: [u8; 16]) -> FencingToken {
    FencingToken::new(
        resource,
        Token::new(token).unwrap(),
        Nonce::from_bytes(nonce),
    )
    .unwrap()
}

fn headers(lines: &[String]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        map.append(&FENCING_TOKEN, HeaderValue::from_str(line).unwrap());
    }
    map
}

#[test]
fn the_wire_form_is_this() {
    let t = token("7", 42, [0xab; 16]);
    let text = format!("7;t=42;o={}", "ab".repeat(16));
    assert_eq!(t.to_string(), text);
    assert_eq!(t.to_header_value(), text);
    assert_eq!(text.parse(), Ok(t));
    assert_eq!(
        token("a;b,c %é", 1, [0; 16]).to_string().split(';').next(),
        Some("a%3Bb%2Cc%20%25%C3%A9")
    );
}

#[test]
fn what_is_not_a_token_is_malformed() {
    let long = "x".repeat(256);
    for (resource, t, o) in [
        ("", "1", NONCE),
        (long.as_str(), "1", NONCE),
        ("a b", "1", NONCE),
        ("é", "1", NONCE),
        ("%zz", "1", NONCE),
        ("%4", "1", NONCE),
        ("%FF", "1", NONCE),
        ("a%00", "1", NONCE),
        ("a", "", NONCE),
        ("a", "+1", NONCE),
        ("a", "01", NONCE),
        ("a", "-1", NONCE),
        ("a", "1.0", NONCE),
        ("a", "9007199254740992", NONCE),
        ("a", "99999999999999999999999", NONCE),
        ("a", "1", ""),
        ("a", "1", &NONCE[1..]),
        ("a", "1", "zz0102030405060708090a0b0c0d0e0f"),
    ] {
        let text = format!("{resource};t={t};o={o}");
        assert_eq!(
            text.parse::<FencingToken>(),
            Err(InvalidFencingToken::Malformed),
            "{text}"
        );
    }
    for text in [
        "",
        ";",
        "a",
        "a;t=1",
        "a;o=1;t=1",
        &format!("a;t=1;o={NONCE};x=1"),
        &format!("a; t=1;o={NONCE}"),
    ] {
        assert_eq!(
            text.parse::<FencingToken>(),
            Err(InvalidFencingToken::Malformed),
            "{text}"
        );
    }
    assert!(
        format!("a;t=9007199254740991;o={NONCE}")
            .parse::<FencingToken>()
            .is_ok()
    );
}

#[test]
fn a_request_may_carry_tokens_of_several_resources() {
    let a = token("a", 1, [1; 16]);
    let b = token("b,1", 2, [2; 16]);
    for lines in [
        vec![a.to_string(), b.to_string()],
        vec![format!("{a}, {b}")],
        vec![format!("{b},\t{a}"), a.to_string()],
    ] {
        let map = headers(&lines);
        assert_eq!(FencingToken::find(&map, "a"), Ok(Some(a.clone())));
        assert_eq!(FencingToken::find(&map, "b,1"), Ok(Some(b.clone())));
        assert_eq!(
            FencingToken::find(&map, "c"),
            Err(InvalidFencingToken::OtherResource)
        );
    }
    assert_eq!(FencingToken::find(&HeaderMap::new(), "a"), Ok(None));
}

#[test]
fn two_tokens_for_one_resource_or_a_malformed_one_beside_a_good_one_are_refused() {
    let a = token("a", 1, [1; 16]);
    let later = token("a", 2, [1; 16]);
    let two = headers(&[a.to_string(), later.to_string()]);
    assert_eq!(
        FencingToken::find(&two, "a"),
        Err(InvalidFencingToken::Ambiguous)
    );
    for bad in ["nonsense", "", ","] {
        let map = headers(&[a.to_string(), bad.to_owned()]);
        assert_eq!(
            FencingToken::find(&map, "a"),
            Err(InvalidFencingToken::Malformed),
            "{bad:?}"
        );
    }
    let mut foreign = headers(&[a.to_string()]);
    foreign.append(&FENCING_TOKEN, HeaderValue::from_bytes(b"caf\xe9").unwrap());
    assert_eq!(
        FencingToken::find(&foreign, "a"),
        Err(InvalidFencingToken::Malformed)
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(resource in "[^\\p{Cc}]{1,60}", t in 0..1u64 << 53, nonce: [u8; 16]) {
        let t = token(&resource, t, nonce);
        prop_assert_eq!(t.to_string().parse(), Ok(t.clone()));
        prop_assert_eq!(FencingToken::find(&headers(&[t.to_string()]), &resource), Ok(Some(t)));
    }

    #[test]
    fn foreign_bytes_never_panic_and_what_is_read_is_written_the_same(text in "\\PC*|[a-z%;,=]{0,12}(;t=[0-9]{0,18})?(;o=[0-9a-f]{30,33})?") {
        if let Ok(token) = text.parse::<FencingToken>() {
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }
    }
}
