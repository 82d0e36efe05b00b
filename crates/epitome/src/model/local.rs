//! The built-in extractive summarizer as a [`Model`].

use async_trait::async_trait;
use epitome_core::local::Extracts;
use epitome_core::message::Tokens;
use epitome_core::slot::Limit;

use super::{Model, ModelError, Reply, SummaryInput, SummaryRequest};

/// The summarizer of [`epitome_core::local`]. It needs no network and no key. For the same request, it always returns
/// the same text.
///
/// A new summary is based on the extracts of the previous summary, or on the text of the previous summary if there are
/// no extracts. The reply contains new extracts, which a store saves together with the text. The summarizer has no
/// window, so it can read input of any length. It ignores instructions, focus and templates, because it selects
/// existing sentences and writes no new text.
///
/// Secrets are always redacted, even if [`SummaryRequest::redact`] is false. The reason is that the extracts are stored
/// and shown for a long time. [`epitome_core::local`] always redacts the messages that it reads.
///
/// ```
/// use epitome::Message;
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{SummaryRequest, Local, Model};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), epitome::model::ModelError> {
/// let messages = [
///     Message::user("Please move the release to 14 March, and tell Ann."),
///     Message::assistant("Okay! The release is on 14 March now; Ann knows."),
/// ];
/// let request = SummaryRequest::new(messages.map(Into::into), Limit::Tokens(60), Counter::new(Encoding::O200k));
/// let reply = Local.write(&request).await?;
/// assert!(reply.text.contains("move the release to 14 March"));
/// assert_eq!(reply.extracts.map(|extracts| extracts.through()), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Local {
    /// Name of the summarizer in settings and records.
    pub const NAME: &'static str = crate::names::LOCAL;
}

#[async_trait]
impl Model for Local {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn is_built_in(&self) -> bool {
        true
    }

    fn room(&self) -> Option<Tokens> {
        None
    }

    async fn write(&self, request: &SummaryRequest) -> Result<Reply, ModelError> {
        let request = request.clone();
        // Reading a megabyte takes long enough to delay other tasks, so this runs in a thread for blocking work.
        let written = tokio::task::spawn_blocking(move || write(&request)).await;
        written.map_err(|_| ModelError::no_answer("the local summarizer was stopped"))
    }
}

fn write(request: &SummaryRequest) -> Reply {
    let mut extracts = previous_extracts(request);
    for input in request.inputs.iter() {
        match input {
            SummaryInput::Message(message) => extracts.read(message),
            SummaryInput::Summary { author, text } => extracts.read_summary(author, text),
        }
    }
    let text = within_limits(&mut extracts, request);
    Reply { extracts: Some(extracts), ..Reply::complete(text) }
}

/// Returns the extracts of the previous summary. If there are none, derives them from the text of that summary.
fn previous_extracts(request: &SummaryRequest) -> Extracts {
    match (&request.extracts, &request.previous) {
        (Some(extracts), _) => Extracts::clone(extracts),
        (None, Some(previous)) => {
            let first =
                request.inputs.iter().filter_map(|input| input.message().map(|message| message.seq)).min();
            Extracts::of_text(previous, first.map_or(request.through, |first| first.saturating_sub(1)))
        }
        (None, None) => Extracts::default(),
    }
}

/// Returns the text of the summary. The text fits the limit, and has fewer tokens than it replaces.
fn within_limits(extracts: &mut Extracts, request: &SummaryRequest) -> String {
    let max = request.replaces.saturating_sub(1);
    match request.limit {
        Limit::Tokens(limit) => extracts.summarize(Limit::Tokens(limit.min(max)), &request.counter),
        Limit::Chars(chars) => {
            let text = extracts.summarize(Limit::Chars(chars), &request.counter);
            if request.counter.text(&text) <= max {
                return text;
            }
            // In rare scripts, even a text of `max` tokens may have more characters than the limit. A useful summary is
            // then not possible, and the returned text is empty.
            let text = extracts.summarize(Limit::Tokens(max), &request.counter);
            if text.chars().count() as u64 <= chars { text } else { String::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use epitome_core::inspect::{Standard, inspect};
    use epitome_core::message::Message;
    use epitome_core::tokens::{Counter, Encoding};

    fn orders(from: u64, through: u64) -> Vec<SummaryInput> {
        let message = |seq| {
            let text =
                format!("Order {seq} goes to Oslo by ship, and its invoice was sent to Ann on {seq} May.");
            let mut message = Message::user(text);
            message.seq = seq;
            SummaryInput::Message(message)
        };
        (from..=through).map(message).collect()
    }

    fn request(inputs: Vec<SummaryInput>, limit: Limit) -> SummaryRequest {
        SummaryRequest::new(inputs, limit, Counter::new(Encoding::O200k))
    }

    #[tokio::test]
    async fn it_builds_on_its_own_extracts() {
        let first = Local.write(&request(orders(1, 10), Limit::Tokens(400))).await.unwrap();
        let next = SummaryRequest {
            extracts: first.extracts.map(Into::into),
            previous: Some(first.text.into()),
            ..request(orders(11, 12), Limit::Tokens(400))
        };
        let second = Local.write(&SummaryRequest { replaces: 1_000, ..next }).await.unwrap();
        assert!(
            second.text.contains("Order 3 goes") && second.text.contains("Order 12 goes"),
            "{}",
            second.text
        );
        assert_eq!(second.extracts.unwrap().through(), 12);
    }

    #[tokio::test]
    async fn it_builds_on_a_summary_that_another_model_wrote() {
        let request = SummaryRequest {
            previous: Some("Bob ordered 17 lamps from Genoa.".into()),
            replaces: 1_000,
            ..request(orders(11, 12), Limit::Tokens(400))
        };
        let text = Local.write(&request).await.unwrap().text;
        assert!(text.contains("17 lamps from Genoa") && text.contains("Order 12"), "{text}");
    }

    #[tokio::test]
    async fn an_authors_summary_is_included() {
        let summary =
            SummaryInput::Summary { author: "buyer".into(), text: "Bought 4 cranes in Turin.".to_owned() };
        let request = SummaryRequest { replaces: 1_000, ..request(vec![summary], Limit::Tokens(100)) };
        let text = Local.write(&request).await.unwrap().text;
        assert!(text.contains("4 cranes in Turin"), "{text}");
    }

    #[tokio::test]
    async fn it_is_always_smaller_than_what_it_replaces() {
        let counter = Counter::new(Encoding::O200k);
        for limit in [Limit::Tokens(4_000), Limit::Chars(20_000)] {
            for replaces in [0, 1, 30, 60, 200] {
                let request = SummaryRequest { replaces, ..request(orders(1, 9), limit) };
                let text = Local.write(&request).await.unwrap().text;
                assert!(text.is_empty() || counter.text(&text) < replaces, "{replaces}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn secrets_are_redacted_even_if_redaction_is_off() {
        let mut inputs = orders(1, 9);
        inputs.push(Message::user("The password is hunter22, and order 10 goes to Bergen.").into());
        let request = SummaryRequest { redact: false, ..request(inputs, Limit::Tokens(400)) };
        let reply = Local.write(&request).await.unwrap();
        assert!(reply.text.contains("Bergen") && !reply.text.contains("hunter22"), "{}", reply.text);
        assert!(!serde_json::to_string(&reply.extracts).unwrap().contains("hunter22"));
    }

    #[tokio::test]
    async fn its_summaries_pass_inspection() {
        for limit in [Limit::Tokens(300), Limit::Chars(1_000)] {
            let request = request(orders(1, 40), limit);
            let reply = Local.write(&request).await.unwrap();
            let standard = Standard {
                limit,
                replaces: request.replaces,
                prior: None,
                names: &[],
                counter: &request.counter,
                redact: true,
            };
            inspect(&reply.text, reply.finish, &standard).unwrap();
        }
    }
}
