//! Bytes that are hardly HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use system_tests::client::{PATIENCE, get, post};
use system_tests::programs::Lab;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::all_effects;

/// What the client does behind its last byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Listens.
    Stays,
    /// Says that no more comes, and listens.
    Ends,
    /// Is gone.
    Leaves,
}

/// Sends these bytes; what came back until the server closed.
async fn raw(lab: &Lab, bytes: &[u8], then: Then) -> String {
    let talk = async {
        let mut socket = TcpStream::connect(lab.address()).await.expect("it listens");
        // The server may answer, and close, before it has read it all.
        let _ = socket.write_all(bytes).await;
        if then == Then::Leaves {
            return String::new();
        }
        if then == Then::Ends {
            let _ = socket.shutdown().await;
        }
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = socket.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = tokio::time::timeout(PATIENCE, talk).await;
    answer.expect("the server closes what it cannot read")
}

fn order(headers: &[u8], body: &[u8]) -> Vec<u8> {
    let head = b"POST /orders HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n";
    [&head[..], headers, b"\r\n\r\n", body].concat()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// Nothing is held under this key: it is free for whatever comes.
async fn assert_free(lab: &Lab, key: &str) {
    let claims = get(lab.address(), "/claims").send().await.json();
    let held = |claim: &serde_json::Value| claim["state"] != "free" && claim["state"] != "done";
    let claims = claims.as_array().expect("a list");
    assert!(!claims.iter().any(held), "{key}: {claims:?}");
    let whole = post(lab.address(), "/orders").key(key).body("whole");
    let whole = whole.send().await;
    let was = (whole.status.as_u16(), whole.replayed());
    assert_eq!(was, (201, false), "{key}: {whole:?}");
}

#[tokio::test]
async fn a_key_that_is_no_text_runs_nothing() {
    let lab = Lab::start(&[]);
    let long = vec![b'k'; 4096];
    for value in [
        &b"a\0b"[..],
        b"a\x7fb",
        b"a\tb",
        b"a\rb",
        b"a\x1bb",
        b"caf\xE9",
        b"\xff\xfe",
        b"a\r\n b",
        b"a, b",
        b"a\r\nidempotency-key: b",
        b"a\r\nidempotency-key: a",
        b"\"a",
        b"\"a\"; \"b\"",
        b"\"\xE2\x82\xAC\"",
        b"",
        &long,
    ] {
        let header = [b"idempotency-key: ", value, b"\r\ncontent-length: 0"].concat();
        let answer = raw(&lab, &order(&header, b""), Then::Stays).await;
        let shown = value.escape_ascii();
        assert_eq!(status(&answer), "400", "{shown}: {answer}");
        // What the server itself cannot read it refuses without our words.
        assert!(
            !answer.contains("problem+json") || answer.contains("\"key-invalid\""),
            "{shown}: {answer}"
        );
    }
    assert_eq!(all_effects(&lab).await, 0);
    assert_free(&lab, "a").await;
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing() {
    let lab = Lab::start(&[]);
    let chunked = "transfer-encoding: chunked";
    let mut left = 0;
    for (name, header, body) in [
        ("cut", "content-length: 100", &b"half of it"[..]),
        ("none", "content-length: 100", b""),
        ("chunk", chunked, b"a\r\nhalf"),
        ("last", chunked, b"4\r\nhalf\r\n"),
        ("size", chunked, b"zz\r\nhalf\r\n0\r\n\r\n"),
        ("huge", chunked, b"fffffffffffffffff\r\nhalf\r\n0\r\n\r\n"),
        ("line", chunked, b"4\r\nhalf!!0\r\n\r\n"),
    ] {
        for then in [Then::Ends, Then::Leaves] {
            let key = format!("{name}-{left}");
            let header = format!("idempotency-key: {key}\r\n{header}");
            let answer = raw(&lab, &order(header.as_bytes(), body), then).await;
            // Who says that no more comes may be taken for gone, and not be answered.
            if !answer.is_empty() {
                assert_eq!(status(&answer), "400", "{key}: {answer}");
            }
            assert_eq!(all_effects(&lab).await, left, "{key}");
            assert_free(&lab, &key).await;
            left += 1;
        }
    }
    // What was half there when its client left does not run later.
    assert_eq!(all_effects(&lab).await, left);
}

#[tokio::test]
async fn an_upload_that_is_reset_leaves_nothing() {
    let lab = Lab::start(&[]);
    let socket = TcpStream::connect(lab.address()).await.expect("it listens");
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .expect("it speaks HTTP/2");
    tokio::spawn(connection);
    // The first frame goes out, then the body fails: hyper resets the stream.
    let frames = futures_util::stream::unfold(0, async |n| match n {
        0 => Some((Ok(http_body::Frame::data(Bytes::from_static(b"half"))), 1)),
        _ => {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((Err(std::io::Error::other("it fails")), n + 1))
        }
    });
    let request = Request::post(format!("http://{}/orders", lab.address()))
        .version(Version::HTTP_2)
        .header("idempotency-key", "reset")
        .body(StreamBody::new(frames).boxed_unsync())
        .expect("a request");
    let answer = tokio::time::timeout(PATIENCE, send.send_request(request)).await;
    let answer = answer.expect("the stream ends");
    assert!(
        answer.as_ref().is_err() || answer.as_ref().is_ok_and(|answer| answer.status() == 400),
        "{answer:?}"
    );
    assert_eq!(all_effects(&lab).await, 0);
    assert_free(&lab, "reset").await;
}

#[tokio::test]
async fn a_length_that_lies_runs_nothing_more() {
    let lab = Lab::start(&[]);
    for length in [
        "-1",
        "+5",
        "1e3",
        "0x10",
        "five",
        "99999999999999999999999999",
        "5\r\ncontent-length: 6",
        "5, 6",
    ] {
        let header = format!("idempotency-key: odd\r\ncontent-length: {length}");
        let answer = raw(&lab, &order(header.as_bytes(), b"12345"), Then::Stays).await;
        assert_eq!(status(&answer), "400", "{length}: {answer}");
    }
    assert_eq!(all_effects(&lab).await, 0);
    assert_free(&lab, "odd").await;
    assert_eq!(all_effects(&lab).await, 1);

    // Too short: what is announced is the body, what follows is no request.
    let short = b"idempotency-key: short\r\ncontent-length: 5";
    for n in 0..2 {
        let answer = raw(&lab, &order(short, b"12345POST"), Then::Stays).await;
        assert_eq!(status(&answer), "201", "{answer}");
        assert_eq!(answer.contains("idempotent-replayed"), n == 1, "{answer}");
    }
    let longer = post(lab.address(), "/orders").key("short");
    let longer = longer.body("12345POST").send().await;
    assert_eq!(longer.code(), "key-reused");
    assert_eq!(all_effects(&lab).await, 2);

    // Too long: nothing is held while the rest is waited for, and nothing runs when it does not come.
    let mut waiting = TcpStream::connect(lab.address()).await.expect("it listens");
    let long = b"idempotency-key: long\r\ncontent-length: 500";
    let sent = waiting.write_all(&order(long, b"not so much")).await;
    sent.expect("it is sent");
    assert_free(&lab, "long").await;
    drop(waiting);
    assert_eq!(all_effects(&lab).await, 3);
}

#[tokio::test]
async fn headers_of_64_kib_are_431() {
    let lab = Lab::start(&[]);
    let large = "x".repeat(64 << 10);
    let many: String = (0..64)
        .map(|n| format!("x-{n}: {}\r\n", "x".repeat(1 << 10)))
        .collect();
    for headers in [
        format!("idempotency-key: k\r\nx-large: {large}\r\ncontent-length: 0"),
        format!("idempotency-key: {large}\r\ncontent-length: 0"),
        format!("{many}idempotency-key: k\r\ncontent-length: 0"),
    ] {
        let answer = raw(&lab, &order(headers.as_bytes(), b""), Then::Stays).await;
        assert_eq!(status(&answer), "431", "{answer}");
        let call = post(lab.address(), "/orders").key("k");
        let call = call.header("x-large", &large).http2();
        if let Ok(answer) = call.try_send().await {
            assert_eq!(answer.status, 431, "{answer:?}");
        }
    }
    assert_eq!(all_effects(&lab).await, 0);
    assert_free(&lab, "k").await;
    // Half as much passes, as ever.
    let modest = post(lab.address(), "/orders").key("modest");
    let modest = modest.header("x-modest", "x".repeat(8 << 10)).send().await;
    assert_eq!(modest.status, 201);
}
