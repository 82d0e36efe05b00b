//! `epitome replay`: what it shows, what it writes, and what it says of recordings it cannot use.

use serde_json::{Value, json};

use crate::bin::{RunResult, TestFolder};

/// An agent's work: each step looks at a berth that was named some steps before.
pub(crate) fn work(id: &str, steps: usize) -> Value {
    let mut messages = vec![
        json!({ "role": "system", "content": "You are a harbour master." }),
        json!({ "role": "user", "content": format!("Look at each berth of {id}; begin with berth_0_{id}.") }),
    ];
    for step in 0..steps {
        let arguments =
            json!({ "berth": format!("berth_{step}_{id}"), "quay": format!("quay_{step}_{id}") }).to_string();
        let call = json!({ "id": format!("c{step}"), "type": "function",
            "function": { "name": "look", "arguments": arguments } });
        messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
        let seen = format!("Boat {step}71 lies there, paid until 2026-11-{:02}. ", step % 28 + 1).repeat(12);
        let next = format!("Next are berth_{}_{id} and quay_{}_{id}.", step + 2, step + 15);
        messages.push(json!({ "role": "tool", "tool_call_id": format!("c{step}"), "content": seen + &next }));
    }
    json!({ "id": id, "pinned": 2, "messages": messages })
}

/// A talk with questions about it.
fn talk() -> Value {
    let line = |n: usize| {
        let (role, name) = if n.is_multiple_of(2) { ("user", "Ann") } else { ("assistant", "Bo") };
        let said =
            format!("Ferry {n} sails at {}:15 from quay {}, with {} boxes of oranges.", n % 24, n % 7, n * 3);
        json!({ "role": role, "name": name, "content": said })
    };
    let messages: Vec<Value> = (0..200).map(line).collect();
    let qa = json!([
        { "question": "When does ferry 3 sail?", "answer": "3:15", "evidence": [3] },
        { "question": "How many boxes are on ferry 199?", "answer": 597, "evidence": [199] },
    ]);
    json!({ "id": "talk", "messages": messages, "qa": qa })
}

fn place() -> TestFolder {
    let place = TestFolder::new();
    let lines = ["Oslo", "Moss", "Bergen"].map(|id| format!("{}\n", work(id, 40)));
    std::fs::write(place.path("work.jsonl"), lines.concat()).unwrap();
    std::fs::write(place.path("talk.jsonl"), format!("{}\n", talk())).unwrap();
    place
}

/// The same without a database, so that none could be made.
fn replay(place: &TestFolder, args: &[&str]) -> RunResult {
    place.run(&[&["replay"], args].concat())
}

#[track_caller]
fn good(place: &TestFolder, args: &[&str]) -> String {
    let (code, out, errors) = replay(place, args);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{args:?}: {out}");
    out
}

#[track_caller]
fn results(place: &TestFolder, args: &[&str]) -> Value {
    serde_json::from_str(&good(place, &[args, &["--json"]].concat())).unwrap()
}

#[track_caller]
fn refused(place: &TestFolder, args: &[&str], code: i32, line: &str) {
    assert_eq!(replay(place, args), (Some(code), String::new(), format!("epitome: {line}\n")), "{args:?}");
}

fn there(place: &TestFolder) -> Vec<String> {
    let entries = place.folder.path().read_dir().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn lines(place: &TestFolder, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_tables_show_what_survives_and_what_it_costs() {
    let place = place();
    let out = good(&place, &["work.jsonl", "talk.jsonl", "--budget", "1000,2000"]);
    for line in ["work: 3 conversations, 246 messages", "talk: 1 conversation, 200 messages"] {
        assert!(out.lines().any(|printed| printed == line), "{line}: {out}");
    }
    let row =
        |begins: &str| out.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{out}"));
    assert!(row("what survives").contains("names needed"), "{out}");
    assert!(row("what it costs").contains("cached"), "{out}");
    for policy in ["slots", "steady", "recent", "economic", "whole"] {
        row(policy);
    }
    assert!(out.contains("answers") && out.contains("evidence"), "{out}");
    assert_eq!(there(&place), ["talk.jsonl", "work.jsonl"], "nothing is made beside what was asked for");
}

#[test]
fn json_contains_every_number() {
    let place = place();
    let out = results(&place, &["work.jsonl", "talk.jsonl", "--policy", "slots", "--budget", "1000"]);
    assert_eq!((&out["policies"], &out["budgets"]), (&json!(["slots", "whole"]), &json!([1000])));
    assert_eq!(out["faults"], 0);
    let [work, talk] = out["sets"].as_array().unwrap().as_slice() else { panic!("{out}") };
    let [slots, whole] = work["results"].as_array().unwrap().as_slice() else { panic!("{work}") };
    let number =
        |of: &Value, at: &str| of.pointer(at).and_then(Value::as_f64).unwrap_or_else(|| panic!("{at}: {of}"));
    assert!(number(slots, "/fer/n") > 10.0 && number(slots, "/fer/error") >= 0.0);
    assert!(number(slots, "/fer_far/mean") <= 1.0 && slots["ar"].is_null());
    assert!(number(slots, "/cost/plain_of_whole") < 0.7 && number(slots, "/cost/cuts") > 0.0);
    assert!(number(slots, "/tokens") <= 1000.0);
    assert_eq!((number(whole, "/fer/mean"), number(whole, "/cost/plain_of_whole")), (1.0, 1.0));
    assert_eq!((number(whole, "/cost/calls"), whole["budget"].is_null()), (120.0, true));
    let first = &talk["results"][0];
    assert_eq!((number(first, "/ar/n"), number(first, "/er/n")), (2.0, 2.0));
    let alone = results(&place, &["work.jsonl", "--policy", "slots", "--no-cost"]);
    assert_eq!(
        (&alone["policies"], &alone["sets"][0]["results"][0]["cost"]),
        (&json!(["slots"]), &Value::Null)
    );
}

#[test]
fn numbers_are_the_same_for_any_number_of_jobs() {
    let place = place();
    let args = |jobs| ["work.jsonl", "talk.jsonl", "--budget", "1000", "--jobs", jobs];
    assert_eq!(results(&place, &args("1")), results(&place, &args("4")));
}

#[test]
fn the_page_needs_no_other_file_and_begins_with_the_answer() {
    let place = place();
    let printed =
        replay(&place, &["work.jsonl", "talk.jsonl", "--budget", "1000,2000", "--html", "page.html"]);
    assert_eq!((printed.0, printed.2.as_str()), (Some(0), "the page is in page.html\n"));
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    for absent in ["http:", "https:", "<script", "@import", "url(", "src="] {
        assert!(!page.contains(absent), "{absent}");
    }
    let answer = page.find("you lose <b>").unwrap();
    assert!(answer < page.find("<table>").unwrap() && answer < page.find("<svg").unwrap());
    assert!(page.contains("you save <b>"), "{page}");
    for chart in [
        "Names a later call needs",
        "how long ago they were last seen",
        "Cost of an agent's calls",
        "can still be answered",
        "<th>cases</th>",
        "Every list was valid and inside its budget.",
    ] {
        assert!(page.contains(chart), "{chart}");
    }
    assert_eq!(there(&place), ["page.html", "talk.jsonl", "work.jsonl"]);
}

#[test]
fn charts_are_files_of_their_own() {
    let place = place();
    good(&place, &["work.jsonl", "--budget", "1000", "--charts", "charts"]);
    for name in ["work-names.svg", "work-distance.svg", "work-cost.svg"] {
        let chart = std::fs::read_to_string(place.path("charts").join(name)).unwrap();
        assert!(chart.starts_with("<svg xmlns=") && chart.ends_with("</svg>\n"), "{name}");
    }
}

#[test]
fn markup_in_names_is_escaped_in_the_page() {
    let place = place();
    let odd = "<b>&\".jsonl";
    std::fs::rename(place.path("work.jsonl"), place.path(odd)).unwrap();
    let policy = "slots name=<i>&'\"";
    let printed = replay(&place, &[odd, "--policy", policy, "--html", "page.html", "--charts", "."]);
    assert_eq!(printed.0, Some(0), "{}", printed.2);
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(!page.contains("<i>") && !page.contains("<b>&\"") && page.contains("&lt;i&gt;&amp;"), "{page}");
    assert!(page.contains("<h2>&lt;b&gt;&amp;&quot;</h2>"), "{page}");
    assert!(there(&place).contains(&"-b----names.svg".to_owned()), "{:?}", there(&place));
}

#[test]
fn contexts_are_written_for_every_place_and_budget() {
    let place = place();
    good(&place, &["work.jsonl", "talk.jsonl", "--no-cost", "--contexts", "contexts.jsonl"]);
    let contexts = lines(&place, "contexts.jsonl");
    assert_eq!(contexts.iter().filter(|context| context["id"] == "talk").count(), 4);
    assert_eq!(contexts.iter().filter(|context| context["id"] == "Oslo").count(), 6 * 4);
    for context in &contexts {
        assert!(context["tokens"].as_u64().unwrap() <= context["budget"].as_u64().unwrap(), "{context}");
        assert!(context["at"].is_u64() && context["summary"].is_string() && context["messages"].is_array());
        let words = context.to_string();
        assert!(!words.contains("You are a harbour master"), "the head is not counted, and not there");
    }
    assert!(contexts.iter().any(|context| context["summary"] != ""));
}

#[test]
fn the_written_requests_have_the_tokens_of_the_cost_table() {
    let place = place();
    let out = results(
        &place,
        &["work.jsonl", "--policy", "steady", "--budget", "1000", "--requests", "requests.jsonl"],
    );
    let cost = &out["sets"][0]["results"][0]["cost"];
    let requests = lines(&place, "requests.jsonl");
    assert_eq!(cost["calls"], json!(requests.len()));
    let size = |request: &Value| -> u64 {
        request["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["tokens"].as_u64().unwrap())
            .sum()
    };
    assert_eq!(cost["plain"], json!(requests.iter().map(size).sum::<u64>()));
    assert_eq!(cost["peak"], json!(requests.iter().map(size).max().unwrap()));
    assert_eq!(requests.iter().filter(|request| request["run"] == "Moss@1000").count(), 40);
    assert_eq!(requests[0]["messages"][0]["role"], "system");
}

#[test]
fn every_format_of_recording_is_played() {
    let place = TestFolder::new();
    let anthropic = json!({ "id": "a", "system": "Be brief.", "pinned": 1, "messages": [
        { "role": "user", "content": "Find both." },
        { "role": "assistant", "content": [
            { "type": "tool_use", "id": "t1", "name": "find", "input": { "what": "one" } },
            { "type": "tool_use", "id": "t2", "name": "find", "input": { "what": "two" } } ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": "here" },
            { "type": "tool_result", "tool_use_id": "t2", "content": "there" } ] },
        { "role": "assistant", "content": "Found." } ] });
    let responses = json!({ "id": "r", "instructions": "Be brief.", "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Find it." }] },
        { "type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c1", "output": "one" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Found." }] } ] });
    let lone = "{\"role\":\"user\",\"content\":\"Hello\"}\n{\"role\":\"assistant\",\"content\":\"Hello!\"}\n";
    std::fs::write(place.path("anthropic.jsonl"), format!("{anthropic}\n")).unwrap();
    std::fs::write(place.path("responses.json"), format!("{responses:#}\n")).unwrap();
    std::fs::write(place.path("lone.jsonl"), lone).unwrap();
    std::fs::write(place.path("one.jsonl"), "{\"role\":\"user\",\"content\":\"Hello\"}\n").unwrap();
    place.good(&["import", "anthropic.jsonl"]);
    let exported = place.good(&["export", "a"]);
    std::fs::create_dir(place.path("more")).unwrap();
    std::fs::write(place.path("more/exported.jsonl"), exported).unwrap();
    let files = ["anthropic.jsonl", "responses.json", "lone.jsonl", "one.jsonl", "more", "--policy", "slots"];
    let out = results(&place, &files);
    let sets = out["sets"].as_array().unwrap().iter();
    let counts: Vec<Value> = sets.map(|set| json!([set["name"], set["messages"]])).collect();
    let counted = json!([["anthropic", 5], ["responses", 5], ["lone", 2], ["one", 1], ["exported", 5]]);
    assert_eq!(json!(counts), counted);
}

#[test]
fn a_policy_can_change_every_setting() {
    let place = place();
    let policies = [
        "whole name=everything",
        "slots slot.short.max_tokens=300 slot.short.trigger=messages(10) name=small",
        "slots slot.long.max_chars=900",
        "slots fill=false steady=true",
        "inline trigger=tokens(3000) keep=tokens(500) window=50000",
        "inline trigger=any(tokens(3000), turns(9))",
        "mask",
        "recent",
    ];
    let mut args = vec!["work.jsonl", "--budget", "1000"];
    policies.iter().for_each(|policy| args.extend(["--policy", *policy]));
    let out = results(&place, &args);
    let names = json!([
        "everything",
        "small",
        "slots slot.long.max_chars=900",
        "slots fill=false steady=true",
        "inline trigger=tokens(3000) keep=tokens(500)",
        "inline trigger=any(tokens(3000), turns(9))",
        "mask",
        "recent",
    ]);
    assert_eq!(out["policies"], names);
    let cost = |nth: usize| out["sets"][0]["results"][nth]["cost"]["plain_of_whole"].as_f64().unwrap();
    assert!(cost(0) == 1.0 && cost(4) < 0.9 && cost(7) < 0.9, "{out}");
}

#[test]
fn a_wrong_policy_is_refused_with_its_key_and_what_is_allowed() {
    let place = place();
    let wrong = |policy: &str, printed: &str| {
        let line = format!("--policy {policy:?}: {printed}");
        refused(&place, &["work.jsonl", "--policy", policy], 2, &line);
    };
    wrong("slot", "no policy begins with \"slot\"; did you mean slots?");
    wrong("inline triger=tokens(500)", "triger: no such setting; did you mean trigger?");
    wrong("slots fil=true", "fil: no such setting; did you mean fill?");
    wrong("whole cofig=x", "cofig: no such setting; did you mean config?");
    wrong(
        "slots zzz=1",
        "zzz: no such setting; allowed are fill, fit, steady, name, config, and full names such as context.max_tokens",
    );
    wrong("", "no policy begins with \"\"; there are whole, recent, slots, steady, inline, economic, mask");
    wrong("slots nonsense", "\"nonsense\" is not KEY=VALUE");
    wrong("slots fill=maybe", "fill: \"maybe\"; expected true or false");
    wrong("steady fill=true", "fill and steady exclude each other");
    wrong("inline window=0", "window: \"0\"; expected a whole number from 1");
    wrong("slots slot.x=3", "slot.x: expected slot.NAME.KEY, for example slot.short.max_tokens=500");
    wrong("slots slot.shrt.keep=3", "slot.shrt.keep: there is no slot \"shrt\"; there are short, long");
    wrong(
        "slots slot.long.max_tokens=few",
        "slot.long.max_tokens: \"few\" is not allowed; expected a whole number from 16",
    );
    wrong(
        "slots context.max_tokns=3",
        "context.max_tokns: no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens",
    );
    let (code, _, errors) = replay(&place, &["work.jsonl", "--policy", "inline trigger=sometimes"]);
    assert!(
        code == Some(2)
            && errors.contains(": condense.trigger: ")
            && errors.contains("expected one of messages, turns"),
        "{errors}"
    );
    let (code, _, errors) = replay(&place, &["work.jsonl", "--policy", "slots", "--policy", "slots"]);
    assert!(
        code == Some(2) && errors.contains("\"slots\" is used twice; set name=… on one of them"),
        "{errors}"
    );
    let (code, _, errors) = replay(&place, &["work.jsonl", "--policy", "mask", "--contexts", "c.jsonl"]);
    assert!(code == Some(2) && errors.contains("--contexts: no policy makes contexts"), "{errors}");
}

#[test]
fn an_unusable_recording_is_reported_with_its_position() {
    let place = TestFolder::new();
    let said = json!([{ "role": "user", "content": "Hello" }, { "role": "assistant", "content": "Hello!" }]);
    let with = |key: &str, value: Value| {
        let mut conversation = json!({ "id": "a", "messages": said });
        conversation[key] = value;
        format!("{conversation}\n")
    };
    let rule = "expected a question, its answer, and as evidence the positions of messages, counted from 0";
    let evidence = |places: Value| json!([{ "question": "Who?", "answer": "Ann", "evidence": places }]);
    for (text, printed) in [
        (String::new(), "there are no messages to replay"),
        (with("messages", json!([])), "there are no messages to replay"),
        ("{\"id\": ".to_owned(), "a.jsonl:1: is not JSON: EOF while parsing a value at column 6"),
        (with("qa", json!("none")), "a.jsonl:1: qa: expected a list of {question, answer, evidence}"),
        (with("qa", json!([{ "question": "Who?" }])), &format!("a.jsonl:1: qa[0]: {rule}")),
        (with("qa", evidence(json!(["secret"]))), &format!("a.jsonl:1: qa[0]: {rule}")),
        (
            with("qa", evidence(json!([0, 2]))),
            "a.jsonl:1: qa[0].evidence: there is no message 2; allowed are 0 to 1",
        ),
        (with("pinned", json!(3)), "a.jsonl:1: pinned: 3 messages, but the conversation has 2"),
        (with("pinned", json!(-1)), "a.jsonl:1: pinned: expected a whole number from 0"),
    ] {
        std::fs::write(place.path("a.jsonl"), text).unwrap();
        refused(&place, &["a.jsonl", "--html", "page.html", "--requests", "requests.jsonl"], 2, printed);
        assert_eq!(there(&place), ["a.jsonl"], "{printed}");
    }
    std::fs::create_dir(place.path("empty")).unwrap();
    refused(&place, &["empty"], 2, "empty: no .jsonl or .json file in it");
    let (code, _, errors) = replay(&place, &["nowhere.jsonl"]);
    assert!(code == Some(2) && errors.starts_with("epitome: nowhere.jsonl cannot be read: "), "{errors}");
}

#[test]
fn two_conversations_with_one_id_are_distinguished_or_refused() {
    let place = TestFolder::new();
    let twice = format!("{0}\n{0}\n", work("Oslo", 3));
    std::fs::write(place.path("twice.jsonl"), &twice).unwrap();
    good(&place, &["twice.jsonl", "--policy", "slots"]);
    let printed = "twice.jsonl: id \"Oslo\" occurs twice; --contexts and --requests identify conversations by their ids, so each conversation needs its own id";
    refused(&place, &["twice.jsonl", "--contexts", "contexts.jsonl"], 2, printed);
    std::fs::create_dir(place.path("more")).unwrap();
    std::fs::write(place.path("more/twice.jsonl"), format!("{}\n", work("Moss", 9))).unwrap();
    let out = results(&place, &["twice.jsonl", "more/twice.jsonl", "--policy", "slots"]);
    assert_eq!(
        (&out["sets"][0]["name"], &out["sets"][1]["name"]),
        (&json!("twice.jsonl"), &json!("more/twice.jsonl"))
    );
}

#[test]
fn an_unwritable_output_is_reported_before_anything_is_played() {
    let place = place();
    for flag in ["--html", "--contexts", "--requests"] {
        let (code, out, errors) = replay(&place, &["work.jsonl", flag, "nowhere/out"]);
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
        assert!(errors.starts_with("epitome: nowhere/out cannot be written: "), "{errors}");
    }
    let (code, _, errors) = replay(&place, &["work.jsonl", "--charts", "work.jsonl"]);
    assert!(code == Some(1) && errors.contains("work.jsonl cannot be written: "), "{errors}");
    let (code, _, errors) = replay(&place, &["work.jsonl", "--html", "./work.jsonl"]);
    assert!(
        code == Some(2) && errors.contains("--html: ./work.jsonl is a recording; choose another file"),
        "{errors}"
    );
    let (code, _, errors) = replay(&place, &["work.jsonl", "--html", "a", "--requests", "a"]);
    assert!(
        code == Some(2) && errors.contains("--requests: a is --html's file as well; choose another file"),
        "{errors}"
    );
    // Nothing would be in it.
    let (code, _, errors) = replay(&place, &["work.jsonl", "--no-cost", "--requests", "r"]);
    assert!(code == Some(2) && errors.contains("cannot be used with"), "{errors}");
    assert_eq!(there(&place), ["talk.jsonl", "work.jsonl"]);
}

#[cfg(unix)]
#[test]
fn tables_fit_a_terminal() {
    let place = place();
    let long = "inline trigger=any(tokens(3000), turns(9)) keep=turns(2)";
    for columns in [80, 120] {
        let out =
            place.on_terminal(columns, &["replay", "work.jsonl", "--policy", "slots", "--policy", long]);
        let table = out.split("work: ").nth(1).unwrap_or_else(|| panic!("{out}"));
        for line in table.lines().map(|line| line.trim_end_matches('\r')) {
            let plain = line.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "").replace("\u{1b}[22m", "");
            assert!(plain.chars().count() <= usize::from(columns), "{columns}: {plain:?}");
        }
    }
}

/// A named pipe without a writer blocks the command until it is interrupted.
#[cfg(unix)]
#[test]
fn an_interrupted_replay_leaves_no_half_written_file() {
    use std::io::Write;
    let place = place();
    assert!(std::process::Command::new("mkfifo").arg(place.path("held.jsonl")).status().unwrap().success());
    let mut command = place.epitome(&["replay", "work.jsonl", "held.jsonl", "--requests", "requests.jsonl"]);
    let mut child =
        command.args(["--html", "page.html"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    while !there(&place).iter().any(|name| name.starts_with("requests.jsonl.")) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    epitome_testkit::signal::send("INT", child.id());
    // Whoever waits for the pipe is let go.
    let mut pipe = std::fs::File::options().read(true).write(true).open(place.path("held.jsonl")).unwrap();
    let _ = pipe.write_all(b"\n");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(there(&place), ["held.jsonl", "talk.jsonl", "work.jsonl"]);
}
