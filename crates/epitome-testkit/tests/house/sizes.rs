//! Checks the number of lines and parameters of functions, and the number of fields of structs.

use crate::tokens::{Source, Token, close, scan};

/// The most lines of a function, from `fn` to its last brace.
const LINES: usize = 80;

/// The most parameters of a function, `self` not counted.
const PARAMETERS: usize = 6;

/// The most fields of a struct without a comment that states the reason.
const FIELDS: usize = 15;

/// Returns the functions and structs of a file that are too large.
pub(crate) fn too_large(file: &str, text: &str) -> Vec<String> {
    let source = scan(text);
    let mut found = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let Some(name) = source.tokens.get(at + 1).filter(|next| next.is_word()) else { continue };
        let line = token.line;
        match token.text.as_str() {
            "fn" => {
                let (parameters, lines) = function(&source.tokens, at);
                if lines > LINES {
                    found.push(format!("{file}:{line}: fn {} has {lines} lines; at most {LINES}", name.text));
                }
                if parameters > PARAMETERS {
                    let name = &name.text;
                    found.push(format!(
                        "{file}:{line}: fn {name} has {parameters} parameters; at most {PARAMETERS}"
                    ));
                }
            }
            "struct" => {
                let fields = fields(&source.tokens, at);
                if fields.len() > FIELDS && !gives_reason(&source, at, fields[0]) {
                    let (name, count) = (&name.text, fields.len());
                    found.push(format!(
                        "{file}:{line}: struct {name} has {count} fields; at most {FIELDS}, or a comment with \
                         `fields:` and the reason"
                    ));
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the position after the `<…>` that begins at `at`, or `at` if none begins there. The `>` of `->` closes
/// none.
fn skip_generics(tokens: &[Token], mut at: usize) -> usize {
    if !tokens.get(at).is_some_and(|token| token.is("<")) {
        return at;
    }
    let mut depth = 0;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "<" => depth += 1,
            ">" if !tokens[at - 1].is("-") => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the positions at which the items of a bracketed list begin.
fn items(tokens: &[Token], open: usize) -> Vec<usize> {
    let end = close(tokens, open) - 1;
    let (mut begins, mut at, mut fresh) = (Vec::new(), open + 1, true);
    while at < end {
        if tokens[at].is("#") {
            at = close(tokens, at + 1);
            continue;
        }
        if fresh && !tokens[at].is(",") {
            begins.push(at);
        }
        fresh = tokens[at].is(",");
        at = match tokens[at].text.as_str() {
            "(" | "[" | "{" => close(tokens, at),
            "<" => skip_generics(tokens, at),
            _ => at + 1,
        };
    }
    begins
}

/// Counts the parameters and the lines of the function at `at`.
fn function(tokens: &[Token], at: usize) -> (usize, usize) {
    let open = skip_generics(tokens, at + 2);
    if !tokens.get(open).is_some_and(|token| token.is("(")) {
        return (0, 0);
    }
    let is_self = |begin: usize| tokens[begin..].iter().take(3).any(|token| token.is("self"));
    let parameters = items(tokens, open).into_iter().filter(|begin| !is_self(*begin)).count();
    let mut body = close(tokens, open);
    while let Some(token) = tokens.get(body) {
        match token.text.as_str() {
            "{" => {
                let last = tokens.get(close(tokens, body) - 1).map_or(token.line, |last| last.line);
                return (parameters, last - tokens[at].line + 1);
            }
            ";" => break,
            "(" | "[" => body = close(tokens, body),
            _ => body += 1,
        }
    }
    (parameters, 0)
}

/// Returns the positions at which the named fields of the struct at `at` begin.
fn fields(tokens: &[Token], at: usize) -> Vec<usize> {
    let mut open = skip_generics(tokens, at + 2);
    while let Some(token) = tokens.get(open) {
        match token.text.as_str() {
            "{" => return items(tokens, open),
            ";" | "(" => break,
            _ => open += 1,
        }
    }
    Vec::new()
}

/// Returns whether a comment above the struct, or above its first field, states the reason for its number of fields.
fn gives_reason(source: &Source, at: usize, first_field: usize) -> bool {
    // Goes back over `pub(crate)` and attributes.
    let mut above = at;
    while above > 0 {
        let before = &source.tokens[above - 1];
        let opens = match before.text.as_str() {
            "pub" => above - 1,
            ")" | "]" => open_of(&source.tokens, above - 1),
            "#" => above - 1,
            _ => break,
        };
        above = opens;
    }
    let from = above.checked_sub(1).map_or(0, |before| source.tokens[before].line);
    let to = source.tokens[first_field].line;
    source.comments.iter().any(|(line, text)| from < *line && *line <= to && text.contains("fields:"))
}

/// Returns the position of the bracket that the one at `end` closes.
fn open_of(tokens: &[Token], end: usize) -> usize {
    let mut depth = 0;
    for at in (0..=end).rev() {
        match tokens[at].text.as_str() {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    0
}
