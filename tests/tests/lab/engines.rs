//! The engines a lab can stand on: one law, run on each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use system_tests::programs::Lab;
#[cfg(feature = "etcd")]
use system_tests::servers::Etcd;
#[cfg(feature = "postgres")]
use system_tests::servers::Postgres;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;

/// Makes a test of each law on each engine of this build. `with short spans`: where the engine can tell less
/// than a second.
macro_rules! on_each_engine {
    ($($law:ident),* $(,)?) => {
        on_each_engine!($($law),*; with short spans:);
    };
    ($($law:ident),* $(,)?; with short spans: $($short:ident),* $(,)?) => {
        $crate::engines::on_engine!(memory Memory: $($law,)* $($short,)*);
        $crate::engines::on_engine!(redb Redb: $($law,)* $($short,)*);
        #[cfg(feature = "redis")]
        $crate::engines::on_engine!(redis Redis: $($law,)* $($short,)*);
        #[cfg(feature = "postgres")]
        $crate::engines::on_engine!(postgres Postgres: $($law,)* $($short,)*);
        #[cfg(feature = "etcd")]
        $crate::engines::on_engine!(etcd Etcd: $($law,)*);
    };
}

/// Makes a test of each law on each engine that processes share.
macro_rules! on_each_shared_engine {
    ($($law:ident),* $(,)?) => {
        #[cfg(feature = "redis")]
        $crate::engines::on_engine!(redis Redis: $($law,)*);
        #[cfg(feature = "postgres")]
        $crate::engines::on_engine!(postgres Postgres: $($law,)*);
        #[cfg(feature = "etcd")]
        $crate::engines::on_engine!(etcd Etcd: $($law,)*);
    };
}

macro_rules! on_engine {
    ($engine:ident $variant:ident: $($law:ident,)*) => {
        mod $engine {
            $(
                #[tokio::test]
                async fn $law() {
                    super::$law($crate::engines::Engine::$variant).await;
                }
            )*
        }
    };
}
pub(super) use {on_each_engine, on_each_shared_engine, on_engine};

/// An engine of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Memory,
    Redb,
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "etcd")]
    Etcd,
}

/// Where one test keeps its claims: nobody else's are in the way.
#[derive(Debug)]
pub(super) struct Place {
    engine: Engine,
    store: String,
    namespace: String,
    _folder: Option<tempfile::TempDir>,
}

impl Engine {
    /// A lab on a place of its own.
    pub(super) fn lab(self, args: &[&str]) -> Lab {
        self.place().lab(args)
    }

    /// As [`lab`](Self::lab), with environment variables.
    pub(super) fn lab_with(self, args: &[&str], env: &[(&str, &str)]) -> Lab {
        self.place().lab_with(args, env)
    }

    /// A new place. Servers are started once, and shared by the tests of this run.
    pub(super) fn place(self) -> Place {
        let folder = (self == Engine::Redb).then(|| tempfile::tempdir().expect("a folder"));
        let store = match self {
            Engine::Memory => "memory:".to_owned(),
            Engine::Redb => {
                let folder = folder.as_ref().expect("it was made");
                format!("redb:{}", folder.path().join("claims").display())
            }
            #[cfg(feature = "redis")]
            Engine::Redis => {
                static SERVER: OnceLock<Redis> = OnceLock::new();
                SERVER.get_or_init(Redis::start).url()
            }
            #[cfg(feature = "postgres")]
            Engine::Postgres => {
                static SERVER: OnceLock<Postgres> = OnceLock::new();
                SERVER.get_or_init(Postgres::start).url()
            }
            #[cfg(feature = "etcd")]
            Engine::Etcd => {
                static SERVER: OnceLock<Etcd> = OnceLock::new();
                format!("etcd://{}", SERVER.get_or_init(Etcd::start).addresses()[0])
            }
        };
        Place {
            _folder: folder,
            ..Place::at(self, store)
        }
    }
}

impl Place {
    /// A new namespace on this store.
    pub(super) fn at(engine: Engine, store: String) -> Self {
        static PLACES: AtomicU64 = AtomicU64::new(1);
        let n = PLACES.fetch_add(1, Ordering::Relaxed);
        Self {
            engine,
            store,
            namespace: format!("test-{n}"),
            _folder: None,
        }
    }

    /// A lab here; several at a time where the engine is shared.
    pub(super) fn lab(&self, args: &[&str]) -> Lab {
        self.lab_with(args, &[])
    }

    /// As [`lab`](Self::lab), with environment variables.
    pub(super) fn lab_with(&self, args: &[&str], env: &[(&str, &str)]) -> Lab {
        let here = ["--store", &self.store, "--namespace", &self.namespace];
        Lab::start_with(&[&here, args].concat(), env)
    }

    /// What its labs are told to keep their keys apart by.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The store's address.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// A lease as short as the engine likes it.
    pub(super) fn lease(&self) -> &'static str {
        match self.engine {
            #[cfg(feature = "etcd")]
            Engine::Etcd => "2s",
            _ => "1s",
        }
    }
}

/// A server of one test, which may stand still.
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
#[derive(Debug)]
pub(super) enum Own {
    #[cfg(feature = "redis")]
    Redis(Redis),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
impl Own {
    /// A server of this engine.
    pub(super) fn start(engine: Engine) -> Self {
        match engine {
            Engine::Memory | Engine::Redb => panic!("{engine:?} has no server"),
            #[cfg(feature = "redis")]
            Engine::Redis => Own::Redis(Redis::start()),
            #[cfg(feature = "postgres")]
            Engine::Postgres => Own::Postgres(Postgres::start()),
            #[cfg(feature = "etcd")]
            Engine::Etcd => Own::Etcd(Etcd::start()),
        }
    }

    /// A place on it.
    pub(super) fn place(&self) -> Place {
        match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => Place::at(Engine::Redis, server.url()),
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => Place::at(Engine::Postgres, server.url()),
            #[cfg(feature = "etcd")]
            Own::Etcd(server) => {
                Place::at(Engine::Etcd, format!("etcd://{}", server.addresses()[0]))
            }
        }
    }

    /// Stops it where it stands.
    pub(super) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => server.process(),
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => server.process(),
            #[cfg(feature = "etcd")]
            Own::Etcd(server) => server.process(0),
        };
        let pid = process.pid();
        // PostgreSQL answers by processes of its own, one a connection.
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("Linux tells a process' children");
        let done = std::process::Command::new("kill")
            .args([signal, &pid.to_string()])
            .args(children.split_whitespace())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "kill {signal}");
    }
}
