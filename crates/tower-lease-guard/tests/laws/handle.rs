//! The handle in the extensions.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use crate::support::*;
use crate::world::*;
use http::Request;
use tower::{Layer, ServiceExt};
use tower_lease_guard::StampLayer;

#[tokio::test(start_paused = true)]
async fn each_lease_has_a_larger_token_and_a_nonce_of_its_own() {
    let world = World::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = world.layer().layer(tower::service_fn({
        let seen = seen.clone();
        move |req: Request<()>| {
            let lease = lease_of(&req);
            assert_eq!(lease.check(), Ok(()));
            assert_eq!(lease.fence().token(), lease.token());
            seen.lock().unwrap().push((lease.token(), lease.nonce()));
            ok(req)
        }
    }));
    for _ in 0..20 {
        assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
    }
    let seen = seen.lock().unwrap();
    assert!(
        seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_to_another_service_carries_the_fencing_token() {
    let world = World::new();
    let client = StampLayer::new().layer(tower::service_fn(|req: Request<()>| async move {
        let lines: Vec<_> = req.headers().get_all("fencing-token").iter().collect();
        Ok::<_, Infallible>(format!("{lines:?}"))
    }));
    let service = world
        .layer()
        .layer(tower::service_fn(move |req: Request<()>| {
            let client = client.clone();
            async move {
                let lease = lease_of(&req);
                let mut out = request("/ledger/a");
                let stale = format!("a;t=1;o={}", "0".repeat(32));
                for line in [stale.as_str(), "b;t=1;o=000102030405060708090a0b0c0d0e0f"] {
                    out.headers_mut()
                        .append("fencing-token", line.parse().unwrap());
                }
                out.extensions_mut().insert(lease.clone());
                let seen = client.clone().oneshot(out).await.unwrap();
                assert_eq!(
                    seen,
                    format!(
                        "[\"b;t=1;o=000102030405060708090a0b0c0d0e0f\", \"{}\"]",
                        lease.fence()
                    )
                );
                let plain = client.oneshot(request("/")).await.unwrap();
                assert_eq!(plain, "[]");
                ok(req).await
            }
        }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
}
