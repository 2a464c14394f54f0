//! Watching and peeking.

use std::time::Duration;

use tower_claim::store::{RecordView, State as Shown, Value, Watched};
use tower_claim::{Clock, Key, LapsePolicy, Moment, Nonce, Token};

use super::{Records, Reference, State};

impl Reference {
    pub(super) async fn look_on(&self, key: Key, token: Token) -> Watched {
        let mut first = true;
        let mut timer_of = None;
        loop {
            // Made before the look: from here on no change is missed.
            let mut changed = Box::pin(self.changed.notified());
            let (over, end, hold) = {
                let mut records = self.records();
                let over = records.over(key, token, first);
                let record = records.find(key);
                let end = record.as_ref().map(|r| r.end).unwrap_or_default();
                let hold = record.is_some_and(|r| r.terms.on_lapse == LapsePolicy::Hold);
                (over, end, hold)
            };
            match over {
                Some(over) if !(first && self.breaks("a watcher waits for a change first")) => {
                    return over;
                }
                _ => first = false,
            }
            if self.breaks("a watcher looks, then listens") {
                tokio::task::yield_now().await;
                changed = Box::pin(self.changed.notified());
            }
            let no_timer = self.breaks("a lapse wakes nobody")
                || hold && self.breaks("a lapse of Hold wakes nobody")
                || timer_of.is_some() && self.breaks("a watcher counts on the first lease")
                || self.breaks("a watcher of nothing waits") && end.is_zero();
            timer_of = Some(end);
            let end = if no_timer { Duration::MAX } else { end };
            let lapse = self.clock.sleep_until(Moment::since_start(end));
            tokio::select! {
                () = &mut changed => {}
                () = lapse => {}
            }
            if self.breaks("a renewal ends the watch") && self.records().now < end {
                return Watched::Ended;
            }
        }
    }
}

impl Records {
    fn over(&mut self, key: Key, token: Token, first: bool) -> Option<Watched> {
        let (now, flaw) = (self.now, self.flaw);
        let Some(record) = self.find(key) else {
            return (flaw != "a watcher of nothing waits").then_some(Watched::Ended);
        };
        let follows = flaw == "a watcher follows the next owner" && first;
        if record.token != token && record.state == State::Held && !follows {
            let token = record.token;
            return Some(Watched::Superseded { token });
        }
        match &record.state {
            State::Done { .. } if flaw == "a watcher is told no result" => Some(Watched::Ended),
            State::Done { value, until } if record.token == token => {
                Some(Watched::Done(record.done(value, *until, true, now)))
            }
            State::Held if !record.lapsed(now) => None,
            State::Free if flaw == "a watcher of a purged result waits" => None,
            State::Free if flaw == "a watcher sees results that are gone" => Some(Watched::Done(
                record.done(&Value::Tombstone, now, true, now),
            )),
            _ => Some(Watched::Ended),
        }
    }

    pub(super) fn view(&mut self, key: Key) -> Option<RecordView> {
        let (now, flaw) = (self.now, self.flaw);
        if flaw == "peek makes a record" {
            self.get(key).state = State::Held;
        }
        let record = self.find(key)?;
        if flaw == "peek renews" && record.state == State::Held {
            record.end = now + record.terms.lease;
        }
        let (state, until) = match record.state {
            State::Free => (Shown::Free, record.not_before),
            State::Held => (Shown::Held, record.end),
            State::Done { until, .. } => (Shown::Done, until),
            State::Unknown { until, .. } => (Shown::Unknown, until),
        };
        let state = match (flaw, state) {
            ("peek shows a lapsed Hold as held", Shown::Unknown) => Shown::Held,
            ("peek shows done for ever", Shown::Free) if record.attempt > 0 => Shown::Done,
            ("peek shows a released key as held", Shown::Free) => Shown::Held,
            (_, state) => state,
        };
        let mut view = RecordView::new(key, state);
        view.label = record.terms.label.clone();
        view.token = record.token;
        view.nonce = record.nonce;
        view.fingerprint = record.fingerprint;
        view.since = now - record.since;
        view.expires_in = until.saturating_sub(now);
        view.last_beat = now - record.last_beat;
        view.progress = record.progress;
        view.marked = record.marked;
        view.lapsed = record.state == State::Held && record.lapsed(now);
        if record.state == State::Held {
            view.attempt = record.attempt;
        }
        match flaw {
            "peek tells attempt 1" => view.attempt = view.attempt.min(1),
            "peek hides the owner" => view.nonce = Nonce::from_bytes([0; 16]),
            "peek tells no age" => view.since = Duration::ZERO,
            "peek tells no progress" => view.progress = 0,
            "peek hides the mark" => view.marked = false,
            "peek hides the lapse" => view.lapsed = false,
            _ => {}
        }
        Some(view)
    }
}
