//! The store against a plain list of what happened, read from the start for every answer: slow, and
//! written from the rules alone.

use proptest::prelude::*;

use super::*;

/// One owner's time with a key.
#[derive(Debug, Clone)]
struct Life {
    granted: Duration,
    nonce: u64,
    token: u64,
    print: u8,
    settings: Settings,
    attempt: u32,
    beats: Vec<(Duration, u64)>,
    marked: bool,
    revoke_asked: bool,
    end: Option<(Duration, End)>,
    resolved: Option<(Duration, Option<(u8, Duration)>)>,
    purged: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
enum End {
    Finished(u8, Duration),
    Released,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Free,
    Held,
    Lapsed,
    Unknown,
    Done(u8),
}

impl Life {
    fn lease_end(&self) -> Duration {
        let beats = self.beats.iter().map(|(at, _)| *at + self.settings.lease);
        beats.fold(self.granted + self.settings.lease, Duration::max)
    }

    fn holds_on(&self) -> bool {
        self.marked || self.settings.on_lapse == LapsePolicy::Hold
    }

    fn not_before(&self) -> Duration {
        let min_hold = self.granted + self.settings.min_hold;
        let cooled_from = match &self.end {
            Some((_, End::Released | End::Finished(..))) => return min_hold,
            Some((at, End::Broken)) => self.lease_end().min(*at),
            None => self.lease_end(),
        };
        min_hold.max(cooled_from + self.settings.cooling)
    }

    /// What it is at `now`, since when, and when that ends by itself.
    fn is(&self, now: Duration) -> (Is, Duration, Duration) {
        let keep = self.settings.unfinished_keep;
        let until = |is, since, until| match now < until {
            true => (is, since, until),
            false => (Is::Free, until, self.not_before()),
        };
        if let Some(at) = self.purged {
            return (Is::Free, at, self.not_before());
        }
        if let Some((at, result)) = self.resolved {
            return match result {
                Some((value, keep)) => {
                    until(Is::Done(value), at, (at + keep).max(self.not_before()))
                }
                None => (Is::Free, at, self.not_before()),
            };
        }
        match &self.end {
            Some((at, End::Finished(value, keep))) => {
                until(Is::Done(*value), *at, (*at + *keep).max(self.not_before()))
            }
            Some((at, End::Released)) if self.marked => until(Is::Unknown, *at, *at + keep),
            Some((at, End::Broken)) if self.holds_on() => until(Is::Unknown, *at, *at + keep),
            Some((at, End::Released | End::Broken)) => (Is::Free, *at, self.not_before()),
            None if now < self.lease_end() => (Is::Held, self.granted, self.lease_end()),
            None if self.holds_on() => {
                until(Is::Unknown, self.lease_end(), self.lease_end() + keep)
            }
            None if now < self.lease_end() + keep => (Is::Lapsed, self.granted, self.lease_end()),
            None => (Is::Free, self.lease_end() + keep, self.not_before()),
        }
    }
}

/// One key.
#[derive(Debug, Default, Clone)]
struct Facts {
    lives: Vec<Life>,
    /// Every nonce that was granted or refused, and how long a copy of its claim may be under way.
    calls: Vec<(u64, Duration)>,
    /// The nonce the record itself carries, and since when where it was never granted.
    last: Option<(u64, Duration)>,
    /// The highest token: granted, or raised by an operator.
    token: u64,
}

impl Facts {
    fn is(&self, now: Duration) -> (Is, Duration, Duration) {
        match (self.lives.last(), self.last) {
            (Some(life), _) => life.is(now),
            (None, Some((_, since))) => (Is::Free, since, since),
            (None, None) => (Is::Free, Duration::ZERO, Duration::ZERO),
        }
    }

    fn forget(&mut self, now: Duration, ms: u64) {
        let (is, _, not_before) = self.is(now);
        let under_way = self.calls.iter().any(|(_, not_after)| now <= *not_after);
        if is == Is::Free && now >= not_before && !under_way && self.token < ms * 1024 {
            *self = Self::default();
        }
    }

    fn next_token(&self, floor: u64, ms: u64) -> u64 {
        (self.token + 1).max(floor + 1).max(ms * 1024)
    }

    fn refusal(&self, n: u64, print: u8, not_after: Duration, now: Duration) -> Option<String> {
        if now > not_after {
            return Some("TooLate".into());
        }
        let (is, since, until) = self.is(now);
        let life = self.lives.last();
        if self.last.is_some_and(|(last, _)| last == n) {
            return Some(match life {
                Some(life) if life.end.is_none() && life.resolved.is_none() && is != Is::Free => {
                    let rest = life.lease_end().saturating_sub(now);
                    format!("Mine {} {rest:?} {}", life.token, life.attempt)
                }
                _ => "Ended".into(),
            });
        }
        if self.calls.iter().any(|(m, until)| *m == n && now <= *until) {
            return Some("Ended".into());
        }
        let same = life.is_none_or(|life| life.print == print);
        let cooling = self.lives.last().map_or(Duration::ZERO, Life::not_before);
        let busy = |rest: Duration| {
            let since = now - since;
            Some(format!("Busy {} {since:?} {rest:?} {same}", self.token))
        };
        match is {
            Is::Held => busy(until - now),
            Is::Done(value) => {
                let (finished, left) = (now - since, until - now);
                let token = self.token;
                Some(format!("Done {token} {value} {finished:?} {left:?} {same}"))
            }
            Is::Unknown => Some(format!("Unknown {} {same}", self.token)),
            Is::Lapsed if now < cooling => Some(format!("Cooling {:?} {same}", cooling - now)),
            Is::Free if now < cooling => Some(format!("Cooling {:?} true", cooling - now)),
            Is::Lapsed if !same => busy(Duration::ZERO),
            Is::Lapsed | Is::Free => None,
        }
    }

    fn grant(
        &mut self,
        ask: &Ask,
        token: u64,
        not_after: Duration,
        now: Duration,
    ) -> (u32, String) {
        let (is, ..) = self.is(now);
        let lapsed = self.lives.last().filter(|_| is == Is::Lapsed);
        let attempt = lapsed.map_or(0, |life| life.attempt) + 1;
        let took_over = lapsed.map_or("no one".into(), |life| {
            let beat = life
                .beats
                .iter()
                .map(|b| b.0)
                .fold(life.granted, Duration::max);
            let progress = life.beats.iter().map(|b| b.1).max().unwrap_or(0);
            let since = now - life.granted;
            format!("{} {since:?} {:?} {progress}", life.token, now - beat)
        });
        self.token = token;
        self.last = Some((ask.nonce, now));
        self.calls.push((ask.nonce, not_after));
        self.lives.push(Life {
            granted: now,
            nonce: ask.nonce,
            token,
            print: ask.print,
            settings: ask.settings.clone(),
            attempt,
            beats: Vec::new(),
            marked: false,
            revoke_asked: false,
            end: None,
            resolved: None,
            purged: None,
        });
        (attempt, took_over)
    }

    fn loss(&self, n: u64, token: u64, now: Duration) -> Option<&'static str> {
        if self.last.is_none_or(|(last, _)| last != n) {
            return Some("Superseded");
        }
        if token != self.token {
            return Some("Broken");
        }
        let running = self.lives.last().is_some_and(|life| life.end.is_none());
        match self.is(now).0 {
            Is::Held => None,
            Is::Lapsed | Is::Unknown if running => Some("Lapsed"),
            _ => Some("Superseded"),
        }
    }

    fn finish(
        &mut self,
        n: u64,
        token: u64,
        value: u8,
        keep: Duration,
        now: Duration,
    ) -> &'static str {
        let is = self.is(now).0;
        match self.lives.last_mut() {
            Some(life) if life.nonce == n && token == self.token && is != Is::Free => {
                match life.end {
                    // The token is the operator's: nobody was granted it, so nobody asks like this.
                    _ if life.resolved.is_some() => {}
                    None => life.end = Some((now, End::Finished(value, keep))),
                    Some((_, End::Finished(..))) => {}
                    Some(_) => return "Lost",
                }
                "Finished"
            }
            _ => "Lost",
        }
    }

    fn release(
        &mut self,
        n: u64,
        token: Option<u64>,
        not_after: Duration,
        now: Duration,
    ) -> &'static str {
        let is = self.is(now).0;
        let ours = self.last.is_some_and(|(last, _)| last == n);
        let holds = ours && token.is_none_or(|token| token == self.token);
        let answer = match is {
            Is::Held | Is::Lapsed if holds => {
                if let Some(life) = self.lives.last_mut() {
                    life.end = Some((now, End::Released));
                }
                "Released"
            }
            Is::Done(_) | Is::Unknown if ours => "Lost",
            _ => "Already",
        };
        if now <= not_after {
            self.calls.push((n, not_after));
            self.last = self.last.or(Some((n, now)));
        }
        answer
    }

    fn break_(&mut self, expected: u64, ms: u64, now: Duration) -> String {
        let is = self.is(now).0;
        if self.last.is_none() {
            return "Absent".into();
        }
        if !matches!(is, Is::Held | Is::Lapsed) || expected != self.token {
            return format!("Conflict {}", self.token);
        }
        let token = self.next_token(0, ms);
        if let Some(life) = self.lives.last_mut() {
            // Until its lease would have ended, the owner is told who ended it.
            self.calls.push((life.nonce, life.lease_end()));
            life.end = Some((now, End::Broken));
        }
        self.token = token;
        format!("Broken {token}")
    }

    fn resolve(
        &mut self,
        expected: u64,
        to: Option<(u8, Duration)>,
        ms: u64,
        now: Duration,
    ) -> String {
        let is = self.is(now).0;
        if self.last.is_none() {
            return "Absent".into();
        }
        if is != Is::Unknown || expected != self.token {
            return format!("Conflict {}", self.token);
        }
        let token = self.next_token(0, ms);
        if let Some(life) = self.lives.last_mut() {
            life.resolved = Some((now, to));
        }
        self.token = token;
        format!("Resolved {token}")
    }

    fn purge(&mut self, expected: u64, ms: u64, now: Duration) -> String {
        match self.is(now).0 {
            Is::Free => return "Absent".into(),
            Is::Done(_) if expected == self.token => {}
            _ => return format!("Conflict {}", self.token),
        }
        let token = self.next_token(0, ms);
        if let Some(life) = self.lives.last_mut() {
            life.purged = Some(now);
        }
        self.token = token;
        format!("Purged {token}")
    }

    fn peek(&self, now: Duration) -> String {
        let Some((nonce, _)) = self.last else {
            return "nothing".into();
        };
        let (is, since, until) = self.is(now);
        let (since, left) = (now - since, until.saturating_sub(now));
        let life = self.lives.last();
        let running = life.is_some_and(|life| life.end.is_none() && life.resolved.is_none());
        let shown = life.filter(|_| matches!(is, Is::Held | Is::Lapsed | Is::Unknown));
        let state = match is {
            Is::Free => "free",
            Is::Held | Is::Lapsed => "held",
            Is::Unknown => "unknown",
            Is::Done(_) => "done",
        };
        let marked = shown.is_some_and(|life| life.marked);
        let lapsed = running && shown.is_some_and(|life| now >= life.lease_end());
        let progress = shown.and_then(|life| life.beats.iter().map(|b| b.1).max());
        let progress = progress.unwrap_or(0);
        let token = self.token;
        format!("{state} {token} {nonce} {since:?} {left:?} {marked} {lapsed} {progress}")
    }
}

#[derive(Debug, Clone)]
struct Ask {
    nonce: u64,
    print: u8,
    settings: Settings,
    floor: u64,
    /// Seconds after the call, or before it.
    not_after: i64,
}

/// What a call names: the token of the n-th grant from the last, changed by so much.
#[derive(Debug, Clone, Copy)]
struct Who {
    nonce: u64,
    token: Option<i64>,
}

#[derive(Debug, Clone)]
enum Step {
    Claim(Ask),
    ClaimBoth(Ask),
    Renew(Who, u64),
    Mark(Who),
    Finish(Who, u8, u64),
    Release(Who, bool, i64),
    Break(i64),
    AskRevoke(i64),
    Resolve(i64, Option<(u8, u64)>),
    Purge(i64),
    Wait(u64),
    WallClockBack(u64),
}

fn settings() -> impl Strategy<Value = Settings> {
    let spans = (1u64..6, 0u64..4, 0u64..8, any::<bool>(), 0u64..12);
    spans.prop_map(|(lease, cooling, min_hold, hold, keep)| {
        let mut settings = Settings::new(secs(lease));
        settings.cooling = secs(cooling.saturating_sub(1));
        settings.min_hold = secs(min_hold.saturating_sub(4));
        settings.unfinished_keep = secs(keep);
        if hold {
            settings.on_lapse = LapsePolicy::Hold;
        }
        settings
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    // A floor beyond the wall clock's part now and then.
    let floor = prop_oneof![8 => Just(0), 1 => Just(1_700_000_005_000 * 1024)];
    (0u64..5, 0u8..2, settings(), floor, -1i64..9).prop_map(
        |(nonce, print, settings, floor, not_after)| Ask {
            nonce,
            print,
            settings,
            floor,
            not_after,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly the holder itself, else all is refused.
    let who = || {
        let nonce = prop_oneof![3 => Just(None), 1 => (0u64..5).prop_map(Some)];
        let token = prop_oneof![6 => Just(0i64), 1 => Just(1), 1 => Just(-1)];
        (nonce, token)
    };
    let who = move || {
        who().prop_map(|(nonce, off)| Who {
            nonce: nonce.unwrap_or(u64::MAX),
            token: Some(off),
        })
    };
    let off = || prop_oneof![5 => Just(0i64), 1 => Just(1)];
    let value = || (0u8..200, 0u64..12);
    prop_oneof![
        6 => ask().prop_map(Step::Claim),
        2 => ask().prop_map(Step::ClaimBoth),
        3 => (who(), 0u64..9).prop_map(|(who, progress)| Step::Renew(who, progress)),
        1 => who().prop_map(Step::Mark),
        3 => (who(), value()).prop_map(|(who, (value, keep))| Step::Finish(who, value, keep)),
        3 => (who(), any::<bool>(), -1i64..9).prop_map(|(who, told, na)| Step::Release(who, told, na)),
        1 => off().prop_map(Step::Break),
        1 => off().prop_map(Step::AskRevoke),
        2 => (off(), prop::option::of(value())).prop_map(|(off, to)| Step::Resolve(off, to)),
        2 => off().prop_map(Step::Purge),
        8 => (0u64..6).prop_map(Step::Wait),
        1 => (1u64..20).prop_map(Step::WallClockBack),
    ]
}

struct Both {
    store: MemoryStore,
    clock: ManualClock,
    facts: [Facts; 2],
    ms: u64,
}

fn shifted(token: u64, by: i64) -> Token {
    Token::new(token.saturating_add_signed(by)).unwrap()
}

impl Both {
    fn now(&self) -> Duration {
        Duration::from_micros(self.store.now().as_micros())
    }

    /// Asks both; answers in words.
    fn play(&mut self, k: usize, step: &Step) -> (String, String) {
        let now = self.now();
        self.ms = self.ms.max(self.clock.unix_time().as_millis() as u64);
        let ms = self.ms;
        for facts in &mut self.facts {
            facts.forget(now, ms);
        }
        let key = keys()[k];
        let holder = self.facts[k].last.map_or(0, |(nonce, _)| nonce);
        let last = self.facts[k].token;
        let at = |seconds: i64| match seconds < 0 {
            true => now - secs(seconds.unsigned_abs()),
            false => now + secs(seconds.unsigned_abs()),
        };
        let time = |at: Duration| StoreTime::from_micros(at.as_micros() as u64);
        let owner = |who: &Who| {
            let n = if who.nonce == u64::MAX {
                holder
            } else {
                who.nonce
            };
            let token = shifted(last, who.token.unwrap_or(0));
            (
                n,
                token,
                Owner {
                    key,
                    nonce: nonce(n),
                    token,
                },
            )
        };
        let store = &self.store;
        let facts = &mut self.facts[k];
        match step {
            Step::Claim(ask) => {
                let not_after = at(ask.not_after);
                let expected = match facts.refusal(ask.nonce, ask.print, not_after, now) {
                    Some(refusal) => {
                        if refusal == "Ended" || refusal.starts_with("Mine") {
                            facts.calls.push((ask.nonce, not_after));
                        }
                        refusal
                    }
                    None => {
                        let token = facts.next_token(ask.floor, ms);
                        let (attempt, took_over) = facts.grant(ask, token, not_after, now);
                        format!(
                            "Granted {token} {:?} {attempt} {took_over}",
                            ask.settings.lease
                        )
                    }
                };
                let claimed = super::now(store.claim(ClaimRequest {
                    key,
                    nonce: nonce(ask.nonce),
                    fingerprint: Some(Fingerprint::from_bytes([ask.print; 32])),
                    settings: &ask.settings,
                    floor: Token::new(ask.floor).unwrap(),
                    not_after: time(not_after),
                }));
                (expected, words(claimed.unwrap()))
            }
            Step::ClaimBoth(ask) => {
                let not_after = at(ask.not_after);
                // Several keys carry no fingerprint: 255 stands for none.
                let ask = &Ask {
                    print: 255,
                    ..ask.clone()
                };
                let refusals = self.facts.iter().enumerate().find_map(|(k, facts)| {
                    let by = facts.refusal(ask.nonce, 255, not_after, now)?;
                    Some(format!("{} {by}", keys()[k]))
                });
                let expected = refusals.unwrap_or_else(|| {
                    let tokens = self
                        .facts
                        .iter()
                        .map(|facts| facts.next_token(ask.floor, ms));
                    let token = tokens.max().unwrap();
                    let grants = self
                        .facts
                        .each_mut()
                        .map(|facts| facts.grant(ask, token, not_after, now));
                    let attempt = grants.iter().map(|(attempt, _)| *attempt).max().unwrap();
                    let took_over = grants
                        .iter()
                        .map(|(_, from)| from)
                        .find(|from| *from != "no one");
                    let took_over = took_over.map_or("no one", String::as_str);
                    format!(
                        "Granted {token} {:?} {attempt} {took_over}",
                        ask.settings.lease
                    )
                });
                let claimed = super::now(store.claim_many(ClaimManyRequest {
                    keys: &keys(),
                    nonce: nonce(ask.nonce),
                    settings: &ask.settings,
                    floor: Token::new(ask.floor).unwrap(),
                    not_after: time(not_after),
                }));
                let seen = match claimed.unwrap() {
                    ClaimedMany::Granted(grant) => words(Claimed::Granted(grant)),
                    ClaimedMany::Refused { key, by } => format!("{key} {}", words(by)),
                };
                (expected, seen)
            }
            Step::Renew(who, progress) => {
                let (n, token, owner) = owner(who);
                let expected = match facts.loss(n, token.get(), now) {
                    Some(reason) => format!("Lost({reason})"),
                    None => {
                        let life = facts.lives.last_mut().unwrap();
                        life.beats.push((now, *progress));
                        let rest = life.lease_end() - now;
                        format!("Renewed {rest:?} {}", life.revoke_asked)
                    }
                };
                let beat = Beat {
                    owner,
                    progress: *progress,
                };
                let seen = match &super::now(store.renew(&[beat])).unwrap()[..] {
                    [Renewed::Renewed { rest, revoke_asked }] => {
                        format!("Renewed {rest:?} {revoke_asked}")
                    }
                    [other] => format!("{other:?}"),
                    _ => unreachable!(),
                };
                (expected, seen)
            }
            Step::Mark(who) => {
                let (n, token, owner) = owner(who);
                let expected = match facts.loss(n, token.get(), now) {
                    Some(reason) => format!("Lost({reason})"),
                    None => {
                        facts.lives.last_mut().unwrap().marked = true;
                        "Marked".into()
                    }
                };
                let seen = super::now(store.mark(owner)).unwrap();
                (expected, format!("{seen:?}"))
            }
            Step::Finish(who, value, keep) => {
                let (n, token, owner) = owner(who);
                let expected = facts.finish(n, token.get(), *value, secs(*keep), now);
                let seen = super::now(store.finish(FinishRequest {
                    owner,
                    value: Value::Kept(Bytes::from(vec![*value])),
                    keep: secs(*keep),
                }));
                (expected.into(), format!("{:?}", seen.unwrap()))
            }
            Step::Release(who, told, not_after) => {
                let (n, token, owner) = owner(who);
                let token = told.then_some(token);
                let not_after = at(*not_after);
                let expected = facts.release(n, token.map(Token::get), not_after, now);
                let seen = super::now(store.release(ReleaseRequest {
                    key,
                    nonce: owner.nonce,
                    token,
                    not_after: time(not_after),
                }));
                (expected.into(), format!("{:?}", seen.unwrap()))
            }
            Step::Break(off) => {
                let expected = shifted(last, *off);
                let seen = match super::now(store.break_claim(key, expected)).unwrap() {
                    Broken::Broken { token } => format!("Broken {token}"),
                    Broken::Conflict { token } => format!("Conflict {token}"),
                    Broken::Absent => "Absent".into(),
                };
                (facts.break_(expected.get(), ms, now), seen)
            }
            Step::AskRevoke(off) => {
                let expected = shifted(last, *off);
                let may = facts.is(now).0 == Is::Held && expected.get() == last;
                if let Some(life) = facts.lives.last_mut().filter(|_| may) {
                    life.revoke_asked = true;
                }
                let seen = super::now(store.ask_revoke(key, expected)).unwrap();
                (may.to_string(), seen.to_string())
            }
            Step::Resolve(off, to) => {
                let expected = shifted(last, *off);
                let resolution = match to {
                    Some((value, keep)) => {
                        Resolution::Done(Value::Kept(Bytes::from(vec![*value])), secs(*keep))
                    }
                    None => Resolution::Absent,
                };
                let seen = match super::now(store.resolve(key, expected, resolution)).unwrap() {
                    Resolved::Resolved { token } => format!("Resolved {token}"),
                    Resolved::Conflict { token } => format!("Conflict {token}"),
                    Resolved::Absent => "Absent".into(),
                };
                let to = to.map(|(value, keep)| (value, secs(keep)));
                (facts.resolve(expected.get(), to, ms, now), seen)
            }
            Step::Purge(off) => {
                let expected = shifted(last, *off);
                let seen = match super::now(store.purge(key, expected)).unwrap() {
                    Purged::Purged { token } => format!("Purged {token}"),
                    Purged::Conflict { token } => format!("Conflict {token}"),
                    Purged::Absent => "Absent".into(),
                };
                (facts.purge(expected.get(), ms, now), seen)
            }
            Step::Wait(seconds) => {
                self.clock.advance(secs(*seconds));
                (String::new(), String::new())
            }
            Step::WallClockBack(seconds) => {
                self.clock.jump_unix_back(secs(*seconds));
                (String::new(), String::new())
            }
        }
    }

    fn peek(&mut self, k: usize) -> (String, String) {
        let now = self.now();
        self.ms = self.ms.max(self.clock.unix_time().as_millis() as u64);
        self.facts[k].forget(now, self.ms);
        let seen = match super::now(self.store.peek(keys()[k])).unwrap() {
            None => "nothing".into(),
            Some(view) => format!(
                "{} {} {} {:?} {:?} {} {} {}",
                view.state.as_str(),
                view.token,
                u64::from_be_bytes(view.nonce.as_bytes()[..8].try_into().unwrap()),
                view.since,
                view.expires_in,
                view.marked,
                view.lapsed,
                view.progress
            ),
        };
        (self.facts[k].peek(now), seen)
    }
}

fn keys() -> [Key; 2] {
    let mut keys = [key(1), key(2)];
    keys.sort();
    keys
}

fn words(claimed: Claimed) -> String {
    match claimed {
        Claimed::Granted(grant) => {
            let took_over = grant.took_over.map_or("no one".into(), |from| {
                let (since, beat) = (from.since, from.last_beat);
                format!("{} {since:?} {beat:?} {}", from.token, from.progress)
            });
            let (token, lease, attempt) = (grant.token, grant.lease, grant.attempt);
            format!("Granted {token} {lease:?} {attempt} {took_over}")
        }
        Claimed::Mine {
            token,
            rest,
            attempt,
        } => format!("Mine {token} {rest:?} {attempt}"),
        Claimed::Busy(busy) => {
            let (since, rest, same) = (busy.since, busy.expires_in, busy.same_fingerprint);
            format!("Busy {} {since:?} {rest:?} {same}", busy.token)
        }
        Claimed::Done(done) => {
            let Value::Kept(body) = done.value else {
                return "Done, a tombstone".into();
            };
            let (finished, left, same) = (done.finished, done.keep_left, done.same_fingerprint);
            format!(
                "Done {} {} {finished:?} {left:?} {same}",
                done.token, body[0]
            )
        }
        Claimed::Cooling(cooling) => {
            format!(
                "Cooling {:?} {}",
                cooling.remaining, cooling.same_fingerprint
            )
        }
        Claimed::Unknown(unknown) => {
            format!("Unknown {} {}", unknown.token, unknown.same_fingerprint)
        }
        other => format!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn every_answer_is_that_of_a_plain_list(
        steps in prop::collection::vec((0usize..2, step()), 1..60)
    ) {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build().unwrap();
        let mut both = Both { store, clock, facts: Default::default(), ms: 0 };
        // Both have read the wall clock before it is set back.
        both.peek(0);
        for (k, step) in steps {
            let (expected, seen) = both.play(k, &step);
            prop_assert_eq!(&expected, &seen, "{:?} of key {}", step, k);
            for k in 0..2 {
                let (expected, seen) = both.peek(k);
                prop_assert_eq!(&expected, &seen, "key {} after {:?}", k, step);
            }
        }
    }
}
