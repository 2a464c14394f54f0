//! The guard's store in Redis.

use redis::Cmd;
use tower_claim::store::{Admission, FenceStore};
use tower_claim::{Nonce, StoreError, Token};

use crate::reply::Reply;
use crate::script::Script;
use crate::{RedisStore, script};

/// One hash for each resource, under the prefix, `fence:` and the resource's own name. Marks never expire
/// and nothing prunes them.
///
/// A guard protects what lives where its marks live. Marks in Redis protect what is in *this* Redis; where
/// it may lose a write (see the table of promises), a mark may go back with it. Keep the marks of a
/// database in that database.
impl FenceStore for RedisStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(token.get()).arg(nonce.to_string());
        };
        let (tag, high) = self.fence(&script::ADMIT, resource, fill).await?;
        Ok(match tag.as_str() {
            "admitted" => Admission::Admitted,
            "stale" => Admission::Stale { high },
            "collision" => Admission::Collision { high },
            _ => return Reply::unknown(),
        })
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(floor.get());
        };
        Ok(self.fence(&script::FLOOR, resource, fill).await?.1)
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        self.raise_floor(resource, Token::ZERO).await
    }
}

impl RedisStore {
    async fn fence(
        &self,
        script: &Script,
        resource: &str,
        fill: impl Fn(&mut Cmd),
    ) -> Result<(String, Token), StoreError> {
        let name = format!("{}fence:{resource}", self.inner.prefix);
        let mut reply = self.inner.link.run(script, &[name], fill).await?;
        let prefix: String = resource.chars().take(8).collect();
        Ok((reply.tag(&prefix)?, reply.token()?))
    }
}
