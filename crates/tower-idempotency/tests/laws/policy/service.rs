//! The service that tells the policy, and its page.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;
use tower_claim::http::{Gate, Mode, Switch};
use tower_idempotency::PolicyService;

use super::{builder, json};

async fn ask(service: &PolicyService, uri: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    of(service, request.body(()).unwrap()).await
}

async fn of(service: &PolicyService, request: Request<()>) -> Response<Bytes> {
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body: Full<Bytes> = body;
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

fn kind(response: &Response<Bytes>) -> &str {
    let media_type = response.headers()["content-type"].to_str().unwrap();
    media_type.split(';').next().unwrap()
}

#[tokio::test]
async fn the_service_serves_what_is_liked_best() {
    let service = PolicyService::new(&builder().build().unwrap());
    const HTML: &str = "text/html";
    const JSON: &str = "application/json";
    const OPENAPI: &str = "application/vnd.oai.openapi+json";
    for (accept, media_type) in [
        ("", HTML),
        ("*/*", HTML),
        ("text/html,application/xhtml+xml,*/*;q=0.8", HTML),
        ("application/json", JSON),
        ("application/*", JSON),
        ("application/json;q=0.5, text/html;q=0.4", JSON),
        ("application/json;q=0.4, text/*;q=0.5", HTML),
        ("APPLICATION/JSON", JSON),
        (OPENAPI, OPENAPI),
        ("text/html;q=0, application/vnd.oai.openapi+json", OPENAPI),
        ("image/png", HTML),
        ("application/json;q=x", HTML),
    ] {
        let answer = ask(&service, "/policy", &[("accept", accept)]).await;
        assert_eq!(
            (answer.status().as_u16(), kind(&answer)),
            (200, media_type),
            "{accept}"
        );
        assert_eq!(answer.headers()["vary"], "accept");
    }
    for (format, media_type) in [("html", HTML), ("json", JSON), ("openapi", OPENAPI)] {
        let uri = format!("/policy?x=1&format={format}");
        let answer = ask(&service, &uri, &[("accept", "image/png")]).await;
        assert_eq!(kind(&answer), media_type);
    }
    assert_eq!(ask(&service, "/?format=yaml", &[]).await.status(), 404);
    let post = Request::post("/policy").body(()).unwrap();
    let refused = of(&service, post).await;
    assert_eq!(refused.status(), 405);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

#[tokio::test]
async fn who_has_the_policy_is_told_so() {
    let service = PolicyService::new(&builder().build().unwrap());
    let first = ask(&service, "/", &[]).await;
    let tag = first.headers()["etag"].to_str().unwrap();
    let weak = format!("\"x\", W/{tag}");
    for known in [tag, &weak, "*"] {
        let again = ask(&service, "/", &[("if-none-match", known)]).await;
        assert_eq!(again.status(), 304);
        assert!(again.body().is_empty());
        assert_eq!(again.headers()["etag"], tag);
    }
    let other = ask(&service, "/?format=json", &[("if-none-match", tag)]).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn the_policy_follows_the_switch() {
    let switch = Switch::new(Mode::On);
    let gate = Gate::new().switch(switch.clone());
    let service = PolicyService::new(&builder().gate(gate).build().unwrap());
    for (mode, word) in [
        (Mode::Off, "off"),
        (Mode::Observe, "observe"),
        (Mode::On, "on"),
    ] {
        switch.set(mode);
        let answer = ask(&service, "/?format=json", &[]).await;
        assert_eq!(
            json(std::str::from_utf8(answer.body()).unwrap())["requests"]["mode"],
            word
        );
    }
}

#[tokio::test]
async fn the_page_loads_nothing_and_can_be_read_by_ear() {
    let layer = builder().policy_at("https://a.example/?a=1&b=<").build();
    assert_eq!(layer.unwrap_err().setting(), "policy_at");
    let layer = builder()
        .policy_at("https://a.example/?a=1&b=2")
        .gate(Gate::new().routes(["/<script>alert(1)</script>"]))
        .build()
        .unwrap();
    let answer = ask(&PolicyService::new(&layer), "/", &[]).await;
    let page = std::str::from_utf8(answer.body()).unwrap();
    for loads in ["<script", "src=", "<link", "@import", "url(", "<img"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("&lt;script&gt;"));
    assert!(page.contains("a=1&amp;b=2"));
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    assert!(page.contains("<meta name=\"viewport\""));
    assert_eq!(page.matches("<h1>").count(), 1);
    // Every section has its name, every anchor its place, every column and row its head.
    let ids: BTreeSet<_> = quoted(page, " id=\"").collect();
    assert_eq!(ids.len(), page.matches(" id=\"").count());
    for to in quoted(page, " aria-labelledby=\"").chain(quoted(page, " href=\"#")) {
        assert!(ids.contains(to), "{to}");
    }
    assert_eq!(
        page.matches("<section ").count(),
        page.matches("<h2 ").count()
    );
    assert_eq!(page.matches("scope=\"col\"").count(), 4);
    assert_eq!(
        page.matches("<tr role=\"row\" id=").count(),
        page.matches(" scope=\"row\">").count()
    );
    for tag in [
        "section", "ul", "li", "table", "tr", "td", "th", "code", "p", "main", "nav",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    // The style sheet is the one that may be used.
    let style = page
        .split("<style>")
        .nth(1)
        .unwrap()
        .split("</style>")
        .next()
        .unwrap();
    let allowed = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(
        allowed.contains(&format!("'sha256-{}'", sha256_base64(style))),
        "{allowed}"
    );
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
}

fn quoted<'a>(page: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(before)
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
}

fn sha256_base64(text: &str) -> String {
    use sha2::{Digest, Sha256};
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text);
    // 32 bytes: ten threes, and two bytes left.
    let mut bits = digest
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut out = String::new();
    loop {
        let six: Vec<_> = bits.by_ref().take(6).collect();
        if six.is_empty() {
            break;
        }
        let value = (0..6).fold(0, |value, i| value << 1 | six.get(i).copied().unwrap_or(0));
        out.push(char::from(ALPHABET[usize::from(value)]));
    }
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}
