//! A guard's store, as plain as can be.

use std::collections::HashMap;
use std::sync::Mutex;

use tower_claim::store::Admission;
use tower_claim::{FenceStore, Nonce, StoreError, Token};

/// The guard's store. `flaw` is the one rule it breaks; empty for none.
#[derive(Debug)]
pub(crate) struct ReferenceFence {
    flaw: &'static str,
    marks: Mutex<HashMap<String, Mark>>,
}

/// `nonce` is `None` where a floor was raised to the mark.
#[derive(Debug, Clone, Copy)]
struct Mark {
    high: Token,
    nonce: Option<Nonce>,
}

const UNSEEN: Mark = Mark {
    high: Token::ZERO,
    nonce: None,
};

impl ReferenceFence {
    pub(crate) fn new(flaw: &'static str) -> Self {
        Self {
            flaw,
            marks: Mutex::default(),
        }
    }

    fn with<T>(&self, resource: &str, act: impl FnOnce(&mut Mark) -> T) -> T {
        let resource = match self.flaw {
            "all resources are one" => String::new(),
            "names are trimmed" => resource.trim().to_owned(),
            "names end at their first zero" => {
                resource.split('\0').next().unwrap_or_default().to_owned()
            }
            _ => resource.to_owned(),
        };
        act(self.marks.lock().unwrap().entry(resource).or_insert(UNSEEN))
    }

    fn judge(&self, mark: Mark, token: Token, nonce: Nonce) -> Admission {
        let flaw = self.flaw;
        let high = mark.high;
        let of_nonce = mark.nonce == Some(nonce);
        match token.cmp(&high) {
            _ if flaw == "nothing is admitted" => Admission::Stale { high },
            _ if flaw == "the last token is refused" && token == Token::MAX => {
                Admission::Stale { high }
            }
            std::cmp::Ordering::Less => match flaw {
                "a stale token is admitted" => Admission::Admitted,
                "the holder's nonce admits any token" if of_nonce => Admission::Admitted,
                "the floor is not asked" if mark.nonce.is_none() => Admission::Admitted,
                _ => Admission::Stale { high },
            },
            std::cmp::Ordering::Equal => match (of_nonce, mark.nonce) {
                (true, _) if flaw == "an owner writes once" => Admission::Stale { high },
                (true, _) => Admission::Admitted,
                (false, Some(_)) if flaw == "the nonce is not compared" => Admission::Admitted,
                (false, Some(_)) => Admission::Collision { high },
                (false, None) => match flaw {
                    "the floor is not asked" | "a floor leaves its token free" => {
                        Admission::Admitted
                    }
                    _ => Admission::Stale { high },
                },
            },
            std::cmp::Ordering::Greater => match flaw {
                "a floor bars the next token too" if mark.nonce.is_none() && high > Token::ZERO => {
                    Admission::Stale { high }
                }
                "only the first owner is admitted" if mark.nonce.is_some() => {
                    Admission::Stale { high }
                }
                _ => Admission::Admitted,
            },
        }
    }
}

impl FenceStore for ReferenceFence {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        let flaw = self.flaw;
        if flaw == "a write looks, then raises" {
            let seen = self.with(resource, |mark| self.judge(*mark, token, nonce));
            tokio::task::yield_now().await;
            if seen == Admission::Admitted {
                self.with(resource, |mark| {
                    (mark.high, mark.nonce) = (token, Some(nonce));
                });
            }
            return Ok(seen);
        }
        Ok(self.with(resource, |mark| {
            let answer = self.judge(*mark, token, nonce);
            match answer {
                Admission::Admitted => {
                    let high = mark.high.max(token);
                    (mark.high, mark.nonce) = (high, Some(nonce));
                }
                Admission::Collision { .. } if flaw == "a collision takes the mark" => {
                    mark.nonce = Some(nonce);
                }
                Admission::Stale { .. } if flaw == "a refused token lowers the mark" => {
                    mark.high = token;
                }
                _ => {}
            }
            answer
        }))
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let flaw = self.flaw;
        Ok(self.with(resource, |mark| {
            let raises = floor > mark.high
                || floor == mark.high && flaw != "a floor at the mark is ignored"
                || flaw == "a floor lowers the mark" && mark.nonce.is_some()
                || flaw == "a floor lowers the floor" && mark.nonce.is_none();
            if raises && flaw != "a floor is ignored" {
                (mark.high, mark.nonce) = (floor, None);
            }
            match flaw {
                "raising tells zero" => Token::ZERO,
                _ => mark.high,
            }
        }))
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        let unseen = Token::new(1).unwrap();
        Ok(self.with(resource, |mark| match self.flaw {
            "the high-water mark forgets the floor" if mark.nonce.is_none() => Token::ZERO,
            "the mark begins at one" => mark.high.max(unseen),
            _ => mark.high,
        }))
    }
}
