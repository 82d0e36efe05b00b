//! Writes contexts (`--contexts`) and requests (`--requests`) to files, so that other programs can score them.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use epitome::dialect::Dialect;
use epitome::rules::message::{Message, Tokens};
use epitome_terminal::failure::Failure;
use serde_json::{Value, json};

use crate::play::{ListMethod, Policy, ReplayEvent};
use epitome_terminal::output::{Output, not_writable};

/// The output files. Each file is stored with the index of the policy that it is for.
#[derive(Clone, Default)]
pub(super) struct DumpFiles {
    contexts: Option<(usize, Arc<DumpFile>)>,
    requests: Option<(usize, Arc<DumpFile>)>,
}

struct DumpFile {
    /// The open file or the first error. `None` after the file was finished or discarded.
    file: Mutex<Option<Result<Output, Failure>>>,
}

impl DumpFile {
    fn open(path: &Path) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self { file: Mutex::new(Some(Ok(Output::open(path)?))) }))
    }

    fn write_line(&self, line: &Value) {
        let Ok(mut file) = self.file.lock() else { return };
        if let Some(Ok(open)) = &mut *file
            && let Err(error) = writeln!(open, "{line}")
        {
            let failed = not_writable(open.path(), &error);
            *file = Some(Err(failed));
        }
    }

    /// Finishes the file if the replay succeeded (`whole`). Discards the file if the replay failed.
    fn end(&self, whole: bool) -> Result<(), Failure> {
        let Ok(mut file) = self.file.lock() else { return Ok(()) };
        file.take().filter(|_| whole).map_or(Ok(()), |file| file?.finish())
    }
}

impl DumpFiles {
    pub(super) fn open(
        contexts: Option<&Path>,
        requests: Option<&Path>,
        policies: &[Policy],
    ) -> Result<Self, Failure> {
        let makes_contexts = |policy: &Policy| matches!(policy.method, ListMethod::Context(_));
        let contexts = match contexts {
            None => None,
            Some(path) => {
                let first = policies.iter().position(makes_contexts).ok_or_else(|| {
                    Failure::Misused(
                        "--contexts: no policy makes contexts; add slots, steady or recent".to_owned(),
                    )
                })?;
                Some((first, DumpFile::open(path)?))
            }
        };
        let requests = requests.map(|path| DumpFile::open(path).map(|out| (0, out))).transpose()?;
        Ok(Self { contexts, requests })
    }

    /// Writes an event of a policy to the output file for this kind of event, if there is such a file for this policy.
    pub(super) fn write(&self, policy: usize, conversation: &str, event: &ReplayEvent<'_>) {
        let of = |out: &Option<(usize, Arc<DumpFile>)>| {
            out.as_ref().filter(|(own, _)| *own == policy).map(|(_, out)| Arc::clone(out))
        };
        let run = |budget: Option<Tokens>| match budget {
            Some(budget) => format!("{conversation}@{budget}"),
            None => conversation.to_owned(),
        };
        match event {
            ReplayEvent::Context { at, budget, shown, tokens } => {
                if let Some(out) = of(&self.contexts) {
                    out.write_line(&json!({
                        "id": conversation,
                        "at": at,
                        "budget": budget,
                        "summary": shown.summary,
                        "messages": shown.messages,
                        "tokens": tokens,
                    }));
                }
            }
            ReplayEvent::Request { budget, messages, tokens } => {
                if let Some(out) = of(&self.requests) {
                    out.write_line(&json!({ "run": run(*budget), "messages": encoded(messages, tokens) }));
                }
            }
            ReplayEvent::Summarizer { budget, input, output } => {
                if let Some(out) = of(&self.requests) {
                    let messages = json!([{ "role": "user", "content": "", "tokens": input }]);
                    out.write_line(&json!({
                        "run": run(*budget),
                        "messages": messages,
                        "summarizer": true,
                        "output_tokens": output,
                    }));
                }
            }
        }
    }

    /// Returns whether conversations must have unique names, because an output file identifies them by their names.
    pub(super) fn needs_unique_names(&self) -> bool {
        self.contexts.is_some() || self.requests.is_some()
    }

    /// Finishes the files if the replay succeeded (`whole`). Discards the files if the replay failed.
    pub(super) fn end(&self, whole: bool) -> Result<(), Failure> {
        let all = [&self.contexts, &self.requests];
        all.into_iter().flatten().try_for_each(|(_, out)| out.end(whole))
    }
}

/// Converts a list to OpenAI's chat format. Each message gets a field with its size in tokens.
fn encoded(messages: &[Message], tokens: &[Tokens]) -> Vec<Value> {
    let mut encoded = match Dialect::OPENAI.write(messages).remove("messages") {
        Some(Value::Array(encoded)) => encoded,
        _ => Vec::new(),
    };
    // Messages that contain only reasoning are not sent, so there may be more sizes than messages. Then each message
    // gets an equal share of the sum.
    let count = (encoded.len() as Tokens).max(1);
    let total: Tokens = tokens.iter().sum();
    let share = |at: usize| match encoded.len() == tokens.len() {
        true => tokens.get(at).copied().unwrap_or(0),
        false => total / count + Tokens::from((at as Tokens) < total % count),
    };
    let sizes: Vec<Tokens> = (0..encoded.len()).map(share).collect();
    for (one, tokens) in encoded.iter_mut().zip(sizes) {
        if let Some(object) = one.as_object_mut() {
            object.insert("tokens".to_owned(), json!(tokens));
        }
    }
    encoded
}
