//! `import` and `export`: what goes in comes out, and nothing is half done.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bin::{TestFolder, result_of};

/// The three foreign wires and ours, one message a line, with what is odd in each.
fn recordings() -> [(&'static str, Vec<Value>); 4] {
    let openai = vec![
        json!({"role": "system", "content": "You are brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "Where is order 7071?"},
            {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}}], "name": "ann"}),
        json!({"role": "assistant", "content": null, "usage": {"total_tokens": 12}, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{\"order\": 7071}"}},
            {"id": "c2", "type": "function", "function": {"name": "find", "arguments": "not json"}}]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "packed in Oslo <|endoftext|>\u{0}"}),
        json!({"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": ""}]}),
        json!({"role": "assistant", "content": "It is packed.", "refusal": null, "x_unknown": [1.5, {"b": 1, "a": 2}]}),
        json!({"role": "user", "content": "Danke! 谢谢 👍🏽", "epitome": {"pinned": true}}),
    ];
    let responses = vec![
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Find it."}]}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}", "status": "completed"}),
        json!({"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "find", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c1", "output": "one"}),
        json!({"type": "function_call_output", "call_id": "c2", "output": "two"}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Found.", "annotations": [], "logprobs": []}]}),
    ];
    let anthropic = vec![
        json!({"role": "user", "content": "Find it."}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "text", "text": "Looking.", "cache_control": {"type": "ephemeral"}},
            {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"z": 1, "a": [2.5]}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": [{"type": "text", "text": "no"}]},
            {"type": "text", "text": "Try again."}]}),
        json!({"role": "assistant", "content": "Done."}),
    ];
    let ours = vec![
        json!({"role": "user", "author": "ann", "parts": [{"type": "text", "text": "Hello."}], "pinned": true,
            "at": 1_772_442_000_000u64, "metadata": {"z": 1, "a": 2}}),
        json!({"role": "assistant", "parts": [{"type": "text", "text": "Hello!"}], "at": 1_772_442_001_000u64}),
    ];
    [("openai", openai), ("responses", responses), ("anthropic", anthropic), ("epitome", ours)]
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// So many messages, each on a line.
fn many(count: usize) -> String {
    (1..=count)
        .map(|n| {
            format!(
                "{{\"role\":\"{}\",\"content\":\"Message {n} about order {n}0071.\"}}\n",
                if n % 2 == 1 { "user" } else { "assistant" }
            )
        })
        .collect()
}

#[test]
fn what_is_imported_is_exported_as_it_came() {
    for (format, wire) in recordings() {
        let place = TestFolder::new();
        std::fs::write(place.path("talk.jsonl"), lines(&wire)).unwrap();
        place.good(&["import", "talk.jsonl"]);
        let out = place.good(&["export", "talk", "--format", format]);
        let out: Vec<&str> = out.lines().collect();
        if format == "epitome" {
            // A header, and the place each message got.
            assert_eq!(serde_json::from_str::<Value>(out[0]).unwrap()["epitome"]["session"], "talk");
            for (line, came) in out[1..].iter().zip(&wire) {
                let mut line: Value = serde_json::from_str(line).unwrap();
                line.as_object_mut().unwrap().remove("seq");
                assert_eq!(&line, came);
            }
            continue;
        }
        let came: Vec<String> = wire.iter().map(Value::to_string).collect();
        assert_eq!(out, came, "{format}: every byte");
    }
}

#[test]
fn numbers_come_back_digit_by_digit() {
    let place = TestFolder::new();
    let line = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"b":[2.50,1e2],"a":123456789012345678901234567890}}],"x":1.10}"#;
    std::fs::write(place.path("exact.jsonl"), format!("{line}\n")).unwrap();
    place.good(&["import", "exact.jsonl"]);
    assert_eq!(place.good(&["export", "exact", "--format", "anthropic"]), format!("{line}\n"));
}

#[test]
fn lists_requests_and_conversations_come_back_as_they_were() {
    for (format, wire) in recordings() {
        let (list, words) =
            if format == "responses" { ("input", "instructions") } else { ("messages", "system") };
        let place = TestFolder::new();
        std::fs::write(place.path("list.json"), format!("{:#}", json!(wire))).unwrap();
        std::fs::write(
            place.path("request.json"),
            format!("{:#}", json!({"model": "m", words: "Be brief.", list: wire})),
        )
        .unwrap();
        let conversations = [json!({"id": "one", list: wire}), json!({"id": 2, list: wire})];
        std::fs::write(place.path("many.jsonl"), lines(&conversations)).unwrap();
        place.good(&["import", "list.json", "many.jsonl", "--format", format]);
        let plain = |name: &str| -> Vec<Value> {
            let out = place.good(&["export", name, "--format", format]);
            let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .filter(|line| line.get("epitome").is_none_or(|header| header.get("session").is_none()))
                .collect()
        };
        let first = plain("list");
        assert!(
            first == plain("one") && first == plain("2") && first.len() == wire.len(),
            "{format}: {first:?}"
        );
        if format != "epitome" {
            assert_eq!(first, wire, "{format}");
            place.good(&["import", "request.json", "--format", format]);
            let with_system = plain("request");
            assert!(with_system.len() > wire.len() || format == "openai", "{format}: {with_system:?}");
        }
    }
}

#[test]
fn everything_exported_can_be_imported_elsewhere() {
    let place = TestFolder::with_sessions();
    for format in ["epitome", "openai", "responses", "anthropic"] {
        let file = format!("{format}.jsonl");
        place.good(&["export", "--all", "--format", format, "-o", &file]);
        let db = format!("{format}.db");
        let (code, _, errors) = result_of(place.epitome(&["import", &file, "--db", &db]).output().unwrap());
        assert_eq!(code, Some(0), "{errors}");
        let (_, out, _) =
            result_of(place.epitome(&["export", "ann", "--format", "openai", "--db", &db]).output().unwrap());
        assert_eq!(out, place.good(&["export", "ann", "--format", "openai"]), "{format}");
    }
    // What is there is not replaced.
    let (code, _, errors) = place.on_db(&["export", "--all", "-o", "openai.jsonl"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with("epitome: openai.jsonl: the file exists already "), "{errors}");
}

#[test]
fn a_context_in_the_imported_format_has_the_messages_verbatim() {
    let place = TestFolder::new();
    let (_, wire) = &recordings()[0];
    std::fs::write(place.path("talk.jsonl"), lines(wire)).unwrap();
    place.good(&["import", "talk.jsonl"]);
    let out = place.good(&["context", "talk", "--no-summary", "--format", "openai"]);
    let body: Value = serde_json::from_str(&out).unwrap();
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), wire.len());
    for (sent, came) in messages.iter().zip(wire) {
        assert_eq!(sent["role"], came["role"]);
        if came["content"].is_string() {
            assert_eq!(sent["content"], came["content"]);
        }
        for ours in ["epitome", "usage", "x_unknown"] {
            assert!(sent.get(ours).is_none(), "no provider knows {ours}: {sent}");
        }
    }
}

#[test]
fn wrong_lines_are_named_and_nothing_is_imported() {
    let place = TestFolder::new();
    let good = many(3_000);
    let wrong = format!(
        "{good}{{\"role\": \"user\", \"content\": \"half\nnull\n{{\"role\": \"nobody\", \"content\": \"x\"}}\n{{\"role\":\"user\",\"content\":\"end\"}}\n"
    );
    std::fs::write(place.path("wrong.jsonl"), &wrong).unwrap();
    std::fs::write(place.path("right.jsonl"), &good).unwrap();
    let (code, out, errors) = place.on_db(&["import", "right.jsonl", "wrong.jsonl"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{errors}");
    let printed: Vec<&str> = errors.lines().collect();
    assert_eq!(printed.len(), 4, "{errors}");
    assert!(printed[0].starts_with("wrong.jsonl:3001: is not JSON: "), "{errors}");
    assert!(printed[1].starts_with("wrong.jsonl:3002: "), "{errors}");
    assert!(printed[2].starts_with("wrong.jsonl:3003: ") && printed[2].contains("nobody"), "{errors}");
    assert!(printed[3].contains("nothing was imported") && printed[3].contains("--keep-going"), "{errors}");
    let (_, list, _) = place.on_db(&["list"]);
    assert_eq!(list, "", "not the right file either");
    // Asked to, it leaves them out.
    let report = place.json(&["import", "wrong.jsonl", "--keep-going"]);
    assert_eq!((&report["added"], &report["left_out"]), (&json!(3_001), &json!(3)));
}

#[test]
fn too_large_messages_and_invalid_names_are_reported() {
    let place = TestFolder::new();
    let large = json!({"role": "user", "content": "x".repeat(2 << 20)});
    std::fs::write(place.path("large.jsonl"), format!("{}\n{large}\n", many(1).trim())).unwrap();
    let (code, _, errors) = place.on_db(&["import", "large.jsonl"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("large.jsonl:2: message: 2097152 bytes; at most 1048576 are allowed"),
        "{errors}"
    );
    let twice = [
        json!({"id": "a", "messages": []}),
        json!({"id": "a", "messages": []}),
        json!({"id": "b\nc", "messages": []}),
    ];
    std::fs::write(place.path("twice.jsonl"), lines(&twice)).unwrap();
    let (code, _, errors) = place.on_db(&["import", "twice.jsonl"]);
    assert_eq!(code, Some(2));
    let line = "twice.jsonl:2: the session `a` occurs a second time, after twice.jsonl:1; ";
    assert!(errors.contains(line), "{errors}");
    assert!(errors.contains("twice.jsonl:3: a session's name has"), "{errors}");
}

#[test]
fn importing_again_adds_only_what_the_file_has_grown_by() {
    let place = TestFolder::new();
    std::fs::write(place.path("talk.jsonl"), many(2_500)).unwrap();
    let first = place.json(&["import", "talk.jsonl"]);
    assert_eq!((&first["added"], &first["known"]), (&json!(2_500), &json!(0)));
    let again = place.json(&["import", "talk.jsonl"]);
    assert_eq!((&again["added"], &again["known"]), (&json!(0), &json!(2_500)));
    std::fs::write(place.path("talk.jsonl"), many(2_600)).unwrap();
    let grown = place.json(&["import", "talk.jsonl"]);
    assert_eq!((&grown["added"], &grown["known"]), (&json!(100), &json!(2_500)));
    // A session that holds something else is not mixed up with it.
    let other = many(2_600).replace("Message 2577 ", "Another 2577 ");
    std::fs::write(place.path("talk.jsonl"), other).unwrap();
    let (code, _, errors) = place.on_db(&["import", "talk.jsonl"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.starts_with("epitome: talk.jsonl:2577: message 2577 of the session \"talk\" is different; "),
        "{errors}"
    );
    let forced = place.json(&["import", "talk.jsonl", "--append"]);
    assert_eq!(&forced["added"], &json!(2_600));
    let (code, out, _) = place.on_db(&["verify"]);
    assert_eq!(code, Some(0), "{out}");
}

/// Kills the import repeatedly at random times. It resumes each time, and the result is complete.
#[test]
fn a_killed_import_resumes() {
    let place = TestFolder::new();
    let file = many(40_000);
    std::fs::write(place.path("talk.jsonl"), &file).unwrap();
    let (mut kills, mut last) = (0, 0);
    for wait in [300, 450, 600, 800, 1_000, 1_300] {
        let mut child =
            place.epitome(&["import", "talk.jsonl", "--no-wait", "--db", "epitome.db"]).spawn().unwrap();
        let until = Instant::now() + Duration::from_millis(wait);
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
        let (code, out, _) = place.on_db(&["list", "--json"]);
        let held = if code == Some(0) && !out.is_empty() {
            serde_json::from_str::<Value>(out.trim()).unwrap()["messages"].as_u64().unwrap()
        } else {
            0
        };
        assert!(held >= last, "{held} after {last}");
        last = held;
    }
    assert!(kills > 0);
    let report = place.json(&["import", "talk.jsonl"]);
    assert_eq!(report["messages"], json!(40_000));
    assert_eq!(place.good(&["export", "talk", "--format", "openai"]), file);
    assert_eq!(place.on_db(&["verify"]).0, Some(0));
    let context = place.json(&["context", "talk", "--tokens", "2000"]);
    assert_eq!(context["report"]["exhaustive"], json!(true));
}

#[test]
fn piped_input_is_imported_and_leaves_no_temporary_file() {
    let place = TestFolder::new();
    let temporary = place.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.epitome(&["import", "-", "--session", "piped", "--json", "--db", "epitome.db"]);
    let mut child = command
        .env("TMPDIR", &temporary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(many(50).as_bytes()).unwrap();
    let (code, out, errors) = result_of(child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["sessions"][0]["session"], "piped");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    assert_eq!(place.good(&["export", "piped", "--format", "openai"]), many(50));
}

#[test]
fn missing_and_empty_files_are_reported() {
    let place = TestFolder::new();
    let (code, out, errors) = place.on_db(&["import", "nowhere.jsonl"]);
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("epitome: nowhere.jsonl cannot be read: "), "{errors}");
    assert!(!place.db().exists(), "no database is made for nothing");
    std::fs::write(place.path("empty.jsonl"), "\n\n").unwrap();
    place.fails(&["import", "empty.jsonl"], 2, "the input contains no messages");
    place.fails(&["import", "empty.jsonl", "--format", "latin"], 2,
        "invalid value 'latin' for '--format <FORMAT>': no such format; use one of: openai, responses, anthropic, epitome; `epitome import --help` lists the options");
}

/// A pipe can be read once only, and an import reads twice.
#[cfg(unix)]
#[test]
fn a_pipe_named_as_a_file_is_copied_while_it_is_read() {
    let place = TestFolder::new();
    std::fs::write(place.path("talk.jsonl"), many(4)).unwrap();
    std::fs::create_dir(place.path("tmp")).unwrap();
    let binary = env!("CARGO_BIN_EXE_epitome");
    let script = format!(
        "mkfifo chat.fifo; cat talk.jsonl > chat.fifo & {binary} import chat.fifo --db epitome.db; \
         cat talk.jsonl | {binary} import /dev/stdin --db epitome.db; \
         {binary} import <(cat talk.jsonl) --session subst --db epitome.db"
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(place.folder.path()).env("TMPDIR", place.path("tmp"));
    let (code, out, errors) = result_of(command.env("HOME", place.folder.path()).output().unwrap());
    let lines = "chat: 4 messages added\nimport: 4 messages added\nsubst: 4 messages added\n";
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), lines, ""));
    assert_eq!(place.path("tmp").read_dir().unwrap().count(), 0);
    place.fails(&["import", "tmp"], 1, "tmp is a folder; give the files in it, as in tmp/*.jsonl");
}

#[test]
fn an_export_is_complete_or_absent() {
    let place = TestFolder::with_sessions();
    let (code, out, errors) = place.on_db(&["export", "ann", "-o", "ann.jsonl"]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{errors}");
    let written = std::fs::read_to_string(place.path("ann.jsonl")).unwrap();
    assert_eq!(place.good(&["export", "ann", "-o", "-"]), written);
    let line = "ann.jsonl: the file exists already and is not replaced; choose another name";
    place.fails(&["export", "ann", "-o", "ann.jsonl"], 1, line);
    assert_eq!(place.on_db(&["export", "nobody", "-o", "no.jsonl"]).0, Some(1));
    let names = place.folder.path().read_dir().unwrap().flatten().map(|entry| entry.file_name());
    let mut left = names.filter(|name| name.to_string_lossy().contains("jsonl") && name != "ann.jsonl");
    assert_eq!(left.next(), None);
    assert_eq!(std::fs::read_to_string(place.path("ann.jsonl")).unwrap(), written);
}

#[cfg(unix)]
#[test]
fn a_terminal_shows_the_progress() {
    let place = TestFolder::new();
    std::fs::write(place.path("talk.jsonl"), many(20_000)).unwrap();
    let shown = place.on_terminal(100, &["import", "talk.jsonl", "--no-wait"]);
    assert!(shown.contains("importing ") && shown.contains("s left"), "{shown:?}");
}

#[test]
fn numbers_in_a_conversation_come_back_digit_by_digit_too() {
    let place = TestFolder::new();
    let message = r#"{"role":"user","content":"Hello.","x":1e2,"y":123456789012345678901234567890}"#;
    std::fs::write(place.path("many.jsonl"), format!("{{\"id\":\"one\",\"messages\":[{message}]}}\n"))
        .unwrap();
    place.good(&["import", "many.jsonl", "--format", "openai"]);
    assert_eq!(place.good(&["export", "one", "--format", "openai"]), format!("{message}\n"));
}

#[test]
fn a_responses_file_that_grew_inside_a_reply_is_imported_again() {
    let place = TestFolder::new();
    let user = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Find it."}]}"#;
    let said =
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Looking."}]}"#;
    let call = r#"{"type":"function_call","call_id":"c1","name":"find","arguments":"{}"}"#;
    let answer = r#"{"type":"function_call_output","call_id":"c1","output":"one"}"#;
    std::fs::write(place.path("log.jsonl"), format!("{user}\n{said}\n")).unwrap();
    place.good(&["import", "log.jsonl"]);
    // The agent continues: its log only grows at its end.
    std::fs::write(place.path("log.jsonl"), format!("{user}\n{said}\n{call}\n{answer}\n")).unwrap();
    let (code, _, errors) = place.on_db(&["import", "log.jsonl"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "adds what a file has grown by");
}

#[test]
fn a_request_is_imported_into_the_named_session() {
    let place = TestFolder::new();
    let request = r#"{"model": "m", "messages": [{"role": "user", "content": "Hello."}]}"#;
    std::fs::write(place.path("request.json"), request).unwrap();
    place.good(&["import", "request.json", "--session", "ann"]);
    let (code, out, errors) = place.on_db(&["export", "ann", "--format", "openai"]);
    assert_eq!(code, Some(0), "as --help shows it: {errors}");
    assert_eq!(out.lines().count(), 1);
}

#[test]
fn with_keep_going_a_session_with_an_invalid_name_is_left_out() {
    let place = TestFolder::new();
    let line = |id: &str| {
        format!("{{\"id\":\"{id}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello.\"}}]}}\n")
    };
    std::fs::write(place.path("many.jsonl"), line("good") + &line(&"x".repeat(600)) + &line("fine")).unwrap();
    let (code, _, errors) = place.on_db(&["import", "many.jsonl", "--keep-going"]);
    assert_eq!(code, Some(0), "{errors}");
    place.good(&["export", "good"]);
    place.good(&["export", "fine"]);
}

#[test]
fn a_session_without_messages_is_no_reason_to_fail() {
    let place = TestFolder::new();
    let file = "{\"epitome\":{\"session\":\"empty\"}}\n{\"epitome\":{\"session\":\"full\"}}\n\
        {\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"Hello.\"}]}\n";
    std::fs::write(place.path("all.jsonl"), file).unwrap();
    let (code, _, errors) = place.on_db(&["import", "all.jsonl"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_request_whose_input_is_a_bare_string_is_imported() {
    let place = TestFolder::new();
    std::fs::write(place.path("request.json"), r#"{"model": "gpt-5", "input": "Hello."}"#).unwrap();
    let (code, _, errors) = place.on_db(&["import", "request.json", "--format", "responses"]);
    assert_eq!(code, Some(0), "{errors}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_import_from_a_pipe_leaves_no_temporary_file() {
    use std::io::Write;
    use std::process::Stdio;
    let place = TestFolder::new();
    let scratch = tempfile::tempdir().unwrap();
    let mut child = place
        .epitome(&["import", "--session", "ann"])
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"role\":\"user\",\"content\":\"A secret.\"}\n").unwrap();
    stdin.flush().unwrap();
    let held = || std::fs::read_dir(scratch.path()).unwrap().count();
    for _ in 0..200 {
        if held() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    epitome_testkit::signal::send("INT", child.id());
    child.wait().unwrap();
    assert_eq!(held(), 0, "somebody's conversation stays in the folder for scratch");
}

#[test]
fn imports_of_the_same_file_at_the_same_time_add_it_once() {
    let place = TestFolder::new();
    let file = many(6_000);
    std::fs::write(place.path("same.jsonl"), &file).unwrap();
    // The file is there before, so that they do not meet over making it.
    place.on_db(&["import", "same.jsonl", "--session", "other", "--no-wait"]);
    let started: Vec<_> = (0..4)
        .map(|_| {
            let mut command =
                place.epitome(&["import", "same.jsonl", "--no-wait", "--json", "--db", "epitome.db"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut added = 0;
    for child in started {
        let (code, out, errors) = result_of(child.wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{errors}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["messages"], json!(6_000), "each sees all of it: {report}");
        added += report["added"].as_u64().unwrap();
    }
    assert_eq!(added, 6_000);
    assert_eq!(place.good(&["export", "same", "--format", "openai"]), file);
}

#[test]
fn the_format_is_detected_line_by_line() {
    let place = TestFolder::new();
    let all: Vec<Value> = recordings().into_iter().take(3).flat_map(|(_, wire)| wire).collect();
    std::fs::write(place.path("mixed.jsonl"), lines(&all)).unwrap();
    place.good(&["import", "mixed.jsonl"]);
    let context = place.good(&["context", "mixed", "--no-summary", "--format", "openai"]);
    for words in ["packed in Oslo", "Found.", "Try again.", "Danke!"] {
        assert!(context.contains(words), "{words} is lost: {context}");
    }
    assert!(context.contains("toolu_1"), "and so is a call: {context}");
}

#[test]
fn a_conversation_comes_back_with_all_its_fields_in_their_order() {
    for (format, wire) in recordings().into_iter().take(3) {
        let (list, words) =
            if format == "responses" { ("input", "instructions") } else { ("messages", "system") };
        let place = TestFolder::new();
        let conversations = [
            json!({"id": "one", "source": "here", list: wire, "qa": [{"question": "Which?", "evidence": [1, 2]}]}),
            json!({"model": "m", words: "Be brief.", list: wire, "id": "two", "tools": []}),
            json!({"id": "three", list: []}),
        ];
        std::fs::write(place.path("many.jsonl"), lines(&conversations)).unwrap();
        place.good(&["import", "many.jsonl", "--format", format]);
        let out = place.good(&["export", "--all", "--format", format]);
        let mut back: Vec<&str> = out.lines().collect();
        back.sort_unstable();
        let mut came: Vec<String> = conversations.iter().take(2).map(Value::to_string).collect();
        came.sort_unstable();
        assert_eq!(back, came, "{format}");
    }
}

#[test]
fn large_messages_are_added_in_batches_within_the_limits() {
    let place = TestFolder::new();
    let large: Vec<Value> = (0..40)
        .map(|n| json!({"role": "user", "content": format!("{n} {}", "word ".repeat(100_000))}))
        .collect();
    std::fs::write(place.path("large.jsonl"), lines(&large)).unwrap();
    let report = place.json(&["import", "large.jsonl", "--no-wait"]);
    assert_eq!(report["added"], json!(40));
    let small = place.json(&["import", "large.jsonl", "--no-wait", "-s", "small", "--set", "limits.batch=7"]);
    assert_eq!(small["added"], json!(40));
}

#[test]
fn messages_that_differ_in_unrecognised_fields_are_different() {
    let place = TestFolder::new();
    std::fs::write(place.path("a.jsonl"), "{\"role\":\"user\",\"content\":\"Hello.\",\"x\":1}\n").unwrap();
    place.good(&["import", "a.jsonl"]);
    std::fs::write(place.path("a.jsonl"), "{\"role\":\"user\",\"content\":\"Hello.\",\"x\":2}\n").unwrap();
    let (code, _, errors) = place.on_db(&["import", "a.jsonl"]);
    assert_eq!(code, Some(1), "{errors}");
}

#[test]
fn metadata_of_a_session_is_imported_and_a_repeated_session_is_left_out() {
    let place = TestFolder::new();
    let message = "{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"Hello.\"}]}\n";
    let header =
        |name: &str| format!("{{\"epitome\":{{\"session\":\"{name}\",\"metadata\":{{\"team\":7}}}}}}\n");
    std::fs::write(
        place.path("all.jsonl"),
        [header("a").as_str(), message, &header("b"), message, &header("a"), message, message].concat(),
    )
    .unwrap();
    let report = place.json(&["import", "all.jsonl", "--keep-going"]);
    assert_eq!((&report["added"], &report["left_out"]), (&json!(2), &json!(1)));
    let listed = place.json_lines(&["list"]);
    assert!(listed.iter().all(|session| session["metadata"]["team"] == 7), "{listed:?}");
}

#[test]
fn an_error_in_a_conversation_names_its_position() {
    let place = TestFolder::new();
    let bad =
        json!({"id": "x", "messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]});
    std::fs::write(
        place.path("bad.jsonl"),
        format!("\n{bad}\n{{\"role\":\"user\",\"content\":\"\\ud83d\"}}\n"),
    )
    .unwrap();
    let (code, _, errors) = place.on_db(&["import", "bad.jsonl"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("bad.jsonl:2: messages[1].role: \"robot\" is unknown"), "{errors}");
    assert!(errors.contains("bad.jsonl:3: contains half of a character"), "{errors}");
}

#[test]
fn a_request_comes_back_unchanged_whatever_it_contains() {
    let cases = [
        ("responses", json!({"instructions": "a", "input": "hello"})),
        (
            "responses",
            json!({"model": "m", "instructions": null, "input": [{"role": "user", "content": "hello"}]}),
        ),
        ("anthropic", json!({"system": "s", "messages": [{"role": "user", "content": "hello"}]})),
        (
            "anthropic",
            json!({"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}),
        ),
        ("openai", json!({"system": "no message here", "messages": [{"role": "user", "content": "hello"}]})),
    ];
    for (format, request) in cases {
        let place = TestFolder::new();
        std::fs::write(place.path("rt.json"), request.to_string()).unwrap();
        place.good(&["import", "rt.json", "--format", format]);
        assert_eq!(place.good(&["export", "--all", "--format", format]), format!("{request}\n"));
    }
}

#[test]
fn a_system_prompt_is_exported_in_every_format() {
    let place = TestFolder::new();
    let request = json!({"id": "b", "system": "be kind", "messages": [{"role": "user", "content": "hello"}]});
    std::fs::write(place.path("b.jsonl"), format!("{request}\n")).unwrap();
    place.good(&["import", "b.jsonl"]);
    for format in ["openai", "responses", "anthropic", "epitome"] {
        let (file, db) = (format!("{format}.jsonl"), format!("to-{format}.db"));
        place.good(&["export", "--all", "--format", format, "-o", &file]);
        let (code, out, errors) =
            result_of(place.epitome(&["import", &file, "--json", "--db", &db]).output().unwrap());
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["added"], json!(2), "{format}");
        let (_, context, _) = result_of(place.epitome(&["context", "b", "--db", &db]).output().unwrap());
        assert!(context.contains("be kind"), "{format}: {context}");
    }
}

#[test]
fn items_that_are_not_messages_are_reported_and_the_rest_is_imported() {
    let place = TestFolder::new();
    let (message, talk) = (many(1), json!({"id": "x", "messages": [{"role": "user", "content": "a"}]}));
    std::fs::write(place.path("a.jsonl"), format!("{message}[1]\n{talk}\n{}", many(10))).unwrap();
    let (code, _, errors) = place.on_db(&["import", "a.jsonl"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("a.jsonl:2: ") && errors.contains("a.jsonl:3: a conversation among messages"),
        "{errors}"
    );
    let report = place.json(&["import", "a.jsonl", "--keep-going"]);
    assert_eq!((&report["added"], &report["left_out"]), (&json!(11), &json!(2)));
}

#[test]
fn whole_responses_of_providers_can_be_imported() {
    let place = TestFolder::new();
    let chat = json!({"id": "c", "object": "chat.completion", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "first words"}, "finish_reason": "stop"}]});
    let response = json!({"id": "r", "object": "response", "instructions": "be kind", "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "second words"}]}]});
    std::fs::write(place.path("log.jsonl"), lines(&[chat, response])).unwrap();
    place.good(&["import", "log.jsonl"]);
    let out = place.good(&["export", "log"]);
    assert!(out.contains("first words") && out.contains("second words"), "{out}");
}
