use serde_json::json;

use super::*;
use crate::message::{Media, MediaSource, Role, ToolResult};

fn counter() -> Counter {
    Counter::new(Encoding::O200k)
}

/// One token a character, so that sums can be done in the head.
fn chars() -> Counter {
    Counter::custom("chars", |text| text.chars().count() as Tokens)
}

fn picture(size: (u32, u32)) -> Media {
    Media {
        mime: "image/png".to_owned(),
        source: MediaSource::Base64("QUJD".repeat(250_000)),
        size: Some(size),
    }
}

fn assistant(part: Part) -> Message {
    Message::new(Role::Assistant, [part])
}

#[test]
fn an_encoding_is_known_by_its_short_and_its_full_name() {
    for encoding in Encoding::ALL {
        let full = encoding.to_string();
        assert_eq!(full.parse(), Ok(encoding));
        assert_eq!(full.trim_end_matches("_base").parse(), Ok(encoding));
        assert_eq!(serde_json::to_value(encoding).unwrap(), json!(full));
    }
}

#[test]
fn an_unknown_encoding_is_refused_with_what_is_allowed() {
    for given in ["", "_base", "O200K", "o200k_harmony", "claude"] {
        let error = given.parse::<Encoding>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{given}`")), "{error}");
        assert!(Encoding::ALL.iter().all(|known| error.contains(known.name())), "{error}");
    }
}

#[test]
fn a_model_is_matched_to_its_encoding_or_to_none() {
    let known = [
        ("gpt-5.4-mini", Encoding::O200k),
        ("gpt-oss-120b", Encoding::O200k),
        ("ft:gpt-4o:us::1", Encoding::O200k),
        ("openrouter/openai/o3", Encoding::O200k),
        ("gpt-4-turbo", Encoding::Cl100k),
        ("text-davinci-003", Encoding::P50k),
        ("gpt2", Encoding::R50k),
    ];
    for (model, encoding) in known {
        assert_eq!(Encoding::for_model(model), Some(encoding), "{model}");
    }
    for model in ["", "/", "claude-sonnet-4-5", "gemini-3-pro", "meta-llama/Llama-3.1-8B", "deepseek-chat"] {
        assert_eq!(Encoding::for_model(model), None, "{model}");
    }
}

#[test]
fn text_that_looks_like_a_special_token_is_ordinary_text() {
    for encoding in Encoding::ALL {
        let counter = Counter::new(encoding);
        assert!(counter.text("<|endoftext|>") > 1, "{encoding}");
        assert!(counter.text("a<|fim_prefix|>b<|im_start|>") > 4, "{encoding}");
    }
}

#[test]
fn a_message_is_its_overhead_and_its_parts() {
    let (o, text) = (Overhead::default(), |s: &str| counter().text(s));
    let check = |message: Message, expected| assert_eq!(counter().message(&message), expected);

    check(Message::new(Role::User, []), o.message);
    check(Message::user("hello world"), o.message + 2);
    let two = [Part::text("hello"), Part::text(" world")];
    check(Message::new(Role::User, two), o.message + 2);
    check(assistant(Part::thinking("hello world")), o.message + 2);
    check(
        assistant(Part::call("c", "ls", r#"{"path": "/"}"#)),
        o.message + o.call + text("ls") + text(r#"{"path": "/"}"#),
    );
    check(Message::new(Role::Tool, [Part::result("c", "hello world")]), o.message + 2);
    let signed = Message { author: Some("alice".into()), ..Message::user("hello world") };
    check(signed, o.message + o.author + text("alice") + 2);
}

#[test]
fn each_result_has_the_overhead_of_a_message() {
    let check = |parts: Vec<Part>, expected| {
        assert_eq!(chars().message(&Message::new(Role::User, parts)), expected);
    };
    let (a, b, text) = (Part::result("a", "xx"), Part::result("b", "yyy"), Part::text("z"));
    check(vec![a.clone()], 4 + 2);
    check(vec![a.clone(), b.clone()], 4 + 2 + 4 + 3);
    check(vec![a, b, text.clone(), text], 4 + 2 + 4 + 3 + 4 + 2);
}

#[test]
fn arguments_are_counted_as_they_would_be_sent() {
    let call = |arguments: &str| chars().message(&assistant(Part::call("c", "f", arguments))) - 4 - 4 - 1;
    assert_eq!(call(""), 2); // {}
    assert_eq!(call(r#"{"a":1}"#), 7);
    assert_eq!(call("oops"), r#"{"arguments":"oops"}"#.len() as Tokens);
}

#[test]
fn ids_signatures_and_metadata_are_not_counted() {
    let long = "x".repeat(10_000);
    let thinking =
        Part::Thinking { text: "abc".to_owned(), signature: Some(long.clone()), id: None, redacted: false };
    assert_eq!(chars().message(&assistant(thinking)), 4 + 3);
    let call = ToolCall {
        id: long.as_str().into(),
        item_id: Some(long.as_str().into()),
        name: "f".to_owned(),
        arguments: String::new(),
    };
    assert_eq!(chars().call(&call), 4 + 1 + 2);
    assert_eq!(chars().message(&Message::new(Role::Tool, [Part::result(long.as_str(), "abc")])), 4 + 3);
    let mut noted = Message::user("abc");
    noted.metadata.insert("note".to_owned(), json!(long));
    assert_eq!(chars().message(&noted), 4 + 3);
}

#[test]
fn base64_is_never_counted_as_text() {
    let never = Counter::custom("never", |text| if text.is_empty() { 0 } else { panic!("read {text:.20}") });
    let picture = picture((1024, 1024));
    let cost = media::tokens(&picture);
    assert!(cost < 2_000);

    assert_eq!(never.message(&Message::new(Role::User, [Part::Media(picture.clone())])), 4 + cost);
    let result = ToolResult { call: "c".into(), content: vec![Content::Media(picture)], error: false };
    assert_eq!(never.message(&Message::new(Role::Tool, [Part::ToolResult(result)])), 4 + cost);
}

#[test]
fn tools_cost_their_json_and_an_overhead_each() {
    assert_eq!(chars().tools(&[]), 0);
    assert_eq!(chars().tools(&[json!({"name": "f"}), json!({"name": "gg"})]), 12 + 13 + 2 * 8);
}

#[test]
fn overheads_can_be_replaced() {
    let bare = chars().with_overhead(Overhead::none());
    assert_eq!(bare.overhead(), Overhead::none());
    assert_eq!(bare.message(&Message { author: Some("al".into()), ..Message::user("abc") }), 5);
    let some: Overhead = serde_json::from_value(json!({"message": 7})).unwrap();
    assert_eq!(some, Overhead { message: 7, ..Overhead::default() });
    assert!(serde_json::from_value::<Overhead>(json!({"mesage": 7})).is_err());
}

#[test]
fn counts_that_do_not_fit_stop_at_the_end() {
    let huge = Counter::custom("huge", |_| Tokens::MAX);
    assert_eq!(huge.text("a"), Tokens::MAX);
    assert_eq!(huge.message(&Message::new(Role::User, [Part::text("a"), Part::text("b")])), Tokens::MAX);
}

#[test]
fn a_counter_goes_where_it_is_needed() {
    fn anywhere<T: Clone + fmt::Debug + Send + Sync + 'static>(_: &T) {}
    anywhere(&counter());
    assert!(format!("{:?}", counter()).contains("o200k_base"));
}

/// Requests of very different sizes, as a session grows and is condensed.
const REQUESTS: [Tokens; 12] =
    [350, 900, 2_500, 7_000, 18_000, 40_000, 95_000, 160_000, 12_000, 30_000, 70_000, 110_000];

/// What a provider 22 % above us reports, with a few per cent of noise.
fn skewed(at: usize, counted: Tokens) -> Tokens {
    counted * [118, 126, 122, 121, 123][at % 5] / 100
}

fn learned() -> Factor {
    let mut factor = Factor::default();
    for (at, counted) in REQUESTS.into_iter().enumerate() {
        factor.learn(counted, skewed(at, counted));
    }
    factor
}

#[test]
fn a_factor_finds_a_provider_that_counts_22_per_cent_more() {
    let factor = learned();
    assert!((121..=123).contains(&factor.hundredths()), "{factor}");
    assert_eq!(factor, learned());
}

#[test]
fn a_factor_follows_a_provider_that_changes() {
    let mut factor = learned();
    for _ in 0..40 {
        factor.learn(50_000, 45_000);
    }
    assert!((90..=94).contains(&factor.hundredths()), "{factor}");
}

#[test]
fn one_extreme_report_moves_the_factor_little() {
    for wild in [1, 3_000, 5_000_000, Tokens::MAX] {
        let mut factor = learned();
        factor.learn(50_000, wild);
        assert!((115..=129).contains(&factor.hundredths()), "{wild}: {factor}");

        let mut fresh = Factor::default();
        fresh.learn(50_000, wild);
        assert!((80..=125).contains(&fresh.hundredths()), "{wild}: {fresh}");
    }
}

#[test]
fn useless_reports_are_passed_over() {
    let mut factor = learned();
    for (counted, reported) in [(0, 0), (0, 500), (500, 0), (199, 900)] {
        factor.learn(counted, reported);
    }
    assert_eq!(factor, learned());
}

#[test]
fn a_factor_stays_in_its_range_whatever_is_reported() {
    for (wild, limit) in [(1, 50), (Tokens::MAX, 300)] {
        let mut factor = Factor::default();
        for counted in [200, 5_000, Tokens::MAX, 80_000].into_iter().cycle().take(400) {
            factor.learn(counted, wild);
            let stored = serde_json::to_string(&factor).unwrap();
            assert_eq!(serde_json::from_str::<Factor>(&stored).unwrap(), factor);
        }
        assert_eq!(factor.hundredths(), limit);
    }
}

#[test]
fn a_factor_rounds_up_and_one_changes_nothing() {
    let apply = |reported, tokens| Factor { counted: 100, reported }.apply(tokens);
    assert_eq!((apply(122, 0), apply(122, 1), apply(122, 100), apply(50, 3)), (0, 2, 122, 2));
    assert_eq!(Factor::default().apply(Tokens::MAX), Tokens::MAX);
}

#[test]
fn a_factor_out_of_range_is_refused_not_clamped() {
    for (counted, reported) in [(0, 0), (10, 4), (10, 31), (MEMORY + 1, MEMORY), (u64::MAX, u64::MAX)] {
        let stored = json!({ "counted": counted, "reported": reported });
        assert!(serde_json::from_value::<Factor>(stored).is_err());
    }
}
