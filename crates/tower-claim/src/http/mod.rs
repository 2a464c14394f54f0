//! What the layers share on HTTP. Behind the feature `http`.

mod gate;
mod original_uri;
mod refusal;

pub use gate::{Gate, Mode, Switch};
pub use original_uri::{original_uri, record_original_uri};
pub use refusal::{RefusalBody, RenderRefusal, is_grpc};
