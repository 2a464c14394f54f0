//! Waiting for the end of a hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::future::BoxFuture;

use super::*;

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A watch that has been polled once and waits.
struct Waiting {
    watch: BoxFuture<'static, Result<Watched, StoreError>>,
    bell: Arc<Bell>,
}

impl Waiting {
    #[track_caller]
    fn on(store: &MemoryStore, k: u64, token: Token) -> Self {
        let store = store.clone();
        let watch = Box::pin(async move { store.watch(key(k), token).await });
        let bell = Arc::new(Bell::default());
        let mut waiting = Self { watch, bell };
        assert_eq!(waiting.poll(), None, "nothing has ended yet");
        waiting
    }

    fn poll(&mut self) -> Option<Watched> {
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut context = Context::from_waker(&waker);
        match self.watch.as_mut().poll(&mut context) {
            std::task::Poll::Ready(watched) => Some(watched.unwrap()),
            std::task::Poll::Pending => None,
        }
    }

    /// What it answers, polled only if it was woken.
    #[track_caller]
    fn woken(mut self) -> Watched {
        assert!(self.bell.0.load(Ordering::SeqCst) > 0, "nobody woke it");
        self.poll().unwrap()
    }
}

#[test]
fn each_end_of_a_hold_wakes_who_watches() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));

    let token = granted(claim(&store, 1, 1, &settings));
    let waiting = Waiting::on(&store, 1, token);
    let _ = finish(&store, 1, 1, token, Bytes::from_static(b"x"), secs(60));
    assert!(matches!(waiting.woken(), Watched::Done(done) if done.token == token));

    let token = granted(claim(&store, 2, 1, &settings));
    let waiting = Waiting::on(&store, 2, token);
    release(&store, 2, 1);
    assert_eq!(waiting.woken(), Watched::Ended);

    let token = granted(claim(&store, 3, 1, &settings));
    let waiting = Waiting::on(&store, 3, token);
    now(store.break_claim(key(3), token)).unwrap();
    assert_eq!(waiting.woken(), Watched::Ended);

    let token = granted(claim(&store, 4, 1, &settings));
    let waiting = Waiting::on(&store, 4, token);
    clock.advance(secs(10));
    assert_eq!(waiting.woken(), Watched::Ended);

    let token = granted(claim(&store, 5, 1, &settings));
    let waiting = Waiting::on(&store, 5, token);
    release(&store, 5, 1);
    let next = granted(claim(&store, 5, 2, &settings));
    assert_eq!(waiting.woken(), Watched::Superseded { token: next });

    assert_eq!(store.stats().watched, 0);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_claim_of_several_keys_wakes_who_watches_one_of_them() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    clock.advance(secs(9));
    let waiting = Waiting::on(&store, 1, token);
    clock.advance(secs(1));
    let next = now(store.claim_many(ClaimManyRequest {
        keys: &[key(1)],
        nonce: nonce(2),
        settings: &settings,
        floor: Token::ZERO,
        not_after: StoreTime::NEVER,
    }));
    let Ok(ClaimedMany::Granted(next)) = next else {
        panic!("not granted: {next:?}");
    };
    let token = next.token;
    assert_eq!(waiting.woken(), Watched::Superseded { token });
}

#[test]
fn a_renewed_hold_goes_on_past_its_first_lapse() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    let mut waiting = Waiting::on(&store, 1, token);
    clock.advance(secs(8));
    let owner = Owner {
        key: key(1),
        nonce: nonce(1),
        token,
    };
    now(store.renew(&[Beat { owner, progress: 1 }])).unwrap();
    clock.advance(secs(2));
    assert_eq!(waiting.poll(), None);
    clock.advance(secs(8));
    assert_eq!(waiting.woken(), Watched::Ended);
}

#[test]
fn dropped_watches_leave_nothing_behind() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 0, 1, &settings));
    let crowd: Vec<Waiting> = (0..1000).map(|_| Waiting::on(&store, 0, token)).collect();
    assert_eq!((store.stats().watched, clock.sleepers()), (1, 1000));
    drop(crowd);
    for k in 1..100_000 {
        let token = granted(claim(&store, k, 1, &settings));
        drop(Waiting::on(&store, k, token));
        release(&store, k, 1);
    }
    assert_eq!((store.stats().watched, clock.sleepers()), (0, 0));
}
