//! What the layers share on HTTP. Behind the feature `http`.

mod business_key;
mod gate;
mod key_source;
mod key_weakness;
mod original_uri;
mod path_segment;
mod refusal;
mod response_end;
mod structured;

pub use business_key::{BusinessKey, IntoBusinessKey, InvalidKey, KeyFields};
pub use gate::{Gate, Mode, Switch};
pub use key_source::{KeySource, KeySyntax};
pub use key_weakness::KeyWeakness;
pub use original_uri::{original_uri, record_original_uri};
pub use path_segment::path_segment;
pub use refusal::{RefusalBody, RenderRefusal, is_grpc};
pub use response_end::{End, ResponseEnd};
