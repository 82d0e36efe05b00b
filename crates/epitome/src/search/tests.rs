use proptest::prelude::*;

use super::*;

fn query(text: &str) -> Query {
    Query::parse(text).unwrap()
}

#[test]
fn terms_match_in_any_order_case_and_script() {
    for (terms, text) in [
        ("b a", "A then B"),
        ("東京", "昨日東京へ行った"),
        ("ОШИБКА", "где-то ошибка"),
        ("خطأ", "هذا خطأ كبير"),
        ("🦀 rust", "Rust 🦀!"),
        ("ΟΔΟΣ", "η οδος"),
        ("οδοσ", "Η ΟΔΟΣ"),
        ("\"a  b\"", "x a  b y"),
        ("\"never closed", "it was NEVER CLOSED"),
        ("straße", "Die STRAßE"),
    ] {
        assert!(query(terms).matches(text), "{terms} in {text}");
    }
    assert!(!query("\"a b\"").matches("a  b"));
    assert!(!query("a b").matches("only a"));
}

#[test]
fn queries_without_terms_or_with_too_many_are_refused() {
    for empty in ["", "  \n", "\"\"", "\" \""] {
        assert_eq!(Query::parse(empty), Err(QueryError::Empty), "{empty:?}");
    }
    assert_eq!(Query::parse(&"a ".repeat(17)), Err(QueryError::TooManyTerms { count: 17 }));
    assert!(Query::parse(&"a ".repeat(16)).is_ok());
}

#[test]
fn an_excerpt_is_one_line_around_the_first_match() {
    let text = "first line\nsecond line with the needle in it\nthird line";
    assert_eq!(query("NEEDLE").excerpt(text, 9), "… with the needle in it th …");
    assert_eq!(query("first").excerpt(text, 5), "first line …");
    assert_eq!(query("line").excerpt("line", 5), "line");
    assert_eq!(query("absent").excerpt("short", 5), "short");
    assert_eq!(query("京").excerpt("昨日東京へ行った", 1), "… 東京へ …");
    assert_eq!(query("x").excerpt("İİİx", 1), "… İx");
}

#[test]
fn a_query_becomes_trigrams_for_the_index() {
    assert_eq!(query("abcd ab").trigrams().unwrap(), "\"abc\" AND \"bcd\"");
    assert_eq!(query("京").trigrams(), None);
    assert_eq!(query("\"a\0\u{7f}b\"").trigrams().unwrap(), "\" \u{7f}b\" AND \"a \u{7f}\"");
}

#[test]
fn reasoning_and_media_are_not_searched() {
    use epitome_core::message::Role;
    let message = Message::new(
        Role::Assistant,
        [Part::thinking("secret"), Part::text("said"), Part::call("id", "tool", "{\"a\":1}")],
    );
    assert_eq!(text_of(&message), "said\ntool\n{\"a\":1}");
    assert_eq!(text_of(&Message::tool("id", "given")), "given");
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(256))]

    #[test]
    fn a_part_of_a_text_is_always_found(text in "\\PC{1,40}", from in 0usize..40, len in 1usize..12) {
        let part: String = text.chars().skip(from).take(len).filter(|c| *c != '"').collect();
        let whole: String = text.chars().filter(|c| *c != '"').collect();
        if let Ok(query) = Query::parse(&format!("\"{part}\"")) {
            prop_assert!(query.matches(&whole));
            let short = query.excerpt(&whole, 3);
            prop_assert!(!short.contains('\n'));
        }
    }
}

#[test]
fn words_of_two_characters_use_the_index_in_scripts_that_have_them() {
    let trigrams = |query: &str| Query::parse(query).unwrap().trigrams();
    assert_eq!(trigrams("订单").as_deref(), Some("\"\u{E000}订单\""));
    assert!(indexed("我的订单号").contains("\u{E000}订单"));
    assert!(!indexed("我的订，单号").contains("\u{E000}订单"));
    assert_eq!((trigrams("ok"), trigrams("订"), trigrams("订a")), (None, None, None));
    // The reserved mark in a text or a query forms no pair.
    assert!(!indexed("\u{E000}ab").contains('\u{E000}'));
    assert_eq!(trigrams("\u{E000}订单"), trigrams("\" 订单\""));
}
