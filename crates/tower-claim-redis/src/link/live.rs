//! The connection in use.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;

use crate::target::{Connection, Target};

/// The connection in use. A call that finds it broken takes it out; the next one makes another.
#[derive(Default)]
pub(super) struct Live {
    now: Mutex<(u64, Option<Connection>)>,
    /// One connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

impl Live {
    pub(super) fn with(first: Option<Connection>) -> Self {
        let live = Self::default();
        *live.lock() = (0, first);
        live
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Option<Connection>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<(u64, Connection)> {
        let live = self.lock();
        live.1.clone().map(|connection| (live.0, connection))
    }

    pub(super) async fn get(
        &self,
        target: &Target,
        within: Duration,
    ) -> RedisResult<(u64, Connection)> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _one = self.connecting.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let connection = target.open(within).await?;
        let mut live = self.lock();
        *live = (live.0 + 1, Some(connection.clone()));
        Ok((live.0, connection))
    }

    /// Takes a broken connection out, unless another has its place already.
    pub(super) fn take(&self, number: u64) {
        let mut live = self.lock();
        if live.0 == number {
            live.1 = None;
        }
    }
}
