//! Found in review: what `import` and `export` promise and did not keep.

use crate::bin::Place;

#[test]
fn numbers_in_a_conversation_come_back_digit_by_digit_too() {
    let place = Place::new();
    let message = r#"{"role":"user","content":"Hello.","x":1e2,"y":123456789012345678901234567890}"#;
    std::fs::write(place.path("many.jsonl"), format!("{{\"id\":\"one\",\"messages\":[{message}]}}\n"))
        .unwrap();
    place.good(&["import", "many.jsonl", "--format", "openai"]);
    assert_eq!(place.good(&["export", "one", "--format", "openai"]), format!("{message}\n"));
}

#[test]
fn a_responses_file_that_grew_inside_a_reply_is_imported_again() {
    let place = Place::new();
    let user = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Find it."}]}"#;
    let said =
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Looking."}]}"#;
    let call = r#"{"type":"function_call","call_id":"c1","name":"find","arguments":"{}"}"#;
    let answer = r#"{"type":"function_call_output","call_id":"c1","output":"one"}"#;
    std::fs::write(place.path("log.jsonl"), format!("{user}\n{said}\n")).unwrap();
    place.good(&["import", "log.jsonl"]);
    // The agent goes on; its log only grows at its end.
    std::fs::write(place.path("log.jsonl"), format!("{user}\n{said}\n{call}\n{answer}\n")).unwrap();
    let (code, _, errors) = place.on_db(&["import", "log.jsonl"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "adds what a file has grown by");
}

#[test]
fn a_request_goes_into_the_session_that_is_named() {
    let place = Place::new();
    let request = r#"{"model": "m", "messages": [{"role": "user", "content": "Hello."}]}"#;
    std::fs::write(place.path("request.json"), request).unwrap();
    place.good(&["import", "request.json", "--session", "ann"]);
    let (code, out, errors) = place.on_db(&["export", "ann", "--format", "openai"]);
    assert_eq!(code, Some(0), "as --help shows it: {errors}");
    assert_eq!(out.lines().count(), 1);
}

#[test]
fn a_session_that_cannot_be_called_so_is_left_out_with_keep_going() {
    let place = Place::new();
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
    let place = Place::new();
    let file = "{\"epitome\":{\"session\":\"empty\"}}\n{\"epitome\":{\"session\":\"full\"}}\n\
        {\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"Hello.\"}]}\n";
    std::fs::write(place.path("all.jsonl"), file).unwrap();
    let (code, _, errors) = place.on_db(&["import", "all.jsonl"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_request_whose_input_is_a_bare_string_is_imported() {
    let place = Place::new();
    std::fs::write(place.path("request.json"), r#"{"model": "gpt-5", "input": "Hello."}"#).unwrap();
    let (code, _, errors) = place.on_db(&["import", "request.json", "--format", "responses"]);
    assert_eq!(code, Some(0), "{errors}");
}

#[cfg(unix)]
#[test]
fn an_import_from_a_pipe_that_is_interrupted_leaves_no_conversation_behind() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let place = Place::new();
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
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    assert_eq!(held(), 0, "somebody's conversation stays in the folder for scratch");
}
