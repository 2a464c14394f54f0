//! Ends the transaction of a handler that no claim protects.

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tower_claim::Refusal;
use tower_claim::http::{ResponseEnd, is_grpc};

use super::end::{Broken, End, next_frame};
use super::judge::{is_refusal, refuses};
use super::tape::Tape;
use super::{before_its_end, known_length};
use crate::body::ResponseBody;
use crate::unguarded::Unguarded;

/// Commits what the handler wrote, or rolls it back, as for a run that is kept: by its answer, before that is seen.
///
/// # Errors
///
/// What the caller is told instead.
pub(crate) async fn end_unguarded<R>(
    open: &Unguarded,
    response: Response<R>,
) -> Result<Response<ResponseBody<R>>, Refusal>
where
    R: Body<Data = Bytes>,
{
    if !open.is_in_transaction() {
        return Ok(response.map(ResponseBody::pass));
    }
    let (parts, body) = response.into_parts();
    if refuses(&parts) {
        open.roll_back().await;
        return Ok(Response::from_parts(parts, ResponseBody::pass(body)));
    }
    let length = known_length(&parts, &body).unwrap_or(u64::MAX);
    let announced = ResponseEnd::new(&open.method, parts.status, &parts.headers);
    // A gRPC call tells by its trailers what becomes of its rows, however much is in front of them.
    let cap = match is_grpc(&parts.headers) {
        true => usize::MAX,
        false => open.shared.max_response_body,
    };
    let mut tape = Tape::up_to(cap);
    let mut body = Box::pin(body);
    let end = loop {
        if body.is_end_stream() {
            break End::of(announced, &tape);
        }
        let Some(frame) = before_its_end(&open.run, next_frame(&mut body)).await else {
            break End::Outlasted;
        };
        match frame {
            None => break End::of(announced, &tape),
            Some(Ok(frame)) => {
                if let Err(over) = tape.keep(frame) {
                    break End::Over(over);
                }
            }
            Some(Err(Broken::Error(_))) if tape.bytes() as u64 >= length => break End::Whole,
            Some(Err(broken)) => break End::Broken(broken),
        }
    };
    let refused = open.upload.has_failed() || tape.trailers.as_ref().is_some_and(is_refusal);
    match &end {
        End::Short | End::Broken(_) => open.roll_back().await,
        _ if refused => open.roll_back().await,
        End::Whole | End::Over(_) | End::Outlasted => open.commit().await?,
    }
    Ok(Response::from_parts(parts, end.into_body(tape, body)))
}
