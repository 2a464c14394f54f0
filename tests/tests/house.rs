//! The house itself: licences, minimum Rust versions, what lies where.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Licences whose packages we may build on. An expression passes if one of its alternatives does.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "BSL-1.0",
    // Mozilla's list of certificate authorities: data, under a permissive licence.
    "CDLA-Permissive-2.0",
];

fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let rustc = Command::new("rustc")
            .arg("-vV")
            .output()
            .expect("rustc runs");
        let rustc = String::from_utf8(rustc.stdout).expect("rustc speaks UTF-8");
        let host = rustc
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .expect("rustc has a host");
        let out = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version",
                "1",
                "--locked",
                "--all-features",
                "--filter-platform",
                host,
            ])
            .current_dir(ROOT)
            .output()
            .expect("cargo runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        serde_json::from_slice(&out.stdout).expect("cargo speaks JSON")
    })
}

fn packages() -> impl Iterator<Item = &'static Value> {
    metadata()["packages"]
        .as_array()
        .expect("there are packages")
        .iter()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

/// Whether an SPDX expression allows use under one of [`ALLOWED`]. `AND` binds closer than `OR`; the old
/// slash is an `OR`.
fn allows(expression: &str) -> bool {
    fn any_of(tokens: &mut std::iter::Peekable<std::slice::Iter<'_, String>>) -> bool {
        let mut ok = all_of(tokens);
        while tokens.next_if(|t| *t == "OR").is_some() {
            ok |= all_of(tokens);
        }
        ok
    }
    fn all_of(tokens: &mut std::iter::Peekable<std::slice::Iter<'_, String>>) -> bool {
        let mut ok = one(tokens);
        while tokens.next_if(|t| *t == "AND").is_some() {
            ok &= one(tokens);
        }
        ok
    }
    fn one(tokens: &mut std::iter::Peekable<std::slice::Iter<'_, String>>) -> bool {
        let Some(token) = tokens.next() else {
            return false;
        };
        if token == "(" {
            let ok = any_of(tokens);
            return tokens.next().is_some_and(|t| t == ")") && ok;
        }
        let mut name = token.clone();
        if tokens.next_if(|t| *t == "WITH").is_some() {
            name = format!("{name} WITH {}", tokens.next().map_or("", String::as_str));
        }
        ALLOWED.contains(&name.as_str())
    }
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    let mut tokens = tokens.iter().peekable();
    any_of(&mut tokens) && tokens.next().is_none()
}

#[test]
fn licence_expressions_are_judged_rightly() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
    ] {
        assert!(allows(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-2.0 OR LGPL-3.0)",
        "MIT MIT",
        "SSPL-1.0",
    ] {
        assert!(!allows(bad), "{bad}");
    }
}

#[test]
fn every_dependency_has_a_licence_we_may_build_on() {
    let bad: Vec<_> = packages()
        .filter(|p| !allows(text(p, "license")))
        .map(|p| {
            format!(
                "{} {}: {:?}",
                text(p, "name"),
                text(p, "version"),
                text(p, "license")
            )
        })
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(packages().count() > 50, "the list is too short to be true");
}

#[test]
fn our_crates_are_mit_or_apache() {
    for package in packages().filter(|p| is_ours(p)) {
        assert_eq!(
            text(package, "license"),
            "MIT OR Apache-2.0",
            "{}",
            text(package, "name")
        );
    }
}

/// Packages a user of `root` builds, with all features and without what only its tests need.
fn built_with(root: &str) -> BTreeSet<&'static str> {
    let nodes: BTreeMap<&str, &Value> = metadata()["resolve"]["nodes"]
        .as_array()
        .expect("there is a graph")
        .iter()
        .map(|node| (text(node, "id"), node))
        .collect();
    let mut seen = BTreeSet::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        let Some((id, node)) = nodes.get_key_value(id) else {
            continue;
        };
        if !seen.insert(*id) {
            continue;
        }
        for dep in node["deps"].as_array().into_iter().flatten() {
            let kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            if kinds.into_iter().any(|kind| kind["kind"] != "dev") {
                open.push(text(dep, "pkg"));
            }
        }
    }
    seen
}

#[test]
fn dependencies_ask_for_no_newer_rust_than_we_claim() {
    fn version(text: &str) -> (u32, u32) {
        let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
    for package in packages().filter(|p| is_ours(p)) {
        let claimed = version(text(package, "rust_version"));
        assert!(
            claimed >= (1, 85),
            "{} claims no Rust version",
            text(package, "name")
        );
        let built = built_with(text(package, "id"));
        assert!(
            built.len() > 1,
            "{} builds on nothing?",
            text(package, "name")
        );
        for dependency in packages().filter(|p| built.contains(text(p, "id"))) {
            let asked = version(text(dependency, "rust_version"));
            assert!(
                asked <= claimed,
                "{} {} asks for Rust {asked:?}; {} claims {claimed:?}",
                text(dependency, "name"),
                text(dependency, "version"),
                text(package, "name"),
            );
        }
    }
}

#[test]
fn every_published_crate_is_complete() {
    let mut checked = 0;
    for package in
        packages().filter(|p| is_ours(p) && text(p, "manifest_path").contains("/crates/"))
    {
        let folder = Path::new(text(package, "manifest_path"))
            .parent()
            .expect("a manifest has a folder");
        for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(
                folder.join(file).is_file(),
                "{} lacks {file}",
                text(package, "name")
            );
        }
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{} has lints of its own",
            text(package, "name")
        );
        assert!(!text(package, "description").is_empty());
        checked += 1;
    }
    assert!(checked >= 5, "only {checked} crates found");
}

#[test]
fn the_top_level_holds_what_it_should() {
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "crates",
        "examples",
        "tests",
        "target",
    ];
    for entry in std::fs::read_dir(ROOT).expect("the root is a folder") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a plain name");
        assert!(
            name.starts_with('.') || allowed.contains(&name.as_str()),
            "{name} does not belong here"
        );
    }
}
