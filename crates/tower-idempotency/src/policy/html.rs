//! The policy as a page for people.

use super::words;
use super::{MADE_BY, Policy};
use crate::reply::REPLAYED;

/// The style sheet: the page loads nothing.
pub(super) const STYLE: &str = include_str!("page.css");

pub(super) fn page(policy: &Policy) -> String {
    let mut out = Page(String::with_capacity(16 * 1024));
    out.raw(concat!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta name=\"color-scheme\" content=\"light dark\">\n",
        "<title>Idempotency policy</title>\n<style>",
    ));
    out.raw(STYLE);
    out.raw("</style>\n</head>\n<body>\n<main>\n<h1>Idempotency policy</h1>\n");
    out.raw("<p class=\"lead\">");
    out.text("A request with a key runs once, however often it is sent. This page says how.");
    out.raw("</p>\n");
    in_short(&mut out, policy);
    contents(&mut out, policy);
    for chapter in &policy.chapters {
        out.section(chapter.name, chapter.title);
        out.raw("<ul>\n");
        for fact in chapter.facts.iter().filter(|fact| !fact.text.is_empty()) {
            out.raw("<li>");
            out.text(&fact.text);
            out.raw("</li>\n");
        }
        out.raw("</ul>\n</section>\n");
    }
    refusals(&mut out, policy);
    out.raw("</main>\n<footer>\n<p>For machines: <a href=\"?format=json\">JSON</a>, <a href=\"?format=openapi\">OpenAPI 3.1</a>. ");
    out.text(&format!(
        "Made by {MADE_BY} from how the service was built."
    ));
    out.raw("</p>\n</footer>\n</body>\n</html>\n");
    out.0
}

fn in_short(out: &mut Page, policy: &Policy) {
    out.section("in-short", "In short");
    out.raw("<ol>\n<li>");
    match &policy.usage.header {
        Some(header) => {
            out.text(&format!(
                "Draw a random key for each business intent, such as a UUID, and send it as {} with the request and with each \
                 retry of it.",
                words::header(header)
            ));
        }
        None => out.text("Send the request, and send it again if you heard nothing: the server makes the key by itself."),
    }
    out.raw("</li>\n<li>");
    out.text(&format!(
        "The first request runs. A repeat is sent the first one's answer, marked `{}: true`; nothing runs again.",
        words::title_case(&REPLAYED)
    ));
    out.raw("</li>\n<li><strong>Expiry.</strong> ");
    out.text(policy.expiry());
    out.raw("</li>\n</ol>\n");
    if let Some(header) = &policy.usage.header {
        let quote = if policy.usage.is_strict { "\"" } else { "" };
        out.raw("<pre tabindex=\"0\" aria-label=\"An example\"><code>");
        let method = policy.usage.methods.as_deref().and_then(<[_]>::first);
        let method = method.map_or("POST", |method| method.as_str());
        out.escaped(&format!(
            "{method} /orders HTTP/1.1\n{}: {quote}8e03978e-40d5-43dd-bc93-6894a57f9324{quote}\n",
            words::title_case(header)
        ));
        out.raw("</code></pre>\n");
    }
    out.raw("</section>\n");
}

fn contents(out: &mut Page, policy: &Policy) {
    out.raw("<nav aria-label=\"Contents\">\n<ul>\n");
    let chapters = policy.chapters.iter();
    let chapters = chapters.map(|chapter| (chapter.name, chapter.title));
    for (name, title) in chapters.chain([REFUSALS]) {
        out.raw("<li><a href=\"#");
        out.escaped(name);
        out.raw("\">");
        out.escaped(title);
        out.raw("</a></li>\n");
    }
    out.raw("</ul>\n</nav>\n");
}

const REFUSALS: (&str, &str) = ("refusals", "What is refused, and what to do then");

fn refusals(out: &mut Page, policy: &Policy) {
    let (name, title) = REFUSALS;
    out.section(name, title);
    // The roles, because on a narrow screen rows and cells are blocks, which take the table's own away.
    out.raw(concat!(
        "<table role=\"table\">\n<thead>\n<tr role=\"row\"><th role=\"columnheader\" scope=\"col\">Status</th><th role=\"columnheader\" scope=\"col\">Code</th>",
        "<th role=\"columnheader\" scope=\"col\">Retry-After</th><th role=\"columnheader\" scope=\"col\">What to do</th></tr>\n</thead>\n<tbody>\n",
    ));
    for refusal in &policy.refusals {
        out.raw("<tr role=\"row\" id=\"");
        out.escaped(refusal.code);
        out.raw("\"><td role=\"cell\" data-label=\"Status\">");
        out.escaped(&refusal.status.to_string());
        out.raw("</td><th role=\"rowheader\" scope=\"row\"><code>");
        out.escaped(refusal.code);
        out.raw("</code></th><td role=\"cell\" data-label=\"Retry-After\">");
        out.escaped(refusal.retry_after.word());
        out.raw("</td><td role=\"cell\">");
        out.text(&format!("{}. {}", refusal.title, refusal.advice));
        out.raw("</td></tr>\n");
    }
    out.raw("</tbody>\n</table>\n</section>\n");
}

/// What is written so far.
struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    fn escaped(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.raw("&amp;"),
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '"' => self.raw("&quot;"),
                '\'' => self.raw("&#39;"),
                c => self.0.push(c),
            }
        }
    }

    /// A text, with `code` in it.
    fn text(&mut self, text: &str) {
        for (i, piece) in text.split('`').enumerate() {
            if i % 2 == 1 {
                self.raw("<code>");
                self.escaped(piece);
                self.raw("</code>");
            } else {
                self.escaped(piece);
            }
        }
    }

    fn section(&mut self, name: &str, title: &str) {
        self.raw("<section aria-labelledby=\"");
        self.escaped(name);
        self.raw("\">\n<h2 id=\"");
        self.escaped(name);
        self.raw("\">");
        self.escaped(title);
        self.raw("</h2>\n");
    }
}
