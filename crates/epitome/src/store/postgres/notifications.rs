//! Notifies other nodes that a slot may be ready, and receives their notifications. Notifications are only hints: a
//! node that misses one finds the slot with its next poll.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::address::Address;

/// Pause between two notifications. Several changes during this pause cause only one notification.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// How long to wait before connecting again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Signals for notifications to send, and for received notifications.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Another node reports that a slot may be ready.
    pub(super) received: Notify,
    /// This node has a notification to send.
    pub(super) outgoing: Notify,
}

/// Sends and receives notifications on its own connection, and reconnects when the connection breaks.
pub(super) async fn run(address: Address, notifications: Arc<Notifications>, node: String) {
    loop {
        let _ = listen(&address, &notifications, &node).await;
        sleep(RECONNECT_DELAY).await;
    }
}

async fn listen(
    address: &Address,
    notifications: &Notifications,
    node: &str,
) -> Result<(), tokio_postgres::Error> {
    // If the server accepts the connection but does not answer, the caller tries again later.
    let Ok(connected) = timeout(super::CONNECT_TIMEOUT, address.config.connect(address.tls.clone())).await
    else {
        return Ok(());
    };
    let (client, mut connection) = connected?;
    let receive = poll_fn(|context| {
        while let std::task::Poll::Ready(message) = connection.poll_message(context) {
            match message {
                Some(Ok(AsyncMessage::Notification(notification))) if notification.payload() != node => {
                    notifications.received.notify_one();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return std::task::Poll::Ready(()),
            }
        }
        std::task::Poll::Pending
    });
    let send = async {
        client.batch_execute("LISTEN epitome_due").await?;
        // Notifications that were sent before `LISTEN` are lost, so assume that there was one.
        notifications.received.notify_one();
        loop {
            notifications.outgoing.notified().await;
            client
                .query_typed(
                    "SELECT pg_notify('epitome_due', $1)",
                    &[(&node, tokio_postgres::types::Type::TEXT)],
                )
                .await?;
            sleep(MIN_INTERVAL).await;
        }
    };
    tokio::select! {
        () = receive => Ok(()),
        result = send => result,
    }
}
