//! Signals: leases are released, unfinished files are removed, and the exit code names the signal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bin::{TestFolder, result_of, talk};

/// A model on this machine. While its folder has a file `slow`, it does not answer.
const MODEL: &str = r#"
import http.server, itertools, json, os, time
numbers = itertools.count(10)
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        open("asked", "w").close()
        if os.path.exists("refuse"):
            self.send_response(503); self.send_header("content-length", "0"); self.end_headers(); return
        while os.path.exists("slow"):
            time.sleep(0.02)
        text = f"{next(numbers)} orders had not arrived; all of them were sent from Oslo and arrive on Monday."
        body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
            "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Model(Child);

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it, and has the settings name it.
fn model(place: &TestFolder) -> Model {
    let mut command = Command::new("python3");
    command.args(["-c", MODEL]).current_dir(place.folder.path()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let settings = format!(
        "[summarize]\nmodels = [\"mine\"]\nstand_in_after = \"never\"\n[models.mine]\nprovider = \"openai\"\n\
         model = \"m\"\nbase_url = \"http://127.0.0.1:{}/v1\"\nstream = false\n",
        port.trim()
    );
    std::fs::write(place.path("epitome.toml"), settings).unwrap();
    Model(child)
}

fn wait_for(what: &str, there: impl Fn() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, name: &str) {
    epitome_testkit::signal::send(name, child.id());
}

/// A lease lasts 30 seconds. The next command must not have to wait until it expires.
#[test]
fn an_interrupted_summary_is_written_at_once_by_the_next_command() {
    for (name, code, line) in [("-INT", 130, "\n"), ("-TERM", 143, "")] {
        let place = TestFolder::new();
        let _model = model(&place);
        place.engine(|engine| async move { talk(&engine.session("ann"), 30).await });
        std::fs::write(place.path("slow"), "").unwrap();
        let mut command = place.epitome(&["summarize", "ann", "--db", "epitome.db"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the model to be asked", || place.path("asked").exists());
        let began = Instant::now();
        signal(&child, name);
        assert_eq!(
            result_of(child.wait_with_output().unwrap()),
            (Some(code), String::new(), line.to_owned()),
            "{name}"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
        std::fs::remove_file(place.path("slow")).unwrap();
        let began = Instant::now();
        assert_eq!(place.json(&["summarize", "ann"])["status"], "written");
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
        let usage = place.json(&["explain", "ann"])["usage"].to_string();
        assert!(usage.contains("dropped"), "what was spent is recorded: {usage}");
    }
}

#[test]
fn an_interrupted_import_says_that_the_added_messages_stay() {
    let place = TestFolder::new();
    let _model = model(&place);
    std::fs::write(place.path("slow"), "").unwrap();
    let line = "{\"role\":\"user\",\"content\":\"Please look at order 70071, it has not arrived.\"}\n\
                {\"role\":\"assistant\",\"content\":\"It was sent from Oslo yesterday.\"}\n";
    std::fs::write(place.path("talk.jsonl"), line.repeat(40)).unwrap();
    std::fs::create_dir(place.path("tmp")).unwrap();
    let mut command = place.epitome(&["import", "-", "--session", "talk", "--db", "epitome.db"]);
    command.stdin(std::fs::File::open(place.path("talk.jsonl")).unwrap()).env("TMPDIR", place.path("tmp"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the model to be asked", || place.path("asked").exists());
    assert_eq!(place.path("tmp").read_dir().unwrap().count(), 1, "what is piped in is kept meanwhile");
    signal(&child, "-INT");
    let (code, _, errors) = result_of(child.wait_with_output().unwrap());
    assert_eq!(code, Some(130));
    assert_eq!(
        errors, "\ninterrupted: the messages added so far stay; run the same command to resume the import\n",
        "{errors}"
    );
    assert_eq!(place.path("tmp").read_dir().unwrap().count(), 0, "nothing is left behind");
    std::fs::remove_file(place.path("slow")).unwrap();
    let again = place.json(&["import", "talk.jsonl"]);
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &80.into()));
}

#[test]
fn an_interrupted_bench_leaves_no_files() {
    let place = TestFolder::new();
    let dir = tempfile::tempdir().unwrap();
    let mut command = place.epitome(&["bench", "--quick", "--dir"]);
    let child = command.arg(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("files", || dir.path().read_dir().unwrap().count() > 0);
    signal(&child, "-TERM");
    assert_eq!(result_of(child.wait_with_output().unwrap()), (Some(143), String::new(), String::new()));
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

/// The processes another one started, as Linux tells it.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
        (parent.parse() == Ok(of)).then_some(pid)
    });
    pids.collect()
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_bench_of_the_server_leaves_no_server() {
    let place = TestFolder::new();
    let dir = tempfile::tempdir().unwrap();
    let mut command = place.epitome(&["bench", "--server", "--quick", "--dir"]);
    let child = command.arg(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a server", || !children(child.id()).is_empty());
    let servers = children(child.id());
    signal(&child, "-TERM");
    assert_eq!(result_of(child.wait_with_output().unwrap()), (Some(143), String::new(), String::new()));
    for server in servers {
        assert!(!std::path::Path::new(&format!("/proc/{server}")).exists(), "{server} runs on");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn overdue_summaries_are_reported_with_their_cause() {
    let place = TestFolder::new();
    let _model = model(&place);
    std::fs::write(place.path("refuse"), "").unwrap();
    let line = "{\"role\":\"user\",\"content\":\"Please look at order 70071, it has not arrived.\"}\n\
                {\"role\":\"assistant\",\"content\":\"It was sent from Oslo yesterday.\"}\n";
    std::fs::write(place.path("talk.jsonl"), line.repeat(40)).unwrap();
    let (code, out, errors) = place.on_db(&["import", "talk.jsonl"]);
    assert_eq!((code, out.as_str()), (Some(0), "talk: 80 messages added\n"));
    let printed: Vec<&str> = errors.lines().collect();
    assert!((1..=3).contains(&printed.len()), "{errors}");
    for line in printed {
        assert!(line.starts_with("summaries are overdue: "), "{errors}");
        assert!(line.ends_with("; `epitome explain talk` shows details"), "{errors}");
    }
    std::fs::remove_file(place.path("refuse")).unwrap();
}

/// It may be done before the signal comes; then it is whole.
#[test]
fn an_interrupted_export_leaves_no_file() {
    let place = TestFolder::new();
    let line = "{\"role\":\"user\",\"content\":\"Please look at order 70071, it has not arrived.\"}\n";
    std::fs::write(place.path("talk.jsonl"), line.repeat(30_000)).unwrap();
    place.good(&["import", "talk.jsonl", "--no-wait"]);
    std::fs::create_dir(place.path("out")).unwrap();
    let out = || place.path("out").read_dir().unwrap().flatten().count();
    let mut command = place.epitome(&["export", "talk", "-o", "out/talk.jsonl", "--db", "epitome.db"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a file", || out() > 0);
    signal(&child, "INT");
    match result_of(child.wait_with_output().unwrap()).0 {
        Some(0) => assert!(place.path("out/talk.jsonl").exists() && out() == 1),
        code => assert_eq!((code, out()), (Some(130), 0)),
    }
}
