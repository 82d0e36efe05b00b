//! Notifies other nodes that a slot may be ready, and receives their notifications. These are only hints: a node that
//! misses one polls by itself.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::tls::Address;

/// Pause between two notifications, so that many become one.
const APART: Duration = Duration::from_millis(5);

/// How long to wait before connecting again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Notifications to send, and received ones.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Another node reports that a slot may be ready.
    pub(super) heard: Notify,
    /// This node has a notification to send.
    pub(super) tell: Notify,
}

/// Sends and receives notifications on its own connection, and reconnects when it breaks.
pub(super) async fn run(address: Address, hints: Arc<Hints>, node: String) {
    loop {
        let _ = listen(&address, &hints, &node).await;
        sleep(RECONNECT).await;
    }
}

async fn listen(address: &Address, hints: &Hints, node: &str) -> Result<(), tokio_postgres::Error> {
    // A server that accepts the connection and does not answer is tried again later.
    let Ok(connected) = timeout(super::WAIT, address.config.connect(address.tls.clone())).await else {
        return Ok(());
    };
    let (client, mut connection) = connected?;
    let hear = poll_fn(|context| {
        while let std::task::Poll::Ready(message) = connection.poll_message(context) {
            match message {
                Some(Ok(AsyncMessage::Notification(said))) if said.payload() != node => {
                    hints.heard.notify_one();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return std::task::Poll::Ready(()),
            }
        }
        std::task::Poll::Pending
    });
    let talk = async {
        client.batch_execute("LISTEN epitome_due").await?;
        // Notifications that were sent before this are lost, so assume that there was one.
        hints.heard.notify_one();
        loop {
            hints.tell.notified().await;
            client
                .query_typed(
                    "SELECT pg_notify('epitome_due', $1)",
                    &[(&node, tokio_postgres::types::Type::TEXT)],
                )
                .await?;
            sleep(APART).await;
        }
    };
    tokio::select! {
        () = hear => Ok(()),
        ended = talk => ended,
    }
}
