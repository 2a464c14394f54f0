//! One connection to the service, and requests over it.

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::settings::Base;
use crate::upload::Sending;

/// Why no answer came.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Sending>),
    Two(http2::SendRequest<Sending>),
}

/// Hangs up when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens a bare one.
pub(crate) async fn dial(base: &Base) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((base.host.as_str(), base.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Connection {
    pub(crate) async fn open(base: &Base, http: Version) -> Result<Self, BoxError> {
        let io = TokioIo::new(dial(base).await?);
        Ok(if http == Version::HTTP_2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            let driver = tokio::spawn(async move { drop(connection.await) });
            Self {
                sender: Sender::Two(sender),
                driver,
            }
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            let driver = tokio::spawn(async move { drop(connection.await) });
            Self {
                sender: Sender::One(sender),
                driver,
            }
        })
    }

    /// Sends a request; answers when the head is there. A drop of the future takes an HTTP/2 request back
    /// (`RST_STREAM`) and leaves the connection.
    pub(crate) async fn send(
        &mut self,
        request: Request<Sending>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}
