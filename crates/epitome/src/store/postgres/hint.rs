//! Telling other nodes that something may be due, and hearing it from them. Nothing depends on it: whoever hears nothing
//! looks by itself.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::tls::Address;

/// So long after one hint the next is told, so that many become one.
const APART: Duration = Duration::from_millis(5);

/// How long to wait before connecting again.
const RECONNECT: Duration = Duration::from_secs(1);

/// What was said and heard.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Another node says that something may be due.
    pub(super) heard: Notify,
    /// This node has something to say.
    pub(super) tell: Notify,
}

/// Keeps a connection of its own for it.
pub(super) async fn run(address: Address, hints: Arc<Hints>, node: String) {
    loop {
        let _ = listen(&address, &hints, &node).await;
        sleep(RECONNECT).await;
    }
}

async fn listen(address: &Address, hints: &Hints, node: &str) -> Result<(), tokio_postgres::Error> {
    // Whoever takes the connection and says nothing is asked again later.
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
        // What was said meanwhile was not heard.
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
