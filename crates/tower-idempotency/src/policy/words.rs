//! Spans, sizes and lists, as people say them.

use std::time::Duration;

use http::HeaderName;

/// In the largest unit that needs no fraction: `24 hours`, `90 seconds`, `250 ms`.
pub(super) fn span(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (2 * 86_400_000, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1_000, "second"),
        (1, "ms"),
    ];
    let millis = span.as_millis();
    if !span.subsec_nanos().is_multiple_of(1_000_000) {
        return format!("{span:?}");
    }
    for (unit, name) in UNITS {
        // Two days are days, one is 24 hours.
        let each = if name == "day" { unit / 2 } else { unit };
        if millis >= unit && millis.is_multiple_of(each) {
            let count = millis / each;
            let plural = if count == 1 || name == "ms" { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    "no time".to_owned()
}

/// Seconds, for machines.
pub(super) fn seconds(span: Duration) -> String {
    span.as_secs_f64().to_string()
}

pub(super) fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    match bytes {
        1 => "1 byte".to_owned(),
        _ => format!("{bytes} bytes"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    let Some((last, rest)) = items.split_last() else {
        return "nothing".to_owned();
    };
    let rest: Vec<_> = rest.iter().map(AsRef::as_ref).collect();
    if rest.is_empty() {
        return last.as_ref().to_owned();
    }
    format!("{} and {}", rest.join(", "), last.as_ref())
}

/// As it is written in documents: `Idempotency-Key`.
pub(super) fn title_case(name: &HeaderName) -> String {
    let mut at_start = true;
    let chars = name.as_str().chars().map(|c| {
        let c = if at_start { c.to_ascii_uppercase() } else { c };
        at_start = c == '-';
        c
    });
    chars.collect()
}

/// The same, set as code.
pub(super) fn header(name: &HeaderName) -> String {
    format!("`{}`", title_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_in_the_largest_whole_unit() {
        for (millis, text) in [
            (0, "no time"),
            (1, "1 ms"),
            (1_500, "1500 ms"),
            (1_000, "1 second"),
            (90_000, "90 seconds"),
            (600_000, "10 minutes"),
            (3_600_000, "1 hour"),
            (86_400_000, "24 hours"),
            (172_800_000, "2 days"),
            (2_592_000_000, "30 days"),
            (90_000_000, "25 hours"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_micros(1_500)), "1.5ms");
        assert_eq!(seconds(Duration::from_secs(86_400)), "86400");
        assert_eq!(seconds(Duration::from_millis(250)), "0.25");
    }

    #[test]
    fn sizes_and_lists() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1_000, "1000 bytes"),
            (4_096, "4 KiB"),
            (1 << 20, "1 MiB"),
            (5 << 30, "5 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(list(["a"]), "a");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
        assert_eq!(list::<&str>([]), "nothing");
        assert_eq!(title_case(&HeaderName::from_static("x-my-key")), "X-My-Key");
    }
}
