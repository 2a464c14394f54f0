//! What the layers share on HTTP. Behind the feature `http`.

mod refusal;

pub use refusal::{RefusalBody, RenderRefusal, is_grpc};
