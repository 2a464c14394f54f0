//! The cases. Numbers that are missing are of bugs that HTTP does not show.

mod hang_ups;
mod keys;
mod outcomes;
mod payloads;
mod races;
mod replays;
mod routes;

use std::pin::Pin;

use crate::kit::{ExamineError, Kit};
use crate::verdict::Outcome;

type Run = for<'a> fn(&'a Kit) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// A bug that was reported once, as a check.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) number: &'static str,
    pub(crate) name: &'static str,
    /// Where it was reported; or whose code, or notes, show it.
    pub(crate) source: &'static str,
    pub(crate) right: &'static str,
    pub(crate) run: Run,
}

macro_rules! cases {
    ($($number:literal $run:path: $name:literal, $source:literal, $right:literal;)*) => {
        &[$(Case {
            number: $number,
            name: $name,
            source: $source,
            right: $right,
            run: |kit| Box::pin($run(kit)),
        }),*]
    };
}

pub(crate) const ALL: &[Case] = cases! {
    "4" races::identical_requests_at_once:
        "identical requests at once run once",
        "paveg/hono-idempotency #91",
        "fifty at once have one effect, and whoever gets an answer gets that of the one run";
    "6" races::losers_of_the_race:
        "losers of the race are told 409, never 5xx",
        "idempot-dev/idempot-js #181",
        "one fresh answer; all others 409, or replays";
    "8" races::mismatch_beats_in_progress:
        "another payload is told so while the first runs",
        "idempot-dev/idempot-js #183",
        "422 at once, not a 409 that invites to come again";
    "9" races::replays_at_once:
        "replays at once are all replayed",
        "code of julik/idempo",
        "fifty replays, no 409 or 429, no effect";
    "14" races::waiting:
        "a repeat that waits is woken by the end of the run",
        "KanishJebaMathewM/Truxify #4696",
        "a replay soon after the first run ends; 409 with Retry-After when the wait is over, and not before";
    "16" hang_ups::while_the_handler_runs:
        "a hang-up does not stop the run nor lose its answer",
        "fullstackhero/dotnet-starter-kit #1333, caura-ai/caura #1629",
        "a later repeat is replayed the success; one effect";
    "16a" hang_ups::during_the_upload:
        "a hang-up during the upload leaves the key free",
        "fullstackhero/dotnet-starter-kit #1378",
        "no effect, and the next request under the key runs";
    "16b" hang_ups::during_the_response:
        "a hang-up during the response does not lose it",
        "fullstackhero/dotnet-starter-kit #1378",
        "a later repeat gets the whole response, or is told that it was not kept; one effect";
    "16c" hang_ups::of_an_http2_stream:
        "a reset of an HTTP/2 stream is a hang-up like any other",
        "fullstackhero/dotnet-starter-kit #1333",
        "a later repeat is replayed the success; one effect";
    "16d" hang_ups::by_an_outer_timeout:
        "a timeout outside does not stop the run nor lose its answer",
        "caura-ai/caura #1629",
        "a later repeat is replayed the success; one effect";
    "18" hang_ups::every_way_to_end:
        "however a run ends, the key does not stay busy",
        "KanishJebaMathewM/Truxify #4622, Noveum/orbit #455",
        "after a panic, 204, a stream, 500, a body that breaks off: no 409 beyond one lease";
    "22" keys::of_two_callers:
        "one key of two callers is two keys",
        "nensii21/devlink #773, KanishJebaMathewM/Truxify #2382",
        "two effects, and nobody sees the other's answer";
    "23" routes::one_key_two_endpoints:
        "one key on two endpoints never gets the other's answer",
        "nensii21/devlink #1195, LabsCrypt/remitlend #1680",
        "422, or a run of its own, in nested routers too";
    "25" routes::replay_needs_the_right_to_ask:
        "who lost the right to ask is not replayed",
        "margince/margince #5315, MCKRUZ/microsoft-agentic-harness #127",
        "401 or 403, without a byte of what was stored";
    "27" routes::a_nonce_check_inside:
        "a one-time nonce does not refuse the honest retry",
        "openid/authzen #664",
        "a replay: the nonce check stands inside, and does not see the retry";
    "29" keys::odd_ones:
        "odd keys are refused, not skipped, cut or merged",
        "saleor/saleor #15006, josipmusa/idempotency4j #20",
        "400 without effect; quoted and bare forms are one key; `:` and `/` are allowed";
    "30" routes::safe_methods:
        "safe methods and preflights are left alone",
        "jointakahe/takahe #618, NousResearch/hermes-agent #3530",
        "GET, HEAD and OPTIONS with a key are not replayed and occupy nothing; CORS, if there is any, allows the header";
    "31" payloads::two_under_one_key:
        "another body under the key is refused, whatever its kind",
        "ikyriak/IdempotentAPI #58",
        "422 for another JSON, form, multipart, binary, and for empty, `{}` and no body";
    "32" payloads::without_a_length:
        "bodies without a length are compared too",
        "code of ikyriak/IdempotentAPI",
        "422 for another one; the same one is the same, wherever its chunks end";
    "34" payloads::as_they_came:
        "what is compared and kept is what came in",
        "aws-powertools/powertools-lambda-typescript #5715",
        "a replay, also where layers inside rewrite path, header or body";
    "35" payloads::member_order:
        "the order of members matters always or never, numbers do not blur",
        "aws-powertools/powertools-lambda-python #638",
        "replay (canonical JSON) or 422 (bytes) for another order; 422 for `1` and `1.0`, large integers, doubled members";
    "36" payloads::content_type:
        "the same bytes as another content type are no repeat",
        "mikkelchokolate/Veil #65",
        "no replay and no second effect";
    "39" replays::status_body_and_headers:
        "a replay is the first answer",
        "fullstackhero/dotnet-starter-kit #1333, novuhq/novu #12451",
        "the same status, body bytes, Content-Type, Location and ETag; of a kept error, too";
    "40" replays::what_was_true_once:
        "a replay carries no cookie, challenge, date or trace of the first",
        "granit-fx/granit-dotnet #1151",
        "no Set-Cookie, WWW-Authenticate, old Date, traceparent, request-id or rate limit; the others intact";
    "41" replays::repeated_and_raw_headers:
        "repeated and non-UTF-8 headers survive",
        "smorinlabs/py-launch-blueprint #399, changes of axum-idempotent 0.3.0",
        "the same lines in the same order, byte for byte";
    "43" replays::of_large_responses:
        "a response too large to keep is not forgotten",
        "gofiber/fiber #4287",
        "the first is sent whole; a repeat is replayed or told that it was not kept; one effect";
    "46" outcomes::failures:
        "a failure is not pinned, unless the effect is known to stand",
        "Steward-Fi/steward #115, mahendraHegde/node-idempotency #36",
        "a 503 frees the key; a 500 behind the point of no return is not run again";
    "47" outcomes::rejections:
        "a rejection before any effect frees the key",
        "KanishJebaMathewM/Truxify #2869, changes of axum-idempotent 0.3.0",
        "the corrected request under the same key runs";
};

/// All cases, or those of these numbers.
pub(crate) fn chosen(only: &[String]) -> Result<Vec<&'static Case>, ExamineError> {
    if let Some(number) = only
        .iter()
        .find(|number| ALL.iter().all(|case| case.number != **number))
    {
        return Err(ExamineError::NoSuchCase(
            number.clone(),
            ALL.iter().map(|case| case.number).collect(),
        ));
    }
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|number| case.number == number);
    Ok(ALL.iter().filter(wanted).collect())
}
