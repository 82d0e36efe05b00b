//! Server-sent events.
//!
//! Pure: bytes go in, in whatever pieces the network makes of them, events come out.

/// Puts the lines of a stream together into events.
#[derive(Default, Debug)]
pub(crate) struct Events {
    /// Bytes after the last end of a line.
    rest: Vec<u8>,
    /// That end was a carriage return. A line feed after it is no other one.
    returned: bool,
    /// The data lines of the event that is not ended yet.
    data: Option<String>,
}

impl Events {
    /// Takes more bytes, and gives the data of every event that ends in them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
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

    /// How many bytes it holds of what is not ended yet.
    pub(crate) fn held(&self) -> usize {
        self.rest.len().saturating_add(self.data.as_ref().map_or(0, String::len))
    }

    /// What was not ended when the stream was: some servers leave out the last empty line.
    pub(crate) fn end(&mut self) -> Option<String> {
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
