use proptest::prelude::*;

use super::lists::{LABELS, OPENERS};
use super::*;

/// The names in a text, as `kind text`, those that are only maybe ones with a question mark.
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = names(text)
        .iter()
        .map(|name| {
            let kind = serde_json::to_string(&name.kind).unwrap();
            format!("{}{} {}", kind.trim_matches('"'), if name.sure { "" } else { "?" }, name.text)
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn paths() {
    check("see src/auth/session.rs:42, then ./run.sh.", &["path src/auth/session.rs", "path ./run.sh"]);
    check(
        "in ~/notes/todo and /etc/hosts and ../lib/x_1",
        &["path ~/notes/todo", "path /etc/hosts", "path ../lib/x_1"],
    );
    check("edit Cargo.toml or .env; not .py files", &["path Cargo.toml", "path .env"]);
    check("this and/or that, 24/7", &["path? and/or"]);
    check("</output> and (`tests/a.py`)", &["path tests/a.py"]);
}

#[test]
fn addresses() {
    check("go to https://example.com/a?b=c#d.", &["url https://example.com/a?b=c#d"]);
    check("mail ann.lee@example.com, or @ann", &["url ann.lee@example.com"]);
    check("(postgres://db.example.com:5432/x)", &["url postgres://db.example.com:5432/x"]);
}

#[test]
fn names_from_code() {
    check(
        "call parse_header on http.client with TokenGenerator",
        &["code parse_header", "code http.client", "code TokenGenerator"],
    );
    check("x.y and a.b are too short, well-known words too", &[]);
    check(r"print('\nTest it_works')", &["proper? Test", "code it_works"]);
}

#[test]
fn ids_versions_and_dates() {
    check(
        "order EHGLP3 of 2026-11-15, v1.2.3, us-east-1",
        &["id EHGLP3", "id 2026-11-15", "id v1.2.3", "id us-east-1"],
    );
    check(
        "commit 480253b, 550e8400-e29b-41d4-a716-446655440000",
        &["id 480253b", "id 550e8400-e29b-41d4-a716-446655440000"],
    );
    check("call 555-0134-77", &["id 555-0134-77"]);
}

#[test]
fn figures_come_with_their_unit_or_label() {
    check(
        "port 8080, 3.5 GB, 20 %, $1,299.00, 45ms",
        &["number port 8080", "number 3.5 GB", "number $1,299.00", "number 45ms"],
    );
    check(
        "20% of 7 people at 10:30 pm in room 12",
        &["number 20%", "number 7 people", "number 10:30 pm", "number room 12"],
    );
    check("only 7 and 42", &[]);
    check("echo $1 and $2 or $45", &["number $45"]);
    check("about 250 of them", &["number 250"]);
    check("3月14日に250円", &["number 3月14日", "number 250円"]);
    check("стоит 900 рублей", &["number 900 рублей"]);
    check("issue #42", &["number #42"]);
}

#[test]
fn dates_in_words() {
    check(
        "we meet on Saturday 12 April, or March 14th, 2027.",
        &["id Saturday 12 April", "id March 14th, 2027"],
    );
    check("by the 31st of March 2026; every Friday in May", &["id 31st of March 2026", "proper May"]);
    check("до 3 марта", &["id 3 марта"]);
    check("12 apples, 4th floor", &[]);
}

#[test]
fn errors_come_with_what_they_say() {
    check("ValueError: bad value for `x`\nnext", &["code ValueError", "error ValueError: bad value for `x`"]);
    check(
        "error[E0432]: unresolved import `foo`",
        &["error error[E0432]: unresolved import `foo`", "id E0432"],
    );
    check("an error occurred", &[]);
}

#[test]
fn people_and_places() {
    check("I told Ann Lee in New York, then Bob.", &["proper Ann Lee", "proper New York", "proper Bob"]);
    check("The end. Maria came.", &["proper? Maria"]);
    check("Thanks Ann! Hello World", &["proper Ann", "proper World"]);
    check("Я видел Ивана в Санкт-Петербурге.", &["proper Ивана", "proper Санкт-Петербурге"]);
    check(
        "田中さんとコンピュータを「銀河鉄道」で",
        &["proper コンピュータ", "proper 田中さん", "proper 銀河鉄道"],
    );
}

#[test]
fn tool_output_has_no_people() {
    let mut found = Vec::new();
    each_name("Traceback in Foo Bar\nsrc/a.rs", false, |name| found.push(name.text));
    assert_eq!(found, ["src/a.rs"]);
}

#[test]
fn only_meaningful_numbers_in_tool_output_are_names() {
    let mut found = Vec::new();
    let printed = "630:    return Error(1)\n  812-import os\n12-use_it 2024-05\n{\"price\": 177, \"seat\":204}\ntext/plain and/or 4096 Warning";
    each_name(printed, false, |name| found.push((name.kind, name.text, name.sure)));
    assert_eq!(
        found,
        [
            // Of the numbers of lines those that a search found.
            (NameKind::Line, "630", true),
            (NameKind::Code, "Error", true),
            (NameKind::Code, "use_it", true),
            (NameKind::Id, "2024-05", true),
            (NameKind::Id, "177", true),
            (NameKind::Id, "204", true),
            (NameKind::Path, "text/plain", true),
            (NameKind::Path, "and/or", false),
            (NameKind::Number, "4096", true),
            (NameKind::Code, "Warning", true),
        ]
    );
}

#[test]
fn words_that_open_sentences_are_no_names_where_people_begin_anew() {
    check("so we Okay Yeah I saw Ann And then Oh Go Bob", &["proper Ann", "proper Bob"]);
    check("a Warning and an Error", &["proper Warning"]);
}

#[test]
fn lists_that_are_searched_by_halving_are_sorted() {
    assert!(LABELS.is_sorted() && OPENERS.is_sorted());
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(4_000))]

    #[test]
    fn any_text_is_read_and_names_are_in_it(text in prop_oneof![any::<String>(), "[a-zA-Z0-9./@_:,#$ \\n東カナ「」éЯ-]{0,80}"]) {
        for name in names(&text) {
            prop_assert!(text.contains(name.text) && !name.text.is_empty());
        }
    }
}

#[test]
fn a_date_with_its_units_is_one() {
    let found = |text| names(text).into_iter().map(|name| name.text).collect::<Vec<_>>();
    assert_eq!(found("お届けは2025年9月13日の18時30分です"), ["2025年9月13日", "18時30分"]);
    assert_eq!(found("6月12日之前，3回"), ["6月12日", "3回"]);
}
