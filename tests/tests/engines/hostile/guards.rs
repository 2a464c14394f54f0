//! The engine's own guard over a kill: what it answered stands, or is gone as the table of promises says.

use tower_claim::store::{Admission, DynFenceStore, Event, Promise};
use tower_claim::{Nonce, Token};

use super::scene::{ANSWER, settled, within};
use super::{Guarded, Server};

const WRITTEN: &str = "written";
const RAISED: &str = "raised";

fn token(number: u64) -> Token {
    Token::new(number).expect("below the highest")
}

/// Of the owner who wrote, and of another.
fn owners() -> [Nonce; 2] {
    [Nonce::from_bytes([1; 16]), Nonce::from_bytes([2; 16])]
}

async fn admit(guard: &dyn DynFenceStore, resource: &str, number: u64, by: Nonce) -> Admission {
    let asked = guard.dyn_admit(resource, token(number), by);
    let answer = within(ANSWER, "an admission", asked).await;
    answer.expect("it is answered")
}

async fn high(guard: &dyn DynFenceStore, resource: &str) -> Token {
    let asked = guard.dyn_high_water(resource);
    let answer = within(ANSWER, "a high-water mark", asked).await;
    answer.expect("it is answered")
}

/// One resource is written under token 7, the floor of another is raised to 9.
pub async fn mark(guard: &dyn DynFenceStore) {
    let [owner, _] = owners();
    assert_eq!(admit(guard, WRITTEN, 7, owner).await, Admission::Admitted);
    let raised = guard.dyn_raise_floor(RAISED, token(9)).await;
    assert_eq!(raised.expect("it is answered"), token(9));
}

/// Whether the marks stand.
///
/// # Panics
///
/// Where one stands without the other, and where a mark that stands lets through what it must refuse.
pub async fn stand(guard: &dyn DynFenceStore) -> bool {
    let marks = (high(guard, WRITTEN).await, high(guard, RAISED).await);
    if marks == (Token::ZERO, Token::ZERO) {
        return false;
    }
    assert_eq!(marks, (token(7), token(9)), "marks went back");
    let [owner, other] = owners();
    let stale = |number| Admission::Stale {
        high: token(number),
    };
    assert_eq!(admit(guard, WRITTEN, 6, owner).await, stale(7));
    let collision = Admission::Collision { high: token(7) };
    assert_eq!(admit(guard, WRITTEN, 7, other).await, collision);
    assert_eq!(admit(guard, WRITTEN, 7, owner).await, Admission::Admitted);
    assert_eq!(admit(guard, RAISED, 9, owner).await, stale(9));
    assert_eq!(admit(guard, RAISED, 10, owner).await, Admission::Admitted);
    true
}

/// The guard's server is killed and started again. A guard protects what lies beside its marks: a server that
/// may lose what it answered, and says so, has lost both.
pub async fn killed<E: Server + Guarded>() {
    let mut engine = E::start().await;
    let store = within(ANSWER, "connecting", E::connect(engine.address())).await;
    let guard = within(ANSWER, "connecting", E::guard(engine.address())).await;
    mark(&*guard).await;

    engine.kill();
    let call = guard.dyn_admit(WRITTEN, token(8), owners()[1]);
    let down = within(ANSWER, "a call without a server", call).await;
    let down = down.expect_err("nobody can have answered");
    assert!(down.is_retryable(), "{down:?}");
    engine.run();
    settled(&store).await;
    let found = async {
        while guard.dyn_high_water(WRITTEN).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within(ANSWER, "finding the server again", found).await;
    let weakened = store.dyn_capabilities().weakened;
    assert_eq!(
        stand(&*guard).await,
        !weakened.may(Event::Restart, Promise::OneResult),
        "left is whether the marks stand, right whether answers outlive a restart"
    );
}
