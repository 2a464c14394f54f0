//! A guard with a naive store, and requests for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::support::*;
use crate::world::ok;
use http::Request;
use tower::{Layer, ServiceExt};
use tower_claim::store::Admission;
use tower_claim::{FenceStore, Nonce, StoreError, Token};
use tower_lease_guard::{FENCING_TOKEN, FenceLayer, FencingToken};

/// The naive guard, with a pause around each step so that every order of calls is met.
#[derive(Debug, Clone, Default)]
pub struct Marks(Arc<Mutex<HashMap<String, (Token, Nonce)>>>);

impl FenceStore for Marks {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        tokio::task::yield_now().await;
        let answer = {
            let mut marks = self.0.lock().unwrap();
            match marks.get(resource) {
                Some(&(high, _)) if token < high => Admission::Stale { high },
                Some(&(high, owner)) if token == high && nonce != owner => {
                    Admission::Collision { high }
                }
                _ => {
                    marks.insert(resource.to_owned(), (token, nonce));
                    Admission::Admitted
                }
            }
        };
        tokio::task::yield_now().await;
        Ok(answer)
    }

    async fn raise_floor(&self, _: &str, _: Token) -> Result<Token, StoreError> {
        Err(StoreError::Unsupported("not in this test"))
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .get(resource)
            .map_or(Token::ZERO, |mark| mark.0))
    }
}

#[derive(Debug)]
/// A guard whose store does not answer.
pub struct Down;

impl FenceStore for Down {
    async fn admit(&self, _: &str, _: Token, _: Nonce) -> Result<Admission, StoreError> {
        Err(StoreError::unavailable("down"))
    }
    async fn raise_floor(&self, _: &str, _: Token) -> Result<Token, StoreError> {
        Err(StoreError::unavailable("down"))
    }
    async fn high_water(&self, _: &str) -> Result<Token, StoreError> {
        Err(StoreError::unavailable("down"))
    }
}

pub fn token(resource: &str, token: u64, nonce: u8) -> FencingToken {
    FencingToken::new(
        resource,
        Token::new(token).unwrap(),
        Nonce::from_bytes([nonce; 16]),
    )
    .unwrap()
}

pub fn write(t: u64, nonce: u8) -> Request<()> {
    stamped(&token("r", t, nonce).to_string())
}

pub fn stamped(header: &str) -> Request<()> {
    let mut request = request("/r");
    request
        .headers_mut()
        .append(&FENCING_TOKEN, header.parse().unwrap());
    request
}

pub fn resource(req: &http::request::Parts) -> Option<String> {
    req.uri
        .path()
        .strip_prefix("/r")
        .map(|rest| format!("r{rest}"))
}

pub fn fence() -> FenceLayer {
    FenceLayer::new(Marks::default(), resource)
}

pub async fn answer(fence: &FenceLayer, request: Request<()>) -> (u16, String) {
    refusal(
        fence
            .layer(tower::service_fn(ok))
            .oneshot(request)
            .await
            .unwrap(),
    )
    .await
}
