//! How things are shown: where words go, in which colours, how wide, and what moves while one waits.
//!
//! Every command is handed a [`Show`] and prints through it alone, so that it can be tried without a process.
//! What is asked for goes to standard output; what only goes with it (notes, progress) to standard error.
//! Colours, bars and cut-off columns are for terminals: what is piped is plain and whole.
//!
//! | what | how |
//! |---|---|
//! | a line of the answer | [`Show::line`] |
//! | a line of JSON, or an object spread out | [`Show::json`], [`Show::object`] |
//! | what was made so far goes out | [`Show::flush`]: after each page of something long |
//! | a remark | [`Show::note`] |
//! | columns | [`Table`] and [`Show::table`] |
//! | colours | `show.style`, a [`Style`] |
//! | numbers, times, sizes | [`grouped`], [`count`], [`ago`], [`utc`], [`bytes`], [`bar`] |
//! | text from outside | [`tame`], [`columns`], [`clipped`] |
//! | something that takes a while | [`Show::progress`] |

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome::rules::message::Timestamp;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
pub use table::Table;
pub use words::{ago, bar, bytes, clipped, columns, count, day, grouped, tame, utc};

use crate::failure::{Failure, Opened, one_line};

mod table;
mod words;

/// Where a command's words go.
pub struct Show {
    out: Box<dyn Write + Send>,
    errors: Box<dyn Write + Send>,
    /// How words are coloured on standard output.
    pub style: Style,
    /// How they are coloured on standard error.
    notes: Style,
    /// How many columns the terminal has; none where it is no terminal, and lines may be as long as they are.
    pub width: Option<usize>,
    /// Whether somebody sees standard error as it is written.
    pub watched: bool,
    /// Whether JSON was asked for: `--json`.
    pub json: bool,
    /// What time it is, for "3 min ago".
    pub now: Timestamp,
}

impl Show {
    /// The program's own standard output and error.
    pub fn process(color: Color, json: bool, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let (out, errors) = (io::stdout(), io::stderr());
        let (seen, watched) = (out.is_terminal(), errors.is_terminal());
        let asked = env("COLUMNS").and_then(|columns| columns.parse::<usize>().ok());
        let size = || console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            style: Style::new(color, seen, env),
            notes: Style::new(color, watched, env),
            width: seen.then(|| size().or(asked).unwrap_or(80).max(20)),
            watched: watched && env("TERM").is_none_or(|term| term != "dumb"),
            now: Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            ..Self::plain(Box::new(BufWriter::with_capacity(1 << 16, out)), Box::new(errors), json)
        }
    }

    /// Plain output into two writers, without colours and of any width; the clock stands at 1970.
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

    /// A line of the answer.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Words of the answer, as they are.
    pub fn raw(&mut self, words: &[u8]) -> Result<(), Failure> {
        Ok(self.out.write_all(words)?)
    }

    /// JSON on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        self.line("")
    }

    /// JSON spread out.
    pub fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from)?;
        self.line("")
    }

    /// An answer of a line: with `--json` this object in its place.
    pub fn answer(&mut self, object: &impl Serialize, line: impl std::fmt::Display) -> Result<(), Failure> {
        if self.json { self.object(object) } else { self.line(line) }
    }

    /// The rows of a table, as wide as the terminal at most.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        for line in table.lines(self.width, self.style) {
            self.line(line)?;
        }
        Ok(())
    }

    /// Sends out what was made so far.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// A remark on standard error, where it is in nobody's way. What was made so far goes out first.
    pub fn note(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.flush()?;
        let line = self.notes.dim(&one_line(&text.to_string()));
        // Nobody is left to be told when this fails.
        let _ = writeln!(self.errors, "{line}");
        Ok(())
    }

    /// Something that is wrong and does not end the command, or not alone: a line on standard error. What was made so
    /// far goes out first.
    pub fn error(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        self.flush()?;
        // Nobody is left to be told when this fails.
        let _ = writeln!(self.errors, "{}", one_line(&text.to_string()));
        Ok(())
    }

    /// The same as [`Show::progress`], of so many bytes.
    pub fn bytes_progress(&self, what: &str, of: u64) -> Progress {
        let look = "{prefix} {wide_bar:.cyan/dim} {bytes} of {total_bytes} {msg}, {eta} left";
        Progress::new(self.watched, what, Some(of), look)
    }

    /// Something that takes a while, shown on standard error where somebody watches. Of so many steps, where that
    /// is known.
    pub fn progress(&self, what: &str, of: Option<u64>) -> Progress {
        let look = match of {
            Some(_) => "{prefix} {wide_bar} {human_pos} of {human_len} {msg}",
            None => "{spinner} {prefix} {msg}",
        };
        Progress::new(self.watched, what, of, look)
    }

    /// Ends it all with a failure's line, where it has one, and tells the exit code.
    pub fn end(&mut self, failure: &Failure, database: Option<&Opened>) -> u8 {
        // What was made before it failed is still true, and whoever reads it sees by the code that there is
        // more.
        let _ = self.out.flush();
        if let Some(line) = failure.line(database) {
            let _ = self.errors.write_all(line.as_bytes());
        }
        failure.code()
    }
}

/// A line on standard error that says how far it is; nothing where nobody watches. Gone when dropped.
#[derive(Debug)]
pub struct Progress {
    /// Where it is told: its position and length, what is being done (its prefix), and a few words (its message).
    pub bar: ProgressBar,
}

impl Progress {
    /// As it looks by this template of `indicatif`'s.
    pub(crate) fn new(watched: bool, what: &str, of: Option<u64>, look: &str) -> Self {
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(of, target);
        // The look is ours and right; were it not, the usual one would do.
        if let Ok(style) = ProgressStyle::with_template(look) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        if watched {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Waits for something, and has a look every so often at how far it is.
    pub async fn during<T, L: Future<Output = ()>>(
        work: impl Future<Output = T>,
        every: Duration,
        look: impl Fn() -> L,
    ) -> T {
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(every);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => look().await,
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// When there are colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless the environment says `NO_COLOR`
    #[default]
    Auto,
    /// Also where it is piped
    Always,
    /// Nowhere
    Never,
}

/// Paints words, or leaves them as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    painted: bool,
}

impl Style {
    /// As asked for, on something that is a terminal or not.
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

    /// Whether anything is painted at all.
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

    /// Names, and what matters most.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What only goes with it.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// What is wrong.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What is well.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What should be looked at, and what was found.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Who speaks.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, words: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(words)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn remarks_go_elsewhere_and_on_one_line() {
        let (out, errors) = (Written::default(), Written::default());
        let mut show = Show::plain(Box::new(out.clone()), Box::new(errors.clone()), false);
        show.line("asked for").unwrap();
        show.note("by\nthe way").unwrap();
        drop(show);
        assert_eq!(*out.0.lock().unwrap(), b"asked for\n");
        assert_eq!(*errors.0.lock().unwrap(), b"by the way\n");
    }
}

#[cfg(test)]
mod style_tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_told_otherwise() {
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
