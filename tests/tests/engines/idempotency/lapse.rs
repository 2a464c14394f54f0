//! An owner's process is killed: who runs again, who is told what, and what an operator of another process can do.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use system_tests::servers::Leash;
use tokio::io::{AsyncBufReadExt, BufReader};
use tower_claim::store::Resolved;
use tower_claim::{ClaimAdmin, LapsePolicy};
use tower_idempotency::{Explanation, IdempotencyBuilder, OnBusy, Reconciled, UnknownOutcome};

use super::engines;
use super::scene::{Ask, Engine, PATIENCE, Process, Shop, all, ask, in_time, one_ran};

const OWNER: &str = "idempotency::lapse::the_owner_to_be_killed";
const ENGINE: &str = "IDEMPOTENCY_ENGINE";
const ADDRESS: &str = "IDEMPOTENCY_ADDRESS";
const DOES: &str = "IDEMPOTENCY_DOES";
const HOLDS: &str = "IDEMPOTENCY_HOLDS";

/// Long enough for etcd, which counts whole seconds.
const LEASE: Duration = Duration::from_secs(3);
const CROWD: usize = 20;

/// Each law on every engine that two processes can share.
macro_rules! on_each_shared_engine {
    ($($law:ident),+ $(,)?) => {
        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = super::super::scene::turn().await;
                super::$law::<super::engines::Redis>("redis").await;
            })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = super::super::scene::turn().await;
                super::$law::<super::engines::Postgres>("postgres").await;
            })+
        }
        #[cfg(feature = "etcd")]
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = super::super::scene::turn().await;
                super::$law::<super::engines::Etcd>("etcd").await;
            })+
        }
    };
}

on_each_shared_engine!(
    one_of_two_processes_takes_over_from_a_killed_owner,
    the_hook_is_asked_once_by_two_processes_and_both_replay_what_it_found,
    a_hook_that_lets_run_again_lets_one_of_two_processes,
    an_operator_of_another_process_settles_what_a_killed_owner_left,
);

#[tokio::test]
#[ignore = "the other process of a test"]
async fn the_owner_to_be_killed() {
    let Ok(engine) = std::env::var(ENGINE) else {
        return; // asked for by hand
    };
    match engine.as_str() {
        #[cfg(feature = "redis")]
        "redis" => own::<engines::Redis>().await,
        #[cfg(feature = "postgres")]
        "postgres" => own::<engines::Postgres>().await,
        #[cfg(feature = "etcd")]
        "etcd" => own::<engines::Etcd>().await,
        other => panic!("{other} cannot be shared"),
    }
}

/// Runs, and says so, and never ends.
async fn own<E: Engine>() {
    let told = |name| std::env::var(name).expect("told as well");
    let shop = Shop::new();
    let store = E::at(&told(ADDRESS)).await;
    let process = Process::<E>::over(store, &shop, |builder| {
        let builder = builder.lease(LEASE);
        match told(HOLDS).as_str() {
            "hold" => builder.on_lapse(LapsePolicy::Hold),
            _ => builder,
        }
    });
    let _run = process.start(&ask("k").does(&told(DOES)));
    shop.until_effects(1).await;
    if told(DOES).contains("commit") {
        // The mark is one more trip behind the effect.
        super::scene::until("it is marked", async || {
            let all = process.store.scan(None, 10).await.expect("a page");
            all.records.iter().any(|record| record.marked)
        })
        .await;
    }
    println!("\nowner: runs");
    std::future::pending::<()>().await;
}

/// The owner's process, which is killed while its handler runs.
async fn killed_owner<E: Engine>(place: &E, engine: &str, does: &str, holds: &str) {
    let mut owner: Child = Command::new(std::env::current_exe().expect("this test"))
        .args([OWNER, "--exact", "--ignored", "--nocapture"])
        .env(ENGINE, engine)
        .env(ADDRESS, place.address().expect("it can be shared"))
        .env(DOES, does)
        .env(HOLDS, holds)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let _leash = Leash::on(owner.id());
    let says = owner.stdout.take().expect("a pipe");
    let says = tokio::process::ChildStdout::from_std(says).expect("a pipe");
    let mut lines = BufReader::new(says).lines();
    let runs = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("owner: runs") {
                return;
            }
        }
        panic!("the owner ended");
    };
    in_time("the owner runs", runs).await;
    owner.kill().expect("it runs");
    owner.wait().expect("it is our child");
}

fn waiting(builder: IdempotencyBuilder) -> IdempotencyBuilder {
    builder.lease(LEASE).on_busy(OnBusy::Wait(PATIENCE * 4))
}

/// The same request at both processes, many times at once.
async fn ask_both<E: Engine>(processes: [&Process<E>; 2], ask: &Ask) -> Vec<super::scene::Answer> {
    let asked = processes.map(|process| process.start_many(CROWD, ask));
    let mut answers = Vec::new();
    for asked in asked {
        answers.extend(all(asked).await);
    }
    answers
}

async fn one_of_two_processes_takes_over_from_a_killed_owner<E: Engine>(engine: &str) {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::with(&place, &shop, waiting).await;
    let other = Process::with(&place, &shop, waiting).await;
    killed_owner(&place, engine, "wait", "take over").await;
    let answers = ask_both([&one, &other], &ask("k")).await;
    one_ran(&answers).assert_fresh(201);
    assert_eq!(shop.effects(), 1);
    let takeovers = [&one, &other].map(|process| process.layer.counts().takeovers);
    assert_eq!(takeovers.iter().sum::<u64>(), 1);
}

/// Two processes whose hook says this.
async fn reconciling<E: Engine>(
    place: &E,
    shop: &Shop,
    says: impl Fn() -> Reconciled + Clone + Send + Sync + 'static,
) -> ([Process<E>; 2], Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let process = async || {
        let (admin, says, asked) = (place.store().await, says.clone(), Arc::clone(&asked));
        Process::with(place, shop, |builder| {
            waiting(builder).reconcile(admin, move |lapsed| {
                assert_eq!(lapsed.run().attempt(), 2);
                asked.fetch_add(1, Ordering::SeqCst);
                std::future::ready(says())
            })
        })
        .await
    };
    ([process().await, process().await], asked)
}

async fn the_hook_is_asked_once_by_two_processes_and_both_replay_what_it_found<E: Engine>(
    engine: &str,
) {
    for does in ["wait", "commit&wait"] {
        let (place, shop) = (E::place().await, Shop::new());
        let found = || {
            let found = Response::builder()
                .status(202)
                .header("location", "/orders/7");
            Reconciled::Done(found.body(Bytes::from("found")).expect("a good one"))
        };
        let ([one, other], asked) = reconciling(&place, &shop, found).await;
        killed_owner(&place, engine, does, "hold").await;
        for answer in ask_both([&one, &other], &ask("k")).await {
            assert_eq!((answer.status, &answer.body[..]), (202, &b"found"[..]));
            assert_eq!(answer.headers["location"], "/orders/7");
        }
        assert_eq!((shop.effects(), asked.load(Ordering::SeqCst)), (0, 1));
    }
}

async fn a_hook_that_lets_run_again_lets_one_of_two_processes<E: Engine>(engine: &str) {
    let (place, shop) = (E::place().await, Shop::new());
    let ([one, other], asked) = reconciling(&place, &shop, || Reconciled::RunAgain).await;
    killed_owner(&place, engine, "commit&wait", "hold").await;
    let answers = ask_both([&one, &other], &ask("k")).await;
    one_ran(&answers).assert_fresh(201);
    assert_eq!((shop.effects(), asked.load(Ordering::SeqCst)), (1, 1));
}

async fn an_operator_of_another_process_settles_what_a_killed_owner_left<E: Engine>(engine: &str) {
    for way in ["with its answer", "as done", "to run again"] {
        let (place, shop) = (E::place().await, Shop::new());
        let one = Process::with(&place, &shop, waiting).await;
        let other = Process::with(&place, &shop, waiting).await;
        killed_owner(&place, engine, "commit&wait", "take over").await;
        for answer in ask_both([&one, &other], &ask("k")).await {
            answer.assert_refused(409, "outcome-unknown");
        }
        assert_eq!(shop.effects(), 0, "past its point of no return");

        let operator = other.layer.operator(place.store().await);
        let key = operator.key_of(&ask("k").request().into_parts().0);
        let key = key.expect("the layer guards it");
        let page = operator.unknown(None).await.expect("a page");
        let [unknown]: &[UnknownOutcome] = &page.outcomes else {
            panic!("{:?}", page.outcomes);
        };
        assert!(unknown.key == key && unknown.marked);
        let explained = operator.explain(key).await.expect("it is read");
        assert!(matches!(explained, Explanation::Unknown(_)), "{explained}");

        let resolved = match way {
            "with its answer" => {
                let answer = Response::builder().status(201).body(Bytes::from("it was"));
                operator
                    .resolve_with(unknown, answer.expect("a good one"))
                    .await
            }
            "as done" => operator.resolve_done(unknown).await,
            _ => operator.run_again(unknown).await,
        };
        assert!(matches!(resolved, Ok(Resolved::Resolved { .. })), "{way}");
        // Seen before that, it is not settled a second time.
        let again = one.layer.operator(place.store().await);
        let again = again.run_again(unknown).await;
        assert!(
            matches!(again, Ok(Resolved::Conflict { .. } | Resolved::Absent)),
            "{way}: {again:?}"
        );

        let answers = ask_both([&one, &other], &ask("k")).await;
        match way {
            "with its answer" => assert!(
                answers
                    .iter()
                    .all(|answer| answer.is_replay() && answer.body == "it was")
            ),
            "as done" => answers.iter().for_each(|answer| {
                answer.assert_refused(409, "response-not-kept");
            }),
            _ => {
                one_ran(&answers).assert_fresh(201);
            }
        }
        assert_eq!(shop.effects(), usize::from(way == "to run again"), "{way}");
        let explained = operator.explain(key).await.expect("it is read");
        assert!(
            matches!(explained, Explanation::Done { .. }),
            "{way}: {explained}"
        );
        assert!(
            operator
                .unknown(None)
                .await
                .expect("a page")
                .outcomes
                .is_empty()
        );
    }
}
