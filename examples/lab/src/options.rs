//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tower_claim::Namespace;

use crate::store::Store;

/// The layers over handlers that misbehave on command.
#[derive(Debug, Parser)]
#[command(name = "lab", disable_version_flag = true)]
pub(crate) struct Options {
    /// Address of the HTTP/1 and h2c server.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Where claims are kept: `memory:`, `redb:PATH`, `redis://HOST:PORT/DB`, `redis+unix:PATH`,
    /// `postgres://…`, or `etcd://HOST:PORT` (built with `--features etcd`).
    #[arg(long, default_value = "memory:")]
    store: String,
    /// Prefix of every key in the store: 1 to 64 of `A-Za-z0-9_-`.
    #[arg(long, default_value = "lab", value_parser = |s: &str| Namespace::new(s))]
    pub(crate) namespace: Namespace,
    /// Lease of claims.
    #[arg(long, default_value = "30s", value_parser = some_time)]
    pub(crate) lease: Duration,
    /// Heartbeat of claims.
    #[arg(long, default_value = "on")]
    pub(crate) renew: OnOff,
    /// How long outcomes are kept.
    #[arg(long, default_value = "24h", value_parser = some_time)]
    pub(crate) retention: Duration,
    /// Concurrent repeats: `reject` or `wait:DURATION`.
    #[arg(long, default_value = "reject", value_parser = on_busy)]
    pub(crate) on_busy: OnBusy,
    /// What a first run that lapsed means: a repeat takes over, or is told that the outcome is unknown.
    #[arg(long, default_value = "takeover")]
    pub(crate) on_lapse: OnLapse,
    /// Requests with a key while the store is down: refused (`closed`), or run unprotected (`open`).
    #[arg(long, default_value = "closed")]
    pub(crate) store_down: StoreDown,
    /// What is compared of JSON bodies: their bytes (`raw`), or their canonical form (`json`).
    #[arg(long, default_value = "raw")]
    pub(crate) fingerprint: Print,
    /// A timeout outside of the idempotency layers: 504. 0 is off.
    #[arg(long, default_value = "0", value_parser = duration)]
    pub(crate) outer_timeout: Duration,
    /// A layer inside of the idempotency layers: `nonce` refuses a repeated `X-Nonce`, `rewrite` changes path, key
    /// header and body.
    #[arg(long)]
    pub(crate) inner: Option<Inner>,
    /// Syntax of `Idempotency-Key`.
    #[arg(long, default_value = "lenient")]
    pub(crate) keys: Keys,
    /// Refuse requests without `Idempotency-Key`.
    #[arg(long, default_value = "off")]
    pub(crate) require_key: OnOff,
    /// Refuse requests without `X-Tenant`.
    #[arg(long, default_value = "off")]
    pub(crate) require_tenant: OnOff,
    /// Request body read for the fingerprint.
    #[arg(long, default_value = "1MiB", value_parser = size)]
    pub(crate) max_body: usize,
    /// Response body kept.
    #[arg(long, default_value = "1MiB", value_parser = size)]
    pub(crate) max_response: usize,
    /// Budget of the memory store.
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub(crate) memory_limit: usize,
    /// Age after which newcomers get a new flight.
    #[arg(long, default_value = "30s", value_parser = some_time)]
    pub(crate) flight_age: Duration,
    /// How long a follower waits.
    #[arg(long, default_value = "5s", value_parser = some_time)]
    pub(crate) flight_wait: Duration,
    /// Followers of one flight.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) max_waiters: usize,
    /// Age in its stage from which on a row is stuck.
    #[arg(long, default_value = "2s", value_parser = some_time)]
    pub(crate) stuck_after: Duration,
    /// `off`, or what `/board`, `/claims` and `/faults` want as bearer token.
    #[arg(long, default_value = "off")]
    pub(crate) operator_token: String,

    #[command(flatten)]
    later: Later,
}

/// Options of the contract that are not built yet: known by name, refused by name.
#[derive(Debug, clap::Args)]
struct Later {
    #[arg(long, hide = true)]
    grpc: Option<String>,
    #[arg(long, hide = true)]
    flight_keep: Option<String>,
    #[arg(long, hide = true)]
    flight_body: Option<String>,
    #[arg(long, hide = true)]
    shared_flights: Option<String>,
    #[arg(long, hide = true)]
    stall_after: Option<String>,
    #[arg(long, hide = true)]
    max_hold: Option<String>,
    #[arg(long, hide = true)]
    cooling: Option<String>,
    #[arg(long, hide = true)]
    min_hold: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

impl OnOff {
    pub(crate) fn is_on(self) -> bool {
        self == OnOff::On
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keys {
    Lenient,
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLapse {
    Takeover,
    Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreDown {
    Closed,
    Open,
}

/// What is compared of JSON bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Print {
    Raw,
    Json,
}

/// A layer inside of the idempotency layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Inner {
    Nonce,
    Rewrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    Reject,
    Wait(Duration),
}

impl Options {
    /// What cannot go together, and what is not built yet.
    pub(crate) fn check(&self) -> Result<(), String> {
        let later = &self.later;
        let asked = [
            ("--grpc", &later.grpc),
            ("--flight-keep", &later.flight_keep),
            ("--flight-body", &later.flight_body),
            ("--shared-flights", &later.shared_flights),
            ("--stall-after", &later.stall_after),
            ("--max-hold", &later.max_hold),
            ("--cooling", &later.cooling),
            ("--min-hold", &later.min_hold),
        ];
        if let Some((name, _)) = asked.iter().find(|(_, value)| value.is_some()) {
            return Err(format!("not yet: {name}"));
        }
        if self.operator_token.is_empty()
            || !self.operator_token.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(
                "--operator-token: give a token of visible ASCII characters, or `off` on a loopback address"
                    .to_owned(),
            );
        }
        if self.operator_token().is_none() && !self.listen.ip().is_loopback() {
            return Err(
                "--operator-token off is only allowed with a loopback --listen; give a token"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Where claims are kept. The text is read here, not by the parser: that one would print it, and a password
    /// with it, where it is wrong.
    pub(crate) fn store(&self) -> Result<Store, String> {
        Store::parse(&self.store)
    }

    /// The bearer token operators need, if any.
    pub(crate) fn operator_token(&self) -> Option<&str> {
        (self.operator_token != "off").then_some(self.operator_token.as_str())
    }
}

fn on_busy(text: &str) -> Result<OnBusy, String> {
    match text.strip_prefix("wait:") {
        Some(time) => some_time(time).map(OnBusy::Wait),
        None if text == "reject" => Ok(OnBusy::Reject),
        None => Err("write `reject` or `wait:DURATION`, for instance `wait:2s`".to_owned()),
    }
}

/// A duration where 0 does not mean off.
fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("0 does not mean off here; give a longer time".to_owned()),
        time => Ok(time),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split_unit(text);
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, ms)| number?.checked_mul(*ms))
        .map(Duration::from_millis)
        .ok_or_else(|| "write a duration like 250ms, 30s, 10m, 24h".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, u64); 4] = [
        ("", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    let (number, unit) = split_unit(text);
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, bytes)| number?.checked_mul(*bytes))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "write a size like 1024, 64KiB, 1MiB".to_owned())
}

fn split_unit(text: &str) -> (Option<u64>, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number.parse().ok(), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let options =
            Options::try_parse_from([&["lab"], args].concat()).map_err(|e| e.to_string())?;
        options
            .check()
            .and_then(|()| options.store())
            .map(|_| options)
    }

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "99999999999999999999h",
            "18446744073709551615h",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(size("1024"), Ok(1024));
        assert_eq!(size("64KiB"), Ok(65_536));
        for bad in ["", "KiB", "1kb", "-1"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        assert_eq!(
            parse(&["--cooling", "1s"]).unwrap_err(),
            "not yet: --cooling"
        );
        assert!(
            parse(&["--store", "mysql://h"])
                .unwrap_err()
                .contains("unknown store")
        );
        assert!(parse(&["--warp", "9"]).is_err());
    }

    #[test]
    fn zero_is_refused_where_it_does_not_mean_off() {
        for option in [
            "--lease",
            "--retention",
            "--flight-age",
            "--flight-wait",
            "--stuck-after",
        ] {
            assert!(parse(&[option, "0"]).is_err(), "{option}");
        }
        assert!(parse(&["--on-busy", "wait:0"]).is_err());
    }

    #[test]
    fn operators_need_a_token_off_loopback() {
        assert!(
            parse(&["--listen", "0.0.0.0:0"])
                .unwrap_err()
                .contains("--operator-token")
        );
        assert!(parse(&["--listen", "0.0.0.0:0", "--operator-token", "s3"]).is_ok());
        assert!(parse(&["--listen", "[::1]:0"]).is_ok());
    }

    #[test]
    fn a_namespace_outside_its_alphabet_is_refused() {
        assert!(parse(&["--namespace", "a b"]).is_err());
        assert!(parse(&["--namespace", ""]).is_err());
    }
}
