//! Prints the output of commands: lines, tables, colours and progress.
//!
//! Every command is passed a [`Show`] and prints only through it, so that it can be tested without a process. The
//! answer goes to standard output. Everything else (notes, progress, errors) goes to standard error. Colours, progress
//! bars and clipped columns are only for terminals. Piped output is plain and complete.
//!
//! | what | how |
//! |---|---|
//! | a line of the answer | [`Show::line`] |
//! | JSON on one line, or indented | [`Show::json`], [`Show::object`] |
//! | write out buffered output, for example after each page of a long list | [`Show::flush`] |
//! | a note | [`Show::note`] |
//! | a table | [`Table`] and [`Show::table`] |
//! | colours | `show.style`, a [`Style`] |
//! | numbers, times, sizes | [`grouped`], [`count`], [`ago`], [`utc`], [`bytes`], [`bar`] |
//! | text that may contain control characters or be too long | [`printable`], [`display_width`], [`clipped`] |
//! | the progress of long work | [`Show::progress`] |

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome::rules::message::Timestamp;
pub use format::{ago, bar, bytes, clipped, count, day, display_width, grouped, printable, utc};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
pub use table::Table;

use crate::failure::{Failure, OpenDatabase, one_line};

mod format;
mod table;

/// The output of a command.
pub struct Show {
    out: Box<dyn Write + Send>,
    errors: Box<dyn Write + Send>,
    /// The colours of standard output.
    pub style: Style,
    /// The colours of standard error.
    notes: Style,
    /// The width of the terminal in columns; `None` if the output is not a terminal. Then lines may have any length.
    pub width: Option<usize>,
    /// Whether standard error is a terminal, so that progress can be shown.
    pub watched: bool,
    /// Whether the answer is JSON: `--json`.
    pub json: bool,
    /// The current time, with which times such as "3 min ago" are computed.
    pub now: Timestamp,
}

impl Show {
    /// Returns an output that prints to the standard output and the standard error of this process.
    pub fn process(color: Color, json: bool, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let (out, errors) = (io::stdout(), io::stderr());
        let (is_terminal, watched) = (out.is_terminal(), errors.is_terminal());
        let setting = env("COLUMNS").and_then(|columns| columns.parse::<usize>().ok());
        let size = || console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            style: Style::new(color, is_terminal, env),
            notes: Style::new(color, watched, env),
            width: is_terminal.then(|| size().or(setting).unwrap_or(80).max(20)),
            watched: watched && env("TERM").is_none_or(|term| term != "dumb"),
            now: Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            ..Self::plain(Box::new(BufWriter::with_capacity(1 << 16, out)), Box::new(errors), json)
        }
    }

    /// Returns an output that prints to two writers, without colours and without a limit of width. Its current time is
    /// 1970-01-01 00:00 UTC.
    pub fn plain(out: Box<dyn Write + Send>, errors: Box<dyn Write + Send>, json: bool) -> Self {
        Self {
            out,
            errors,
            style: Style::default(),
            notes: Style::default(),
            width: None,
            watched: false,
            json,
            now: Timestamp(0),
        }
    }

    /// Prints a line of the answer.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Prints bytes of the answer unchanged.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.out.write_all(bytes)?)
    }

    /// Prints JSON on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.line("")
    }

    /// Prints indented JSON.
    pub fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from)?;
        self.line("")
    }

    /// Prints this line as the answer. With `--json`, prints this object instead.
    pub fn answer(&mut self, object: &impl Serialize, line: impl std::fmt::Display) -> Result<(), Failure> {
        if self.json { self.object(object) } else { self.line(line) }
    }

    /// Prints a table, at most as wide as the terminal.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        for line in table.lines(self.width, self.style) {
            self.line(line)?;
        }
        Ok(())
    }

    /// Writes out the buffered output.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// Prints a note on standard error. Before that, writes out the buffered output.
    pub fn note(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.flush()?;
        let line = self.notes.dim(&one_line(&text.to_string()));
        // A failure here cannot be reported anywhere.
        let _ = writeln!(self.errors, "{line}");
        Ok(())
    }

    /// Prints an error on standard error. The error itself does not end the command. Before that, writes out the
    /// buffered output.
    pub fn error(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.flush()?;
        // A failure here cannot be reported anywhere.
        let _ = writeln!(self.errors, "{}", one_line(&text.to_string()));
        Ok(())
    }

    /// Shows progress in bytes, on standard error if it is a terminal. `of` is the total number of bytes.
    pub fn bytes_progress(&self, what: &str, of: u64) -> Progress {
        let template = "{prefix} {wide_bar:.cyan/dim} {bytes} of {total_bytes} {msg}, {eta} left";
        Progress::new(self.watched, what, Some(of), template)
    }

    /// Shows progress on standard error if it is a terminal. `of` is the total number of steps, if this number can be
    /// determined.
    pub fn progress(&self, what: &str, of: Option<u64>) -> Progress {
        let template = match of {
            Some(_) => "{prefix} {wide_bar} {human_pos} of {human_len} {msg}",
            None => "{spinner} {prefix} {msg}",
        };
        Progress::new(self.watched, what, of, template)
    }

    /// Prints the line of a failure, if it has one, and returns the exit code.
    pub fn end(&mut self, failure: &Failure, database: Option<&OpenDatabase>) -> u8 {
        // Output from before the failure is still correct, and the exit code shows that it is incomplete.
        let _ = self.out.flush();
        if let Some(line) = failure.line(database) {
            let _ = self.errors.write_all(line.as_bytes());
        }
        failure.code()
    }
}

/// A progress line on standard error. The line disappears when this object is dropped. If standard error is not a
/// terminal, no line is shown.
#[derive(Debug)]
pub struct Progress {
    /// The progress bar: its position, its length, a prefix that names the work, and a short message.
    pub bar: ProgressBar,
}

impl Progress {
    /// Returns a progress line with this template of `indicatif`.
    pub(crate) fn new(watched: bool, what: &str, of: Option<u64>, template: &str) -> Self {
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(of, target);
        // The templates are constants and valid. An invalid template would be ignored.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        if watched {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Waits for `work` and returns its result. While it waits, calls `update` at the interval `every`, to show the
    /// progress.
    pub async fn during<T, U: Future<Output = ()>>(
        work: impl Future<Output = T>,
        every: Duration,
        update: impl Fn() -> U,
    ) -> T {
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(every);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => update().await,
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// When output has colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless the environment variable `NO_COLOR` is set
    #[default]
    Auto,
    /// Always, also when piped
    Always,
    /// Never
    Never,
}

/// Colours text, or leaves it unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    painted: bool,
}

impl Style {
    /// Returns the style for this choice. `terminal` is whether the output is a terminal.
    pub fn new(color: Color, terminal: bool, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let plain = || {
            env("NO_COLOR").is_some_and(|set| !set.is_empty())
                || env("TERM").is_some_and(|term| term == "dumb")
        };
        let painted = match color {
            Color::Auto => terminal && !plain(),
            Color::Always => true,
            Color::Never => false,
        };
        Self { painted }
    }

    /// Returns whether this style uses colours.
    pub fn is_painted(self) -> bool {
        self.painted
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.painted && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Formats names, and the most important information.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Formats additional information.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Formats errors.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Formats success.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Formats warnings, and search hits.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Formats the author of a message.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn notes_go_to_standard_error_on_one_line() {
        let (out, errors) = (Buffer::default(), Buffer::default());
        let mut show = Show::plain(Box::new(out.clone()), Box::new(errors.clone()), false);
        show.line("the answer").unwrap();
        show.note("by\nthe way").unwrap();
        drop(show);
        assert_eq!(*out.0.lock().unwrap(), b"the answer\n");
        assert_eq!(*errors.0.lock().unwrap(), b"by the way\n");
    }
}

#[cfg(test)]
mod style_tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_by_default() {
        let none = |_: &str| None;
        let no_color = |name: &str| (name == "NO_COLOR").then(|| "1".to_owned());
        let empty = |name: &str| (name == "NO_COLOR").then(String::new);
        let dumb = |name: &str| (name == "TERM").then(|| "dumb".to_owned());
        let painted = |color, terminal, env: &dyn Fn(&str) -> Option<String>| {
            Style::new(color, terminal, env).is_painted()
        };
        assert!(painted(Color::Auto, true, &none) && painted(Color::Auto, true, &empty));
        assert!(!painted(Color::Auto, false, &none) && !painted(Color::Auto, true, &no_color));
        assert!(!painted(Color::Auto, true, &dumb) && !painted(Color::Never, true, &none));
        assert!(painted(Color::Always, false, &no_color));
    }
}
