//! Each store's docs carry a table of promises; `capabilities()` says the same in code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tower_claim::MemoryStore;
use tower_claim::store::Capabilities;
use tower_claim_redb::RedbStore;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");

/// What each crate's store says in code. A store whose feature is off is read, and not compared.
fn stores() -> BTreeMap<&'static str, Option<Capabilities>> {
    #[cfg(feature = "etcd")]
    let etcd = Some(tower_claim_etcd::EtcdStore::CAPABILITIES);
    #[cfg(not(feature = "etcd"))]
    let etcd = None;
    #[cfg(feature = "postgres")]
    let postgres = Some(tower_claim_postgres::PostgresStore::CAPABILITIES);
    #[cfg(not(feature = "postgres"))]
    let postgres = None;
    #[cfg(feature = "redis")]
    let redis = Some(tower_claim_redis::RedisStore::CAPABILITIES);
    #[cfg(not(feature = "redis"))]
    let redis = None;
    BTreeMap::from([
        ("tower-claim", Some(MemoryStore::CAPABILITIES)),
        ("tower-claim-etcd", etcd),
        ("tower-claim-postgres", postgres),
        ("tower-claim-redb", Some(RedbStore::CAPABILITIES)),
        ("tower-claim-redis", redis),
    ])
}

/// Whether a crate holds an engine: it then implements the protocol.
fn is_a_store(source: &str) -> bool {
    source
        .lines()
        .any(|line| line.starts_with("impl ClaimStore for ") && !line.contains(" for Arc<"))
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Every table of promises in a text, be it Markdown or the docs of an item.
fn tables(text: &str) -> Vec<String> {
    let mut tables: Vec<String> = Vec::new();
    let mut within = false;
    for line in text.lines() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let line = doc.unwrap_or(line).trim();
        if line == "| Promise | |" {
            tables.push(line.to_owned());
            within = true;
        } else if within && line.starts_with('|') {
            let table = tables.last_mut().expect("one was begun");
            table.push('\n');
            table.push_str(line);
        } else {
            within = false;
        }
    }
    tables
}

#[test]
fn a_stores_table_of_promises_is_its_capabilities() {
    let stores = stores();
    for entry in std::fs::read_dir(CRATES).expect("there are crates") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().expect("a name").to_string_lossy();
        if !name.starts_with("tower-claim") {
            continue;
        }
        let read = |file: &PathBuf| std::fs::read_to_string(file).expect("a text");
        let sources: Vec<_> = files(&folder.join("src"), ".rs").iter().map(read).collect();
        // Long docs of an item may lie in a file of their own.
        let pages: Vec<_> = files(&folder, ".md").iter().map(read).collect();
        let texts = sources.iter().chain(&pages);
        let written: Vec<_> = texts.flat_map(|text| tables(text)).collect();
        if !sources.iter().any(|source| is_a_store(source)) {
            assert!(written.is_empty(), "{name} promises, and is no store");
            continue;
        }
        let told = stores.get(&*name);
        let told = told.unwrap_or_else(|| panic!("{name} is a store: compare its promises here"));
        assert!(!written.is_empty(), "{name} has no table of promises");
        for table in written {
            if let Some(told) = told {
                assert_eq!(table, told.to_string(), "{name}");
            }
        }
    }
}
