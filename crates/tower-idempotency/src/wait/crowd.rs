//! Those who wait for one key: what they wait for, and whose turn it is to ask.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Mutex;
use tower_claim::store::Watched;
use tower_claim::{Clock, DynClaimStore, Fingerprint, Key, StoreError, Token};

use super::Told;
use crate::inside::Here;

type Watch = BoxFuture<'static, News>;

/// How a watch that ends while the hold goes on (a lease that lapses over and over, a store that is fooled) is slowed
/// down.
const WATCH_PAUSE: Duration = Duration::from_millis(50);
/// How long a crowd waits between two looks for a run that is inside of its transaction in another process.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// What a crowd hears.
#[derive(Clone)]
pub(super) enum News {
    /// What became of the hold.
    Watched(Result<Watched, Arc<StoreError>>),
    /// What one of them was told.
    Told(Arc<Told>),
}

/// Something that a crowd waits for.
#[derive(Clone)]
pub(super) struct Round {
    pub(super) number: u64,
    /// The hold.
    pub(super) token: Token,
    /// Whose payload it is, once somebody who knows has joined.
    print: Arc<OnceLock<Fingerprint>>,
    pub(super) news: Shared<Watch>,
}

impl Round {
    pub(super) fn print(&self) -> Option<Fingerprint> {
        self.print.get().copied()
    }
}

/// Those who wait for one key.
#[derive(Default)]
pub(super) struct Crowd {
    pub(super) followers: usize,
    /// The newest. None before one of them has asked.
    pub(super) round: Option<Round>,
    /// Held by the one who asks.
    turn: Arc<Mutex<()>>,
}

impl Crowd {
    pub(super) fn turn(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// The crowd follows this hold, or a newer one that it knows of: who was told late of an older hold waits along.
    /// `watch` makes a watch, told whether there was one of it before. What is followed no more is for the caller to
    /// drop.
    pub(super) fn join(
        &mut self,
        token: Token,
        print: Option<Fingerprint>,
        watch: impl FnOnce(bool) -> Watch,
    ) -> Option<Round> {
        let old = self.round.take();
        // Over, and not everyone has left yet. The hold goes on all the same, or none would follow it: what was
        // seen then tells nothing of now, and who reads it over and over would never look again.
        let (number, is_again) = match old {
            Some(round) if round.token >= token && round.news.peek().is_none() => {
                if let Some(print) = print.filter(|_| round.token == token) {
                    let _ = round.print.set(print);
                }
                self.round = Some(round);
                return None;
            }
            Some(ref round) => (round.number + 1, round.token == token),
            None => (1, false),
        };
        self.round = Some(Round {
            number,
            token,
            print: Arc::new(print.map_or_else(OnceLock::new, OnceLock::from)),
            news: watch(is_again).shared(),
        });
        old
    }

    /// One of them was told this, and tells all.
    pub(super) fn tell(&mut self, told: Told) -> Option<Round> {
        let old = self.round.take();
        let (number, token) = old
            .as_ref()
            .map_or((1, Token::ZERO), |round| (round.number + 1, round.token));
        let print = OnceLock::from(told.print);
        let news = News::Told(Arc::new(told));
        let news = std::future::ready(news).boxed().shared();
        // It is over as it begins: who comes later follows what goes on then.
        let _ = news.clone().now_or_never();
        self.round = Some(Round {
            number,
            token,
            print: Arc::new(print),
            news,
        });
        old
    }
}

/// What is watched, by.
pub(super) struct Watching {
    pub(super) store: Arc<dyn DynClaimStore>,
    pub(super) clock: Arc<dyn Clock>,
    /// Where claims are made inside of transactions: the store sees none of these runs.
    pub(super) here: Option<Here>,
}

impl Watching {
    /// A watch of this hold; where it was watched already, and still goes on, with a pause first.
    pub(super) fn watch(&self, (key, token): (Key, Token), is_again: bool) -> Watch {
        if let Some(end) = self.here.as_ref().and_then(|here| here.end_of(key)) {
            return end.map(|()| News::Watched(Ok(Watched::Ended))).boxed();
        }
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        // Of another process: nobody tells of its end, and each look takes a connection.
        let pause = match self.here {
            Some(_) => LOOK_PAUSE,
            None => WATCH_PAUSE,
        };
        let watch = async move {
            if is_again {
                clock.sleep_until(clock.now() + pause).await;
            }
            News::Watched(store.dyn_watch(key, token).await.map_err(Arc::new))
        };
        watch.boxed()
    }
}
