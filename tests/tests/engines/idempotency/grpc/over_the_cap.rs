//! A message that is more than is kept: what it is worth, the status behind it tells.

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::super::on_each_engine;
use super::super::scene::{Engine, Shop, in_time};
use super::{CALL, Call, PRINT, PRINTED, Plain, two};

on_each_engine!(a_message_over_the_cap_is_settled_by_the_status_behind_it);

/// How long the message is that came, and how the call ended.
async fn print(channel: &Channel, key: &'static str, does: &'static str) -> (usize, Code) {
    let mut client = tonic::client::Grpc::new(channel.clone());
    let printed = async {
        client.ready().await.expect("it is there");
        let call = Call {
            key: Some(key),
            does,
            ..CALL
        };
        let path = PathAndQuery::from_static(PRINT);
        let printing = client.server_streaming(call.request(), path, Plain).await;
        let mut messages = match printing {
            Ok(messages) => messages.into_inner(),
            Err(refused) => return (0, refused.code()),
        };
        let mut length = 0;
        loop {
            let next: Result<Option<Bytes>, Status> = messages.message().await;
            match next {
                Ok(Some(message)) => length += message.len(),
                Ok(None) => return (length, Code::Ok),
                Err(status) => return (length, status.code()),
            }
        }
    };
    in_time("a print", printed).await
}

async fn a_message_over_the_cap_is_settled_by_the_status_behind_it<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop).await;
    for channel in [&one, &other] {
        let printed = print(channel, "fails", "fail").await;
        assert_eq!(printed, (PRINTED, Code::Unavailable));
    }
    assert_eq!(shop.effects(), 2, "it failed, so it ran again");
    assert_eq!(print(&one, "goes", "").await, (PRINTED, Code::Ok));
    let again = print(&other, "goes", "").await;
    assert_eq!(again, (0, Code::FailedPrecondition), "it is done");
    assert_eq!(shop.effects(), 3);
}
