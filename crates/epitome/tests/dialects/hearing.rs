//! Replies that pass by, as the providers really stream them: what is heard is the same whatever pieces they come in.

use epitome::dialect::{Dialect, ReplyOutcome, ReplyUsage, UsageListener};
use epitome::model::TooLong;
use proptest::prelude::*;

use crate::config;

const STREAM: &str = "text/event-stream; charset=utf-8";

fn heard<'a>(dialect: Dialect, kind: &str, pieces: impl Iterator<Item = &'a [u8]>) -> ReplyOutcome {
    let mut listener = UsageListener::new(dialect, Some(kind));
    pieces.for_each(|piece| listener.push(piece));
    listener.finish()
}

/// What is heard of a stream, split at every byte in turn, and byte by byte, with any end of lines.
fn stream(dialect: Dialect, text: &str) -> ReplyOutcome {
    let all = heard(dialect, STREAM, std::iter::once(text.as_bytes()));
    for ends in ["\n", "\r\n", "\r"] {
        let bytes = text.replace('\n', ends).into_bytes();
        for at in 0..bytes.len() {
            let (one, two) = bytes.split_at(at);
            assert_eq!(heard(dialect, STREAM, [one, two].into_iter()), all, "{ends:?} at {at}");
        }
        assert_eq!(heard(dialect, STREAM, bytes.chunks(1)), all, "{ends:?}");
    }
    all
}

fn check(dialect: Dialect, text: &str, complete: bool, counted: Option<[u64; 4]>) {
    let counted = counted.map(|[input, cached, written, output]| ReplyUsage {
        input,
        cached,
        cache_written: written,
        output,
    });
    let heard = stream(dialect, text);
    assert_eq!((heard.complete, heard.usage, heard.error), (complete, counted, None), "{text}");
}

const CHAT: &str = r#"data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"The \"usage\": {\"prompt_tokens\": 5} \"finish_reason\": \"stop\""},"finish_reason":null}],"usage":null}

"#;
const CHAT_STOP: &str = r#"data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

"#;
const CHAT_USAGE: &str = r#"data: {"id":"c1","choices":[],"usage":{"prompt_tokens":90,"completion_tokens":12,"total_tokens":102,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}

"#;

#[test]
fn chat_tells_its_count_in_the_last_event_or_not_at_all() {
    let done = "data: [DONE]\n\n";
    check(Dialect::OPENAI, &format!("{CHAT}{CHAT_STOP}{CHAT_USAGE}{done}"), true, Some([90, 64, 0, 12]));
    check(Dialect::OPENAI, &format!("{CHAT}{CHAT_STOP}{done}"), true, None);
    check(Dialect::OPENAI, &format!("{CHAT}{CHAT_STOP}"), true, None);
    check(Dialect::OPENAI, CHAT, false, None);
    check(Dialect::OPENAI, &format!("{CHAT}data: {{\"choices\":[{{\"index\":0,\"fini"), false, None);
}

#[test]
fn azure_begins_with_no_choice_and_gateways_with_comments() {
    let azure = r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}

"#;
    let comments = ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n";
    let text = format!("{comments}{azure}{CHAT}:\n\n{CHAT_STOP}{CHAT_USAGE}data: [DONE]\n\n");
    check(Dialect::OPENAI, &text, true, Some([90, 64, 0, 12]));
}

#[test]
fn of_several_answers_the_last_ends_the_stream() {
    let piece = |index: u64, reason: &str| {
        format!("data: {{\"choices\":[{{\"index\":{index},\"delta\":{{}},\"finish_reason\":{reason}}}]}}\n\n")
    };
    let (open, stop) = ("null", "\"stop\"");
    let one_ended = format!("{}{}{}", piece(0, open), piece(1, open), piece(0, stop));
    check(Dialect::OPENAI, &one_ended, false, None);
    check(Dialect::OPENAI, &format!("{one_ended}{}", piece(1, stop)), true, None);
    check(Dialect::OPENAI, &format!("{}{}", piece(1, open), piece(1, stop)), false, None);
    check(Dialect::OPENAI, &format!("{one_ended}data: [DONE]\n\n"), true, None);
    check(Dialect::OPENAI, &piece(0, "\"\""), false, None);
}

#[test]
fn anthropic_tells_its_count_twice_and_the_later_one_holds() {
    let start = r#"event: message_start
data: {"type":"message_start","message":{"id":"m1","role":"assistant","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":10,"cache_read_input_tokens":100,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It says {\"type\":\"message_stop\"}"}}

"#;
    let delta = r#"event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}

"#;
    let restated = delta.replace(
        r#"{"output_tokens":15}"#,
        r#"{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":100,"output_tokens":15}"#,
    );
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    check(Dialect::ANTHROPIC, &format!("{start}{delta}{stop}"), true, Some([135, 100, 10, 15]));
    check(Dialect::ANTHROPIC, &format!("{start}{restated}{stop}"), true, Some([140, 100, 10, 15]));
    check(Dialect::ANTHROPIC, &format!("{start}{delta}"), false, Some([135, 100, 10, 15]));
    check(Dialect::ANTHROPIC, start, false, Some([135, 100, 10, 1]));
    // One event in several lines of data.
    let lines = "data: {\"type\":\ndata: \"message_stop\"}\n\n";
    check(Dialect::ANTHROPIC, &format!("{start}{delta}{lines}"), true, Some([135, 100, 10, 15]));
}

const CREATED: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"r1","status":"in_progress","error":null,"usage":null},"sequence_number":0}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"say \"response.completed\"","sequence_number":1}

"#;

#[test]
fn responses_end_with_one_of_three_events() {
    let last = |kind: &str| {
        format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{{\"status\":\"x\",\"error\":null,\"usage\":{{\"input_tokens\":7,\
             \"input_tokens_details\":{{\"cached_tokens\":4}},\"output_tokens\":2}}}}}}\n\n"
        )
    };
    let counted = Some([7, 4, 0, 2]);
    check(Dialect::RESPONSES, &format!("{CREATED}{}", last("response.completed")), true, counted);
    check(Dialect::RESPONSES, &format!("{CREATED}{}", last("response.incomplete")), true, counted);
    check(Dialect::RESPONSES, CREATED, false, None);
    let failed = stream(Dialect::RESPONSES, &format!("{CREATED}{}", last("response.failed")));
    assert!(!failed.complete && failed.error.is_some() && failed.usage.is_some());
}

#[test]
fn a_stream_that_fails_at_once_says_whether_it_was_too_long() {
    let check = |dialect, text: &str, limit: Option<Option<u64>>| {
        let heard = stream(dialect, text);
        assert!(!heard.complete, "{text}");
        let found = heard.error.as_ref().and_then(TooLong::from_error);
        assert_eq!(found.map(|found| found.limit), limit, "{text}");
    };
    let long = "prompt is too long: 9000 tokens > 8000 maximum";
    let error = format!("{{\"type\":\"invalid_request_error\",\"message\":\"{long}\"}}");
    check(
        Dialect::ANTHROPIC,
        &format!("event: error\ndata: {{\"type\":\"error\",\"error\":{error}}}\n\n"),
        Some(Some(8_000)),
    );
    check(Dialect::OPENAI, &format!("data: {{\"error\":{error}}}\n\ndata: [DONE]\n\n"), Some(Some(8_000)));
    let code = r#""code":"context_length_exceeded","message":"Your input exceeds the context window.""#;
    check(
        Dialect::RESPONSES,
        &format!("{CREATED}data: {{\"type\":\"response.failed\",\"response\":{{\"error\":{{{code}}}}}}}\n\n"),
        Some(None),
    );
    check(Dialect::RESPONSES, &format!("data: {{\"type\":\"error\",{code},\"param\":null}}\n\n"), Some(None));
    check(Dialect::RESPONSES, &format!("data: {{\"type\":\"error\",\"error\":{{{code}}}}}\n\n"), Some(None));
    let busy =
        "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    check(Dialect::ANTHROPIC, busy, None);
    check(Dialect::OPENAI, "data: {\"choices\":[{\"index\":0,\"finish_reason\":\"error\"}]}\n\n", None);
}

#[test]
fn a_document_is_complete_unless_it_says_that_it_failed_or_is_not_done() {
    let check = |dialect, text: &str, complete: bool, failed: bool| {
        let heard = heard(dialect, "application/json", text.as_bytes().chunks(3));
        assert_eq!((heard.complete, heard.error.is_some()), (complete, failed), "{text}");
    };
    check(Dialect::OPENAI, r#"{"choices":[{"finish_reason":"stop"}],"error":null}"#, true, false);
    check(Dialect::OPENAI, r#"{"error":{"message":"no","code":502}}"#, false, true);
    check(Dialect::ANTHROPIC, r#"{"type":"message","usage":{"input_tokens":3}}"#, true, false);
    check(Dialect::ANTHROPIC, r#"{"type":"error","error":{"type":"api_error"}}"#, false, true);
    check(Dialect::RESPONSES, r#"{"status":"incomplete","error":null}"#, true, false);
    check(Dialect::RESPONSES, r#"{"status":"queued","error":null}"#, false, false);
    check(Dialect::RESPONSES, r#"{"status":"failed","error":{"code":"server_error"}}"#, false, true);
    check(Dialect::OPENAI, "<html>Bad gateway</html>", false, false);
    check(Dialect::OPENAI, r#"{"choices":["#, false, false);
    check(Dialect::OPENAI, "", false, false);
}

/// A line of a stream, sensible or not.
fn line() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "message_start",
        "message_delta",
        "message_stop",
        "error",
        "response.completed",
        "response.failed",
        "ping",
        "usage",
        "index",
        "finish_reason",
    ]);
    let number = prop_oneof![Just(0u64), 1..9u64, any::<u64>()];
    prop_oneof![
        Just(String::new()),
        Just("data: [DONE]".to_owned()),
        (word.clone(), number.clone()).prop_map(|(word, n)| format!(
            "data: {{\"type\":\"{word}\",\"usage\":{{\"input_tokens\":{n},\"prompt_tokens\":{n},\"output_tokens\":1}}}}"
        )),
        (number.clone(), any::<bool>()).prop_map(|(n, end)| format!(
            "data: {{\"choices\":[{{\"index\":{n},\"finish_reason\":{}}}]}}",
            if end { "\"stop\"" } else { "null" }
        )),
        (word, number).prop_map(|(word, n)| format!("data: {{\"{word}\":{{\"error\":{n}}}")),
        "[ -~\r]{0,12}",
        "data:[\"{}:a-z\\\\]{0,12}",
    ]
}

/// The same bytes in pieces of these sizes, again and again.
fn pieces(bytes: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (one, after) = rest.split_at((*size).min(rest.len()));
        out.push(one.to_vec());
        rest = after;
    }
    out
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn what_is_heard_does_not_depend_on_the_pieces(
        lines in prop::collection::vec(line(), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        sizes in prop::collection::vec(1..40usize, 1..6),
        streamed: bool,
        which in 0..4usize,
    ) {
        let mut bytes = lines.join("\n").into_bytes();
        bytes.extend(noise);
        let kind = if streamed { STREAM } else { "application/json" };
        let dialect = Dialect::all()[which];
        let whole = heard(dialect, kind, std::iter::once(bytes.as_slice()));
        let parts = pieces(&bytes, &sizes);
        prop_assert_eq!(heard(dialect, kind, parts.iter().map(Vec::as_slice)), whole);
    }

    /// What passes events over by their quotation marks finds whatever a parser would.
    #[test]
    fn nothing_that_tells_something_is_passed_over(spaces in prop::collection::vec("[ \t]{0,2}", 4), which in 0..3usize) {
        let gap = |at: usize| spaces[at].as_str();
        let (dialect, event) = match which {
            0 => (Dialect::ANTHROPIC, format!("{{\"type\"{}:{}\"message_stop\"}}", gap(0), gap(1))),
            1 => (Dialect::RESPONSES, format!("{{\"a\":1,\"type\"{}:{}\"response.completed\"}}", gap(0), gap(1))),
            _ => (Dialect::OPENAI, format!("{{\"choices\":[{{\"finish_reason\"{}:{}\"stop\"}}]}}", gap(0), gap(1))),
        };
        let text = format!("data:{}{event}{}\n\n", gap(2), gap(3));
        prop_assert!(heard(dialect, STREAM, std::iter::once(text.as_bytes())).complete);
    }
}
