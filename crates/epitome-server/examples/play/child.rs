//! Starts the server as a child process, and sends the requests of a run to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use epitome::dialect::{Dialect, UsageListener};
use serde_json::Value;

use super::{Error, KEY};

/// Returns the path of the server's binary. It is in the folder above this example; Cargo builds it first. In a test,
/// Cargo has already built it.
pub fn binary() -> Result<PathBuf, Error> {
    if let Some(built) = option_env!("CARGO_BIN_EXE_epitome") {
        return Ok(built.into());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).ok_or("an example without a folder")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "epitome-server", "--bin", "epitome"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err("the server does not build".into());
        }
    }
    let binary = folder.join("epitome");
    if binary.exists() {
        Ok(binary)
    } else {
        Err(format!("no server at {}: build it", binary.display()).into())
    }
}

/// A running server. It is killed when dropped.
pub struct Serving {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Serving {
    pub fn start(binary: &Path, upstream: &str, settings: &[String], log: &Path) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let mut run = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("EPITOME_") || name.to_string_lossy().starts_with("XDG_") {
                run.env_remove(name);
            }
        }
        run.args(["serve", "--listen", "127.0.0.1:0", "--db", "play.db", "--log-level", "warn"]);
        run.args(["--openai-upstream", upstream, "--anthropic-upstream", upstream, "--log-requests"]);
        run.arg(std::path::absolute(log)?);
        for setting in settings {
            run.args(["--set", setting]);
        }
        run.current_dir(folder.path()).env("HOME", folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = run.spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut said)?;
        let address = said.trim().strip_prefix("listening on http://").map(str::to_owned);
        Ok(Self { child, address: address.ok_or("the server did not start")?, _folder: folder })
    }

    /// Sends SIGTERM, and waits until the server has written its log and ended.
    pub fn end(mut self) -> Result<(), Error> {
        epitome_testkit::signal::send("TERM", self.child.id());
        let ended = self.child.wait()?;
        if ended.success() { Ok(()) } else { Err(format!("the server failed: {ended}").into()) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of one request.
pub struct RequestResult {
    /// Whether this request condensed its list again.
    pub condensed: bool,
    /// The fault, if any.
    pub fault: Option<String>,
}

/// One run's requests, over one connection.
pub struct Talk<'a> {
    serving: &'a Serving,
    dialect: Dialect,
    /// The request line and the headers that all its requests share.
    head: String,
    stream: Option<BufReader<TcpStream>>,
}

impl<'a> Talk<'a> {
    pub fn new(serving: &'a Serving, dialect: Dialect, off: bool, name: Option<&String>) -> Self {
        let (path, key) = match dialect.name() {
            "anthropic" => {
                ("/anthropic/v1/messages", format!("x-api-key: {KEY}\r\nanthropic-version: 2023-06-01"))
            }
            "responses" => ("/openai/v1/responses", format!("authorization: Bearer {KEY}")),
            _ => ("/openai/v1/chat/completions", format!("authorization: Bearer {KEY}")),
        };
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\n{key}\r\n", serving.address);
        head.push_str("content-type: application/json\r\n");
        if off {
            head.push_str("x-epitome: off\r\n");
        }
        if let Some(name) = name {
            head.push_str(&format!("x-epitome-session: {name}\r\n"));
        }
        Self { serving, dialect, head, stream: None }
    }

    /// Sends a request, and reads its whole response.
    pub fn send(&mut self, body: &str) -> RequestResult {
        match self.exchange(body) {
            Ok(result) => result,
            Err(error) => {
                self.stream = None;
                RequestResult { condensed: false, fault: Some(format!("no answer: {error}")) }
            }
        }
    }

    fn exchange(&mut self, body: &str) -> Result<RequestResult, Error> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(&self.serving.address)?),
        };
        stream.get_ref().set_nodelay(true)?;
        let request = format!("{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).ok_or("no status")?.parse()?;
        let (mut length, mut kind, mut outcome, mut report) = (None, None, String::new(), Value::Null);
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.parse::<usize>()?),
                "content-type" => kind = Some(value.to_owned()),
                "x-epitome" => value.clone_into(&mut outcome),
                "x-epitome-report" => report = serde_json::from_str(value)?,
                _ => {}
            }
        }
        let mut listener = UsageListener::new(self.dialect, kind.as_deref());
        let mut piece = Vec::new();
        loop {
            let size = match length {
                Some(length) => length,
                None => {
                    line.clear();
                    stream.read_line(&mut line)?;
                    usize::from_str_radix(line.trim(), 16)?
                }
            };
            piece.resize(size, 0);
            stream.read_exact(&mut piece)?;
            if length.is_none() {
                line.clear();
                stream.read_line(&mut line)?;
            }
            listener.push(&piece);
            if length.is_some() || size == 0 {
                break;
            }
        }
        self.stream = Some(stream);
        let response = listener.finish();
        let fault = match outcome.as_str() {
            _ if status != 200 => Some(format!("status {status}")),
            _ if !response.complete => Some("the response is incomplete".to_owned()),
            _ if response.usage.is_none() => Some("the response has no token counts".to_owned()),
            "condensed" | "untouched" | "off" | "retried" => None,
            other => Some(format!("x-epitome: {other} {}", report["reason"])),
        };
        Ok(RequestResult { condensed: report["condensed"] == true, fault })
    }
}
