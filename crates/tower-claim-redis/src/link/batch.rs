//! Many keys in few calls.

use std::collections::HashMap;

use futures_util::future::join_all;
use redis::cluster_routing::Slot;
use redis::{Cmd, Value};
use tokio::time::Instant;
use tower_claim::{Key, StoreError};

use super::Link;
use crate::error::Errors;
use crate::script::Script;

/// Keys in one script, at most: a longer one would keep Redis from its other clients for more than about a
/// millisecond. More go as several scripts, which travel together.
const BATCH: usize = 32;

/// Parts of a batch that went together, and what came back.
pub(crate) type Part = (Vec<usize>, Result<Vec<Value>, StoreError>);

impl Link {
    /// Runs a script over many keys, in as few calls as there may be, all under way at once.
    ///
    /// While a slot moves from node to node, Redis refuses (`TRYAGAIN`) a script over keys of which some lie
    /// here and some there, and the client repeats it in vain. So on a cluster a script over several has half
    /// of the time, and then they go one by one: no hold lapses because its neighbour has moved.
    pub(crate) async fn run_many(
        &self,
        script: &Script,
        keys: &[Key],
        fill: impl Fn(&mut Cmd, usize),
    ) -> Vec<Part> {
        let now = Instant::now();
        let until = now + self.limit;
        let part = async |until: Instant, places: Vec<usize>| {
            let names: Vec<String> = places.iter().map(|n| self.name(&keys[*n])).collect();
            let all = |command: &mut Cmd| places.iter().for_each(|n| fill(command, *n));
            let answer = self.run_until(until, script, &names, all).await;
            let answers = answer.and_then(|reply| reply.parts(places.len()));
            (places, answers)
        };
        let parts = async |places: Vec<usize>| {
            if !self.cluster || places.len() == 1 {
                return vec![part(until, places).await];
            }
            match part(now + self.limit / 2, places).await {
                (places, Err(error)) if error.is_retryable() => {
                    join_all(places.into_iter().map(|place| part(until, vec![place]))).await
                }
                together => vec![together],
            }
        };
        let all = join_all(self.together(keys).into_iter().map(parts)).await;
        all.into_iter().flatten().collect()
    }

    /// As [`run_many`](Self::run_many): the answer of each key as `read` understands it, `None` where there is
    /// none, and with those the error of the whole batch.
    pub(crate) async fn answers_of<T>(
        &self,
        script: &Script,
        keys: &[Key],
        fill: impl Fn(&mut Cmd, usize),
        read: impl Fn(Value, &str) -> Result<T, StoreError>,
    ) -> (Vec<Option<T>>, Option<StoreError>) {
        let mut all: Vec<Option<T>> = keys.iter().map(|_| None).collect();
        let mut errors = Errors::default();
        for (places, answers) in self.run_many(script, keys, fill).await {
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => {
                    errors.add(error);
                    continue;
                }
            };
            for (place, answer) in places.into_iter().zip(answers) {
                match read(answer, &keys[place].prefix()) {
                    Ok(answer) => all[place] = Some(answer),
                    Err(error) => errors.add(error),
                }
            }
        }
        let told = all.iter().any(Option::is_some);
        (all, errors.sum(told))
    }

    /// The places of keys that may go in one script.
    fn together(&self, keys: &[Key]) -> Vec<Vec<usize>> {
        let places: Vec<usize> = (0..keys.len()).collect();
        if !self.apart {
            return places.chunks(BATCH).map(<[usize]>::to_vec).collect();
        }
        let mut slots: HashMap<Slot, Vec<usize>> = HashMap::new();
        for place in places {
            let slot = Slot::for_key(self.name(&keys[place]));
            slots.entry(slot).or_default().push(place);
        }
        let of_one_slot = slots.into_values();
        of_one_slot
            .flat_map(|places| {
                places
                    .chunks(BATCH)
                    .map(<[usize]>::to_vec)
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}
