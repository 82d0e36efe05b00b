//! Runs the command on generated and written histories.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use epitome::dialect::Dialect;
use epitome_testkit::drawing::messages;
use serde_json::{Value, json};

use crate::cases::out::{Out, SHAPES, complaints, spelled};
use crate::judges::signed;
use epitome_testkit::provider::Provider;

/// Runs the command in its own temporary folder, with settings.
pub(crate) struct Runner {
    folder: tempfile::TempDir,
}

impl Runner {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Creates a folder with settings in which `--model main` is this provider, with a context window of `window`
    /// tokens.
    pub(crate) fn with_model(provider: &Provider, window: u64) -> Self {
        let runner = Self::new();
        let settings = format!(
            "[models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nwindow = {window}\n\
             output_reserve = 500\n[prices.\"stand-in-1\"]\ninput = 2.0\noutput = 10.0\n",
            provider.url()
        );
        std::fs::write(runner.folder.path().join("epitome.toml"), settings).unwrap();
        runner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command on this text. The exit code must be 0.
    #[track_caller]
    pub(crate) fn condense(&self, shape: Dialect, text: &str, args: &[&str]) -> Out {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EPITOME_"))
        {
            command.env_remove(name);
        }
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        let report = self.path("report.json");
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.args(["condense", "--format", shape.name(), "--report"]).arg(&report).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let (sent, came) = (text.as_bytes().to_vec(), text.to_owned());
        let writer = std::thread::spawn(move || input.write_all(&sent));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shape}: {errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        let report = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
        Out { shape, came, text, report, errors }
    }

    /// A drawn history in all three shapes. What comes out condensed has nothing a strict provider refuses.
    #[track_caller]
    pub(crate) fn drawn(&self, drawing: &str, args: &[&str]) -> Vec<Out> {
        let list = signed(&messages(drawing).unwrap());
        SHAPES.into_iter().map(|shape| self.strict(shape, &spelled(shape, &list), args)).collect()
    }

    /// The same for a request that is there already.
    #[track_caller]
    pub(crate) fn strict(&self, shape: Dialect, body: &Value, args: &[&str]) -> Out {
        let out = self.condense(shape, &body.to_string(), args);
        if out.report["condensed"] == json!(true) {
            let mut complaints = complaints(shape, &out.body());
            // A request's other fields are its own.
            complaints.retain(|complaint| !complaint.starts_with("request:"));
            assert_eq!(complaints, Vec::<String>::new(), "{shape}: {body} became {}", out.text);
        }
        out
    }
}
