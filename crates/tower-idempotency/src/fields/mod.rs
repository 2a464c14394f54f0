//! Named fields of a request: of its path, query, headers and body.

mod form;
mod path;
mod protobuf;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use tower_claim::ConfigError;
use tower_claim::http::{InvalidKey, is_grpc, original_uri};

#[cfg(feature = "json")]
use crate::fingerprint::Node;
use crate::json::Object;
use path::Template;

type HeadFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type BodyFn = dyn Fn(&Parts, &[u8]) -> Option<String> + Send + Sync;

/// Named fields of a request: of its path, its query, its headers, its body. They make a key
/// ([`derived_from`](crate::IdempotencyBuilder::derived_from)), or are what must not change under one
/// ([`fingerprint_fields`](crate::IdempotencyBuilder::fingerprint_fields)).
///
/// Values are compared as text. A field that is empty, that is there twice, or that stands in a body which
/// cannot be read is *malformed*, which is not the same as absent.
///
/// ```
/// use tower_idempotency::RequestFields;
///
/// let one_invoice_a_month = RequestFields::new()
///     .path("/customers/{customer}/invoices")
///     .form("month");
/// # let _ = one_invoice_a_month;
/// ```
#[derive(Clone, Default)]
pub struct RequestFields {
    fields: Vec<(Cow<'static, str>, Origin)>,
    /// A path that names no segment, so that no field tells of it.
    nameless: Option<Arc<Template>>,
}

#[derive(Clone)]
enum Origin {
    Path(Arc<Template>, usize),
    Query,
    Header(HeaderName),
    Head(Arc<HeadFn>),
    Form,
    #[cfg(feature = "json")]
    Json(Cow<'static, str>),
    Protobuf(Vec<u32>),
    Body(Arc<BodyFn>),
}

impl Origin {
    /// In a word, and in words.
    fn told(&self) -> (&'static str, &'static str) {
        match self {
            Self::Path(..) => ("path", "of the path"),
            Self::Query => ("query", "of the query"),
            Self::Header(_) => ("header", "of the headers"),
            Self::Head(_) => ("head", "as the server reads the head"),
            Self::Form => ("form", "of the form"),
            #[cfg(feature = "json")]
            Self::Json(_) => ("json", "of the JSON body"),
            Self::Protobuf(_) => ("protobuf", "of the protobuf message"),
            Self::Body(_) => ("body", "as the server reads the body"),
        }
    }
}

/// The fields of one request.
pub(crate) type Values<'a> = Vec<(&'a Cow<'static, str>, Option<String>)>;

impl RequestFields {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The segments in braces of a path like `/classrooms/{room}/announcement`, each under its name. Compared
    /// with the *original* path, also inside of nested routers. On another path they are all absent. A path without a
    /// named segment (`/invoices/:month`) is refused when the layer is built.
    #[must_use]
    pub fn path(mut self, template: &str) -> Self {
        let template = Arc::new(Template::of(template));
        if template.names().next().is_none() {
            self.nameless = Some(Arc::clone(&template));
        }
        for (index, name) in template.names().enumerate() {
            let from = Origin::Path(Arc::clone(&template), index);
            self.fields.push((Cow::Owned(name.to_owned()), from));
        }
        self
    }

    /// A field of the query, by its name, percent decoding undone.
    #[must_use]
    pub fn query(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(name, Origin::Query)
    }

    /// A request header.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(name.as_str().to_owned(), Origin::Header(name))
    }

    /// What a function of the request's head answers, such as the tenant that an authentication layer has put
    /// into the extensions.
    #[must_use]
    pub fn head<F>(self, name: impl Into<Cow<'static, str>>, field: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.with(name, Origin::Head(Arc::new(field)))
    }

    /// A field of a form (`application/x-www-form-urlencoded`), by its name.
    #[must_use]
    pub fn form(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(name, Origin::Form)
    }

    /// A text, a number or a truth value in a JSON body, by its pointer (RFC 6901): `/order/number`. It is
    /// named by its pointer. `null` is absent; an object or a list is malformed, and a number that no double is
    /// (`1.000000000000000001`), which other readers would take for its neighbour. Feature `json`.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn json(self, pointer: impl Into<Cow<'static, str>>) -> Self {
        let pointer = pointer.into();
        self.with(pointer.clone(), Origin::Json(pointer))
    }

    /// A field of a protobuf message, by the numbers that lead to it: `[3]` is field 3, `[3, 1]` is field 1 of
    /// the message in field 3. Text, bytes and integers can be read, also behind the five bytes that gRPC puts
    /// before a message; a compressed message is malformed, and so is a field that is there twice (`repeated`). A field
    /// that has its default value is not sent (proto3), and so is absent. An integer counts by its decimal digits.
    ///
    /// It reads the wire format as it is, and needs no schema.
    ///
    /// ```
    /// use tower_idempotency::RequestFields;
    ///
    /// let by_order_number = RequestFields::new().protobuf("order number", [1, 2]);
    /// # let _ = by_order_number;
    /// ```
    #[must_use]
    pub fn protobuf(self, name: impl Into<Cow<'static, str>>, field: impl Into<Vec<u32>>) -> Self {
        self.with(name, Origin::Protobuf(field.into()))
    }

    /// What a function of the head and the whole body answers: for everything that is not built in.
    #[must_use]
    pub fn body<F>(self, name: impl Into<Cow<'static, str>>, field: F) -> Self
    where
        F: Fn(&Parts, &[u8]) -> Option<String> + Send + Sync + 'static,
    {
        self.with(name, Origin::Body(Arc::new(field)))
    }

    fn with(mut self, name: impl Into<Cow<'static, str>>, from: Origin) -> Self {
        self.fields.push((name.into(), from));
        self
    }

    /// Refuses what can never work.
    pub(crate) fn check(&self, setting: &'static str) -> Result<(), ConfigError> {
        let wrong = |text: &str| Err(ConfigError::new(setting, text.to_owned()));
        if let Some(nameless) = &self.nameless {
            nameless.check(setting)?;
        }
        if self.fields.is_empty() {
            return wrong("no fields: name at least one");
        }
        for (i, (name, from)) in self.fields.iter().enumerate() {
            if self.fields[..i].iter().any(|(other, _)| other == name) {
                return Err(ConfigError::new(
                    setting,
                    format!("two fields are named `{name}`: give each a name of its own"),
                ));
            }
            match from {
                Origin::Path(template, _) => template.check(setting)?,
                #[cfg(feature = "json")]
                Origin::Json(pointer) if !pointer.starts_with('/') => {
                    return wrong("a JSON pointer begins with `/` (RFC 6901)");
                }
                Origin::Protobuf(numbers) if numbers.is_empty() || numbers.contains(&0) => {
                    return wrong("a protobuf field has numbers from 1");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The fields and where they are: for machines, and for people.
    pub(crate) fn told(&self) -> (String, String) {
        let field = |(name, from): &(Cow<'static, str>, Origin)| {
            let (word, place) = from.told();
            let object = Object::new().text("name", name).text("in", word);
            (object.end(), format!("`{name}` {place}"))
        };
        let (json, text): (Vec<_>, Vec<_>) = self.fields.iter().map(field).unzip();
        (crate::json::list(json), text.join(", "))
    }

    /// The headers among them.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().filter_map(|(_, from)| match from {
            Origin::Header(name) => Some(name),
            _ => None,
        })
    }

    /// Whether a body must be read.
    pub(crate) fn need_body(&self) -> bool {
        self.fields.iter().any(|(_, from)| match from {
            Origin::Form | Origin::Protobuf(_) | Origin::Body(_) => true,
            #[cfg(feature = "json")]
            Origin::Json(_) => true,
            Origin::Path(..) | Origin::Query | Origin::Header(_) | Origin::Head(_) => false,
        })
    }

    /// The fields of this request, in the order they were named.
    pub(crate) fn read(&self, parts: &Parts, body: &[u8]) -> Result<Values<'_>, InvalidKey> {
        let uri = original_uri(&parts.extensions, &parts.uri);
        #[cfg(feature = "json")]
        let mut document = None;
        let mut values = Vec::with_capacity(self.fields.len());
        for (name, origin) in &self.fields {
            let value = match origin {
                Origin::Path(template, index) => template.read(uri.path(), *index)?,
                Origin::Query => form::field(uri.query().unwrap_or_default().as_bytes(), name)?,
                Origin::Header(header) => header_field(parts, header)?,
                Origin::Head(field) => field(parts),
                Origin::Form => form::field(body, name)?,
                #[cfg(feature = "json")]
                Origin::Json(pointer) => {
                    let document = match &mut document {
                        Some(document) => document,
                        none => none.insert(parse(body)?),
                    };
                    json_field(document, pointer)?
                }
                Origin::Protobuf(path) => protobuf::field(body, is_grpc(&parts.headers), path)?,
                Origin::Body(field) => field(parts, body),
            };
            if value.as_ref().is_some_and(|v| v.trim().is_empty()) {
                return Err(InvalidKey::Empty);
            }
            values.push((name, value));
        }
        Ok(values)
    }
}

fn header_field(parts: &Parts, name: &HeaderName) -> Result<Option<String>, InvalidKey> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(InvalidKey::Repeated);
    }
    let text = value.to_str().map_err(|_| InvalidKey::Character)?;
    Ok(Some(text.trim().to_owned()))
}

#[cfg(feature = "json")]
fn parse(body: &[u8]) -> Result<Node, InvalidKey> {
    if body.is_empty() {
        return Ok(Node::Null);
    }
    Node::read(body).ok_or(InvalidKey::Unreadable)
}

/// What two readers could take for different things is no key.
#[cfg(feature = "json")]
fn json_field(document: &Node, pointer: &str) -> Result<Option<String>, InvalidKey> {
    match document.at(pointer) {
        None | Some(Node::Null) => Ok(None),
        Some(Node::Text(text)) => Ok(Some(text.clone())),
        Some(Node::Bool(truth)) => Ok(Some(truth.to_string())),
        Some(Node::Unsigned(number)) => Ok(Some(number.to_string())),
        Some(Node::Signed(number)) => Ok(Some(number.to_string())),
        Some(float @ Node::Float(number)) if !float.was_rounded() => Ok(Some(number.to_string())),
        Some(Node::Float(_) | Node::Rounded | Node::List(_) | Node::Object(_)) => {
            Err(InvalidKey::Unreadable)
        }
    }
}

impl fmt::Debug for RequestFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.fields.iter().map(|(name, _)| name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str) -> Parts {
        let request = Request::post(uri).header("x-tenant", "acme");
        request.body(()).unwrap().into_parts().0
    }

    fn read(
        fields: &RequestFields,
        uri: &str,
        body: &str,
    ) -> Result<Vec<Option<String>>, InvalidKey> {
        let values = fields.read(&parts(uri), body.as_bytes())?;
        Ok(values.into_iter().map(|(_, value)| value).collect())
    }

    fn texts(values: &[&str]) -> Result<Vec<Option<String>>, InvalidKey> {
        Ok(values.iter().map(|v| Some((*v).to_owned())).collect())
    }

    #[test]
    fn fields_of_the_head_are_read() {
        let fields = RequestFields::new()
            .path("/rooms/{room}/months/{month}")
            .query("page")
            .header(HeaderName::from_static("x-tenant"))
            .head("method", |parts| Some(parts.method.to_string()));
        assert!(!fields.need_body());
        assert_eq!(
            read(&fields, "/rooms/7%2Fa/months/3?x=1&page=2", ""),
            texts(&["7/a", "3", "2", "acme", "POST"])
        );
        let elsewhere = read(&fields, "/rooms/7?page=2", "").unwrap();
        assert_eq!(elsewhere[..2], [None, None]);
    }

    #[test]
    fn fields_of_a_form_are_read() {
        let fields = RequestFields::new().form("to").form("amount");
        assert!(fields.need_body());
        assert_eq!(
            read(&fields, "/", "amount=1+000%2C5&x&to=ada"),
            texts(&["ada", "1 000,5"])
        );
        assert_eq!(read(&fields, "/", "x=1"), Ok(vec![None, None]));
        assert_eq!(read(&fields, "/", "to=&amount=1"), Err(InvalidKey::Empty));
        assert_eq!(read(&fields, "/", "to=a&to=b"), Err(InvalidKey::Repeated));
    }

    #[cfg(feature = "json")]
    #[test]
    fn fields_of_a_json_document_are_read() {
        let fields = RequestFields::new().json("/order/number").json("/paid");
        let document = r#"{"paid": true, "order": {"number": 12345678901234567890}}"#;
        assert_eq!(
            read(&fields, "/", document),
            texts(&["12345678901234567890", "true"])
        );
        assert_eq!(read(&fields, "/", ""), Ok(vec![None, None]));
        assert_eq!(read(&fields, "/", r#"{"paid":null}"#), Ok(vec![None, None]));
        assert_eq!(
            read(&fields, "/", r#"{"paid": 1.50, "order": {"number": -7}}"#),
            texts(&["-7", "1.5"])
        );
        for malformed in [
            "{",
            "[1",
            r#"{"paid": []}"#,
            r#"{"paid": {}}"#,
            // Named twice: readers disagree.
            r#"{"paid": true, "paid": false}"#,
            // Too large to be told from its neighbours.
            r#"{"order": {"number": 18446744073709551616}}"#,
            r#"{"paid": 90071992547409931.1}"#,
            r#"{"paid": 1.000000000000000001}"#,
        ] {
            assert_eq!(
                read(&fields, "/", malformed),
                Err(InvalidKey::Unreadable),
                "{malformed}"
            );
        }
    }

    #[test]
    fn what_can_never_work_is_refused() {
        let refused = |fields: RequestFields| fields.check("here").unwrap_err().setting();
        assert_eq!(refused(RequestFields::new()), "here");
        assert_eq!(refused(RequestFields::new().path("/a/b")), "here");
        assert_eq!(refused(RequestFields::new().query("a").form("a")), "here");
        assert_eq!(refused(RequestFields::new().protobuf("a", [])), "here");
        assert_eq!(refused(RequestFields::new().protobuf("a", [1, 0])), "here");
        assert!(RequestFields::new().path("/a/{b}").check("here").is_ok());
    }
}
