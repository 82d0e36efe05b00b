//! Parses server-sent events.
//!
//! The parser does no IO. The caller passes bytes in pieces of any size, and receives events.

/// Maximum size of a buffered event, in bytes. The parser skips a larger event and reads the events after it.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// Maximum buffer capacity that the parser retains between lines, in bytes.
const RETAINED_BYTES: usize = 16 << 10;

/// Assembles the lines of a stream into events.
#[derive(Debug, Default)]
pub struct SseParser {
    /// Bytes of the current line.
    line: Vec<u8>,
    /// Whether the last line ended with a carriage return. A line feed directly after the carriage return
    /// belongs to the same line end.
    after_carriage_return: bool,
    /// The data lines of the current event, joined. `None` if there is no data line yet.
    data: Option<Vec<u8>>,
    /// Whether the current line is too long and is skipped.
    skips_line: bool,
    /// Whether part of the current event was skipped.
    incomplete: bool,
}

impl SseParser {
    /// Adds bytes, and calls `on_event` with the data of every event that is now complete.
    pub fn push(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&[u8])) {
        while let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let Some((line, [end, after @ ..])) = bytes.split_at_checked(at) else { break };
            bytes = after;
            let after_return = std::mem::replace(&mut self.after_carriage_return, *end == b'\r');
            if after_return && line.is_empty() && *end == b'\n' {
                continue;
            }
            self.buffer(line);
            self.end_line(&mut on_event);
        }
        self.after_carriage_return &= bytes.is_empty();
        self.buffer(bytes);
    }

    /// Ends the stream, and calls `on_event` for an event that was not followed by an empty line. Some servers
    /// leave out the last empty line.
    pub fn finish(&mut self, mut on_event: impl FnMut(&[u8])) {
        for _ in ["the last line", "the empty one after it"] {
            self.end_line(&mut on_event);
        }
    }

    /// Adds bytes to the current line.
    fn buffer(&mut self, part: &[u8]) {
        let buffered = self.line.len().saturating_add(self.data.as_ref().map_or(0, Vec::len));
        if self.skips_line || buffered.saturating_add(part.len()) > MAX_EVENT_BYTES {
            (self.skips_line, self.line) = (true, Vec::new());
        } else {
            self.line.extend_from_slice(part);
        }
    }

    /// Ends a line. An empty line ends an event.
    fn end_line(&mut self, on_event: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.skips_line) {
            (self.incomplete, self.data) = (true, None);
        } else if self.line.is_empty() {
            let data = self.data.take();
            if !std::mem::take(&mut self.incomplete)
                && let Some(data) = data
            {
                on_event(&data);
            }
        } else if let Some(data) = self.line.strip_prefix(b"data:") {
            // Event names, ids and comments are ignored, because the data contains all necessary information.
            let data = data.strip_prefix(b" ").unwrap_or(data);
            match &mut self.data {
                Some(before) => {
                    before.push(b'\n');
                    before.extend_from_slice(data);
                }
                None => self.data = Some(data.to_vec()),
            }
        }
        self.line.clear();
        self.line.shrink_to(RETAINED_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that these events are read, for all sizes of pieces.
    fn check(stream: &str, events: &[&str]) {
        for size in [1, 2, 3, 7, 1_000] {
            let (mut parser, mut got) = (SseParser::default(), Vec::new());
            let mut hear = |event: &[u8]| got.push(String::from_utf8_lossy(event).into_owned());
            stream.as_bytes().chunks(size).for_each(|bytes| parser.push(bytes, &mut hear));
            parser.finish(hear);
            assert_eq!(got, events, "in pieces of {size}");
        }
    }

    #[test]
    fn events_are_assembled_from_pieces_of_any_size() {
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
        check("data: a\r\n\r", &["a"]);
        check("no: event\n\nat all", &[]);
    }

    #[test]
    fn only_an_event_that_is_too_large_is_skipped() {
        let large = "x".repeat(MAX_EVENT_BYTES);
        let half = "x".repeat(MAX_EVENT_BYTES / 2);
        let stream = format!(
            "data: a\n\ndata: {large}\n\ndata: b\n\ndata: {half}\ndata: {half}\ndata: c\n\ndata: d\n\ndata: {large}"
        );
        for size in [4_096, 1 << 20, 1 << 30] {
            let mut parser = SseParser::default();
            let mut got = Vec::new();
            let mut hear = |event: &[u8]| got.push(String::from_utf8_lossy(event).into_owned());
            for bytes in stream.as_bytes().chunks(size) {
                parser.push(bytes, &mut hear);
                assert!(parser.line.len() + parser.data.as_ref().map_or(0, Vec::len) <= MAX_EVENT_BYTES);
            }
            parser.finish(hear);
            assert_eq!(got, ["a", "b", "d"], "in pieces of {size}");
        }
    }
}
