//! What is asked, and what is answered.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::{Body, Service, body_of, soon};

/// A request, piece by piece.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Option<Bytes>,
}

pub(crate) fn post(uri: &str) -> Ask {
    Ask {
        method: Method::POST,
        uri: uri.to_owned(),
        headers: HeaderMap::new(),
        body: Some(Bytes::from_static(b"{}")),
    }
}

impl Ask {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        self.headers.append(name, value);
        self
    }

    /// Flags of the handler; not part of the fingerprint.
    pub(crate) fn flags(mut self, flags: &str) -> Self {
        self.headers
            .insert("x-do", HeaderValue::from_str(flags).unwrap());
        self
    }

    pub(crate) fn body(mut self, body: &'static str) -> Self {
        self.body = Some(Bytes::from_static(body.as_bytes()));
        self
    }

    pub(crate) fn no_body(mut self) -> Self {
        self.body = None;
        self
    }

    pub(crate) fn request(&self) -> Request<Body> {
        self.with(match &self.body {
            None => http_body_util::Empty::new()
                .map_err(|never| match never {})
                .boxed_unsync(),
            Some(bytes) => body_of(bytes.clone()),
        })
    }

    pub(crate) fn with(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        if let Some(bytes) = &self.body {
            request
                .headers_mut()
                .insert("content-length", HeaderValue::from(bytes.len()));
        }
        request
    }

    pub(crate) async fn send(&self, service: &Service) -> Answer {
        send(service, self.request()).await
    }
}

/// A response that was read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Result<Bytes, String>,
    pub(crate) trailers: Option<HeaderMap>,
}

pub(crate) async fn send(service: &Service, request: Request<Body>) -> Answer {
    soon(async {
        let response = service.clone().oneshot(request).await.unwrap();
        read(response).await
    })
    .await
}

pub(crate) async fn read<B>(response: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (parts, body) = response.into_parts();
    let (body, trailers) = match body.collect().await {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            (Ok(whole.to_bytes()), trailers)
        }
        Err(error) => (Err(error.to_string()), None),
    };
    Answer {
        status: parts.status,
        headers: parts.headers,
        body,
        trailers,
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|v| v == "true")
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> &str {
        let text = self.text();
        let Some((_, rest)) = text.split_once("\"code\":\"") else {
            panic!("no refusal: {} {text}", self.status);
        };
        rest.split('"').next().unwrap()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        let value = self.headers.get("retry-after")?;
        value.to_str().ok()?.parse().ok()
    }

    #[track_caller]
    pub(crate) fn assert_fresh(&self, status: u16) -> &Self {
        assert_eq!(
            (self.status.as_u16(), self.is_replay()),
            (status, false),
            "{self:?}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn assert_replay_of(&self, first: &Answer) -> &Self {
        assert!(self.is_replay(), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        self
    }

    #[track_caller]
    pub(crate) fn assert_refused(&self, status: u16, code: &str) -> &Self {
        assert_eq!(
            (self.status.as_u16(), self.code()),
            (status, code),
            "{self:?}"
        );
        assert!(!self.is_replay());
        self
    }
}

pub(crate) fn hint(response: &Response<impl http_body::Body>) -> Option<u64> {
    response.body().size_hint().exact()
}
