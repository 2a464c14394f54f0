//! The scripts' answers as the protocol's.

use redis::Value as Raw;
use tower_claim::store::{
    Busy, Claimed, Cooling, DoneRecord, Grant, LostReason, RecordView, Release, Renewed, State,
    TookOver, Unknown, Value,
};
use tower_claim::{Key, StoreError};

use crate::reply::Reply;

/// The answer to a claim, behind the place of the key in the way.
pub(crate) fn claimed(mut reply: Reply, record: &str) -> Result<Claimed, StoreError> {
    let tag = reply.tag(record)?;
    Ok(match tag.as_str() {
        "granted" => Claimed::Granted(Grant {
            token: reply.token()?,
            lease: reply.span()?,
            attempt: attempt(reply.number()?),
            took_over: match reply.maybe_part()? {
                None => None,
                Some(mut before) => Some(TookOver {
                    token: before.token()?,
                    since: before.span()?,
                    last_beat: before.span()?,
                    progress: before.parse()?,
                }),
            },
        }),
        "mine" => Claimed::Mine {
            token: reply.token()?,
            rest: reply.span()?,
            attempt: attempt(reply.number()?),
        },
        "ended" => Claimed::Ended,
        "busy" => Claimed::Busy(Busy {
            token: reply.token()?,
            since: reply.span()?,
            expires_in: reply.span()?,
            same_fingerprint: reply.flag()?,
            label: reply.label()?,
        }),
        "done" => Claimed::Done(done(&mut reply)?),
        "cooling" => Claimed::Cooling(Cooling {
            remaining: reply.span()?,
            same_fingerprint: reply.flag()?,
        }),
        "unknown" => Claimed::Unknown(Unknown {
            token: reply.token()?,
            same_fingerprint: reply.flag()?,
        }),
        "too_late" => Claimed::TooLate,
        _ => return Reply::unknown(),
    })
}

fn attempt(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(crate) fn done(reply: &mut Reply) -> Result<DoneRecord, StoreError> {
    Ok(DoneRecord {
        token: reply.token()?,
        same_fingerprint: reply.flag()?,
        finished: reply.span()?,
        keep_left: reply.span()?,
        value: match reply.maybe_bytes()? {
            Some(body) => Value::Kept(body),
            None => Value::Tombstone,
        },
    })
}

pub(crate) fn lost(tag: &str) -> Result<LostReason, StoreError> {
    Ok(match tag {
        "superseded" => LostReason::Superseded,
        "broken" => LostReason::Broken,
        "lapsed" => LostReason::Lapsed,
        _ => return Reply::unknown(),
    })
}

pub(crate) fn renewed(answer: Raw, record: &str) -> Result<Renewed, StoreError> {
    let mut reply = Reply::of(answer)?;
    let tag = reply.tag(record)?;
    Ok(match tag.as_str() {
        "renewed" => Renewed::Renewed {
            rest: reply.span()?,
            revoke_asked: reply.flag()?,
        },
        tag => Renewed::Lost(lost(tag)?),
    })
}

pub(crate) fn released(answer: Raw, record: &str) -> Result<Release, StoreError> {
    Ok(match Reply::of(answer)?.tag(record)?.as_str() {
        "released" => Release::Released,
        "already" => Release::Already,
        "lost" => Release::Lost,
        _ => return Reply::unknown(),
    })
}

fn state(name: &str) -> Result<State, StoreError> {
    let all = [State::Free, State::Held, State::Done, State::Unknown];
    let state = all.into_iter().find(|state| state.as_str() == name);
    state.map_or_else(Reply::unknown, Ok)
}

pub(crate) fn viewed(answer: Raw, key: Key) -> Result<Option<RecordView>, StoreError> {
    let mut reply = Reply::of(answer)?;
    let tag = reply.tag(&key.prefix())?;
    if tag == "absent" {
        return Ok(None);
    }
    let mut view = RecordView::new(key, state(&tag)?);
    view.token = reply.token()?;
    view.nonce = reply.parse()?;
    view.since = reply.span()?;
    view.expires_in = reply.span()?;
    view.label = reply.label()?;
    view.fingerprint = reply.fingerprint()?;
    view.last_beat = reply.span()?;
    view.progress = reply.parse()?;
    view.marked = reply.flag()?;
    view.lapsed = reply.flag()?;
    view.attempt = attempt(reply.number()?);
    Ok(Some(view))
}
