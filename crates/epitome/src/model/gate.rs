//! Holding a scripted model until a test has seen what it wanted to see.

use std::sync::Arc;

use tokio::sync::watch;

/// Where a scripted model waits until it is let through. Clones are the same gate.
///
/// ```
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{Ask, Gate, Model, ModelError, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::new();
/// let model = Scripted::new().waits_for(&gate).replies("At last.");
/// let ask = Ask::new([], Limit::Tokens(100), Counter::new(Encoding::O200k));
/// let writing = tokio::spawn(async move { model.write(&ask).await });
/// gate.reached().await; // the model is at work, and stays there
/// gate.open();
/// assert_eq!(writing.await??.text, "At last.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    reached: Arc<watch::Sender<bool>>,
}

impl Gate {
    /// A closed one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until somebody stands before it, or has passed.
    pub async fn reached(&self) {
        wait_for(&self.reached).await;
    }

    pub(super) async fn pass(&self) {
        self.reached.send_replace(true);
        wait_for(&self.open).await;
    }
}

async fn wait_for(sign: &watch::Sender<bool>) {
    // It fails only where the sender is gone, and that is held here.
    let _ = sign.subscribe().wait_for(|given| *given).await;
}
