//! A small HTTP/1 client on hyper: one open connection, one request at a time.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Nothing here waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON; null where it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The `code` of a problem document, else nothing.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether an idempotency layer answered it from its record.
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

/// An open connection. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    driver: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, BoxError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // An end in mid-request reaches whoever waits for the answer.
            let _ = connection.await;
        });
        let host = HeaderValue::try_from(address.to_string())?;
        Ok(Self { send, host, driver })
    }

    pub(crate) async fn send(&mut self, mut request: Request<Bytes>) -> Result<Answer, BoxError> {
        request.headers_mut().insert(HOST, self.host.clone());
        tokio::time::timeout(PATIENCE, async {
            self.send.ready().await?;
            let response = self.send.send_request(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.collect().await?.to_bytes(),
            })
        })
        .await?
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn send(address: SocketAddr, request: Request<Bytes>) -> Result<Answer, BoxError> {
    Connection::open(address).await?.send(request).await
}

pub(crate) fn get(path: &str) -> Result<Request<Bytes>, BoxError> {
    request(Method::GET, path, "")
}

pub(crate) fn post(path: &str, body: &str) -> Result<Request<Bytes>, BoxError> {
    request(Method::POST, path, body)
}

pub(crate) fn request(method: Method, path: &str, body: &str) -> Result<Request<Bytes>, BoxError> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Ok(Request::builder().method(method).uri(path).body(body)?)
}
