//! A real HTTP client: one connection a request, HTTP/1 or HTTP/2 with prior knowledge.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

/// Why no answer came.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// No test waits longer than this for one answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as far as it came.
    pub body: Bytes,
    /// Whether the body ended well.
    pub complete: bool,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// The `code` of a problem document, which must be one.
    pub fn code(&self) -> String {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let problem = self.json();
        let code = problem["code"]
            .as_str()
            .expect("a problem has a code")
            .to_owned();
        assert!(
            problem["type"]
                .as_str()
                .is_some_and(|t| t.ends_with(&format!("/{code}"))),
            "{problem}"
        );
        assert_eq!(problem["status"], self.status.as_u16(), "{problem}");
        code
    }

    /// Whether it is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|v| v == "true")
    }
}

/// The version of HTTP a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1
    One,
    /// HTTP/2, prior knowledge
    Two,
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Call {
    address: SocketAddr,
    http: Http,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A call of a path.
pub fn call(address: SocketAddr, method: Method, path: impl Into<String>) -> Call {
    Call {
        address,
        http: Http::One,
        method,
        path: path.into(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

/// A GET.
pub fn get(address: SocketAddr, path: impl Into<String>) -> Call {
    call(address, Method::GET, path)
}

/// A POST.
pub fn post(address: SocketAddr, path: impl Into<String>) -> Call {
    call(address, Method::POST, path)
}

impl Call {
    /// Adds a header line.
    #[must_use]
    pub fn header(self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let mut this = self;
        let value = http::HeaderValue::from_bytes(value.as_ref()).expect("a header value");
        this.headers.append(name, value);
        this
    }

    /// Adds `Idempotency-Key`.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Adds `X-Lab`.
    #[must_use]
    pub fn lab(self, flags: &str) -> Self {
        self.header("x-lab", flags)
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    /// Uses HTTP/2.
    #[must_use]
    pub fn http2(self) -> Self {
        Self {
            http: Http::Two,
            ..self
        }
    }

    /// Sends it, and reads the whole answer.
    pub async fn send(self) -> Answer {
        let about = format!("{} {}", self.method, self.path);
        let sent = self.try_send().await;
        sent.unwrap_or_else(|error| panic!("{about}: {error}"))
    }

    /// Sends it to a server that may be gone, and reads the answer as far as it comes.
    ///
    /// # Errors
    ///
    /// Where no head came.
    pub async fn try_send(self) -> Result<Answer, BoxError> {
        tokio::time::timeout(PATIENCE, async {
            let response = self.try_open().await?;
            let (head, mut body) = response.into_parts();
            let mut answer = Answer {
                status: head.status,
                headers: head.headers,
                body: Bytes::new(),
                complete: true,
            };
            let mut bytes = Vec::new();
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => {
                        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data))
                    }
                    Err(_) => {
                        answer.complete = false;
                        break;
                    }
                }
            }
            answer.body = bytes.into();
            Ok(answer)
        })
        .await?
    }

    /// Sends it, and answers when the head is there. Dropping the response hangs up.
    pub async fn open(self) -> Response<Incoming> {
        self.try_open().await.expect("an answer")
    }

    async fn try_open(self) -> Result<Response<Incoming>, BoxError> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        let uri = match self.http {
            Http::One => self.path.clone(),
            Http::Two => format!("http://{}{}", self.address, self.path),
        };
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = uri.parse()?;
        *request.headers_mut() = self.headers;
        request
            .headers_mut()
            .entry("host")
            .or_insert(self.address.to_string().parse()?);
        Ok(match self.http {
            Http::One => {
                let (mut send, connection) = hyper::client::conn::http1::handshake(io).await?;
                tokio::spawn(connection);
                send.send_request(request).await?
            }
            Http::Two => {
                let executor = TokioExecutor::new();
                let (mut send, connection) =
                    hyper::client::conn::http2::handshake(executor, io).await?;
                tokio::spawn(connection);
                send.send_request(request).await?
            }
        })
    }
}

/// Asks until the answer is what one waits for.
///
/// # Panics
///
/// When it is not after [`PATIENCE`].
pub async fn until<T, F: Future<Output = T>>(
    what: &str,
    mut ask: impl FnMut() -> F,
    right: impl Fn(&T) -> bool,
) -> T
where
    T: std::fmt::Debug,
{
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if right(&answer) {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "{what}: still {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
