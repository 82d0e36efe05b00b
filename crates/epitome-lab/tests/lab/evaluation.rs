//! The measures: what they find, what they count, and that they agree with the published scorer.

use epitome::rules::message::{Message, Part, Role, ToolCall};
use epitome_lab::evaluation::cost::{Cost, PromptCache, SentMessage};
use epitome_lab::evaluation::{
    Mean, Question, Questions, Recorded, Shown, contains_name, found_names, text_of, values_of,
};
use serde_json::Value;

fn found(text: &str, names: &[&str]) {
    assert_eq!(found_names(text).iter().map(String::as_str).collect::<Vec<_>>(), names, "{text}");
}

#[test]
fn every_kind_of_name_is_found() {
    found("see https://x.io/a?b=1, or <http://y.io>", &["http://y.io", "https://x.io/a?b=1"]);
    found("write to ann.b+c@mail.harbour.example.", &["ann.b+c@mail.harbour.example"]);
    found("./src/app.py ~/x/y /etc/hosts.d/a a/b", &["a/b", "etc/hosts.d/a", "src/app.py", "~/x/y"]);
    found("README.md my-file.json x.exe a.b", &["README.md", "my-file.json"]);
    found("KeyError Error a_Warning IOException_", &["Error", "KeyError", "a_Warning"]);
    found("max_size _private trailing_ a_b", &["a_b", "max_size"]);
    found("os.path.join os.path.x s.a", &["os.path", "os.path.join"]);
    found("berthCount HarbourMaster Harbour HTTPServer aB", &["HarbourMaster", "berthCount"]);
    found("2026-11-02 2026-11-2 12026-11-02", &["12026", "2026", "2026-11-02"]);
    found("4f2a LS41 abcd 12ab! a1", &["12ab", "4f2a", "LS41"]);
    found("3.5 1,234.50 12 123 1234567 1.2x", &["1,234.50", "123", "1234567", "3.5"]);
}

#[test]
fn names_end_where_words_do_and_the_first_kind_that_fits_is_taken() {
    // An address swallows the path inside it, a path the file, an error the snake.
    found("https://x.io/src/app.py", &["https://x.io/src/app.py"]);
    found("src/max_size/app.py", &["src/max_size/app.py"]);
    found("app.pyx app.py", &["app.py", "app.pyx"]);
    found("a/b/ a//b /a", &["a/b"]);
    found("x.y@z no@mail", &[]);
    found("...a/b,,", &["a/b"]);
    found("ab", &[]);
    found("", &[]);
}

#[test]
fn letters_of_any_script_belong_to_words() {
    found("東京/駅.txt größe_max größe_x.rs", &["größe_max", "größe_x.rs", "東京/駅.txt"]);
    assert!(!contains_name("größe_maximal", "größe_max") && contains_name("«größe_max»", "größe_max"));
    assert!(!contains_name("東京駅", "東京") && contains_name("東京、", "東京"));
}

#[test]
fn a_name_is_held_word_for_word_and_not_inside_a_longer_one() {
    for text in ["max_size", "(max_size)", "max_sizes max_size", "a-max_size.", "xmax_size max_size"] {
        assert!(contains_name(text, "max_size"), "{text}");
    }
    for text in ["", "max_sizes", "xmax_size", "max_size_", "Max_size", "max size", "max_size2"] {
        assert!(!contains_name(text, "max_size"), "{text}");
    }
    assert!(contains_name("aaa aa", "aa") && !contains_name("aaaa", "aa"));
}

/// A pattern that goes back and forth would not come to an end.
#[test]
fn long_texts_take_no_longer_by_the_letter() {
    for piece in ["a", "1,", "a/", "a.", "-", "_", "@", "1.", "aB", "https://", "/", "é", ",", "a@b", "./"] {
        let text = piece.repeat(1_000_000 / piece.len());
        let names = found_names(&text);
        assert!(names.len() <= 2, "{piece}: {}", names.len());
        assert!(!contains_name(&text, "nowhere"));
    }
}

fn call(arguments: &str) -> ToolCall {
    let Part::ToolCall(call) = Part::call("c1", "tool", arguments) else { panic!("no call") };
    call
}

#[test]
fn values_are_told_as_python_prints_them() {
    for (arguments, told) in [
        (r#"{"b":"two words","a":"x"}"#, "two words x"),
        (r#"{"a":null,"b":true,"c":false,"d":-3}"#, "None True False -3"),
        (r#"{"a":["x",{"y":[]},{}]}"#, "['x', {'y': []}, {}]"),
        (r#"{"a":["it's","a \"b\"","both ' and \""]}"#, r#"["it's", 'a "b"', 'both \' and "']"#),
        (r#"{"a":["\n\r\t\\","\u0000\u001b\u007f"]}"#, r"['\n\r\t\\', '\x00\x1b\x7f']"),
        (
            r#"{"a":["\u00a0\u200b\u2028\ue000\u00e9\u6771\u0301"]}"#,
            "['\\xa0\\u200b\\u2028\\ue000é東\u{301}']",
        ),
        (r#"{"a":["\udb40\udc01😀"]}"#, r"['\U000e0001😀']"),
        (r#"{"a":1e16,"b":0.1,"c":1e-5,"d":100.0,"e":1e15}"#, "1e+16 0.1 1e-05 100.0 1000000000000000.0"),
        (r#"{"a":-2.5e-7,"b":1.5e300,"c":0.0001,"d":0.0}"#, "-2.5e-07 1.5e+300 0.0001 0.0"),
        (r#"{"a":1,"a":2}"#, "2"),
        ("{}", ""),
        ("[1, 2]", "[1, 2]"),
        ("{\"cut", "{\"cut"),
    ] {
        assert_eq!(values_of(&call(arguments)), told, "{arguments}");
    }
}

#[test]
fn a_message_says_its_author_its_words_and_its_calls() {
    let said = |message: Message| text_of(&message);
    assert_eq!(said(by("ann", Message::user("Hello"))), "ann: Hello");
    assert_eq!(said(by("tool", Message::tool("c1", "42"))), "42");
    let parts = [Part::text("I look."), Part::call("c1", "read", r#"{"path":"a.md"}"#)];
    assert_eq!(said(Message::new(Role::Assistant, parts)), "I look.\nread a.md");
    let parts = [Part::call("c1", "read", "{}"), Part::call("c2", "list", "{}")];
    assert_eq!(said(Message::new(Role::Assistant, parts)), "read \nlist ");
}

fn by(author: &str, message: Message) -> Message {
    Message { author: Some(author.into()), ..message }
}

fn needs(recorded: &Recorded, at: usize) -> Vec<(String, bool)> {
    recorded.needs(at).into_iter().map(|need| (need.name.clone(), need.is_far())).collect()
}

fn reply(arguments: &str) -> Message {
    Message::new(Role::Assistant, [Part::call("c1", "read", arguments)])
}

#[test]
fn needed_is_what_was_seen_and_does_not_always_stay() {
    let messages = [
        Message::user("head_name in head.md"),
        Message::user("old_name, twice_said"),
        Message::user("x".repeat(9_000)),
        Message::user("twice_said new_name part_of_this"),
        reply(r#"{"a":"old_name twice_said new_name head_name never_seen part_of"}"#),
        Message::user("later"),
    ];
    let recorded = Recorded::new(1, &messages);
    let wanted = [("new_name", false), ("old_name", true), ("twice_said", false)];
    assert_eq!(needs(&recorded, 4), wanted.map(|(name, far)| (name.to_owned(), far)));
    assert_eq!(needs(&recorded, 5), []);
    assert_eq!(needs(&recorded, 99), []);
    assert_eq!(recorded.positions(), [4]);
    assert_eq!(recorded.size(3), (20 / 4 + 4) + (9_000 / 4 + 4));
    assert_eq!(Recorded::new(9, &messages).positions(), [] as [usize; 0], "all of it always stays");
}

#[test]
fn a_few_places_are_looked_at_evenly_spread() {
    let mut messages = vec![Message::user(format!("file_name {}", "x".repeat(5_000)))];
    messages.extend((0..21).map(|_| reply(r#"{"a":"file_name"}"#)));
    assert_eq!(Recorded::new(0, &messages).positions(), [1, 5, 9, 13, 17, 21]);
    messages.truncate(4);
    assert_eq!(Recorded::new(0, &messages).positions(), [1, 2, 3]);
    messages[0] = Message::user("file_name");
    assert_eq!(Recorded::new(0, &messages).positions(), [] as [usize; 0], "too early");
}

fn asked(question: &str, answer: impl Into<Value>, evidence: &[usize]) -> Question {
    Question { question: question.to_owned(), answer: answer.into(), evidence: evidence.to_vec() }
}

fn shown(summary: &str) -> Shown {
    Shown { summary: summary.to_owned(), messages: Vec::new() }
}

#[test]
fn an_answer_must_stand_together_with_a_word_of_its_question() {
    let recorded = Recorded::new(
        0,
        &[
            by("Ann", Message::user("The ferry sails at 7:45 from the eastern quay.")),
            Message::user("Liv bought twelve oranges."),
        ],
    );
    let mut questions = Questions::new(
        &recorded,
        &[
            asked("When does Ann's ferry sail?", "7:45", &[0]),
            asked("What did Liv buy?", "twelve oranges and tea", &[1]),
            asked("Who won?", "nobody", &[]),
        ],
    );
    // The third is never answered, so it is not counted; the second only in part, which is not enough.
    assert_eq!(questions.score(&shown("A ferry, 7:45.")).0, [1.0]);
    assert_eq!(questions.score(&shown("Ann, 7:45.")).0, [0.0], "who speaks is no word of the question");
    assert_eq!(questions.score(&shown("A ferry.\n7:45")).0, [0.0], "two lines are two places");
    let apart = format!("A ferry. {} 7:45", "nothing ".repeat(80));
    assert_eq!(questions.score(&shown(&apart)).0, [0.0], "too far apart");
    assert_eq!(questions.score(&Shown::default()), (vec![0.0], vec![0.0, 0.0]));
    let (_, told) = questions.score(&Shown { messages: recorded.texts().to_vec(), ..Shown::default() });
    assert_eq!(told, [1.0, 1.0]);
    let (_, told) = questions.score(&shown("Liv bought oranges"));
    assert!((told[1] - 0.75).abs() < 1e-9 && told[0] == 0.0, "{told:?}");
}

#[test]
fn a_mean_knows_how_sure_it_is() {
    let mut mean = Mean::default();
    assert_eq!((mean.value(), mean.error()), (None, None));
    mean.add(1.0);
    assert_eq!((mean.value(), mean.error()), (Some(1.0), None));
    [0.0, 1.0, 0.0].into_iter().for_each(|value| mean.add(value));
    // The variance of 1, 0, 1, 0 is a third, over four.
    assert_eq!(mean.value(), Some(0.5));
    assert!((mean.error().unwrap() - (1.0f64 / 12.0).sqrt()).abs() < 1e-12);
    let mut joined = Mean::default();
    joined.join(&mean);
    joined.join(&Mean::default());
    assert_eq!(joined, mean);
    let mut same = Mean::default();
    (0..1_000).for_each(|_| same.add(0.1));
    assert!(same.error().unwrap() < 1e-6, "no root of less than nothing");
}

#[test]
fn costs_are_those_of_whole_messages_that_came_before() {
    let [a, b, c] = [(1, 1_000), (2, 500), (3, 10)].map(|(hash, tokens)| SentMessage { hash, tokens });
    let (mut cost, mut run) = (Cost::default(), PromptCache::default());
    run.send(&mut cost, &[a]);
    assert!(run.continues(&[a, b]) && !run.continues(&[b]) && run.continues(&[a]));
    run.send(&mut cost, &[a, b]); // 1,000 shared are too few
    assert_eq!(run.send(&mut cost, &[a, b, c]), 0.1 * 1_500.0 + 1.25 * 10.0);
    run.send(&mut cost, &[b, c]); // begins otherwise
    cost.summarized(300, 20);
    assert_eq!((cost.calls, cost.plain, cost.peak), (4, 1_000 + 1_500 + 1_510 + 510, 1_510));
    // 1,250 + 1,875 + 162.5 + 637.5
    assert_eq!((cost.cached(), cost.summarizer, cost.summaries), (3_925, 400, 1));
    let mut both = cost;
    both.join(&cost);
    assert_eq!((both.calls, both.cached(), both.peak), (8, 7_850, 1_510));
}

/// One message in OpenAI's chat style.
fn message(wire: &Value) -> Message {
    let text = wire["content"].as_str().unwrap_or_default();
    let role: Role = serde_json::from_value(wire["role"].clone()).unwrap();
    if role == Role::Tool {
        return Message::tool(wire["tool_call_id"].as_str().unwrap(), text);
    }
    let mut parts: Vec<Part> = (!text.is_empty()).then(|| Part::text(text)).into_iter().collect();
    for call in wire["tool_calls"].as_array().into_iter().flatten() {
        let field = |at: &str| call.pointer(at).and_then(Value::as_str).unwrap();
        parts.push(Part::call(field("/id"), field("/function/name"), field("/function/arguments")));
    }
    let message = Message::new(role, parts);
    match wire["name"].as_str() {
        Some(name) => by(name, message),
        None => message,
    }
}

/// The numbers were taken with the scorer that was published with the recordings our tables are about.
#[test]
fn the_measures_agree_with_the_published_scorer() {
    let harbour: Value = serde_json::from_str(include_str!("../measured/harbour.jsonl")).unwrap();
    let ferry: Value = serde_json::from_str(include_str!("../measured/ferry.jsonl")).unwrap();
    let messages = |of: &Value| of["messages"].as_array().unwrap().iter().map(message).collect::<Vec<_>>();
    let coding = Recorded::new(2, &messages(&harbour));
    assert_eq!(coding.positions(), [6, 9, 12, 14]);
    let far = |name: &str| (name.to_owned(), true);
    let near = |name: &str| (name.to_owned(), false);
    let wanted = [near("2026-12-31"), far("LS4259"), far("LS4703"), near("ops@harbour.example")];
    assert_eq!(needs(&coding, 12), wanted);
    assert_eq!(needs(&coding, 14), [near("0.1"), near("https://tracker.example/issues?id=MOOR412")]);

    let talk = Recorded::new(0, &messages(&ferry));
    let qa: Vec<Question> = serde_json::from_value(ferry["qa"].clone()).unwrap();
    let mut questions = Questions::new(&talk, &qa);
    let mut table: std::collections::BTreeMap<(u64, &str), Mean> = Default::default();
    for line in include_str!("../measured/contexts.jsonl").lines() {
        let context: Value = serde_json::from_str(line).unwrap();
        let shown: Shown = serde_json::from_value(context.clone()).unwrap();
        let budget = context["budget"].as_u64().unwrap();
        let mut add = |measure, value| table.entry((budget, measure)).or_default().add(value);
        if context["id"] == "ferry" {
            let (answers, evidence) = questions.score(&shown);
            answers.into_iter().for_each(|value| add("AR", value));
            evidence.into_iter().for_each(|value| add("ER", value));
            continue;
        }
        let at = usize::try_from(context["at"].as_u64().unwrap()).unwrap();
        for need in coding.needs(at).iter().filter(|_| coding.size(at) > budget) {
            let held = f64::from(u8::from(shown.contains(&need.name)));
            add("FER", held);
            if need.is_far() {
                add("FERfar", held);
            }
        }
    }
    let told = table.iter().map(|((budget, measure), mean)| {
        format!("{budget} {measure} {:.3} (n={})", mean.value().unwrap(), mean.count)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "1000 AR 0.429 (n=7)",
            "1000 ER 0.379 (n=9)",
            "1000 FER 0.300 (n=10)",
            "1000 FERfar 0.000 (n=2)",
            "2000 AR 0.429 (n=7)",
            "2000 ER 0.571 (n=9)",
            "2000 FER 0.400 (n=10)",
            "2000 FERfar 0.500 (n=2)",
        ]
    );
}
