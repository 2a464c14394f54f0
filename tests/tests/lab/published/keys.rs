//! Keys, scope, order of layers.

use super::order;
use crate::effects;
use crate::engines::Engine;

on_memory_redis_and_postgres!(case_27_a_one_time_check_inside_does_not_eat_the_honest_retry);

/// openid/authzen #664
async fn case_27_a_one_time_check_inside_does_not_eat_the_honest_retry(on: Engine) {
    let lab = on.lab(&["--inner", "nonce"]);
    let ask = |key: &str, nonce: &str| order(&lab, key).header("x-nonce", nonce).send();
    let first = ask("k", "n").await;
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false));
    let again = ask("k", "n").await;
    assert!(again.replayed(), "{again:?}");
    assert_eq!(again.body, first.body);
    for _ in 0..2 {
        assert_eq!(ask("k2", "n").await.status, 401, "the check is there");
    }
    let other = ask("k2", "n2").await;
    assert_eq!((other.status.as_u16(), other.replayed()), (201, false));
    assert_eq!(effects(&lab, "POST /orders").await, 2);
}
