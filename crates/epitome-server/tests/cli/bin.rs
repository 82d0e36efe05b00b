//! A folder for each test, with a database in it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use epitome::rules::message::Message;
use epitome::{Engine, Session};

/// A folder in which the binary runs. It is also the home folder; the user's variables are not set.
pub(crate) struct TestFolder {
    pub(crate) folder: tempfile::TempDir,
}

/// Exit code, standard output, standard error.
pub(crate) type RunResult = (Option<i32>, String, String);

pub(crate) fn result_of(output: Output) -> RunResult {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with the sessions `ann` (60 messages, summarized) and `anne` (two).
    pub(crate) fn with_sessions() -> Self {
        let place = Self::new();
        place.engine(|engine| async move {
            talk(&engine.session("ann"), 30).await;
            engine.work().await.unwrap();
            talk(&engine.session("anne"), 1).await;
        });
        place
    }

    /// Opens the database, as another process would, and runs this on it.
    pub(crate) fn engine<F: Future<Output = ()>>(&self, work: impl FnOnce(Engine) -> F) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = Engine::builder().workers(0).open(self.db()).await.unwrap();
            work(engine.clone()).await;
            engine.close().await;
        });
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("epitome.db")
    }

    pub(crate) fn epitome(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("EPITOME_") {
                command.env_remove(name);
            }
        }
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
            .stdin(Stdio::null())
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .args(args);
        command
    }

    /// Runs the binary and waits until it ends.
    pub(crate) fn run(&self, args: &[&str]) -> RunResult {
        result_of(self.epitome(args).output().unwrap())
    }

    /// Runs the binary on this folder's database.
    pub(crate) fn on_db(&self, args: &[&str]) -> RunResult {
        result_of(self.epitome(args).args(["--db", "epitome.db"]).output().unwrap())
    }

    /// Runs the binary on the database, checks that it succeeds, and returns its output.
    #[track_caller]
    pub(crate) fn good(&self, args: &[&str]) -> String {
        let (code, out, errors) = self.on_db(args);
        assert_eq!(code, Some(0), "{args:?}: {errors}");
        out
    }

    /// Runs the binary on the database in a terminal of this width. Returns everything it writes, escape codes included.
    #[cfg(unix)]
    pub(crate) fn on_terminal(&self, columns: u16, args: &[&str]) -> String {
        let (code, out, errors) = self.at_terminal(columns, args);
        assert_eq!(code, Some(0), "{args:?}: {out} {errors}");
        out
    }

    /// Like [`Self::on_terminal`], whether it succeeds or not.
    #[cfg(unix)]
    pub(crate) fn at_terminal(&self, columns: u16, args: &[&str]) -> RunResult {
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL, &columns.to_string(), env!("CARGO_BIN_EXE_epitome")]);
        command.args(args).args(["--db", "epitome.db"]).current_dir(self.folder.path());
        command.env("TERM", "xterm").env("HOME", self.folder.path()).env_remove("NO_COLOR");
        result_of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the binary with `--json` and returns the object.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let out = self.good(&[args, &["--json"]].concat());
        assert!(!out.contains('\u{1b}'), "{out}");
        serde_json::from_str(&out).unwrap()
    }

    #[track_caller]
    pub(crate) fn json_lines(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let out = self.good(&[args, &["--json"]].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks that the command fails with this exit code, one line on standard error, and no output.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32, line: &str) {
        assert_eq!(self.on_db(args), (Some(code), String::new(), format!("epitome: {line}\n")), "{args:?}");
    }
}

/// Runs a command in a pseudo-terminal and prints what it writes.
const TERMINAL: &str = r#"
import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        written = os.read(terminal, 65536)
    except OSError:
        break
    if not written:
        break
    sys.stdout.buffer.write(written)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// Appends this number of turns about orders.
pub(crate) async fn talk(session: &Session, turns: usize) {
    for n in 1..=turns {
        let messages = [
            Message::user(format!("Please look at order {n}0071, it has not arrived.")),
            Message::assistant(format!("Order {n}0071 was sent from Oslo yesterday and arrives on Monday.")),
        ];
        session.append(messages).await.unwrap();
    }
}
