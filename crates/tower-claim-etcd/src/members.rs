//! Which member of the cluster is asked: one connection each, and calls go to one until it fails them.
//!
//! A client that spreads its calls over all members sends every third one to a member that stands still (its
//! kernel takes connections, and nothing answers), and a move makes three. Here such a member costs one
//! attempt, whoever makes it.

use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_client::{Client, Error};
use tokio::sync::OnceCell;
use tower_claim::{Entropy, OsEntropy};

/// The members that a store knows.
pub(crate) struct Members {
    all: Vec<Member>,
    user: Option<(String, String)>,
    /// Whose turn it is: taken by the number of members.
    turn: AtomicUsize,
}

struct Member {
    client: Client,
    /// It knows the user.
    admitted: OnceCell<()>,
}

/// A turn, as it was when a call went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(usize);

impl Members {
    /// A client for each member. A user is told to each when it is asked first: one that is down must not
    /// keep the others away.
    pub(crate) fn new(clients: Vec<Client>, user: Option<(String, String)>) -> Self {
        let all = clients.into_iter().map(|client| Member {
            client,
            admitted: OnceCell::new(),
        });
        // Not the first one named: else all processes would load the same.
        let mut any = [0];
        OsEntropy.fill(&mut any);
        Self {
            all: all.collect(),
            user,
            turn: AtomicUsize::new(usize::from(any[0])),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// So often one call is made: twice around, and a little more. Where all of them refuse, its caller hears it
    /// before the call timeout.
    pub(crate) fn tries(&self) -> usize {
        2 * self.all.len() + 3
    }

    pub(crate) fn turn(&self) -> Turn {
        Turn(self.turn.load(Ordering::Relaxed))
    }

    /// The member of this turn has failed a call: the next one is asked from now on. Of many calls that failed
    /// at once, one turns.
    pub(crate) fn pass(&self, Turn(failed): Turn) {
        let next = failed.wrapping_add(1);
        let _ = self
            .turn
            .compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The connection to the member of this turn. Nothing of a call was sent before it is there.
    pub(crate) async fn client(&self, Turn(turn): Turn) -> Result<Client, Error> {
        let none = || Error::InvalidArgs("no endpoint".to_owned());
        let nth = turn.checked_rem(self.all.len()).ok_or_else(none)?;
        let member = self.all.get(nth).ok_or_else(none)?;
        if let Some(user) = &self.user {
            let admit = async || member.client.clone().update_user(Some(user.clone())).await;
            member.admitted.get_or_try_init(admit).await?;
        }
        Ok(member.client.clone())
    }
}
