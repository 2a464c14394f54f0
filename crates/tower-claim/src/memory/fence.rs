//! The guard's store in memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::store::{Admission, FenceStore};
use crate::{Nonce, StoreError, Token};

const SHARDS: usize = 64;
const DEFAULT_MOST: usize = 100_000;

/// High-water marks in the memory of this process. Clones are one store.
///
/// It protects what lives no longer than the process: keep the marks of a database in that database.
///
/// Bounded: beyond [`with_max_resources`](Self::with_max_resources) (100,000 by default) the lowest marks
/// are pruned and fold into a floor, which is the mark of every resource that has none. So nothing at or
/// below a mark is ever admitted again, and what the floor refuses in vain (a token older than the lowest
/// marks, at a resource not seen for long) heals as any stale token does: release, new nonce, claim above
/// [`high_water`](FenceStore::high_water).
#[derive(Clone)]
pub struct MemoryFenceStore {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    most_per_shard: usize,
}

/// A resource by its SHA-256: of one size, whatever the length of its name.
type Resource = [u8; 32];

struct Shard {
    marks: HashMap<Resource, Mark>,
    floor: Token,
}

#[derive(Clone, Copy)]
struct Mark {
    high: Token,
    /// None where an operator raised the mark: then the token itself is refused as well.
    nonce: Option<Nonce>,
}

impl MemoryFenceStore {
    /// A store for the marks of 100,000 resources.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a store is shared, never a default"
    )]
    pub fn new() -> Self {
        Self::with_max_resources(DEFAULT_MOST)
    }

    /// A store that keeps about so many marks one by one, 64 at least.
    #[must_use]
    pub fn with_max_resources(most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect();
        Self {
            inner: Arc::new(Inner {
                shards,
                most_per_shard: most.div_ceil(SHARDS).max(1),
            }),
        }
    }

    /// Marks kept one by one.
    pub fn resources(&self) -> usize {
        let shards = self.inner.shards.iter();
        shards.map(|shard| lock(shard).marks.len()).sum()
    }

    fn shard(&self, resource: &str) -> (MutexGuard<'_, Shard>, Resource) {
        let resource: Resource = Sha256::digest(resource).into();
        let shard = &self.inner.shards[resource[0] as usize % SHARDS];
        (lock(shard), resource)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn new() -> Self {
        Self {
            marks: HashMap::new(),
            floor: Token::ZERO,
        }
    }

    fn mark(&self, resource: &Resource) -> Mark {
        self.marks.get(resource).copied().unwrap_or(Mark {
            high: self.floor,
            nonce: None,
        })
    }

    fn set(&mut self, resource: Resource, mark: Mark, most: usize) {
        if !self.marks.contains_key(&resource) && self.marks.len() >= most {
            self.prune(most);
        }
        self.marks.insert(resource, mark);
    }

    /// Folds the lowest eighth into the floor, so that the next prune is an eighth away.
    fn prune(&mut self, most: usize) {
        let mut highs: Vec<Token> = self.marks.values().map(|mark| mark.high).collect();
        let (_, fold, _) = highs.select_nth_unstable(most / 8);
        self.floor = self.floor.max(*fold);
        let floor = self.floor;
        self.marks.retain(|_, mark| mark.high > floor);
    }
}

impl FenceStore for MemoryFenceStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        let (mut shard, resource) = self.shard(resource);
        let Mark { high, nonce: known } = shard.mark(&resource);
        if token > high {
            let mark = Mark {
                high: token,
                nonce: Some(nonce),
            };
            shard.set(resource, mark, self.inner.most_per_shard);
            return Ok(Admission::Admitted);
        }
        Ok(match known {
            Some(known) if token == high && known == nonce => Admission::Admitted,
            Some(_) if token == high => Admission::Collision { high },
            _ => Admission::Stale { high },
        })
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let (mut shard, resource) = self.shard(resource);
        let high = shard.mark(&resource).high;
        if floor < high || floor == Token::ZERO {
            return Ok(high);
        }
        let mark = Mark {
            high: floor,
            nonce: None,
        };
        shard.set(resource, mark, self.inner.most_per_shard);
        Ok(floor)
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        let (shard, resource) = self.shard(resource);
        Ok(shard.mark(&resource).high)
    }
}

impl fmt::Debug for MemoryFenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFenceStore")
            .field("resources", &self.resources())
            .finish_non_exhaustive()
    }
}
