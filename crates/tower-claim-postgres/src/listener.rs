//! The one connection that listens, and the purger: tasks that end with the store.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};
use tower_claim::Key;
use tower_claim::engine::Bells;

use crate::link::{Link, Messages};

/// Between two tries to listen. Whoever waits polls meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// For a connection that listens to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// A task that is stopped with its owner.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Rings the bells of those who wait, at notifications. Begins to listen when somebody first waits.
#[derive(Debug)]
pub(crate) struct Listener {
    link: Option<Link>,
    bells: Arc<Bells>,
    task: Mutex<Option<Task>>,
}

impl Listener {
    /// Without a link nobody listens: whoever waits, polls.
    pub(crate) fn new(link: Option<Link>) -> Self {
        Self {
            link,
            bells: Arc::new(Bells::new()),
            task: Mutex::new(None),
        }
    }

    pub(crate) fn bells(&self) -> &Bells {
        &self.bells
    }

    /// Whether notifications are worth their price.
    pub(crate) fn listens(&self) -> bool {
        self.link.is_some()
    }

    /// Listens from now on, on the runtime of who first waits; on another's, where that one has ended.
    pub(crate) fn begin(&self) {
        let Some(link) = &self.link else { return };
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(|task| task.0.is_finished()) {
            let (link, bells) = (link.clone(), Arc::downgrade(&self.bells));
            *task = Some(Task::spawn(listen(link, bells)));
        }
    }
}

async fn listen(link: Link, bells: Weak<Bells>) {
    while bells.strong_count() > 0 {
        if let Err(error) = session(&link, &bells).await {
            tracing::debug!(%error, "not listening: whoever waits polls");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn session(link: &Link, bells: &Weak<Bells>) -> Result<(), tokio_postgres::Error> {
    // A server that takes the connection and says nothing is left: the next try may meet another.
    let begun = tokio::time::timeout(PATIENCE, begin(link, bells)).await;
    let Some((_client, mut messages)) = begun.unwrap_or(Ok(None))? else {
        return Ok(());
    };
    // What ended before we listened was not heard.
    if let Some(bells) = bells.upgrade() {
        bells.ring_all();
    }
    ring(&mut messages, bells).await
}

/// A connection that listens; none where it ended at once.
async fn begin(
    link: &Link,
    bells: &Weak<Bells>,
) -> Result<Option<(Client, Messages)>, tokio_postgres::Error> {
    let (client, mut messages) = link.connect().await?;
    {
        // The client is answered only while the connection is read.
        let asked = pin!(client.batch_execute("LISTEN tower_claim"));
        let read = pin!(ring(&mut messages, bells));
        match select(asked, read).await {
            Either::Left((answer, _)) => answer?,
            Either::Right((ended, _)) => return ended.map(|()| None),
        }
    }
    Ok(Some((client, messages)))
}

async fn ring(messages: &mut Messages, bells: &Weak<Bells>) -> Result<(), tokio_postgres::Error> {
    while let Some(message) = messages.next().await {
        let AsyncMessage::Notification(note) = message? else {
            continue;
        };
        let (Some(bells), Ok(key)) = (bells.upgrade(), note.payload().parse::<Key>()) else {
            continue;
        };
        bells.ring(&key);
    }
    Ok(())
}
