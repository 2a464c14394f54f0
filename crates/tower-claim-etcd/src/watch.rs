//! Waiting for the end of a hold: one etcd watch for all who wait, and a poll as the net.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Error, WatchFilterType, WatchOptions, WatchStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower_claim::engine::{Bells, Watching};
use tower_claim::store::Watched;
use tower_claim::{Key, StoreError, Token};

use crate::calls::Calls;
use crate::keys::{Keys, LIVE};
use crate::members::{Members, Turn};
use crate::store::{Inner, unix_ms};

/// Between a watch that broke and the next.
const PAUSE: Duration = Duration::from_millis(500);

/// The task that listens, begun by the first who waits. It ends with the store.
#[derive(Debug, Default)]
pub(crate) struct Watcher(Mutex<Option<JoinHandle<()>>>);

impl Watcher {
    /// A task whose runtime has ended is begun anew, on the runtime of who waits now.
    fn start(&self, listen: impl Future<Output = ()> + Send + 'static) {
        let mut task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(listen));
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Inner {
    pub(crate) async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        let (calls, keys) = (self.calls.clone(), self.keys.clone());
        self.watcher
            .start(listen(calls, keys, Arc::clone(&self.bells)));
        let look = || async {
            let deadline = self.calls.deadline();
            let seen = self.look_at(deadline, key, None).await?;
            Ok(match seen.watch(token, unix_ms()) {
                Ok(watched) => Watching::Over(watched),
                Err(left) => Watching::Until(self.now().saturating_add(left)),
            })
        };
        self.bells
            .watch(key, token, self.poll, || self.now(), look)
            .await
    }
}

/// Rings where a liveness key goes: every end of a hold takes it away. Beats are puts, and not sent to us.
async fn listen(calls: Calls, keys: Keys, bells: Arc<Bells>) {
    loop {
        let turn = calls.members.turn();
        let begun = timeout(calls.limit, begin(&calls.members, turn, &keys)).await;
        if let Ok(Ok(mut stream)) = begun {
            while let Ok(Some(answer)) = stream.message().await {
                if answer.canceled() {
                    break;
                }
                if answer.created() {
                    // What happened before it is told by nobody.
                    bells.ring_all();
                }
                for event in answer.events() {
                    let key = event.kv().and_then(|kv| keys.parse(kv.key()));
                    if let Some((key, LIVE)) = key {
                        bells.ring(&key);
                    }
                }
            }
        }
        calls.members.pass(turn);
        sleep(PAUSE).await;
    }
}

async fn begin(members: &Members, turn: Turn, keys: &Keys) -> Result<WatchStream, Error> {
    let options = WatchOptions::new()
        .with_range(keys.end())
        .with_filters(vec![WatchFilterType::NoPut]);
    let client = members.client(turn).await?;
    let mut watches = client.watch_client();
    watches.watch(keys.all(), Some(options)).await
}
