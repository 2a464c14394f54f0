//! Response replay, and what keeping responses costs.

use system_tests::programs::Lab;

use super::{order, refusal, unavailable};
use crate::effects;

/// AnchorNet-Org/AnchorNet-Backend #221
#[tokio::test]
async fn case_50_random_keys_cannot_grow_the_memory_store_without_bound() {
    const MIB: u64 = 1 << 20;
    let lab = Lab::start(&["--memory-limit", "10MiB"]);
    let mut kept = Vec::new();
    let mut refused = 0;
    for n in 0.. {
        let key = format!("key-{n}");
        let answer = order(&lab, &key).lab("size=32768").send().await;
        match answer.status.as_u16() {
            201 => kept.push((key, answer)),
            _ => {
                assert_eq!(refusal(&answer), unavailable());
                refused += 1;
            }
        }
        assert!(n < 100_000, "10 MiB are never full");
        if refused == 20 {
            break;
        }
    }
    let full = resident(&lab);
    for n in 0..2_000 {
        let answer = order(&lab, &format!("flood-{n}")).lab("size=32768").send();
        assert_eq!(refusal(&answer.await), unavailable());
    }
    let flooded = resident(&lab);
    assert!(
        full < 100 * MIB && flooded < full + 10 * MIB,
        "{full} bytes when it was full, {flooded} after 2,000 keys more"
    );
    assert_eq!(effects(&lab, "POST /orders").await, kept.len() as u64);
    // The first ones with their bodies, the last ones as tombstones; none was dropped for another.
    let mut whole = 0;
    for (key, first) in &kept {
        let again = order(&lab, key).send().await;
        if again.replayed() {
            assert_eq!(again.body, first.body);
            whole += 1;
        } else {
            assert_eq!(refusal(&again), (409, "response-not-kept".to_owned()));
        }
    }
    assert!(whole > 200, "only {whole} bodies fit");
    assert_eq!(effects(&lab, "POST /orders").await, kept.len() as u64);
}

/// The memory that is really there, in bytes.
fn resident(lab: &Lab) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", lab.pid()));
    let status = status.expect("Linux tells a process' memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("VmRSS") * 1024
}
