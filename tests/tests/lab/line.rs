//! A lab whose store can be cut off.

use system_tests::client::post;
use system_tests::programs::Lab;
use system_tests::relay::{Relay, Way};

use super::engines::{Engine, Place};

/// A place behind a relay; one that no line leads to fails by `/faults`.
#[derive(Debug)]
pub(super) struct Line {
    place: Place,
    relay: Option<Relay>,
}

impl Line {
    /// A new place on the engine's shared server.
    pub(super) fn to(engine: Engine) -> Self {
        let direct = engine.place();
        let Some((before, rest)) = direct.store().split_once("127.0.0.1:") else {
            return Self {
                place: direct,
                relay: None,
            };
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (port, after) = rest.split_at(digits);
        let relay = Relay::to(format!("127.0.0.1:{port}"));
        let store = format!("{before}{}{after}", relay.address());
        Self {
            place: Place::at(engine, store),
            relay: Some(relay),
        }
    }

    /// A lab at its end.
    pub(super) fn lab(&self, args: &[&str]) -> Lab {
        self.place.lab(args)
    }

    /// The relay, where there is a line.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(super) fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("the engine has a server")
    }

    /// Nobody reaches the store any more.
    pub(super) async fn cut(&self, lab: &Lab) {
        match &self.relay {
            Some(relay) => {
                relay.set(Way::Refuse);
                relay.cut();
            }
            None => fault(lab, "down").await,
        }
    }

    /// It is as it was.
    pub(super) async fn mend(&self, lab: &Lab) {
        match &self.relay {
            Some(relay) => relay.set(Way::Pass),
            None => fault(lab, "ok").await,
        }
    }
}

async fn fault(lab: &Lab, store: &str) {
    let set = post(lab.address(), format!("/faults?store={store}"));
    assert_eq!(set.send().await.status, 204);
}
