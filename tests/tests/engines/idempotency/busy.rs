//! Repeats in two processes while the first run is going: told when to come again, or waiting for its end.

use tower_claim::testing::Operation;
use tower_claim::{ClaimAdmin, Renewal};
use tower_idempotency::{IdempotencyBuilder, OnBusy};

use super::on_each_engine;
use super::scene::{Answer, Engine, PATIENCE, Process, SECOND, Shop, all, ask, one_ran, until};

/// Who waits in each process.
const CROWD: usize = 200;

on_each_engine!(
    a_repeat_is_told_the_rest_of_the_lease,
    the_first_answer_comes_to_all_who_wait_in_both_processes,
    one_of_each_process_claims_when_a_run_ends_without_an_outcome,
    a_crowd_is_told_once_that_the_outcome_is_unknown,
    no_more_wait_than_may_and_none_for_longer,
    who_waits_leaves_the_connections_to_others,
);

fn waiting(builder: IdempotencyBuilder) -> IdempotencyBuilder {
    builder.on_busy(OnBusy::Wait(PATIENCE * 4))
}

async fn two<E: Engine>(place: &E, shop: &Shop) -> [Process<E>; 2] {
    [
        Process::with(place, shop, waiting).await,
        Process::with(place, shop, waiting).await,
    ]
}

async fn a_repeat_is_told_the_rest_of_the_lease<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let lease = |builder: IdempotencyBuilder| builder.lease(45 * SECOND).renewal(Renewal::Off);
    let one = Process::with(&place, &shop, lease).await;
    let other = Process::with(&place, &shop, lease).await;
    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let left = async || {
        let all = other.store.scan(None, 10).await.expect("a page");
        let held = all.records.first().expect("one record");
        held.expires_in.as_secs_f64().ceil()
    };
    let before = left().await;
    let refused = other.ask(&ask("k")).await;
    let after = left().await;
    refused.assert_refused(409, "in-progress");
    let told = refused.retry_after().expect("when to come again");
    let told = f64::from(u32::try_from(told).expect("at most a minute"));
    assert!(
        (after..=before).contains(&told),
        "{before} s, then {after} s were left, and {told} s told"
    );
    shop.let_go();
    first.await.expect("no panic").assert_fresh(201);
    // A record that could not be written in time is written in the background.
    until("it is replayed", async || {
        other.ask(&ask("k")).await.is_replay()
    })
    .await;
    assert_eq!(shop.effects(), 1);
}

async fn the_first_answer_comes_to_all_who_wait_in_both_processes<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let processes = two(&place, &shop).await;
    let first = processes[0].start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let again = ask("k");
    let waiting = [
        processes[0].crowd(CROWD, &again).await,
        processes[1].crowd(CROWD, &again).await,
    ];
    shop.let_go();
    let first = first.await.expect("no panic");
    first.assert_fresh(201);
    for waiting in waiting {
        for answer in all(waiting).await {
            answer.assert_replay_of(&first);
        }
    }
    assert_eq!(shop.effects(), 1);
    for process in &processes {
        assert_eq!(process.calls(Operation::Watch), 1);
        assert_eq!(process.layer.waiting(), 0);
    }
}

async fn one_of_each_process_claims_when_a_run_ends_without_an_outcome<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let processes = two(&place, &shop).await;
    let first = processes[0].start(&ask("k").does("wait&status=503"));
    shop.until_effects(1).await;
    let again = ask("k").does("wait");
    let waiting = [
        processes[0].crowd(CROWD, &again).await,
        processes[1].crowd(CROWD, &again).await,
    ];
    for process in &processes {
        process.store.faults().reset_calls();
    }
    shop.let_go();
    first.await.expect("no panic").assert_fresh(503);
    // One of all runs, and the others wait for it: also those of the other process, which were told so.
    shop.until_effects(2).await;
    until("all others wait", async || {
        let waits = processes.iter().map(|process| process.layer.waiting());
        waits.sum::<usize>() == 2 * CROWD - 1
    })
    .await;
    shop.let_go();
    let mut answers: Vec<Answer> = Vec::new();
    for waiting in waiting {
        answers.extend(all(waiting).await);
    }
    one_ran(&answers).assert_fresh(201);
    assert_eq!(shop.effects(), 2);
    for process in &processes {
        // A claim may cross the end that it hears of, and be told of the hold before.
        let claims = process.calls(Operation::Claim);
        assert!((1..=4).contains(&claims), "{claims} claims of {CROWD}");
        let watches = process.calls(Operation::Watch);
        assert!(watches <= 4, "{watches} watches");
    }
}

async fn a_crowd_is_told_once_that_the_outcome_is_unknown<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let processes = two(&place, &shop).await;
    let first = processes[0].start(&ask("k").does("commit&wait&panic"));
    shop.until_effects(1).await;
    let again = ask("k");
    let waiting = [
        processes[0].crowd(CROWD, &again).await,
        processes[1].crowd(CROWD, &again).await,
    ];
    for process in &processes {
        process.store.faults().reset_calls();
    }
    shop.let_go();
    first
        .await
        .expect("no panic")
        .assert_refused(500, "handler-panicked");
    for (process, waiting) in processes.iter().zip(waiting) {
        for answer in all(waiting).await {
            answer.assert_refused(409, "outcome-unknown");
        }
        let claims = process.calls(Operation::Claim);
        assert!((1..=4).contains(&claims), "{claims} claims of {CROWD}");
    }
    assert_eq!(shop.effects(), 1);
}

async fn no_more_wait_than_may_and_none_for_longer<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::of(&place, &shop).await;
    let other = Process::with(&place, &shop, |builder| {
        builder
            .on_busy(OnBusy::Wait(2 * SECOND))
            .max_waiters_per_key(10)
    })
    .await;
    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let began = std::time::Instant::now();
    let refused = all(other.start_many(50, &ask("k"))).await;
    for refused in &refused {
        refused.assert_refused(409, "in-progress");
        assert!(refused.retry_after().is_some());
    }
    assert!(began.elapsed() >= 2 * SECOND, "ten of them waited");
    assert_eq!(other.layer.waiting(), 0);
    shop.let_go();
    first.await.expect("no panic").assert_fresh(201);
    assert_eq!(shop.effects(), 1);
}

/// Those of PostgreSQL are two, and the crowd is a hundred times that.
async fn who_waits_leaves_the_connections_to_others<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop).await;
    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let waiting = other.crowd(CROWD, &ask("k")).await;
    let calm = other.start_many(20, &ask("calm"));
    let calm = all(calm).await;
    assert!(calm.iter().any(|answer| answer.status == 201));
    assert_eq!(other.layer.waiting(), CROWD);
    shop.let_go();
    let first = first.await.expect("no panic");
    for answer in all(waiting).await {
        answer.assert_replay_of(&first);
    }
    assert_eq!(shop.effects(), 2);
}

/// As the engine itself counts it.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_a_crowd_that_waits_sends_nothing() {
    use super::engines::Redis;
    // Of its own: nobody else is counted.
    let server = system_tests::servers::Redis::start();
    let shop = Shop::new();
    let place = OneRedis(format!("{} one:", server.url()));
    let [one, other] = two(&place, &shop).await;
    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let waiting = other.crowd(CROWD, &ask("k")).await;
    until("one listens", async || {
        server
            .ask("PUBSUB NUMSUB one:bell")
            .trim_end()
            .lines()
            .any(|line| line == ":1")
    })
    .await;
    // The last of what is sent at the beginning of a watch: a look when the line stands.
    until("it is quiet", async || {
        let count = calls(&server);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        calls(&server) == count
    })
    .await;
    let before = calls(&server);
    assert!(
        server
            .ask("CLIENT LIST")
            .lines()
            .all(|c| !c.contains("flags=b"))
    );
    shop.let_go();
    let first = first.await.expect("no panic");
    for answer in all(waiting).await {
        answer.assert_replay_of(&first);
    }
    let sent = calls(&server) - before;
    assert!(sent <= 6, "{sent} scripts at the end of one run");

    struct OneRedis(String);

    impl Engine for OneRedis {
        type Store = <Redis as Engine>::Store;

        async fn place() -> Self {
            unreachable!("it has a server")
        }

        async fn store(&self) -> Self::Store {
            Redis::at(&self.0).await
        }

        fn address(&self) -> Option<String> {
            Some(self.0.clone())
        }

        async fn at(address: &str) -> Self::Store {
            Redis::at(address).await
        }
    }

    /// The scripts that were run.
    fn calls(server: &system_tests::servers::Redis) -> u64 {
        let stats = server.ask("INFO commandstats");
        let of = ["eval", "evalsha"].iter().filter_map(|name| {
            let (_, rest) = stats.split_once(&format!("cmdstat_{name}:calls="))?;
            rest.split(',').next()?.parse::<u64>().ok()
        });
        of.sum()
    }
}

/// As the engine itself sees it.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_crowd_that_waits_is_one_session_that_listens() {
    use super::engines::Postgres;
    let (place, shop) = (Postgres::place().await, Shop::new());
    let name = place.schema().to_owned();
    // Its sessions have a name.
    let waits = format!(
        "{}?application_name={name} {name}",
        Postgres::server().url()
    );
    let one = Process::with(&place, &shop, waiting).await;
    let store = tower_claim::testing::FaultStore::new(Postgres::at(&waits).await);
    let layer = waiting(tower_idempotency::IdempotencyLayer::builder(store.clone()))
        .one_tenant()
        .build()
        .expect("good settings");
    let service = shop.under(&layer);
    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let request = ask("k").request();
            tokio::spawn(super::scene::answer(service.clone(), request))
        })
        .collect();
    until("all wait", async || layer.waiting() == CROWD).await;
    let sessions = |which: &str| {
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = '{name}' and {which}"
        );
        let count = Postgres::server().sql(&sql);
        count.trim().parse::<u64>().expect("a count")
    };
    until("one listens", async || {
        sessions("query ilike 'listen%'") == 1
    })
    .await;
    until("nothing is asked", async || {
        sessions("state <> 'idle'") == 0 && sessions("backend_xid is not null") == 0
    })
    .await;
    // The pool's two, and what a store has beside it: the keeper's, one that listens, one that purges.
    let there = sessions("true");
    assert!(there <= 8, "{there} sessions for {CROWD} who wait");
    shop.let_go();
    let first = first.await.expect("no panic");
    for answer in all(crowd).await {
        answer.assert_replay_of(&first);
    }
    assert_eq!(store.faults().calls().of(Operation::Watch), 1);
}
