//! Finds words that the project replaced in names, comments, printed text and documents, with the words to write
//! instead. Also finds type names that have several meanings in one crate.

use std::collections::BTreeMap;

use super::graph::Files;
use super::tokens::scan;

/// Words and phrases in lower case, separated by `|`, and the words to write instead.
const REPLACED: &[(&str, &str)] = &[
    ("tell|tells|told|telling|untold", "report, return, contain, notify"),
    ("asks|asked|asking", "request, call, query; the caller, the client"),
    ("whoever|nobody|somebody", "the caller, no client, another tenant, never"),
    ("kept", "stored, cached, retained"),
    ("held", "locked, stored, in use"),
    ("given", "passed, returned, set"),
    ("known", "cached, recognised, defined, supported"),
    ("dear|dearer|dearest", "expensive"),
    ("mend|mends|mended|mending", "fix"),
    ("anew|once more", "again"),
    ("wanted", "expected, required, requested"),
    ("under way", "in progress"),
    ("so many|so much|so often|for so long", "name the limit or the duration"),
    ("parted", "separated"),
    ("beside|besides|beneath", "next to, compared with, covered by"),
    ("stands|stood", "is, covers, is current"),
    ("goes on|go on|going on|went on|goes through|passes through|pass through", "continues, is forwarded"),
    ("moment|moments", "timestamp, instant"),
    ("built-in model", "built-in extractive summarizer"),
];

/// Returns the replaced words in a text, each with its line and the words to write instead. Text in backticks is code.
fn replaced(first: usize, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        let mut prose = String::with_capacity(line.len() + 2);
        for part in line.split('`') {
            prose
                .extend(part.chars().map(|c| if code || !is_part(c) { ' ' } else { c.to_ascii_lowercase() }));
            prose.push(' ');
            code = !code;
        }
        // A line has one more part than backticks.
        code = !code;
        let words: Vec<&str> = prose.split_whitespace().collect();
        let prose = format!(" {} ", words.join(" "));
        for (olds, instead) in REPLACED {
            for old in olds.split('|').filter(|old| prose.contains(&format!(" {old} "))) {
                found.push((first + number, format!("`{old}`; write: {instead}")));
            }
        }
    }
    found
}

/// Returns the names in a source file that contain replaced words: types, functions, fields, variables. Each name is
/// listed once.
fn in_names(name: &str, text: &str) -> Vec<String> {
    let mut found = BTreeMap::new();
    for token in scan(text).tokens.iter().filter(|token| token.is_word()) {
        let words = parts(&token.text);
        let replaced =
            REPLACED.iter().find(|(olds, _)| olds.split('|').any(|old| words.iter().any(|word| word == old)));
        if let Some((_, instead)) = replaced {
            found.entry(token.text.clone()).or_insert((token.line, instead));
        }
    }
    let lines =
        found.into_iter().map(|(word, (line, instead))| format!("{name}:{line}: `{word}`; write: {instead}"));
    lines.collect()
}

/// Returns the words of a name in lower case: `SummaryKept`, `summary_kept` and `SUMMARY_KEPT` have the same two.
fn parts(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut last_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && last_lower) {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), c != '_') {
            word.extend(c.to_lowercase());
        }
        last_lower = c.is_lowercase();
    }
    words
}

/// Returns type names that a crate defines more than once. An alias counts if it is outside of all braces: the
/// associated types of traits and impl blocks have the same names everywhere.
pub(crate) fn shared_type_names(name: &str, files: &Files) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in files.iter().filter(|(file, _)| !is_test(file)) {
        let mut depth = 0_usize;
        for pair in scan(text).tokens.windows(2) {
            match pair[0].text.as_str() {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            let is_type = ["struct", "enum", "trait"].iter().any(|item| pair[0].is(item));
            let is_alias = depth == 0 && pair[0].is("type");
            if (is_type || is_alias) && pair[1].is_word() {
                places.entry(pair[1].text.clone()).or_default().push(format!("{file}:{}", pair[1].line));
            }
        }
    }
    // Each subcommand has its own `Args`; other modules name it with its module.
    places.retain(|name, places| places.len() > 1 && name != "Args");
    places.iter().map(|(item, places)| format!("{name}: `{item}` in {}", places.join(", "))).collect()
}

/// Returns whether a source file contains only tests.
pub(crate) fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs") || file.contains("tests/")
}

/// Returns whether a character is part of a word.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '_'
}

/// Returns the replaced words in the comments, string literals and names of a source file, up to its test module.
pub(crate) fn in_source(name: &str, text: &str) -> Vec<String> {
    let end = text.find("#[cfg(test)]\nmod tests").map_or(usize::MAX, |at| text[..at].lines().count());
    let source = scan(text);
    // Joins comments on consecutive lines, because code in backticks may span several lines.
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut next = 0;
    for (line, comment) in &source.comments {
        let comment = comment.trim_start_matches(['/', '!']);
        match blocks.last_mut() {
            Some((_, block)) if *line == next => {
                block.push('\n');
                block.push_str(comment);
            }
            _ => blocks.push((*line, comment.to_owned())),
        }
        next = line + 1;
    }
    let prose = source.strings.into_iter().filter(|(_, text)| text.contains(' '));
    let all = blocks.into_iter().map(|(line, block)| (line, without_fences(&block))).chain(prose);
    let found = all.flat_map(|(line, text)| replaced(line, &text)).filter(|(line, _)| *line <= end);
    found.map(|(line, word)| format!("{name}:{line}: {word}")).chain(in_names(name, text)).collect()
}

/// Returns the replaced words in a Markdown document.
pub(crate) fn in_document(name: &str, text: &str) -> Vec<String> {
    let found = replaced(1, &without_fences(text));
    found.into_iter().map(|(line, word)| format!("{name}:{line}: {word}")).collect()
}

/// Returns the text with empty lines in place of its fenced code blocks.
fn without_fences(text: &str) -> String {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        lines.push(if inside || fence { "" } else { line });
        inside ^= fence;
    }
    lines.join("\n")
}

#[test]
fn planted_words_are_found_in_prose_and_nowhere_else() {
    let source = "//! Nobody knows `told`.\n/// Spans `two\n/// told` lines, and is\n/// Told.\nfn told(asked: u8) {}\n\
        const A: &str = \"told\";\nconst B: &str = \"it was told\\n\";\n#[cfg(test)]\nmod tests {\n// told\n}\n";
    let found = in_source("a.rs", source);
    let places: Vec<&str> = found.iter().map(|line| line.split(';').next().unwrap()).collect();
    let expected =
        ["a.rs:1: `nobody`", "a.rs:4: `told`", "a.rs:7: `told`", "a.rs:5: `asked`", "a.rs:5: `told`"];
    assert_eq!(places, expected);
    let found = in_names(
        "a.rs",
        "struct AllKept; fn go() { let un_known = MOST_HELD; unknown(); }\n#[cfg(test)]\nfn told() {}",
    );
    assert_eq!(found.len(), 3, "{found:?}");
    let document = "Goes  on.\n```\ntold\n```\nA built-in\nmodel, `kept` by (nobody)\n";
    let found = in_document("a.md", document);
    let places: Vec<&str> = found.iter().map(|line| line.split(';').next().unwrap()).collect();
    assert_eq!(places, ["a.md:1: `goes on`", "a.md:6: `nobody`"]);
}

#[test]
fn a_planted_second_meaning_is_found() {
    let files = [
        ("a.rs", "struct Row; enum Kind {} pub struct Answer; type Error = u8;"),
        ("b.rs", "trait Row {}\npub(crate) type Answer<'a> = &'a str;"),
        (
            "c.rs",
            "impl Row for u8 { type Error = u8; }\ntrait Other { type Error; fn go() { type Kind = u8; } }",
        ),
        ("b/tests.rs", "struct Kind;"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let expected = ["x: `Answer` in a.rs:1, b.rs:2", "x: `Row` in a.rs:1, b.rs:1"];
    assert_eq!(shared_type_names("x", &files), expected);
}
