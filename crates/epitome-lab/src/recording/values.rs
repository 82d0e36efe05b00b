//! Splits a file into JSON values as a stream, without loading the whole file.
//!
//! The beginning of the file determines its shape: one value per line, one list, or one document. The elements of a
//! list are returned one by one. A value that cannot be read is returned as an error with its line. Reading then
//! continues with the next line or the next element.

use std::io::{self, BufRead, Read};

/// Maximum size of a line, an element or a document, in bytes. A larger value is skipped and reported, to limit memory
/// use.
const MAX_BYTES: u64 = 64 << 20;

/// A value and the line on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileValue {
    pub(super) line: u64,
    /// The value's text, or the error if the value cannot be read.
    pub(super) text: Result<String, String>,
}

impl FileValue {
    fn good(line: u64, bytes: Vec<u8>) -> Self {
        Self { line, text: String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned()) }
    }

    fn bad(line: u64, problem: impl Into<String>) -> Self {
        Self { line, text: Err(problem.into()) }
    }
}

/// The values of a file.
pub(super) struct FileValues<R> {
    from: io::Chain<io::Cursor<Vec<u8>>, R>,
    shape: Shape,
    line: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Lines,
    /// Inside a list; `first` is true until the opening bracket was read.
    Elements {
        first: bool,
    },
    Document,
    Ended,
}

impl<R: BufRead> FileValues<R> {
    pub(super) fn new(mut from: R) -> io::Result<Self> {
        let mut line = 0;
        let mut first_line = Vec::new();
        // The first line that is not blank determines the shape.
        while first_line.trim_ascii().is_empty() {
            first_line.clear();
            line += 1;
            if (&mut from).take(MAX_BYTES).read_until(b'\n', &mut first_line)? == 0 {
                break;
            }
            if line == 1 && first_line.starts_with(b"\xef\xbb\xbf") {
                first_line.drain(..3);
            }
        }
        let whole = is_json(&first_line);
        let more = !from.fill_buf()?.trim_ascii().is_empty();
        let shape = match first_line.trim_ascii().first() {
            // If a complete list is on the first line and more text follows, each line is a conversation. Any other
            // list is the whole file.
            Some(b'[') if !(whole && more) => Shape::Elements { first: true },
            Some(b'{') if !whole && begins_document(&first_line) => Shape::Document,
            _ => Shape::Lines,
        };
        Ok(Self { from: io::Cursor::new(first_line).chain(from), shape, line })
    }

    fn next_line(&mut self) -> io::Result<Option<FileValue>> {
        loop {
            let line = self.line;
            let mut bytes = Vec::new();
            let read = (&mut self.from).take(MAX_BYTES + 1).read_until(b'\n', &mut bytes)?;
            self.line += 1;
            if read == 0 {
                return Ok(None);
            }
            if bytes.len() as u64 > MAX_BYTES {
                self.skip_line()?;
                return Ok(Some(FileValue::bad(line, too_large("the line"))));
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(FileValue::good(line, bytes.trim_ascii().to_vec())));
            }
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffered = self.from.fill_buf()?;
            if buffered.is_empty() {
                return Ok(());
            }
            let end = buffered.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(buffered.len(), |end| end + 1);
            self.from.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn document(&mut self) -> io::Result<Option<FileValue>> {
        self.shape = Shape::Ended;
        let mut bytes = Vec::new();
        (&mut self.from).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Ok(Some(FileValue::bad(self.line, too_large("the document"))));
        }
        Ok(Some(FileValue::good(self.line, bytes)))
    }

    /// Returns the next byte; `None` at the end of the file.
    fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = self.from.fill_buf()?.first().copied();
        if let Some(byte) = byte {
            self.from.consume(1);
            self.line += u64::from(byte == b'\n');
        }
        Ok(byte)
    }

    fn next_element(&mut self, first: bool) -> io::Result<Option<FileValue>> {
        let mut bracket = first;
        let start = loop {
            match self.byte()? {
                Some(b'[') if bracket => bracket = false,
                Some(byte) if byte.is_ascii_whitespace() || byte == b',' => {}
                Some(b']') => {
                    self.shape = Shape::Ended;
                    let line = self.line;
                    while let Some(byte) = self.byte()? {
                        if !byte.is_ascii_whitespace() {
                            return Ok(Some(FileValue::bad(line, "there is text after the end of the list")));
                        }
                    }
                    return Ok(None);
                }
                Some(byte) => break byte,
                None => {
                    self.shape = Shape::Ended;
                    return Ok(Some(FileValue::bad(self.line, "the file ends before the list does")));
                }
            }
        };
        self.shape = Shape::Elements { first: false };
        let line = self.line;
        let mut value = PartialValue::default();
        let mut next = Some(start);
        while let Some(byte) = next {
            value.push(byte);
            if value.is_complete() {
                break;
            }
            // A number, `true`, `false` or `null` ends before a comma or a closing bracket.
            next = match self.from.fill_buf()?.first() {
                Some(b',' | b']') if value.is_bare() => break,
                _ => self.byte()?,
            };
        }
        if next.is_none() {
            self.shape = Shape::Ended;
            return Ok(Some(FileValue::bad(line, "the file ends inside this element")));
        }
        if value.length > MAX_BYTES {
            return Ok(Some(FileValue::bad(line, too_large("the element"))));
        }
        Ok(Some(FileValue::good(line, value.bytes)))
    }
}

impl<R: BufRead> Iterator for FileValues<R> {
    type Item = io::Result<FileValue>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.shape {
            Shape::Lines => self.next_line(),
            Shape::Elements { first } => self.next_element(first),
            Shape::Document => self.document(),
            Shape::Ended => Ok(None),
        }
        .transpose()
    }
}

/// A value that is read byte by byte. The parser tracks only quotes and brackets, to find the end of the value.
#[derive(Default)]
struct PartialValue {
    bytes: Vec<u8>,
    length: u64,
    depth: u64,
    quoted: bool,
    escaped: bool,
    closed: bool,
}

impl PartialValue {
    fn push(&mut self, byte: u8) {
        self.length += 1;
        if self.length <= MAX_BYTES {
            self.bytes.push(byte);
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.quoted => self.escaped = true,
            b'"' => {
                self.quoted = !self.quoted;
                self.closed = !self.quoted && self.depth == 0;
            }
            b'{' | b'[' if !self.quoted => self.depth += 1,
            b'}' | b']' if !self.quoted => {
                self.depth = self.depth.saturating_sub(1);
                self.closed = self.depth == 0;
            }
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.closed
    }

    fn is_bare(&self) -> bool {
        self.depth == 0 && !self.quoted
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(bytes.trim_ascii()).is_ok()
}

/// Returns whether this line begins a pretty-printed document that continues on the next line.
fn begins_document(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii().last(), Some(b'{' | b'[' | b','))
}

fn too_large(part: &str) -> String {
    format!("{part} is larger than {} MiB; write one message per line", MAX_BYTES >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `line:text` of every piece, `line!problem` of those that are wrong.
    fn pieces(file: &str) -> Vec<String> {
        let pieces = FileValues::new(io::BufReader::with_capacity(7, file.as_bytes())).unwrap();
        let shown = |piece: FileValue| match piece.text {
            Ok(text) => format!("{}:{text}", piece.line),
            Err(problem) => format!("{}!{problem}", piece.line),
        };
        pieces.map(|piece| shown(piece.unwrap())).collect()
    }

    #[test]
    fn a_value_on_each_line() {
        assert_eq!(
            pieces("{\"a\":1}\n\n  {\"b\": 2}\r\n{\"c\""),
            ["1:{\"a\":1}", "3:{\"b\": 2}", "4:{\"c\""]
        );
        assert_eq!(pieces("\u{feff}\n{\"a\":1}"), ["2:{\"a\":1}"]);
        assert_eq!(pieces("[1]\n[2]\n"), ["1:[1]", "2:[2]"]);
        assert_eq!(pieces("nonsense\n{}"), ["1:nonsense", "2:{}"]);
        assert_eq!(pieces(""), [""; 0]);
        assert_eq!(pieces(" \n\n "), [""; 0]);
    }

    #[test]
    fn the_elements_of_one_list() {
        assert_eq!(
            pieces("[1, \"a]\\\"\" , {\"b\": [2, \"}\"]},\n[3],null\n]\n"),
            ["1:1", "1:\"a]\\\"\"", "1:{\"b\": [2, \"}\"]}", "2:[3]", "2:null\n",]
        );
        assert_eq!(pieces("[]"), [""; 0]);
        assert_eq!(pieces("[\n]"), [""; 0]);
        assert_eq!(pieces("[{}\n,{\"a\":"), ["1:{}", "2!the file ends inside this element"]);
        assert_eq!(pieces("[{}"), ["1:{}", "1!the file ends before the list does"]);
        assert_eq!(pieces("[{}]\n]x"), ["1:[{}]", "2:]x"], "two lines, the second of them wrong");
        assert_eq!(pieces("[\n{}] x"), ["2:{}", "2!there is text after the end of the list"]);
    }

    #[test]
    fn a_document_over_several_lines() {
        assert_eq!(pieces("{\n \"a\": 1\n}"), ["1:{\n \"a\": 1\n}"]);
        assert_eq!(pieces("{\"a\": [\n1]}"), ["1:{\"a\": [\n1]}"]);
    }

    #[test]
    fn a_line_that_is_not_utf8_is_reported_and_skipped() {
        let file = [b"{\"a\":1}\n\"\xff\"\n{}".as_slice()].concat();
        let found: Vec<FileValue> = FileValues::new(file.as_slice()).unwrap().map(Result::unwrap).collect();
        assert_eq!(found[1], FileValue { line: 2, text: Err("is not UTF-8".to_owned()) });
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_value_that_is_too_large_is_skipped() {
        let long = "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 10);
        let found: Vec<FileValue> =
            FileValues::new(format!("{{}}\n{long}\n{{}}").as_bytes()).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 3);
        assert!(found[1].text.as_ref().is_err_and(|problem| problem.contains("larger than 64 MiB")));
        let found: Vec<FileValue> =
            FileValues::new(format!("[\n\"{long}\",\n1]").as_bytes()).unwrap().map(Result::unwrap).collect();
        assert!(found[0].text.is_err() && found[1].text == Ok("1".to_owned()), "{}", found.len());
    }
}
