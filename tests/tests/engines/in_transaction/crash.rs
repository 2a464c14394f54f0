//! A shop that is killed or paused at any point between claim and answer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Instant;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use sqlx::{Postgres, Transaction};
use system_tests::servers::PgBouncer;

use super::victim::Victim;
use super::{Mode, SECOND, Shop, TOGETHER, until};

/// Requests under way when their process is killed.
const ABORTED: usize = 500;
/// Of these at each kill.
const AT_ONCE: usize = 25;

fn some_keys(name: &str) -> Vec<String> {
    (0..AT_ONCE).map(|n| format!("{name}-{n}")).collect()
}

/// What is left when so many requests were cut off and repeated.
struct Left {
    /// How often each key was ordered.
    orders: BTreeMap<String, usize>,
    /// The keys of orders that were answered by their first process.
    answered: Vec<String>,
    cut_off: Vec<String>,
}

impl Left {
    fn each_once(&self) {
        for (key, orders) in &self.orders {
            assert_eq!(*orders, 1, "{key}");
        }
    }

    /// Kills at every point of a request: from before it is read until after it is answered.
    async fn of_killed(shop: &Shop, mode: Mode) -> Self {
        let mut answered = Vec::new();
        let mut cut_off = Vec::new();
        let mut kills = 0_u64;
        while cut_off.len() < ABORTED {
            let victim = Victim::start(shop, mode);
            // It has connections, and is as fast as it will be.
            let undisturbed = Instant::now();
            let keys = some_keys(&format!("before-{kills}"));
            let first = keys.clone().into_iter().zip(victim.order_all(&keys).await);
            let delay = undisturbed.elapsed().mul_f64(kills as f64 * 0.618 % 1.2);
            let keys = some_keys(&format!("killed-{kills}"));
            let orders = victim.order_all(&keys);
            let answers = match select(pin!(orders), pin!(tokio::time::sleep(delay))).await {
                Either::Left((answers, _)) => answers,
                Either::Right(((), orders)) => {
                    victim.shoot();
                    orders.await
                }
            };
            drop(victim);
            for (key, answer) in first.chain(keys.into_iter().zip(answers)) {
                match answer {
                    Some((StatusCode::CREATED, body)) => answered.push((key, body)),
                    // On a busy machine the store may not have answered in time; inside, it may have waited
                    // longer for a page than for a rival.
                    None | Some((StatusCode::SERVICE_UNAVAILABLE | StatusCode::CONFLICT, _)) => {
                        cut_off.push(key);
                    }
                    Some(other) => panic!("{key}: {other:?}"),
                }
            }
            kills += 1;
            assert!(kills < 400, "too few were cut off: {}", cut_off.len());
        }

        let survivor = Victim::start(shop, mode);
        for (key, body) in &answered {
            let again = survivor.order(key).await;
            assert_eq!(again, Some((StatusCode::CREATED, body.clone())), "{key}");
        }
        let done_before = shop.rows().await.len() - answered.len();
        let patient = cut_off.iter().map(|key| survivor.order_in_the_end(key));
        let patient = futures_util::stream::iter(patient).buffer_unordered(16);
        patient.collect::<Vec<()>>().await;
        drop(survivor);

        let answered: Vec<String> = answered.into_iter().map(|(key, _)| key).collect();
        let keys = answered.iter().chain(&cut_off);
        let mut orders: BTreeMap<_, _> = keys.map(|key| (key.clone(), 0)).collect();
        for key in shop.rows().await {
            *orders.get_mut(&key).expect("a key that was sent") += 1;
        }
        println!(
            "{mode:?}: {kills} kills, {} answered, {} cut off, of these {done_before} committed; {} orders for {} keys",
            answered.len(),
            cut_off.len(),
            orders.values().sum::<usize>(),
            orders.len(),
        );
        assert!(done_before > 0, "no kill came after a commit");
        Self {
            orders,
            answered,
            cut_off,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_killed_requests_each_ordered_once() {
    let shop = Shop::open().await;
    Left::of_killed(&shop, Mode::Outside).await.each_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_killed_requests_that_claim_inside_each_ordered_once() {
    let shop = Shop::open().await;
    Left::of_killed(&shop, Mode::Inside).await.each_once();
}

/// Apart from its record an order is never lost, and never doubled where its caller heard of it. Where the process died
/// between the two, the repeat orders again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_killed_requests_that_commit_apart_none_is_lost_and_only_unheard_ones_doubled()
 {
    let shop = Shop::open().await;
    let left = Left::of_killed(&shop, Mode::Separate).await;
    for key in &left.answered {
        assert_eq!(left.orders[key], 1, "{key}");
    }
    for key in &left.cut_off {
        assert!((1..=2).contains(&left.orders[key]), "{key}");
    }
}

/// With an index over what names the intent, and a hook that tells of the row that is there, they are ordered once all
/// the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_killed_requests_that_commit_apart_under_an_index_each_ordered_once() {
    let shop = Shop::open().await;
    shop.one_order_per_item().await;
    Left::of_killed(&shop, Mode::Separate).await.each_once();
}

/// ikyriak/IdempotentAPI #57: a crash between the business row and the record of the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_21_a_crash_after_the_row_leaves_none_and_the_retry_orders_once() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let answer = Victim::that_aborts(&shop, mode).order("key").await;
        assert_eq!(answer, None, "it died before it could answer");
        assert!(shop.rows().await.is_empty(), "{mode:?}");
        let survivor = Victim::start(&shop, mode);
        survivor.order_in_the_end("key").await;
        assert_eq!(shop.rows().await, ["key"], "{mode:?}");
    }
}

/// What the modes above are for: apart, the same crash doubles the order, unless an index stops it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_21_apart_from_the_record_the_retry_orders_twice_unless_an_index_forbids() {
    for indexed in [false, true] {
        let shop = Shop::open().await;
        if indexed {
            shop.one_order_per_item().await;
        }
        let answer = Victim::that_aborts(&shop, Mode::Separate)
            .order("key")
            .await;
        assert_eq!(answer, None, "it died before it could answer");
        let survivor = Victim::start(&shop, Mode::Separate);
        survivor.order_in_the_end("key").await;
        let told = survivor.order("key").await.expect("an answer");
        if indexed {
            assert_eq!(told.1, "order 1", "the first process's");
            assert_eq!(shop.rows().await, ["key"]);
        } else {
            assert_eq!(told.1, "order 2");
            assert_eq!(shop.rows().await, ["key", "key"]);
        }
    }
}

/// A table that nobody can write to.
async fn blocked(shop: &Shop) -> Transaction<'static, Postgres> {
    let mut blocks = shop.pool.begin().await.expect("a transaction");
    let lock = sqlx::query("lock table orders in exclusive mode");
    lock.execute(&mut *blocks).await.expect("locked");
    blocks
}

/// A handler that is in the midst of its row when its process is stopped, and whose row is written meanwhile.
async fn pause_behind_the_row(shop: &Shop, blocks: Transaction<'static, Postgres>, owner: &Victim) {
    let waits = async || {
        let waiting =
            "select count(*) from pg_locks where relation = 'orders'::regclass and not granted";
        let count = sqlx::query_scalar(waiting).fetch_one(&shop.pool).await;
        count.ok() == Some(1_i64)
    };
    until("its handler waits for the table", waits).await;
    owner.pause();
    blocks.rollback().await.expect("unlocked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_paused_past_its_lease_commits_nothing() {
    let shop = Shop::open().await;
    let owner = Victim::start(&shop, Mode::Outside);
    let survivor = Victim::start(&shop, Mode::Outside);
    let blocks = blocked(&shop).await;
    let late = owner.order("key");
    let taken_over = async {
        pause_behind_the_row(&shop, blocks, &owner).await;
        // Refused while the lease lasts.
        survivor.order_in_the_end("key").await;
        assert_eq!(shop.rows().await, ["key"], "the other's");
        owner.go_on();
    };
    let (late, ()) = tokio::join!(late, taken_over);
    let told = survivor.order("key").await;
    assert_eq!(late, told, "one intent, one answer");
    assert_eq!(shop.rows().await, ["key"]);
}

/// Inside there is no lease: a pause is a slow run, and nobody takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_paused_inside_its_transaction_is_waited_for_and_commits() {
    let shop = Shop::open().await;
    let owner = Victim::start(&shop, Mode::Inside);
    let other = Victim::start(&shop, Mode::Inside);
    let blocks = blocked(&shop).await;
    let paused = owner.order("key");
    let refused = async {
        pause_behind_the_row(&shop, blocks, &owner).await;
        let since = Instant::now();
        // Past the second that a lease would have lasted.
        while since.elapsed() < 3 * SECOND {
            let busy = other.order("key").await.expect("an answer");
            assert_eq!(busy.0, StatusCode::CONFLICT, "{}", busy.1);
        }
        assert!(shop.rows().await.is_empty());
        owner.go_on();
    };
    let (paused, ()) = tokio::join!(paused, refused);
    let paused = paused.expect("an answer");
    assert_eq!(paused.0, StatusCode::CREATED, "{}", paused.1);
    assert_eq!(other.order("key").await, Some(paused));
    assert_eq!(shop.rows().await, ["key"]);
}

/// A session of a pooler outlives its client; no claim of ours is bound to one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_owner_behind_a_pooler_keeps_its_key_for_its_lease_and_no_longer() {
    let shop = Shop::open().await;
    let pooler = tokio::task::spawn_blocking(|| PgBouncer::before(super::server(), 2)).await;
    let pooler = pooler.expect("it starts");
    let victim = Victim::claiming_at(&shop, &pooler.url());
    let survivor = Victim::claiming_at(&shop, &pooler.url());
    // Its handler waits for this row until it is killed.
    let blocks = blocked(&shop).await;
    let killed = victim.order("key");
    let held = async {
        until("the key is claimed", async || {
            let count = sqlx::query_scalar("select count(*) from claim");
            count.fetch_one(&shop.pool).await.ok() == Some(1_i64)
        })
        .await;
        let busy = survivor.order("key").await.expect("an answer");
        assert_eq!(busy.0, StatusCode::CONFLICT, "{}", busy.1);
        victim.shoot();
    };
    let (answer, ()) = tokio::join!(killed, held);
    assert_eq!(answer, None, "it was killed before it could answer");
    let since = Instant::now();
    blocks.rollback().await.expect("unlocked");
    survivor.order_in_the_end("key").await;
    assert!(since.elapsed() < 60 * SECOND, "{:?}", since.elapsed());
    assert_eq!(shop.rows().await, ["key"]);
}
