//! The built-in extractive summarizer as a [`Model`].

use async_trait::async_trait;
use epitome_core::local::Extracts;
use epitome_core::message::Tokens;
use epitome_core::slot::Limit;

use super::{Ask, Model, ModelError, Reply, Told};

/// The summarizer of [`epitome_core::local`]: no network, no key, and the same text every time.
///
/// It builds on the extracts of the previous summary, or on its text if another model wrote it. It returns new extracts,
/// which a store saves next to the text. It has no window, so no prompt is too long for it. It ignores instructions, focus
/// and templates, because it selects sentences and does not write.
///
/// Secrets are always redacted, even if [`Ask::redact`] is false: the extracts are stored and shown for a long time, and the
/// core cannot read messages without redaction.
///
/// ```
/// use epitome::Message;
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{Ask, Local, Model};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), epitome::model::ModelError> {
/// let said = [
///     Message::user("Please move the release to 14 March, and tell Ann."),
///     Message::assistant("Okay! The release is on 14 March now; Ann knows."),
/// ];
/// let ask = Ask::new(said.map(Into::into), Limit::Tokens(60), Counter::new(Encoding::O200k));
/// let reply = Local.write(&ask).await?;
/// assert!(reply.text.contains("move the release to 14 March"));
/// assert_eq!(reply.extracts.map(|extracts| extracts.through()), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Local {
    /// Its name, in settings and in records.
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

    async fn write(&self, ask: &Ask) -> Result<Reply, ModelError> {
        let ask = ask.clone();
        // Reading a megabyte takes long enough to delay other tasks.
        let written = tokio::task::spawn_blocking(move || write(&ask)).await;
        written.map_err(|_| ModelError::no_answer("the local summarizer was stopped"))
    }
}

fn write(ask: &Ask) -> Reply {
    let mut extracts = before(ask);
    for told in ask.said.iter() {
        match told {
            Told::Message(message) => extracts.read(message),
            Told::Summary { author, text } => extracts.tell(author, text),
        }
    }
    let text = smaller(&mut extracts, ask);
    Reply { extracts: Some(extracts), ..Reply::complete(text) }
}

/// Returns the extracts of the previous summary.
fn before(ask: &Ask) -> Extracts {
    match (&ask.extracts, &ask.previous) {
        (Some(extracts), _) => Extracts::clone(extracts),
        (None, Some(previous)) => {
            let first = ask.said.iter().filter_map(|told| told.message().map(|message| message.seq)).min();
            Extracts::of_text(previous, first.map_or(ask.through, |first| first.saturating_sub(1)))
        }
        (None, None) => Extracts::default(),
    }
}

/// Returns the text, within the limit and smaller than what it replaces.
fn smaller(extracts: &mut Extracts, ask: &Ask) -> String {
    let most = ask.replaces.saturating_sub(1);
    match ask.limit {
        Limit::Tokens(limit) => extracts.summarize(Limit::Tokens(limit.min(most)), &ask.counter),
        Limit::Chars(chars) => {
            let text = extracts.summarize(Limit::Chars(chars), &ask.counter);
            if ask.counter.text(&text) <= most {
                return text;
            }
            // In rare scripts, a text of this many tokens may have more characters than allowed. Then no useful summary is
            // possible, and the text is empty.
            let text = extracts.summarize(Limit::Tokens(most), &ask.counter);
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

    fn said(from: u64, through: u64) -> Vec<Told> {
        let message = |seq| {
            let text =
                format!("Order {seq} goes to Oslo by ship, and its invoice was sent to Ann on {seq} May.");
            let mut message = Message::user(text);
            message.seq = seq;
            Told::Message(message)
        };
        (from..=through).map(message).collect()
    }

    fn ask(said: Vec<Told>, limit: Limit) -> Ask {
        Ask::new(said, limit, Counter::new(Encoding::O200k))
    }

    #[tokio::test]
    async fn it_builds_on_its_own_extracts() {
        let first = Local.write(&ask(said(1, 10), Limit::Tokens(400))).await.unwrap();
        let next = Ask {
            extracts: first.extracts.map(Into::into),
            previous: Some(first.text.into()),
            ..ask(said(11, 12), Limit::Tokens(400))
        };
        let second = Local.write(&Ask { replaces: 1_000, ..next }).await.unwrap();
        assert!(
            second.text.contains("Order 3 goes") && second.text.contains("Order 12 goes"),
            "{}",
            second.text
        );
        assert_eq!(second.extracts.unwrap().through(), 12);
    }

    #[tokio::test]
    async fn it_builds_on_what_somebody_else_wrote() {
        let ask = Ask {
            previous: Some("Bob ordered 17 lamps from Genoa.".into()),
            replaces: 1_000,
            ..ask(said(11, 12), Limit::Tokens(400))
        };
        let text = Local.write(&ask).await.unwrap().text;
        assert!(text.contains("17 lamps from Genoa") && text.contains("Order 12"), "{text}");
    }

    #[tokio::test]
    async fn an_authors_summary_is_taken_in() {
        let told = Told::Summary { author: "buyer".into(), text: "Bought 4 cranes in Turin.".to_owned() };
        let ask = Ask { replaces: 1_000, ..ask(vec![told], Limit::Tokens(100)) };
        let text = Local.write(&ask).await.unwrap().text;
        assert!(text.contains("4 cranes in Turin"), "{text}");
    }

    #[tokio::test]
    async fn it_is_always_smaller_than_what_it_replaces() {
        let counter = Counter::new(Encoding::O200k);
        for limit in [Limit::Tokens(4_000), Limit::Chars(20_000)] {
            for replaces in [0, 1, 30, 60, 200] {
                let ask = Ask { replaces, ..ask(said(1, 9), limit) };
                let text = Local.write(&ask).await.unwrap().text;
                assert!(text.is_empty() || counter.text(&text) < replaces, "{replaces}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn secrets_are_taken_out_even_where_nobody_asks() {
        let mut said = said(1, 9);
        said.push(Message::user("The password is hunter22, and order 10 goes to Bergen.").into());
        let ask = Ask { redact: false, ..ask(said, Limit::Tokens(400)) };
        let reply = Local.write(&ask).await.unwrap();
        assert!(reply.text.contains("Bergen") && !reply.text.contains("hunter22"), "{}", reply.text);
        assert!(!serde_json::to_string(&reply.extracts).unwrap().contains("hunter22"));
    }

    #[tokio::test]
    async fn what_it_writes_passes_inspection() {
        for limit in [Limit::Tokens(300), Limit::Chars(1_000)] {
            let ask = ask(said(1, 40), limit);
            let reply = Local.write(&ask).await.unwrap();
            let standard = Standard {
                limit,
                replaces: ask.replaces,
                prior: None,
                names: &[],
                counter: &ask.counter,
                redact: true,
            };
            inspect(&reply.text, reply.finish, &standard).unwrap();
        }
    }
}
