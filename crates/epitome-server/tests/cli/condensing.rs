//! `epitome condense`, as agents in any language use it: JSON in, JSON out, and an exit code.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::bin::{RunResult, TestFolder, result_of};

/// So many turns with a tool, as OpenAI's chat has them.
fn chat(turns: usize) -> Vec<Value> {
    let mut list = vec![json!({"role": "system", "content": "You are a harbour master."})];
    for n in 1..=turns {
        let call = json!({"id": format!("c{n}"), "type": "function",
            "function": {"name": "look_up", "arguments": format!("{{\"order\": \"{n}0071\"}}")}});
        list.push(
            json!({"role": "user", "content": format!("Please look at order {n}0071, it has not arrived.")}),
        );
        list.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        list.push(json!({"role": "tool", "tool_call_id": format!("c{n}"), "content": "sent from Oslo; ".repeat(20)}));
        list.push(
            json!({"role": "assistant", "content": format!("Order {n}0071 was sent and arrives on Monday.")}),
        );
    }
    list.push(json!({"role": "user", "content": "And the last one?"}));
    list
}

/// A request whose other fields have an unusual order, numbers and escapes.
fn request(turns: usize) -> String {
    let list = Value::from(chat(turns));
    format!(
        "{{\"model\": \"gpt-4o\",\n  \"temperature\": 1.0e0, \"messages\": {list:#},\n \"seed\": 123456789012345678901, \"x\": \"\\u00e9\"}}\n\n"
    )
}

impl TestFolder {
    fn condense(&self, input: &[u8], args: &[&str]) -> RunResult {
        let mut run = self.epitome(&[&["condense"], args].concat());
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().unwrap();
        // Whoever is refused early need not have read it all.
        let _ = child.stdin.take().unwrap().write_all(input);
        result_of(child.wait_with_output().unwrap())
    }

    /// What comes out, where all goes well and there is nothing to be said.
    #[track_caller]
    fn shorter(&self, input: &str, args: &[&str]) -> String {
        let (code, out, errors) = self.condense(input.as_bytes(), args);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{args:?}");
        out
    }

    /// The same with its report.
    #[track_caller]
    fn reported(&self, input: &str, args: &[&str]) -> (String, Value) {
        let out = self.shorter(input, &[args, &["--report", "report.json"]].concat());
        let report = std::fs::read_to_string(self.path("report.json")).unwrap();
        (out, serde_json::from_str(&report).unwrap())
    }

    /// One line, exit 2, nothing on standard output.
    #[track_caller]
    fn refuses(&self, input: &[u8], args: &[&str], line: &str) {
        let expected = (Some(2), String::new(), format!("epitome: {line}\n"));
        assert_eq!(self.condense(input, args), expected, "{args:?}");
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn below_the_threshold_the_same_bytes_come_out() {
    let place = TestFolder::new();
    for input in [
        request(3),
        "[]".to_owned(),
        " [ ]\r\n\n".to_owned(),
        "\u{feff}[{\"role\": \"user\", \"content\": \"Hi\"}]".to_owned(),
        // An orphan, an unanswered call, two messages of one role in a row: below the threshold nothing is repaired.
        r#"[{"role":"tool","tool_call_id":"x","content":"y"},{"role":"user","content":"a"},{"role":"user","content":"b"}]"#
            .to_owned(),
    ] {
        let (out, report) = place.reported(&input, &[]);
        assert_eq!(out, input);
        assert_eq!((&report["condensed"], &report["reason"]), (&json!(false), &json!("not_due")), "{report}");
        assert_eq!(place.shorter(&input, &["--force", "--strategy", "noop"]), input);
        assert_eq!(place.shorter(&input, &["--strip"]), input);
    }
    let (out, report) = place.reported(&request(30), &["--set", "condense.enabled=false", "--force"]);
    assert_eq!((out, &report["reason"]), (request(30), &json!("off")));
    assert!(!place.db().exists() && !place.path(".local").exists(), "no database is made");
}

#[test]
fn a_due_request_comes_out_shorter_and_otherwise_unchanged() {
    let place = TestFolder::new();
    let input = request(30);
    let (out, report) = place.reported(&input, &["--trigger", "messages(50)"]);
    let nine = [
        "condensed",
        "reason",
        "strategy",
        "messages_before",
        "messages_after",
        "tokens_before",
        "tokens_after",
        "covers",
        "model",
    ];
    assert!(nine.iter().all(|field| report.get(field).is_some()), "{report}");
    assert_eq!((&report["condensed"], &report["reason"]), (&json!(true), &json!("due")));
    assert_eq!((&report["strategy"], &report["model"]), (&json!("summarize"), &json!("local")));
    assert_eq!((&report["messages_before"], &report["covers"]), (&json!(122), &json!([2, 116])));
    assert!(report["tokens_after"].as_u64().unwrap() * 2 < report["tokens_before"].as_u64().unwrap());
    for kept in [
        "\"model\": \"gpt-4o\",\n  \"temperature\": 1.0e0, ",
        "\"seed\": 123456789012345678901, \"x\": \"\\u00e9\"}\n\n",
    ] {
        assert!(out.contains(kept), "{out}");
    }
    let list = parsed(&out)["messages"].as_array().unwrap().clone();
    assert_eq!(report["messages_after"], list.len());
    let came = chat(30);
    assert_eq!((&list[0], &list[2..]), (&came[0], &came[116..]), "the head and the newest 6 as they came");
    assert!(list[1]["content"].as_str().unwrap().starts_with("<summary covers=\"1-116\">"), "{}", list[1]);
}

#[test]
fn bare_lists_and_the_other_two_formats_keep_their_shape() {
    let place = TestFolder::new();
    let bare = place.shorter(&Value::from(chat(30)).to_string(), &["--force"]);
    assert!(parsed(&bare).is_array());
    let said: Vec<Value> = (1..=40)
        .flat_map(|n| [("user", n), ("assistant", n)])
        .map(|(role, n)| json!({"role": role, "content": format!("Order {n}0071 was sent from Oslo to berth {n}.")}))
        .chain([json!({"role": "user", "content": "And?"})])
        .collect();
    let anthropic =
        json!({"model": "claude-sonnet-4-5", "system": "Be brief.", "max_tokens": 900, "messages": said});
    let (out, report) = place.reported(&anthropic.to_string(), &["--force", "--keep-turns", "2"]);
    let out = parsed(&out);
    assert_eq!((&out["system"], &out["max_tokens"]), (&json!("Be brief."), &json!(900)));
    assert_eq!((&report["messages_before"], &report["covers"]), (&json!(81), &json!([1, 78])), "{report}");
    assert_eq!(report["messages_after"], out["messages"].as_array().unwrap().len());
    assert_eq!(report["window"], 200_000 - 900);
    let responses = json!({"model": "gpt-5-mini", "instructions": "Be brief.", "input": said});
    let (out, _) = place.reported(&responses.to_string(), &["--force", "--keep-messages", "4"]);
    let out = parsed(&out);
    assert_eq!((&out["instructions"], out["input"].as_array().unwrap().len()), (&json!("Be brief."), 1 + 4));
    // Without a flag the format is detected; a flag decides.
    let (code, _, errors) = place.condense(anthropic.to_string().as_bytes(), &["--format", "responses"]);
    assert_eq!((code, errors.as_str()), (Some(2), "epitome: input: is missing\n"));
}

#[test]
fn a_history_stored_by_the_provider_is_left_unchanged() {
    let place = TestFolder::new();
    let input = r#"{"input": "And now?", "previous_response_id": "resp_1"}"#;
    let (out, report) = place.reported(input, &["--force"]);
    assert_eq!((out.as_str(), &report["reason"]), (input, &json!("elsewhere")));
    assert!(report["notice"].as_str().unwrap().contains("previous_response_id"), "{report}");
}

#[test]
fn flags_and_settings_say_what_stays() {
    let place = TestFolder::new();
    let kept = |args: &[&str]| {
        let out = place.shorter(&request(30), &[args, &["--force"]].concat());
        parsed(&out)["messages"].as_array().unwrap().len()
    };
    assert_eq!(kept(&["--strategy", "recent", "--keep-messages", "5"]), 1 + 5);
    assert_eq!(kept(&["--strategy", "recent(turns(1))"]), 1 + 1);
    assert_eq!(kept(&["--strategy", "recent", "--keep-messages", "1", "--keep-first", "4"]), 1 + 4 + 1);
    assert_eq!(kept(&["--set", "condense.keep_last=5"]), 1 + 1 + 5);
    // A flag goes over a setting, whichever form that has.
    assert_eq!(kept(&["--set", "condense.keep_last=5", "--keep-messages", "9"]), 1 + 1 + 9);
    std::fs::write(place.path("epitome.toml"), "[condense]\nthreshold = 0.01\nkeep_last = 9\n").unwrap();
    let (_, report) = place.reported(&request(30), &[]);
    assert_eq!((&report["reason"], &report["messages_after"]), (&json!("due"), &json!(1 + 1 + 9)));
    let (_, report) = place.reported(&request(30), &["--trigger", "tokens(170000)"]);
    assert_eq!(report["reason"], "not_due");
}

#[test]
fn the_window_is_the_models_unless_a_flag_sets_it() {
    let place = TestFolder::new();
    let window = |input: &str, args: &[&str]| place.reported(input, args).1["window"].clone();
    assert_eq!(window(&request(3), &[]), json!(128_000 - 16_384));
    assert_eq!(window(&request(3), &["--window", "40000"]), json!(40_000 - 10_000));
    assert_eq!(
        window(&request(3), &["--set", "condense.window=9000"]),
        json!(128_000 - 16_384),
        "it is known"
    );
    let own = json!({"model": "my-own", "messages": chat(3), "max_tokens": 500}).to_string();
    assert_eq!(window(&own, &[]), Value::Null);
    assert_eq!(window(&own, &["--window", "8000"]), json!(7_500));
    assert_eq!(window(&own, &["--set", "condense.window=9000"]), json!(8_500));
    let (_, report) = place.reported(&own, &["--window", "500"]);
    assert_eq!(report["reason"], "over_budget_elsewhere", "{report}");
    place.refuses(
        own.as_bytes(),
        &["--trigger", "window(0.5)"],
        "condense.trigger: window(0.5): the model's window is unknown; set `window` for that model",
    );
}

#[test]
fn epitomes_flags_stay_for_the_next_pass_unless_stripped() {
    let place = TestFolder::new();
    let mut list = chat(30);
    list[5]["epitome"] = json!({"pinned": true});
    let input = Value::from(list.clone()).to_string();
    let out = place.shorter(&input, &["--force"]);
    assert_eq!(parsed(&out)[1], list[5]);
    let again = place.shorter(&out, &["--force", "--keep-messages", "2"]);
    assert_eq!(parsed(&again)[1], list[5], "a later pass still knows");
    let stripped = place.shorter(&input, &["--force", "--strip"]);
    assert!(!stripped.contains("epitome"), "{stripped}");
    assert_eq!(parsed(&stripped)[1]["content"], list[5]["content"]);
    let unchanged = place.shorter(&input, &["--strip"]);
    assert_eq!(unchanged, input.replace(",\"epitome\":{\"pinned\":true}", ""), "and nothing else");
}

#[test]
fn if_the_model_fails_the_list_is_unchanged_and_the_failure_reported() {
    let place = TestFolder::new();
    let settings = "[models.far]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\nwindow = 9000\n";
    std::fs::write(place.path("epitome.toml"), settings).unwrap();
    let args = ["--force", "--model", "far", "--report", "report.json"];
    let (code, out, errors) = place.condense(request(30).as_bytes(), &args);
    assert_eq!((code, out), (Some(0), request(30)));
    assert!(errors.starts_with("epitome: the model failed, and the list is unchanged: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let report = parsed(&std::fs::read_to_string(place.path("report.json")).unwrap());
    assert_eq!((&report["condensed"], &report["reason"]), (&json!(false), &json!("model_failed")));
    assert_eq!(report["tokens_before"], report["tokens_after"]);
    // Nothing was requested of the model, so no failure is reported.
    assert_eq!(place.shorter(&request(30), &["--model", "far"]), request(30));
    place.refuses(
        b"[]",
        &["--model", "near"],
        "--model: no model named `near`; define [models.near], or use one of: far, local, same",
    );
}

#[test]
fn bad_input_gives_one_line_on_standard_error_and_no_output() {
    let place = TestFolder::new();
    place.refuses(b"", &[], "standard input: is empty; expected a request or a list of messages, as JSON");
    place.refuses(
        b" \n",
        &["-"],
        "standard input: is empty; expected a request or a list of messages, as JSON",
    );
    place.refuses(b"[\xff]", &[], "standard input: is not UTF-8 text");
    place.refuses(
        &b"[".repeat(2_000),
        &["--set", "limits.body=1000"],
        "standard input: is larger than 1.0 kB (limits.body); raise the limit with --set limits.body=N",
    );
    for (input, says) in [
        ("nonsense", "JSON"),
        ("{\"messages\": [", "JSON"),
        ("\"Hello\"", "a request or a list of messages"),
        ("{}", "messages: is missing"),
        ("{\"messages\": 5}", "messages"),
        ("[{\"role\": \"user\"}]", "content"),
        ("[{\"role\": \"robot\", \"content\": \"secret words\"}]", "role"),
        ("[5]", "[0]"),
    ] {
        let (code, out, errors) = place.condense(input.as_bytes(), &["--force"]);
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(2), "", 1), "{input}: {errors}");
        assert!(errors.starts_with("epitome: ") && errors.contains(says), "{input}: {errors}");
        assert!(!errors.contains("secret"), "{errors}");
    }
    let help = "; `epitome condense --help` lists the options";
    for (args, line) in [
        (
            ["--keep", "5"].as_slice(),
            "unknown argument \"--keep\"; similar names: --keep-first, --keep-turns, --keep-tokens"
                .to_owned(),
        ),
        (
            &["--window", "0"],
            format!("invalid value '0' for '--window <N>': expected a whole number from 1{help}"),
        ),
        (
            &["--format", "xml"],
            format!(
                "invalid value 'xml' for '--format <FORMAT>': no such format; use one of: openai, responses, anthropic{help}"
            ),
        ),
        (&["--trigger", "sometimes"], String::new()),
        (
            &["--strategy", "recent(5)"],
            "--strategy: recent: 5 is not allowed; expected a keep such as messages(6)".to_owned(),
        ),
        (&["--keep-messages", "2", "--keep-turns", "2"], String::new()),
        (&["--explain", "--report", "r.json"], String::new()),
        (
            &["--set", "condense.wait=maybe"],
            "--set condense.wait: \"maybe\" is not allowed; expected true or false".to_owned(),
        ),
    ] {
        let (code, out, errors) = place.condense(b"[]", args);
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(2), "", 1), "{args:?}: {errors}");
        assert!(line.is_empty() || errors == format!("epitome: {line}\n"), "{args:?}: {errors}");
    }
}

#[test]
fn an_unreadable_input_or_unwritable_report_is_an_error() {
    let place = TestFolder::new();
    std::fs::write(place.path("in.json"), request(30)).unwrap();
    assert_eq!(place.shorter("", &["in.json"]), request(30));
    let (code, out, errors) = place.condense(b"", &["none.json"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(
        errors.starts_with("epitome: none.json cannot be read: ") && errors.lines().count() == 1,
        "{errors}"
    );
    let (code, out, errors) = place.condense(b"[]", &["--report", "no/such/folder.json"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(errors.starts_with("epitome: --report: no/such/folder.json cannot be written: "), "{errors}");
    let (code, out, errors) = place.condense(b"[]", &["--report", "-"]);
    assert_eq!((code, out.as_str(), &parsed(&errors)["reason"]), (Some(0), "[]", &json!("not_due")));
    std::fs::write(place.path("report.json"), "old and longer than what is written next".repeat(99)).unwrap();
    assert_eq!(place.reported("[]", &[]).1["messages_before"], 0);
    let left: Vec<_> =
        place.folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing half done is left: {left:?}");
}

#[cfg(unix)]
#[test]
fn a_report_to_a_pipe_or_device_is_written_in_place() {
    let place = TestFolder::new();
    assert_eq!(place.shorter("[]", &["--report", "/dev/null"]), "[]");
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn no_home_and_no_database_are_needed() {
    let place = TestFolder::new();
    let mut run = place.epitome(&["condense", "--force", "in.json"]);
    std::fs::write(place.path("in.json"), request(30)).unwrap();
    let (code, out, errors) = result_of(run.env_remove("HOME").output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.len() < request(30).len());
}

#[test]
fn explain_shows_what_would_be_removed_and_changes_nothing() {
    let place = TestFolder::new();
    let out = place.shorter(&request(30), &["--explain"]);
    assert!(out.starts_with("openai for gpt-4o: 122 messages, "), "{out}");
    assert!(
        out.contains("trigger   any(tokens(170000), window(0.75))") && out.contains("unchanged: not due"),
        "{out}"
    );
    let out = place.shorter(&request(30), &["--explain", "--force", "--keep-messages", "2"]);
    for line in [
        "Removed: 119 messages",
        "Stays: 3 messages",
        "and 111 more",
        "You are a harbour master.",
        "And the last one?",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
    assert!(!out.contains('\u{1b}'), "plain when piped");
    let printed =
        parsed(&place.shorter(&request(30), &["--explain", "--force", "--keep-messages", "2", "--json"]));
    assert_eq!((&printed["condenses"], &printed["format"]), (&json!(true), &json!("openai")));
    assert_eq!((printed["explanation"].is_string(), &printed["explanation"]), (true, &printed["told"]));
    let messages = printed["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["why"]), (122, &json!("system")));
    assert_eq!(messages.iter().filter(|message| message["stays"] == false).count(), 119);
    assert_eq!((&messages[1]["place"], &messages[1]["why"]), (&json!(2), &json!("summarized")));
    // What it says is what is then done.
    let (done, report) = place.reported(&request(30), &["--force", "--keep-messages", "2"]);
    assert_eq!(parsed(&done)["messages"].as_array().unwrap().len(), 1 + 3);
    assert!(
        report["tokens_after"].as_u64() <= printed["tokens_after"].as_u64(),
        "{report} {}",
        printed["tokens_after"]
    );
    // The system prompt of a request of Anthropic's has no place in its list.
    let input = json!({"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let printed = parsed(&place.shorter(&input, &["--explain", "--json"]));
    assert_eq!(
        (&printed["messages"][0]["place"], &printed["messages"][1]["place"]),
        (&Value::Null, &json!(1))
    );
}

#[cfg(unix)]
#[test]
fn a_terminal_shows_what_was_done_and_what_to_pipe_in() {
    let place = TestFolder::new();
    std::fs::write(place.path("in.json"), request(30)).unwrap();
    let shown = place.on_terminal(80, &["condense", "--force", "in.json"]);
    assert!(shown.contains("Condensed 115 messages into a summary: "), "{shown}");
    let (code, printed, _) = place.at_terminal(80, &["condense"]);
    let line = "epitome: no input; give a FILE, or pipe a request in: `epitome condense < request.json`; \
                `epitome condense --help` lists the options\r\n";
    assert_eq!((code, printed.as_str()), (Some(2), line));
    let shown = place.on_terminal(80, &["condense", "--explain", "--force", "in.json"]);
    assert!(shown.contains("\u{1b}[1m") && shown.contains("Removed"), "{shown}");
    let plain = shown.split('\u{1b}').map(|piece| piece.split_once('m').map_or(piece, |(_, rest)| rest));
    let plain: String = plain.collect();
    assert!(plain.lines().skip(8).all(|line| line.chars().count() <= 81), "{plain}");
}
