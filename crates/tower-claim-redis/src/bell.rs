//! Notifications: one connection for all who wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower_claim::Key;
use tower_claim::engine::Bells;

use crate::target::Target;

/// How long a connection may be silent before it is asked whether it lives.
const SILENCE: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The task that listens, begun by the first who waits. Ends with the store.
#[derive(Debug, Default)]
pub(crate) struct Listener(Mutex<Option<JoinHandle<()>>>);

impl Listener {
    /// Begins to listen, unless a task does already. Its runtime may have ended before the store.
    pub(crate) fn ensure(
        &self,
        target: &Arc<Target>,
        bells: &Arc<Bells>,
        channel: &str,
        within: Duration,
    ) {
        let mut task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (target, bells) = (Arc::clone(target), Arc::clone(bells));
            *task = Some(runtime.spawn(listen(target, bells, channel.to_owned(), within)));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

async fn listen(target: Arc<Target>, bells: Arc<Bells>, channel: String, within: Duration) {
    let mut pause = FIRST_PAUSE;
    loop {
        let connected = timeout(within, async {
            let mut pubsub = target.open_pubsub().await?;
            pubsub.subscribe(&channel).await?;
            RedisResult::Ok(pubsub)
        });
        if let Ok(Ok(pubsub)) = connected.await {
            pause = FIRST_PAUSE;
            // What was published while nobody listened is lost.
            bells.ring_all();
            let (mut sink, mut messages) = pubsub.split();
            loop {
                match timeout(SILENCE, messages.next()).await {
                    Ok(Some(message)) => {
                        if let Ok(key) = message
                            .get_payload::<String>()
                            .map_err(drop)
                            .and_then(|key| key.parse::<Key>().map_err(drop))
                        {
                            bells.ring(&key);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => match timeout(within, sink.ping::<Value>()).await {
                        Ok(Ok(_)) => {}
                        _ => break,
                    },
                }
            }
        }
        tracing::debug!(channel, "no notifications: whoever waits, polls");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
