//! What one process keeps another replays, byte for byte: sealed, streamed, large, or as a tombstone.

use tower_claim::store::{Value, Watched};
use tower_claim::{ClaimStore, Key};
use tower_idempotency::{IdempotencyBuilder, KeyRing};

use super::on_each_engine;
use super::scene::{Ask, Engine, Process, Shop, ask, in_time};

const KIB: usize = 1024;

on_each_engine!(
    another_process_replays_byte_for_byte,
    what_is_sealed_cannot_be_read_in_the_engine_and_opens_in_another_process,
    keys_rotate_from_process_to_process,
    what_is_too_large_is_a_tombstone_for_another_process,
    what_streams_is_kept_and_replayed_by_another_process,
    a_large_answer_is_replayed_by_another_process_or_never_run_again,
    what_is_redacted_never_reaches_the_engine,
    a_large_upload_is_told_from_another_one_in_another_process,
);

async fn two<E: Engine>(
    place: &E,
    shop: &Shop,
    set: impl Fn(IdempotencyBuilder) -> IdempotencyBuilder,
) -> [Process<E>; 2] {
    [
        Process::with(place, shop, &set).await,
        Process::with(place, shop, &set).await,
    ]
}

fn ring(current: &str) -> KeyRing {
    KeyRing::new(current, key_of(current))
}

fn key_of(id: &str) -> [u8; 32] {
    [u8::try_from(id.len()).expect("a short name"); 32]
}

/// The bytes that the engine has of a finished record.
async fn stored<E: Engine>(place: &E, process: &Process<E>, ask: &Ask) -> Vec<u8> {
    let store = place.store().await;
    let operator = process.layer.operator(store.clone());
    let key: Key = operator
        .key_of(&ask.request().into_parts().0)
        .expect("the layer guards it");
    let record = store.peek(key).await.expect("an answer").expect("a record");
    let watched = in_time("the record", store.watch(key, record.token)).await;
    match watched {
        Ok(Watched::Done(done)) => match done.value {
            Value::Kept(bytes) => bytes.to_vec(),
            other => panic!("nothing is kept: {other:?}"),
        },
        other => panic!("it is not done: {other:?}"),
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

async fn another_process_replays_byte_for_byte<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop, |builder| builder).await;
    for (nth, does) in ["", "size=0", "size=1", "size=40000", "status=404"]
        .into_iter()
        .enumerate()
    {
        let ask = ask(&format!("k{nth}")).does(does);
        let first = one.ask(&ask).await;
        assert!(!first.is_replay());
        other.ask(&ask).await.assert_replay_of(&first);
        one.ask(&ask).await.assert_replay_of(&first);
    }
    assert_eq!(shop.effects(), 5);
}

async fn what_is_sealed_cannot_be_read_in_the_engine_and_opens_in_another_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop, |builder| builder.seal_with(ring("a"))).await;
    let order = ask("k").does("size=5000");
    let first = one.ask(&order).await;
    first.assert_fresh(201);
    let sealed = stored(&place, &one, &order).await;
    assert!(!contains(&sealed, &first.body[..64]), "the body");
    assert!(!contains(&sealed, b"/orders/1"), "a header");
    other.ask(&order).await.assert_replay_of(&first);

    // What is compared with: the same without a key.
    let plain = Process::with(&place, &shop, |builder| builder).await;
    let in_clear = ask("clear").does("size=5000");
    let first = plain.ask(&in_clear).await;
    assert!(contains(
        &stored(&place, &plain, &in_clear).await,
        &first.body[..64]
    ));
    // A plain record may have been planted.
    let refused = other.ask(&in_clear).await;
    refused.assert_refused(503, "store-unavailable");
    assert_eq!(refused.json()["reason"], "record-unreadable");
    assert_eq!(shop.effects(), 2);
}

/// It was hashed while its handler read it.
async fn a_large_upload_is_told_from_another_one_in_another_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let large = |builder: IdempotencyBuilder| builder.max_request_body(4).stream_uploads(64);
    let [one, other] = two(&place, &shop, large).await;
    for (key, does) in [("kept", ""), ("alone", "size=2000000")] {
        let ask = ask(key).does(does);
        let first = one.ask(&ask).await;
        first.assert_fresh(201);
        let again = other.ask(&ask).await;
        if does.is_empty() {
            again.assert_replay_of(&first);
        } else {
            again.assert_refused(409, "response-not-kept");
        }
        let reuse = other.ask(&ask.clone().orders("one coffeE")).await;
        reuse.assert_refused(422, "key-reused");
    }
    assert_eq!(shop.effects(), 2);
}

/// First all can open what the new key seals; then it seals; then the old one is dropped.
async fn keys_rotate_from_process_to_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let with =
        async |ring: KeyRing| Process::with(&place, &shop, |builder| builder.seal_with(ring)).await;
    let before = with(ring("old").older("newer", key_of("newer"))).await;
    let after = with(ring("newer").older("old", key_of("old"))).await;
    let (first, second) = (ask("k1"), ask("k2"));
    let by_old = before.ask(&first).await;
    let by_new = after.ask(&second).await;
    after.ask(&first).await.assert_replay_of(&by_old);
    before.ask(&second).await.assert_replay_of(&by_new);

    let dropped = with(ring("newer")).await;
    dropped.ask(&second).await.assert_replay_of(&by_new);
    let refused = dropped.ask(&first).await;
    refused.assert_refused(503, "store-unavailable");
    assert_eq!(refused.json()["reason"], "record-unreadable");
    assert_eq!(shop.effects(), 2, "what cannot be opened is not run again");
}

async fn what_is_too_large_is_a_tombstone_for_another_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop, |builder| builder.max_response_body(KIB)).await;
    for (key, does, kept) in [
        ("fits", "size=1024", true),
        ("large", "size=1025", false),
        ("streams", "stream&size=5000", false),
    ] {
        let ask = ask(key).does(does);
        let first = one.ask(&ask).await;
        assert_eq!(
            first.body.len(),
            does.split('=').nth(1).map_or(0, number),
            "whole"
        );
        for process in [&other, &one] {
            let repeat = process.ask(&ask).await;
            if kept {
                repeat.assert_replay_of(&first);
            } else {
                repeat.assert_refused(409, "response-not-kept");
            }
        }
    }
    assert_eq!(shop.effects(), 3);
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

async fn what_streams_is_kept_and_replayed_by_another_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    for set in [
        (|builder| builder) as fn(IdempotencyBuilder) -> IdempotencyBuilder,
        |builder| builder.seal_with(ring("a")),
    ] {
        let [one, other] = two(&place, &shop, set).await;
        let ask = ask(&format!("k{}", shop.effects())).does("stream&size=50000");
        let first = one.ask(&ask).await;
        assert_eq!(first.body.len(), 50_000);
        // Its last byte came after the record.
        other.ask(&ask).await.assert_replay_of(&first);
    }
    assert_eq!(shop.effects(), 2);
}

/// etcd takes no more than 1.5 MiB in one call.
async fn a_large_answer_is_replayed_by_another_process_or_never_run_again<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop, |builder| {
        builder.max_response_body(8 * KIB * KIB)
    })
    .await;
    for (key, size) in [("a", KIB * KIB), ("b", 3 * KIB * KIB)] {
        let ask = ask(key).does(&format!("size={size}"));
        let first = one.ask(&ask).await;
        assert_eq!((first.status, first.body.len()), (201, size));
        // What could not be written in time is written in the background.
        super::scene::until("it is recorded", async || {
            other.ask(&ask).await.headers.get("retry-after").is_none()
        })
        .await;
        let repeat = other.ask(&ask).await;
        if E::KEEPS_LARGE || size <= KIB * KIB {
            repeat.assert_replay_of(&first);
        } else {
            repeat.assert_refused(409, "response-not-kept");
        }
    }
    assert_eq!(shop.effects(), 2);
}

async fn what_is_redacted_never_reaches_the_engine<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop, |builder| {
        builder.redact(|mut response| {
            *response.body_mut() = "redacted".into();
            response
        })
    })
    .await;
    let order = ask("k").does("size=5000");
    let first = one.ask(&order).await;
    assert_eq!(first.body.len(), 5000);
    assert!(!contains(
        &stored(&place, &one, &order).await,
        &first.body[..64]
    ));
    let replay = other.ask(&order).await;
    assert!(replay.is_replay() && replay.body == "redacted");
}
