//! `idempotency-kit http://127.0.0.1:8080`: examines a service, prints a report. Exit status: 0 no case failed, 1 one
//! did, 2 it could not be examined.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use idempotency_kit::{ExamineError, Settings, SettingsError, examine};

/// Runs published idempotency bugs against a service of yours. It posts several hundred times: give it a service
/// whose effects cost nothing.
#[derive(Debug, Parser)]
#[command(name = "idempotency-kit", disable_version_flag = true)]
struct Options {
    /// Base URL: http://HOST:PORT[/PREFIX].
    base: String,
    /// Path of the idempotent POST.
    #[arg(long, default_value = "/orders")]
    post: String,
    /// Path of another idempotent POST that takes the same body [default: /refunds, if there is one].
    #[arg(long, value_name = "PATH")]
    second_post: Option<String>,
    /// Two paths where `--post` is nested under different prefixes: `/v1/orders,/v2/orders`; both must be there
    /// [default with --lab: those, if they are there].
    #[arg(long, value_name = "PATH,PATH", value_parser = nested)]
    nested: Option<[String; 2]>,
    /// A JSON body that `--post` accepts.
    #[arg(long, default_value = r#"{"kit":1}"#, value_name = "JSON")]
    body: String,
    /// Another one, for another intent [default: `--body` with one more member].
    #[arg(long, value_name = "JSON")]
    other_body: Option<String>,
    /// Header line that every request carries; repeatable. No report shows its value.
    #[arg(long = "header", value_name = "NAME:VALUE")]
    headers: Vec<String>,
    /// Header line that makes it another caller's request; repeatable.
    #[arg(long, value_name = "NAME:VALUE")]
    other_caller: Vec<String>,
    /// Header line that takes the right to ask away (401 or 403); repeatable.
    #[arg(long, value_name = "NAME:VALUE")]
    denied: Vec<String>,
    /// Path that counts effects as `{"total": N, "by": {"POST /orders": N}}`.
    #[arg(long, value_name = "PATH")]
    effects: Option<String>,
    /// The service misbehaves as the header `X-Lab` asks; `--effects /effects`, `X-Tenant` and `X-Deny` are its own.
    #[arg(long)]
    lab: bool,
    /// How long the service lets a concurrent repeat wait, for instance `2s` or `500ms`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    waits: Option<Duration>,
    /// After how long a timeout outside of the layer cuts a caller off.
    #[arg(long, value_name = "TIME", value_parser = time)]
    times_out: Option<Duration>,
    /// The largest response body the service keeps, in bytes.
    #[arg(long, value_name = "BYTES")]
    keeps: Option<usize>,
    /// How long a key may stay busy after its run is over: a lease of the service, and some more.
    #[arg(long, default_value = "35s", value_name = "TIME", value_parser = time)]
    lease: Duration,
    /// HTTP/2 with prior knowledge.
    #[arg(long)]
    http2: bool,
    /// Only this case; repeatable.
    #[arg(long = "case", value_name = "NUMBER")]
    cases: Vec<String>,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
}

fn nested(text: &str) -> Result<[String; 2], String> {
    let (a, b) = text.split_once(',').ok_or("write PATH,PATH")?;
    Ok([a.trim().to_owned(), b.trim().to_owned()])
}

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let ms = [("ms", 1), ("s", 1_000), ("m", 60_000)];
    ms.iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, ms)| number.parse::<u64>().ok()?.checked_mul(*ms))
        .map(Duration::from_millis)
        .ok_or_else(|| "write a time like 500ms, 2s, 1m".to_owned())
}

impl Options {
    fn settings(&self) -> Result<Settings, SettingsError> {
        let lines = |lines: &[String]| -> Result<Vec<_>, _> {
            lines
                .iter()
                .map(|line| Settings::header_line(line))
                .collect()
        };
        let mut settings = Settings::new(&self.base)?;
        settings.post.clone_from(&self.post);
        settings.second_post.clone_from(&self.second_post);
        settings.nested.clone_from(&self.nested);
        settings.body.clone_from(&self.body);
        settings.other_body.clone_from(&self.other_body);
        settings.headers = lines(&self.headers)?;
        settings.other_caller = lines(&self.other_caller)?;
        settings.denied = lines(&self.denied)?;
        settings.effects.clone_from(&self.effects);
        settings.lab = self.lab;
        settings.waits = self.waits;
        settings.times_out = self.times_out;
        settings.keeps = self.keeps;
        settings.lease = self.lease;
        settings.http2 = self.http2;
        settings.only.clone_from(&self.cases);
        Ok(settings)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let report = match options.settings() {
        Ok(settings) => examine(&settings).await,
        Err(error) => Err(ExamineError::Settings(error)),
    };
    match report {
        Ok(report) => {
            let text = match options.json {
                true => format!("{:#}\n", report.json()),
                false => report.to_string(),
            };
            // A reader who has seen enough closes the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "idempotency-kit: {error}");
            ExitCode::from(2)
        }
    }
}
