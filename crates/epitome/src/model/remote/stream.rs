//! Server-sent events, and what is gathered of an answer while they come in.
//!
//! Pure: bytes go in, in whatever pieces the network makes of them, events come out. What an event says is
//! known next door, in `openai` and `anthropic`.

use epitome_core::inspect::Finish;
use serde_json::Value;

use super::Answer;
use super::usage::Usage;

/// Puts the lines of a stream together into events.
#[derive(Default)]
pub(super) struct Events {
    /// Bytes after the last end of a line.
    rest: Vec<u8>,
    /// That end was a carriage return. A line feed after it is no other one.
    returned: bool,
    /// The data lines of the event that is not ended yet.
    data: Option<String>,
}

impl Events {
    /// Takes more bytes, and gives the data of every event that ends in them.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for byte in bytes {
            let returned = std::mem::replace(&mut self.returned, *byte == b'\r');
            match byte {
                b'\n' if returned => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.rest);
                    events.extend(self.line(&line));
                }
                byte => self.rest.push(*byte),
            }
        }
        events
    }

    /// What was not ended when the stream was: some servers leave out the last empty line.
    pub(super) fn end(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        self.line(&rest).or_else(|| self.data.take())
    }

    fn line(&mut self, line: &[u8]) -> Option<String> {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            return self.data.take();
        }
        // Names, numbers and comments say nothing that is not in the data too.
        let data = line.strip_prefix("data:")?;
        let data = data.strip_prefix(' ').unwrap_or(data);
        match &mut self.data {
            Some(before) => {
                before.push('\n');
                before.push_str(data);
            }
            None => self.data = Some(data.to_owned()),
        }
        None
    }
}

/// What was heard of an answer so far.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) text: String,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Usage,
    /// It asked for a tool instead of answering.
    pub(super) calls_tool: bool,
    /// It was said that this was all.
    pub(super) ended: bool,
}

/// What to do after an event.
pub(super) enum Then {
    /// Listen on.
    GoOn,
    /// It is said and done.
    End,
    /// The provider says that it failed, and this is what it says.
    Failed(Value),
    /// This is no event of an answer.
    Odd,
}

impl Heard {
    /// The answer, as far as it was heard.
    pub(super) fn answer(self) -> Answer {
        let text = if self.calls_tool { String::new() } else { self.text };
        Answer { text, finish: self.finish.unwrap_or_default(), tally: self.usage.tally(), whole: self.ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the stream is cut into pieces, the events are these.
    fn check(stream: &str, events: &[&str]) {
        for size in [1, 2, 3, 7, 1_000] {
            let mut reader = Events::default();
            let mut got: Vec<String> =
                stream.as_bytes().chunks(size).flat_map(|bytes| reader.feed(bytes)).collect();
            got.extend(reader.end());
            assert_eq!(got, events, "in pieces of {size}");
        }
    }

    #[test]
    fn events_are_put_together_from_any_pieces() {
        check("data: {\"a\":1}\n\ndata: [DONE]\n\n", &["{\"a\":1}", "[DONE]"]);
        check("event: ping\r\ndata: {}\r\n\r\n: comment\r\n\r\ndata:x\r\n\r\n", &["{}", "x"]);
        check("data: grüße, 世界\n\n", &["grüße, 世界"]);
        check("data: one\ndata: two\n\n", &["one\ntwo"]);
        check("data: one\rdata: two\r\rdata: three\r\n\r\ndata: four\n\r", &["one\ntwo", "three", "four"]);
        check("data:   two spaces stay\n\n", &["  two spaces stay"]);
    }

    #[test]
    fn the_last_empty_line_may_be_missing() {
        check("data: a\n\ndata: [DONE]", &["a", "[DONE]"]);
        check("data: a\n", &["a"]);
        check("", &[]);
        check("no: event\n\nat all", &[]);
    }
}
