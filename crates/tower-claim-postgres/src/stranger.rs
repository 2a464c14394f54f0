//! Who answers where PostgreSQL was expected. Asked only after a connection failed: the driver waits for a
//! word that a stranger never says, and could tell no more than that nothing came.

use std::error::Error as StdError;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_claim::StoreError;

use crate::ConnectError;

/// Which PostgreSQL (and a pooler before it) answers by one letter, whoever asks: "do you speak TLS?"
const ASKS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// For those that answer lines.
const A_LINE: &[u8] = b"\r\nPING\r\n\r\n";
/// For each of: a connection, the letter, the answer to a line.
const PATIENCE: Duration = Duration::from_millis(500);
/// Of what a stranger said.
const SHOWN: usize = 60;

/// Host and port.
pub(crate) type Address = (String, u16);

/// What came from an address.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Postgres,
    /// No connection, and why.
    Nobody(String),
    /// A connection, and no word.
    Silent,
    /// A connection that was closed without a word.
    Closed,
    /// Something else's words.
    Stranger(Vec<u8>),
}

/// The error of a first connection, in words that name what is there. Never sends a name or a password.
pub(crate) async fn tell(addresses: &[Address], error: StoreError) -> ConnectError {
    if spoke(&error) {
        return error.into();
    }
    let answers = join_all(addresses.iter().map(ask)).await;
    if answers.contains(&Answer::Postgres) {
        return error.into();
    }
    // Of several servers one that is there says more than one that is not.
    let mut all = addresses.iter().zip(&answers);
    let is_there = |(_, answer): &(_, &Answer)| !matches!(answer, Answer::Nobody(_));
    match all.clone().find(is_there).or_else(|| all.next()) {
        Some((address, answer)) => words(address, answer),
        None => error.into(),
    }
}

/// Whether it was PostgreSQL that refused.
fn spoke(error: &StoreError) -> bool {
    let mut part: Option<&dyn StdError> = error.source();
    while let Some(error) = part {
        let driver = error.downcast_ref::<tokio_postgres::Error>();
        if driver.is_some_and(|error| error.as_db_error().is_some()) {
            return true;
        }
        part = error.source();
    }
    false
}

async fn ask((host, port): &Address) -> Answer {
    let mut answer = Answer::Silent;
    // A line on a connection of its own: behind a zero, which the letter begins with, Redis sees no end of one.
    for words in [&ASKS, A_LINE] {
        let mut socket = match within(TcpStream::connect((&**host, *port))).await {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => return Answer::Nobody(error.to_string()),
            None => return Answer::Nobody(format!("none within {PATIENCE:?}")),
        };
        let mut said = Vec::with_capacity(1024);
        let heard = async {
            socket.write_all(words).await?;
            socket.read_buf(&mut said).await
        };
        match within(heard).await {
            Some(Ok(0) | Err(_)) => answer = Answer::Closed,
            Some(Ok(_)) => return known(said),
            None => {}
        }
    }
    answer
}

async fn within<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, work).await.ok()
}

fn known(said: Vec<u8>) -> Answer {
    match said[..] {
        // The last is an error, as PostgreSQL frames it.
        [b'S' | b'N'] | [b'E', 0, ..] => Answer::Postgres,
        _ => Answer::Stranger(said),
    }
}

fn words((host, port): &Address, answer: &Answer) -> ConnectError {
    let at = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let mend = "give host and port of a PostgreSQL (its usual port is 5432)";
    let is_not_there = |what: String| ConnectError::Store(StoreError::unavailable(what));
    match answer {
        Answer::Stranger(said) => ConnectError::Server(format!(
            "what answers at {at} is {}, not PostgreSQL: {mend}",
            kind(said)
        )),
        Answer::Silent => is_not_there(format!(
            "{at} takes connections and says nothing: {mend}, or look whether that one hangs"
        )),
        Answer::Closed => is_not_there(format!(
            "{at} closes the connection without a word: {mend}, or look whether that one starts or stops"
        )),
        Answer::Nobody(why) => is_not_there(format!(
            "no connection to {at} ({why}): {mend}, or start that one"
        )),
        Answer::Postgres => is_not_there(format!("PostgreSQL at {at} refuses")),
    }
}

/// What kind of server says so, and its words, printable and on one line.
fn kind(said: &[u8]) -> String {
    let kind = match said {
        [b'H', b'T', b'T', b'P', b'/', ..] => "an HTTP server",
        [b'-', ..] | [b'+', b'P', b'O', b'N', b'G', ..] => "Redis",
        [0x15, 3, ..] => "a server that speaks TLS only",
        _ => "another server",
    };
    let said = String::from_utf8_lossy(said);
    let line = said.lines().next().unwrap_or_default();
    let shown = |c: &char| !c.is_control() && *c != '\u{fffd}';
    let line: String = line.chars().filter(shown).take(SHOWN).collect();
    match line.trim() {
        "" => kind.to_owned(),
        line => format!("{kind} (it says `{line}`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_is_known_by_its_letter_alone() {
        for said in [&b"S"[..], b"N", b"E\0\0\0\x10"] {
            assert_eq!(known(said.to_vec()), Answer::Postgres);
        }
        for said in [&b"SSH-2.0-OpenSSH\r\n"[..], b"NO", b"ERR", b"HTTP/1.1"] {
            assert_eq!(known(said.to_vec()), Answer::Stranger(said.to_vec()));
        }
    }

    #[test]
    fn what_a_stranger_says_is_shown_on_one_line() {
        assert_eq!(
            kind(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n"),
            "an HTTP server (it says `HTTP/1.1 400 Bad Request`)"
        );
        assert_eq!(kind(b"\0\0\x12\x04\0"), "another server");
        let long = kind(&[b'x'; 5_000]);
        assert!(long.len() < 100, "{long}");
    }
}
