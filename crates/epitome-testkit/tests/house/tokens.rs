//! Splits Rust source into tokens, as far as paths, items and braces require. Comments are separate; a literal is one
//! token.

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// A word, a single mark of punctuation, or `"` for any literal.
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// A source file: its tokens without test code, and its comments and string literals by line.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<(usize, String)>,
    pub(crate) strings: Vec<(usize, String)>,
}

/// Splits the text of a source file.
pub(crate) fn scan(text: &str) -> Source {
    let mut scanner = Scanner { chars: text.chars().collect(), at: 0, line: 1, source: Source::default() };
    while scanner.at < scanner.chars.len() {
        scanner.step();
    }
    let mut source = scanner.source;
    source.tokens = without_tests(&source.tokens);
    source
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    line: usize,
    source: Source,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn next(&mut self) -> char {
        let c = self.peek(0);
        self.at += 1;
        self.line += usize::from(c == '\n');
        c
    }

    fn push(&mut self, text: impl Into<String>, line: usize) {
        self.source.tokens.push(Token { text: text.into(), line });
    }

    fn step(&mut self) {
        let line = self.line;
        match (self.peek(0), self.peek(1)) {
            (c, _) if c.is_whitespace() => drop(self.next()),
            ('/', '/') => {
                let mut text = String::new();
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    text.push(self.next());
                }
                self.source.comments.push((line, text));
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (c, _) if c.is_alphabetic() || c == '_' => self.word(),
            (c, _) if c.is_ascii_digit() => {
                // A number may contain a point, but two points are a range.
                while self.peek(0).is_alphanumeric()
                    || self.peek(0) == '_'
                    || (self.peek(0) == '.' && self.peek(1).is_ascii_digit())
                {
                    self.next();
                }
                self.push("\"", line);
            }
            (c, _) => {
                self.next();
                self.push(c, line);
            }
        }
    }

    fn block_comment(&mut self) {
        let (line, mut depth, mut text) = (self.line, 0, String::new());
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    text.push(self.next());
                    continue;
                }
            }
            self.next();
            self.next();
            if depth == 0 {
                break;
            }
        }
        self.source.comments.push((line, text));
    }

    /// Reads a string. The next character is its opening quote.
    fn string(&mut self) {
        let (line, mut text) = (self.line, String::new());
        self.next();
        while self.at < self.chars.len() {
            match self.next() {
                // An escape separates words, and is no part of a word.
                '\\' => text.push(if self.next() == '\n' { '\n' } else { ' ' }),
                '"' => break,
                c => text.push(c),
            }
        }
        self.source.strings.push((line, text));
        self.push("\"", line);
    }

    /// Reads a character literal or a lifetime.
    fn quote(&mut self) {
        let line = self.line;
        if self.peek(1) != '\\' && self.peek(2) != '\'' {
            self.next();
            while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
                self.next();
            }
            return;
        }
        self.next();
        while self.at < self.chars.len() {
            match self.next() {
                '\\' => drop(self.next()),
                '\'' => break,
                _ => {}
            }
        }
        self.push("\"", line);
    }

    /// Reads a word, or a token that begins like one: `r"…"`, `b'…'`, `r#type`.
    fn word(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.next());
        }
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        match self.peek(0) {
            '"' | '#' if raw => {
                let mut hashes = 0;
                while self.peek(0) == '#' {
                    self.next();
                    hashes += 1;
                }
                if self.peek(0) == '"' {
                    self.raw_string(hashes);
                } else {
                    // `r#type` is the word `type`.
                    self.word();
                }
            }
            '"' if matches!(word.as_str(), "b" | "c") => self.string(),
            '\'' if word == "b" => self.quote(),
            _ => self.push(word, line),
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        let (line, mut text) = (self.line, String::new());
        self.next();
        while self.at < self.chars.len() {
            let c = self.next();
            if c == '"' && (0..hashes).all(|ahead| self.peek(ahead) == '#') {
                self.at += hashes;
                break;
            }
            text.push(c);
        }
        self.source.strings.push((line, text));
        self.push("\"", line);
    }
}

/// Returns the position after the bracket that closes the one at `open`.
pub(crate) fn close(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the position after the item that begins at `at`, including its attributes.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "#" => at = close(tokens, at + 1),
            "(" | "[" => at = close(tokens, at),
            "{" => {
                // `use a::{b};` ends with its semicolon, a function with its braces.
                let end = close(tokens, at);
                return if tokens.get(end).is_some_and(|next| next.is(";")) { end + 1 } else { end };
            }
            ";" | "," => return at + 1,
            "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// Removes every item under `#[cfg(test)]` or a similar condition.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut remaining, mut at) = (Vec::with_capacity(tokens.len()), 0);
    while let Some(token) = tokens.get(at) {
        if token.is("#") && tokens.get(at + 1).is_some_and(|next| next.is("[")) {
            let end = close(tokens, at + 1);
            let inside = &tokens[at + 2..end.saturating_sub(1)];
            let has = |word: &str| inside.iter().any(|token| token.is(word));
            let is_cfg = inside.first().is_some_and(|first| first.is("cfg"));
            if is_cfg && (has("test") || has("doctest")) && !has("not") {
                at = item_end(tokens, end);
                continue;
            }
            remaining.extend_from_slice(&tokens[at..end]);
            at = end;
            continue;
        }
        remaining.push(token.clone());
        at += 1;
    }
    remaining
}
