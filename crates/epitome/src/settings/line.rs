//! Finds the line of a setting in a TOML document, for error messages.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Returns the line, counted from 1, that sets the key with this full name, such as `slot[1].trigger`. If the document
/// does not set the key itself, returns the line of the innermost table that would contain the key. Returns `None` if
/// there is no such table, or if the document is not TOML.
///
/// ```
/// use epitome::settings::line_of;
///
/// let document = "[summarize]\nredact = false\n\n[[slot]]\nname = 'notes'\nmodels = [\n  'chep',\n]\n";
/// assert_eq!(line_of(document, "summarize.redact"), Some(2));
/// assert_eq!(line_of(document, "slot[0].models[0]"), Some(7));
/// assert_eq!(line_of(document, "slot[0].trigger"), Some(4));
/// assert_eq!(line_of(document, "limits.body"), None);
/// ```
pub fn line_of(document: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(document).ok()?;
    let mut parts = parts(key).into_iter();
    let (mut span, mut value) = in_table(root.get_ref(), &parts.next()?)?;
    for part in parts {
        let inner = match (value, &part) {
            (DeValue::Table(table), part) => in_table(table, part),
            (DeValue::Array(list), Part::Index(at)) => {
                list.get(*at).map(|item| (item.span(), item.get_ref()))
            }
            _ => None,
        };
        let Some(inner) = inner else { break };
        (span, value) = inner;
    }
    let before = document.get(..span.start)?;
    Some(before.matches('\n').count() + 1)
}

fn in_table<'a>(table: &'a DeTable<'a>, part: &Part) -> Option<(Range<usize>, &'a DeValue<'a>)> {
    let Part::Name(name) = part else { return None };
    let (key, value) = table.iter().find(|(key, _)| key.get_ref().as_ref() == name)?;
    Some((key.span(), value.get_ref()))
}

/// A part of a key's full name.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Name(String),
    /// The position in a list.
    Index(usize),
}

/// Splits a full name at its dots and brackets. A name with other characters is in quotes.
fn parts(key: &str) -> Vec<Part> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for c in key.chars() {
        match c {
            '"' if !escaped => quoted = !quoted,
            '\\' if quoted && !escaped => {
                escaped = true;
                continue;
            }
            '.' if !quoted => parts.push(String::new()),
            // The bracket marks an index.
            '[' if !quoted => parts.push("[".to_owned()),
            ']' if !quoted => {}
            c => parts.last_mut().into_iter().for_each(|part| part.push(c)),
        }
        escaped = false;
    }
    let part = |part: String| match part.strip_prefix('[').and_then(|index| index.parse().ok()) {
        Some(index) => Part::Index(index),
        None => Part::Name(part),
    };
    parts.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_and_lists_are_found() {
        let document =
            "limits.body = 5\n[prices.\"gpt-4.1\"]\ninput = 1\n[[slot]]\nname = 'a'\n[[slot]]\nname = 'b'\n";
        assert_eq!(line_of(document, "limits.body"), Some(1));
        assert_eq!(line_of(document, "prices.\"gpt-4.1\".input"), Some(3));
        assert_eq!(line_of(document, "prices.\"gpt-4.1\".output"), Some(2));
        assert_eq!(line_of(document, "slot[1].name"), Some(7));
        assert_eq!(line_of(document, "slot[1].keep"), Some(6));
        assert_eq!((line_of(document, ""), line_of("a = [", "a")), (None, None));
        assert_eq!(
            parts(r#"a."b\".c"[2]"#),
            [Part::Name("a".into()), Part::Name("b\".c".into()), Part::Index(2)]
        );
    }
}
