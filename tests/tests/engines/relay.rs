//! The relay itself, before a server that answers each byte with the same byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use system_tests::relay::{Relay, Way};

/// An echo, and how many bytes it has served.
fn echo() -> (Relay, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let relay = Relay::to(listener.local_addr().expect("bound").to_string());
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut socket = socket;
                let mut byte = [0];
                while socket.read_exact(&mut byte).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                    if socket.write_all(&byte).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (relay, served)
}

fn client(relay: &Relay) -> TcpStream {
    let client = TcpStream::connect(relay.address()).expect("the relay listens");
    client
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket has a timeout");
    client
}

/// The echo of a byte; `None` when the connection was closed.
fn ask(client: &mut TcpStream, byte: u8) -> Option<u8> {
    client.write_all(&[byte]).ok()?;
    let mut answer = [0];
    match client.read_exact(&mut answer) {
        Ok(()) => Some(answer[0]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer and no end"),
        Err(_) => None,
    }
}

/// Whether nothing comes for a moment.
fn is_silent(client: &mut TcpStream) -> bool {
    let patience = client.read_timeout().expect("a socket has a timeout");
    let brief = Some(Duration::from_millis(50));
    client.set_read_timeout(brief).expect("it may be set");
    let silent = client
        .read(&mut [0])
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    client.set_read_timeout(patience).expect("it may be set");
    silent
}

fn wait_until(ready: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !ready() {
        assert!(Instant::now() < until, "it did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn bytes_pass_and_are_delayed_on_command() {
    let (relay, _) = echo();
    let mut client = client(&relay);
    assert_eq!(ask(&mut client, 1), Some(1));
    let (requests, replies) = (Duration::from_millis(30), Duration::from_millis(50));
    relay.set(Way::Delay { requests, replies });
    let sent = Instant::now();
    assert_eq!(ask(&mut client, 2), Some(2));
    assert!(sent.elapsed() >= requests + replies);
}

#[test]
fn a_swallowed_reply_was_served_and_no_later_one_takes_its_place() {
    let (relay, served) = echo();
    let mut first = client(&relay);
    relay.set(Way::SwallowReplies);
    first.write_all(&[1]).expect("it is sent");
    wait_until(|| served.load(Ordering::Relaxed) == 1);
    assert!(is_silent(&mut first));
    relay.set(Way::Pass);
    assert_eq!(ask(&mut first, 2), None, "closed");
    assert_eq!(ask(&mut client(&relay), 3), Some(3));
}

#[test]
fn what_was_frozen_arrives_late_even_from_a_client_that_left() {
    let (relay, served) = echo();
    let (mut first, mut second) = (client(&relay), client(&relay));
    assert_eq!(ask(&mut first, 1), Some(1));
    relay.set(Way::Freeze);
    first.write_all(&[2]).expect("it is sent");
    second.write_all(&[3]).expect("it is sent");
    assert!(is_silent(&mut first));
    assert_eq!(served.load(Ordering::Relaxed), 1);
    drop(second);
    relay.set(Way::Pass);
    wait_until(|| served.load(Ordering::Relaxed) == 3);
    let mut answer = [0];
    first.read_exact(&mut answer).expect("the late answer");
    assert_eq!(answer, [2]);
}

#[test]
fn a_cut_closes_and_a_refusing_relay_takes_nobody_new() {
    let (relay, _) = echo();
    let mut first = client(&relay);
    assert_eq!(ask(&mut first, 1), Some(1));
    relay.cut();
    assert_eq!(ask(&mut first, 2), None);
    let mut second = client(&relay);
    assert_eq!(ask(&mut second, 3), Some(3));
    relay.set(Way::Refuse);
    assert_eq!(ask(&mut second, 4), Some(4));
    assert_eq!(ask(&mut client(&relay), 5), None);
}

#[test]
fn a_request_cut_before_its_reply_was_served() {
    let (relay, served) = echo();
    let mut client = client(&relay);
    relay.cut_after(1);
    assert_eq!(ask(&mut client, 1), Some(1));
    assert_eq!(ask(&mut client, 2), None);
    wait_until(|| served.load(Ordering::Relaxed) == 2);
    assert!(!relay.call_off(), "it happened");
    assert_eq!(relay.requests(), 2);
}
