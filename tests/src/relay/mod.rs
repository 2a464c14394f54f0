//! A TCP relay between a client and a server, which does to the bytes what a bad network does.

mod line;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// What a [`Relay`] does with the bytes that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// They pass. The default.
    #[default]
    Pass,
    /// They pass this much later.
    Delay {
        /// On the way to the server.
        requests: Duration,
        /// On the way back.
        replies: Duration,
    },
    /// Requests pass, and are served; their replies are lost. A connection that lost one is closed when its
    /// next reply could pass: the client would take that for the answer to the wrong request.
    SwallowReplies,
    /// Requests pass, and are served; instead of each reply as many bytes of noise come.
    Noise,
    /// Nothing passes, nothing is closed: the client hears neither answer nor end. With another way what was
    /// held back goes on, late.
    Freeze,
    /// New connections are closed at once. On the others bytes pass; [`cut`](Relay::cut) ends them.
    Refuse,
}

/// A relay to one server, on a port and a thread of its own: a test that blocks its runtime does not stop it.
/// Gone when dropped, with all its connections.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use system_tests::relay::Relay;
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let relay = Relay::to(server.local_addr()?.to_string());
///
/// let mut client = TcpStream::connect(relay.address())?;
/// client.write_all(b"ping")?;
/// let mut heard = [0; 4];
/// let mut served = server.accept()?.0;
/// served.read_exact(&mut heard)?;
/// assert_eq!(&heard, b"ping");
///
/// relay.cut();
/// assert_eq!(client.read(&mut heard)?, 0, "closed");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    /// Taken when dropped only.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<String>,
    way: watch::Sender<Way>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
    /// Requests that still pass before the one whose connection is closed.
    before_cut: Mutex<Option<usize>>,
    requests: AtomicUsize,
}

impl Relay {
    /// A relay to `HOST:PORT`. The server need not run yet.
    ///
    /// # Panics
    ///
    /// Where this machine has no port or thread left.
    pub fn to(server: impl Into<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("relay")
            .enable_all()
            .build()
            .expect("a runtime for the relay");
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        socket.set_nonblocking(true).expect("a socket may be asked");
        let port = socket.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            server: Mutex::new(server.into()),
            way: watch::Sender::default(),
            cuts: watch::Sender::default(),
            before_cut: Mutex::default(),
            requests: AtomicUsize::new(0),
        });
        runtime.spawn(accept(socket, Arc::clone(&shared)));
        Self {
            port,
            shared,
            runtime: Some(runtime),
        }
    }

    /// `127.0.0.1:PORT`: where clients connect to.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port of [`address`](Self::address).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to another server from now on, as when a name or a virtual address moves.
    pub fn lead_to(&self, server: impl Into<String>) {
        *self.shared.server_slot() = server.into();
    }

    /// From now on this happens to what comes, also on open connections.
    pub fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// Closes all connections now. New ones are accepted, save with [`Way::Refuse`].
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Lets `before` requests pass; the one after reaches the server and is served, but its connection is
    /// closed before the reply. A request is what the client sends in one piece.
    pub fn cut_after(&self, before: usize) {
        *self.shared.before_cut() = Some(before);
    }

    /// Calls [`cut_after`](Self::cut_after) off; answers whether it had not happened yet.
    pub fn call_off(&self) -> bool {
        self.shared.before_cut().take().is_some()
    }

    /// Requests that reached the server so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn server_slot(&self) -> std::sync::MutexGuard<'_, String> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before_cut(&self) -> std::sync::MutexGuard<'_, Option<usize>> {
        self.before_cut
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request; whether its connection is to be closed before the reply.
    fn is_last(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut before = self.before_cut();
        match &mut *before {
            Some(0) => {
                *before = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

async fn accept(socket: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(socket) = TcpListener::from_std(socket) else {
        return;
    };
    loop {
        let Ok((client, _)) = socket.accept().await else {
            continue;
        };
        if *shared.way.borrow() != Way::Refuse {
            tokio::spawn(line::carry(client, Arc::clone(&shared)));
        }
    }
}
