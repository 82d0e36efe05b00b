//! Parses server-sent events.
//!
//! Without IO: the caller passes bytes, in any pieces, and receives events.

/// Maximum size of a buffered event, in bytes. A larger event is skipped, and the following events are read.
const MOST: usize = 1 << 20;

/// Buffer capacity that is retained between lines, in bytes.
const KEPT: usize = 16 << 10;

/// Assembles the lines of a stream into events.
#[derive(Debug, Default)]
pub struct Events {
    /// Bytes of the current line.
    rest: Vec<u8>,
    /// Whether the last line ended with a carriage return. A line feed directly after it belongs to the same
    /// line end.
    returned: bool,
    /// The data lines of the current event.
    data: Option<Vec<u8>>,
    /// Whether the current line is too long and is skipped.
    skips: bool,
    /// Whether part of the current event was skipped.
    lacks: bool,
}

impl Events {
    /// Adds bytes, and calls `heard` with the data of every event that is now complete.
    pub fn each(&mut self, mut bytes: &[u8], mut heard: impl FnMut(&[u8])) {
        while let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let Some((line, [end, after @ ..])) = bytes.split_at_checked(at) else { break };
            bytes = after;
            let returned = std::mem::replace(&mut self.returned, *end == b'\r');
            if returned && line.is_empty() && *end == b'\n' {
                continue;
            }
            self.hold(line);
            self.line(&mut heard);
        }
        self.returned &= bytes.is_empty();
        self.hold(bytes);
    }

    /// Reports an event that was incomplete at the end of the stream. Some servers leave out the last empty
    /// line.
    pub fn end(&mut self, mut heard: impl FnMut(&[u8])) {
        for _ in ["the last line", "the empty one after it"] {
            self.line(&mut heard);
        }
    }

    /// Adds bytes to the current line.
    fn hold(&mut self, part: &[u8]) {
        let held = self.rest.len().saturating_add(self.data.as_ref().map_or(0, Vec::len));
        if self.skips || held.saturating_add(part.len()) > MOST {
            (self.skips, self.rest) = (true, Vec::new());
        } else {
            self.rest.extend_from_slice(part);
        }
    }

    /// Ends a line. An empty line ends an event.
    fn line(&mut self, heard: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.skips) {
            (self.lacks, self.data) = (true, None);
        } else if self.rest.is_empty() {
            let data = self.data.take();
            if !std::mem::take(&mut self.lacks)
                && let Some(data) = data
            {
                heard(&data);
            }
        } else if let Some(data) = self.rest.strip_prefix(b"data:") {
            // Event names, ids and comments contain nothing that is not also in the data.
            let data = data.strip_prefix(b" ").unwrap_or(data);
            match &mut self.data {
                Some(before) => {
                    before.push(b'\n');
                    before.extend_from_slice(data);
                }
                None => self.data = Some(data.to_vec()),
            }
        }
        self.rest.clear();
        self.rest.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that these events are read, for all sizes of pieces.
    fn check(stream: &str, events: &[&str]) {
        for size in [1, 2, 3, 7, 1_000] {
            let (mut reader, mut got) = (Events::default(), Vec::new());
            let mut hear = |event: &[u8]| got.push(String::from_utf8_lossy(event).into_owned());
            stream.as_bytes().chunks(size).for_each(|bytes| reader.each(bytes, &mut hear));
            reader.end(hear);
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
        check("data: a\r\n\r", &["a"]);
        check("no: event\n\nat all", &[]);
    }

    #[test]
    fn an_event_that_is_too_large_is_passed_over_and_nothing_else() {
        let large = "x".repeat(MOST);
        let half = "x".repeat(MOST / 2);
        let stream = format!(
            "data: a\n\ndata: {large}\n\ndata: b\n\ndata: {half}\ndata: {half}\ndata: c\n\ndata: d\n\ndata: {large}"
        );
        for size in [4_096, 1 << 20, 1 << 30] {
            let mut reader = Events::default();
            let mut got = Vec::new();
            let mut hear = |event: &[u8]| got.push(String::from_utf8_lossy(event).into_owned());
            for bytes in stream.as_bytes().chunks(size) {
                reader.each(bytes, &mut hear);
                assert!(reader.rest.len() + reader.data.as_ref().map_or(0, Vec::len) <= MOST);
            }
            reader.end(hear);
            assert_eq!(got, ["a", "b", "d"], "in pieces of {size}");
        }
    }
}
