//! A program that uses only a [`Condenser`].
//!
//! It depends on `epitome` without any feature. The gate builds this crate alone, which compiles neither a database nor an
//! HTTP client.

use epitome::{Condenser, Dialect, Error, Message};

/// Condenses a message list with the built-in extractive summarizer. Returns the number of messages to send.
pub async fn condense(history: &[Message]) -> Result<usize, Error> {
    let settings = "condense = {trigger = 'messages(20)', keep = 'messages(4)', wait = true}";
    let condenser = Condenser::builder().settings(settings).build()?;
    let ready = condenser.before_model(history).await;
    let body = Dialect::OPENAI.write(&ready);
    Ok(body.get("messages").and_then(|list| list.as_array()).map_or(0, Vec::len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_condensed_without_any_feature() {
        let history: Vec<Message> = (1..=30).map(|n| Message::user(format!("Order {n} is late."))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(condense(&history)).unwrap(), 5);
    }
}
