//! Not a test: says which suites this run leaves out, and why. Its output is not captured.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Suites that start servers of their own: their feature, whether this run has it, what they need.
const SERVERS: [(&str, bool, &str); 3] = [
    ("redis", cfg!(feature = "redis"), "the program redis-server"),
    (
        "postgres",
        cfg!(feature = "postgres"),
        "the programs of postgresql and pgbouncer",
    ),
    (
        "etcd",
        cfg!(feature = "etcd"),
        "the program etcd, and protoc to build its client",
    ),
];

fn main() {
    if cfg!(feature = "everything") {
        println!("all suites are built; still left out:");
    } else {
        println!("left out of this run, or part of it; `tests/run` runs them:");
        for (file, needs) in gated() {
            println!("  {file}: built only with {needs}");
        }
        for (package, why) in no_default_members() {
            println!("  {package}: no default member, {why}");
        }
    }
    for (engine, built, needs) in SERVERS {
        if !built {
            println!(
                "  tests/tests/engines/{engine}: built only with feature = \"{engine}\"; needs {needs}"
            );
        }
    }
    println!(
        "  the times of the tour: they count only when it runs alone, as the last step of `tests/run`"
    );
    for (file, why) in ignored() {
        println!("  a test in {file}: {why}; `cargo test --release -- --ignored` runs it");
    }
}

/// Crates that plain `cargo test` does not build.
fn no_default_members() -> Vec<(String, &'static str)> {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap_or_default();
    let listed = manifest
        .split_once("default-members = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(list, _)| list);
    let crates = fs::read_dir(Path::new(ROOT).join("crates"));
    let mut left: Vec<_> = crates
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| format!("crates/{}", entry.file_name().display()))
        .filter(|package| !listed.contains(&format!("\"{package}\"")))
        .map(|package| {
            let why = match package.as_str() {
                "crates/tower-claim-etcd" => "since its client needs protoc to build",
                _ => "since it is not published",
            };
            (package, why)
        })
        .collect();
    left.sort();
    left
}

/// Test files that are compiled with some feature only.
fn gated() -> Vec<(String, String)> {
    sources()
        .filter_map(|(file, text)| {
            let line = text.lines().find(|line| line.starts_with("#![cfg("))?;
            Some((
                file,
                line.trim_start_matches("#![cfg(")
                    .trim_end_matches(")]")
                    .to_owned(),
            ))
        })
        .collect()
}

/// Tests that only run when asked for by name.
fn ignored() -> Vec<(String, String)> {
    sources()
        .flat_map(|(file, text)| {
            let lines: Vec<_> = text.lines().map(str::trim).map(str::to_owned).collect();
            lines.into_iter().filter_map(move |line| {
                let why = line.strip_prefix("#[ignore = \"")?.strip_suffix("\"]")?;
                Some((file.clone(), why.to_owned()))
            })
        })
        .collect()
}

/// Every Rust file of the crates, with its path from the root.
fn sources() -> impl Iterator<Item = (String, String)> {
    let mut folders = vec![Path::new(ROOT).join("crates")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.into_iter().filter_map(|path: PathBuf| {
        let name = path.strip_prefix(ROOT).ok()?.display().to_string();
        Some((name, fs::read_to_string(&path).ok()?))
    })
}
