//! A request to be sent.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::answer::Answer;
use crate::connection::{BoxError, Connection};
use crate::settings::{Base, Line};
use crate::shown::shown;
use crate::upload::{Sending, Upload};
use crate::verdict::{Stop, fail, skip};

/// No answer takes longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// No body is longer than this, unless the service is said to keep some that are.
pub(crate) const LARGEST: usize = 16 << 20;

pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const LAB: HeaderName = HeaderName::from_static("x-lab");

#[derive(Debug, Clone)]
pub(crate) struct Call {
    base: Arc<Base>,
    http: Version,
    method: Method,
    path: String,
    headers: HeaderMap,
    upload: Upload,
    largest: usize,
}

impl Call {
    pub(crate) fn new(base: Arc<Base>, http: Version, method: Method, path: &str) -> Self {
        Self {
            base,
            http,
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            upload: Upload::Absent,
            largest: LARGEST,
        }
    }

    /// Reads answers of up to so many bytes.
    pub(crate) fn up_to(self, largest: usize) -> Self {
        Self { largest, ..self }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.raw_key(key.as_bytes())
    }

    /// One more line of the key's header. What is no header value is sent by [`crate::kit::Kit::raw`] instead.
    pub(crate) fn raw_key(mut self, key: &[u8]) -> Self {
        if let Ok(value) = HeaderValue::from_bytes(key) {
            self.headers.append(KEY, value);
        }
        self
    }

    /// Sets these lines, in place of those of the same name.
    pub(crate) fn lines(mut self, lines: &[Line]) -> Self {
        for (name, _) in lines {
            self.headers.remove(name);
        }
        for (name, value) in lines {
            self.headers.append(name, value.clone());
        }
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// One more flag of the misbehaviour that is asked for.
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        let before = self.headers.get(LAB).and_then(|flags| flags.to_str().ok());
        let flags = before.map_or_else(|| flag.to_owned(), |before| format!("{before}&{flag}"));
        if let Ok(value) = HeaderValue::from_str(&flags) {
            self.headers.insert(LAB, value);
        }
        self
    }

    /// Asks for a header line in the answer.
    pub(crate) fn answer_with(self, line: &str) -> Self {
        self.flag(&format!(
            "header={}",
            utf8_percent_encode(line, NON_ALPHANUMERIC)
        ))
    }

    pub(crate) fn media(self, media: &str) -> Self {
        self.header("content-type", media)
    }

    pub(crate) fn body(self, body: impl AsRef<[u8]>) -> Self {
        self.upload(Upload::Whole(Bytes::copy_from_slice(body.as_ref())))
    }

    pub(crate) fn upload(self, upload: Upload) -> Self {
        Self { upload, ..self }
    }

    pub(crate) fn http(self, http: Version) -> Self {
        Self { http, ..self }
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{mark}{query}", self.path);
        self
    }

    /// The request as bytes of HTTP/1, with one more line of raw bytes.
    pub(crate) fn wire(&self, line: &[u8]) -> Vec<u8> {
        let path = format!("{}{}", self.base.prefix, self.path);
        let mut wire = format!(
            "{} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
            self.method, self.base.authority
        )
        .into_bytes();
        for (name, value) in &self.headers {
            wire.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        let body = match &self.upload {
            Upload::Whole(bytes) => bytes.clone(),
            _ => Bytes::new(),
        };
        wire.extend([line, b"\r\n"].concat());
        wire.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        wire.extend(body);
        wire
    }

    /// Opens a connection for it.
    pub(crate) async fn connect(&self) -> Result<Connection, Stop> {
        let opened = Connection::open(&self.base, self.http);
        let opened = tokio::time::timeout(PATIENCE, opened).await;
        let opened = opened.unwrap_or_else(|late| Err(late.into()));
        opened.map_err(|error| self.unanswered(&error))
    }

    pub(crate) fn request(&self) -> Result<Request<Sending>, Stop> {
        let path = format!("{}{}", self.base.prefix, self.path);
        let uri = match self.http {
            Version::HTTP_2 => format!("http://{}{path}", self.base.authority),
            _ => path,
        };
        let mut request = Request::new(self.upload.clone().into_body());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri
            .parse()
            .map_err(|_| fail(self.to_string(), "a path", uri))?;
        *request.version_mut() = self.http;
        *request.headers_mut() = self.headers.clone();
        if self.http != Version::HTTP_2
            && let Ok(host) = HeaderValue::from_str(&self.base.authority)
        {
            request.headers_mut().entry(HOST).or_insert(host);
        }
        // Said aloud: an empty body is not the same as none.
        if matches!(&self.upload, Upload::Whole(bytes) if bytes.is_empty()) {
            request
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Ok(request)
    }

    /// Sends it, and reads the whole answer.
    pub(crate) async fn send(&self) -> Result<Answer, Stop> {
        let mut connection = self.connect().await?;
        self.send_over(&mut connection).await
    }

    /// The same over a connection that is there.
    pub(crate) async fn send_over(&self, connection: &mut Connection) -> Result<Answer, Stop> {
        let exchange = async {
            let response = connection.send(self.request()?).await;
            let response = response.map_err(|error| self.unanswered(&error.into()))?;
            self.read(response).await
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await;
        self.judged(answer.unwrap_or_else(|_| Err(self.late()))?)
    }

    /// The rest of an answer whose head is there.
    pub(crate) async fn rest(&self, response: Response<Incoming>) -> Result<Answer, Stop> {
        let answer = tokio::time::timeout(PATIENCE, self.read(response)).await;
        self.judged(answer.unwrap_or_else(|_| Err(self.late()))?)
    }

    /// Sends it, and answers when the head is there. A drop of the connection hangs up.
    pub(crate) async fn open(&self) -> Result<(Connection, Response<Incoming>), Stop> {
        let mut connection = self.connect().await?;
        let response = tokio::time::timeout(PATIENCE, connection.send(self.request()?)).await;
        match response {
            Ok(Ok(response)) => Ok((connection, response)),
            Ok(Err(error)) => Err(self.unanswered(&error.into())),
            Err(_) => Err(self.late()),
        }
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Answer, Stop> {
        let (head, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        let mut complete = true;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let data = frame.data_ref().map_or(&[][..], |data| data);
                    if bytes.len() + data.len() > self.largest {
                        let expected = format!("a body of at most {} bytes", self.largest);
                        let seen = format!("{}, and more behind", head.status.as_u16());
                        return Err(fail(self.to_string(), expected, seen));
                    }
                    bytes.extend_from_slice(data);
                }
                Err(_) => {
                    complete = false;
                    break;
                }
            }
        }
        Ok(Answer {
            request: self.to_string(),
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
            complete,
            ended: Instant::now(),
        })
    }

    /// A service that does not know a flag has not failed.
    fn judged(&self, answer: Answer) -> Result<Answer, Stop> {
        let flags = self.headers.get(LAB);
        let unknown = answer.is(501) || answer.is(400) && answer.text().contains("unknown flag");
        match flags {
            Some(flags) if unknown => Err(skip(format!(
                "the service does not know the flags `{}` of X-Lab: {}",
                String::from_utf8_lossy(flags.as_bytes()),
                answer.text()
            ))),
            _ => Ok(answer),
        }
    }

    fn late(&self) -> Stop {
        let expected = format!("a whole answer within {PATIENCE:?}");
        fail(self.to_string(), expected, "none by then")
    }

    fn unanswered(&self, error: &BoxError) -> Stop {
        fail(
            self.to_string(),
            "an answer",
            format!("none: {}", chain(error.as_ref())),
        )
    }
}

/// An error and what caused it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.method, self.base.prefix, self.path)?;
        if self.http == Version::HTTP_2 {
            write!(f, " over HTTP/2")?;
        }
        for (name, value) in &self.headers {
            let value = match value.is_sensitive() {
                true => "(not shown)".to_owned(),
                false => shown(value.as_bytes(), 400),
            };
            write!(f, ", {name}: {value}")?;
        }
        write!(f, ", {}", self.upload.describe())
    }
}
