//! The layer for HTTP services.

mod aloft;
mod answer;
mod body;
mod builder;
mod future;
mod gather;
mod launch;
mod layer;
mod learned;
mod limit;
mod observe;
mod present;
mod request;
mod response;
mod service;

pub use body::FlightBody;
pub use builder::SingleFlightLayerBuilder;
pub use future::ResponseFuture;
pub use layer::SingleFlightLayer;
pub use service::SingleFlightService;
