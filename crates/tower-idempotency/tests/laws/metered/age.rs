//! How long the oldest run has been going.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tower_claim::Renewal;

use crate::support::*;

/// Runs in flight, and when the oldest of them began.
fn told(prometheus: &PrometheusHandle) -> (f64, f64) {
    let text = prometheus.render();
    let gauge = |name: &str| {
        let begin = format!("{name}{{layer=\"orders\"}} ");
        let told = text.lines().find_map(|line| line.strip_prefix(&begin));
        told.unwrap().parse::<f64>().unwrap()
    };
    (
        gauge("idempotency_runs_in_flight"),
        gauge("idempotency_oldest_run_start_seconds"),
    )
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_oldest_run_rises_while_it_goes_and_is_zero_after_however_it_ended() {
    for (how, flags, hangs_up) in [
        ("done", "delay=5000", false),
        ("failed", "delay=5000&status=503", false),
        ("an error", "delay=5000&error", false),
        ("a panic", "delay=5000&panic", false),
        ("a panic behind its mark", "commit&delay=5000&panic", false),
        (
            "a body that streams",
            "size=50&chunks=6&chunk_delay=1000&nolen",
            false,
        ),
        (
            "a body that panics",
            "size=50&chunks=2&chunk_delay=5000&body_panic&nolen",
            false,
        ),
        ("a hang-up", "delay=5000", true),
    ] {
        for renewal in [Renewal::Always, Renewal::Off] {
            // Without renewal it lapses in its midst, too. A body that goes on then is no part of the run any more.
            if flags.contains("nolen") && renewal == Renewal::Off {
                continue;
            }
            let recorder = PrometheusBuilder::new().build_recorder();
            let _recording = metrics::set_default_local_recorder(&recorder);
            let prometheus = recorder.handle();
            let app = App::new();
            let layer = app.builder().named("orders").lease(ms(1000));
            let layer = layer.renewal(renewal).build().unwrap();
            let service = app.under(&layer);
            assert_eq!(layer.oldest_running(), None);
            let ask = post("/orders").key("an-order-8e03978e").flags(flags);
            let caller = tokio::spawn({
                let (service, ask) = (service.clone(), ask.clone());
                async move {
                    let response = tower::ServiceExt::oneshot(service, ask.request()).await;
                    if let Ok(response) = response {
                        // The body may break off by a panic.
                        let _ = http_body_util::BodyExt::collect(response.into_body()).await;
                    }
                }
            });
            for age in [1000, 2000, 4000] {
                let at = layer.oldest_running().unwrap_or_default();
                tokio::time::sleep(ms(age) - at).await;
                assert_eq!(layer.oldest_running(), Some(ms(age)), "{how}");
                let (in_flight, began) = told(&prometheus);
                let told = app.clock.unix_time().as_secs_f64() - began;
                let is = std::time::Duration::from_millis(age).as_secs_f64();
                assert!(
                    (told - is).abs() < 0.01 && in_flight == 1.0,
                    "{how}: {told}"
                );
                if hangs_up {
                    caller.abort();
                }
            }
            let _ = soon(caller).await;
            assert!(layer.drain(ms(60_000)).await);
            assert_eq!(told(&prometheus), (0.0, 0.0), "{how}");
            assert_eq!(layer.oldest_running(), None, "{how}");
        }
    }
}

/// The oldest ends before a younger one, and the other way round.
#[tokio::test(start_paused = true)]
async fn of_several_runs_the_oldest_is_told() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let prometheus = recorder.handle();
    let app = App::new();
    let layer = app.builder().named("orders").build().unwrap();
    let service = app.under(&layer);
    let start = app.clock.unix_time().as_secs_f64();
    for delay in ["delay=5000", "delay=2000", "delay=9000"] {
        let (service, ask) = (service.clone(), post("/orders").key(delay).flags(delay));
        tokio::spawn(async move { ask.send(&service).await });
        tokio::time::sleep(ms(1000)).await;
    }
    let mut at = 3000;
    for (when, runs, oldest) in [(3500, 2.0, 0.0), (6000, 1.0, 2.0), (12_000, 0.0, -start)] {
        tokio::time::sleep(ms(when - at)).await;
        at = when;
        let (in_flight, began) = told(&prometheus);
        assert_eq!(in_flight, runs, "{when}");
        assert!((began - start - oldest).abs() < 0.01, "{when}: {began}");
    }
}
