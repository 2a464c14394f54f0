//! One connection through the relay.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Shared, Way};

/// A server that said nothing for so long has served what it was asked.
const SERVED: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Why a direction carries no more.
enum End {
    Closed,
    /// The last request is on its way to the server; its client is to hear no answer.
    CutBeforeReply,
}

pub(super) async fn carry(client: TcpStream, shared: Arc<Shared>) {
    // Before anything can be awaited: a cut from now on is meant for this connection too.
    let mut cuts = shared.cuts.subscribe();
    let server = shared.server_slot().clone();
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    // A relay adds no delay of its own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let end = tokio::select! {
        end = one_way(&mut from_client, &mut to_server, Direction::Requests, &shared) => end,
        end = one_way(&mut from_server, &mut to_client, Direction::Replies, &shared) => end,
        _ = cuts.changed() => End::Closed,
    };
    drop((from_client, to_client));
    if matches!(end, End::CutBeforeReply) {
        // Closed at once, the server might not read, or stop, what it is to serve.
        let mut lost = [0; 4096];
        while let Ok(Ok(1..)) = timeout(SERVED, from_server.read(&mut lost)).await {}
    }
}

/// Reads at once, so that the sender never feels the relay, and passes on when it is time.
async fn one_way(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    direction: Direction,
    shared: &Shared,
) -> End {
    let (queue, queued) = mpsc::unbounded_channel();
    let read = async move {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        while let Ok(1..) = from.read_buf(&mut buffer).await {
            let due = Instant::now() + delay(*shared.way.borrow(), direction);
            if queue.send((due, buffer.split().freeze())).is_err() {
                break;
            }
        }
        // A sender that closes leaves what it sent: that still arrives, late.
        drop(queue);
        std::future::pending().await
    };
    tokio::select! {
        end = pass_on(queued, to, direction, shared) => end,
        end = read => end,
    }
}

async fn pass_on(
    mut queued: mpsc::UnboundedReceiver<(Instant, Bytes)>,
    to: &mut OwnedWriteHalf,
    direction: Direction,
    shared: &Shared,
) -> End {
    let mut way = shared.way.subscribe();
    let mut lost = false;
    while let Some((due, bytes)) = queued.recv().await {
        sleep_until(due).await;
        let Ok(way) = way
            .wait_for(|way| *way != Way::Freeze)
            .await
            .map(|way| *way)
        else {
            return End::Closed;
        };
        if direction == Direction::Replies && way == Way::SwallowReplies {
            lost = true;
            continue;
        }
        if lost {
            return End::Closed;
        }
        let bytes = match (direction, way) {
            (Direction::Replies, Way::Noise) => noise(bytes.len()),
            _ => bytes,
        };
        let last = direction == Direction::Requests && shared.is_last();
        if to.write_all(&bytes).await.is_err() {
            return End::Closed;
        }
        if last {
            return End::CutBeforeReply;
        }
    }
    End::Closed
}

/// The same each time, and neither text nor zeroes.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9E37_79B9_u32;
    let bytes = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8 | 0x80
    });
    bytes.collect()
}

fn delay(way: Way, direction: Direction) -> Duration {
    match (way, direction) {
        (Way::Delay { requests, .. }, Direction::Requests) => requests,
        (Way::Delay { replies, .. }, Direction::Replies) => replies,
        _ => Duration::ZERO,
    }
}
