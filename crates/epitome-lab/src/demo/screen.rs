//! Formats the demo's output. The output has one accent colour, and is as wide as the terminal, but at most 110
//! columns.

use std::path::Path;
use std::time::Duration;

use epitome::rules::message::{Message, Tokens};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::{Show, clipped, count, display_width, grouped};

use super::numbers::{
    ContextSize, FactCheck, OneSummary, PRICE, PRICED_MODEL, Played, Savings, WrittenSummary,
};

/// Colour of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    Plain,
    Bold,
    /// Secondary text.
    Dim,
    /// Accent colour, for example of summaries and commands.
    Accent,
    /// A good result.
    Good,
    /// A result that needs attention.
    Bad,
}

use Ink::{Accent, Bad, Bold, Dim, Good, Plain};

/// A piece of a line with its colour.
type Span = (Ink, String);

fn piece(ink: Ink, text: impl Into<String>) -> Span {
    (ink, text.into())
}

/// The demo's output.
pub(super) struct Screen<'a> {
    show: &'a mut Show,
    /// Text width in columns.
    width: usize,
    /// Whether the output is a terminal, with a progress line and pauses.
    live: bool,
    /// Whether all text output is suppressed, because the result is one JSON object.
    mute: bool,
    /// Whether the progress line is currently shown.
    moving: bool,
    /// The latest message of a person, for the progress line.
    said: String,
}

impl<'a> Screen<'a> {
    pub(super) fn new(show: &'a mut Show, fast: bool, mute: bool) -> Self {
        let live = !fast && show.watched && show.width.is_some();
        let width = show.width.unwrap_or(80).min(110);
        Self { show, width, live, mute, moving: false, said: String::new() }
    }

    /// Pauses if the output is live.
    pub(super) async fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        if self.live {
            self.show.flush()?;
            tokio::time::sleep(time).await;
        }
        Ok(())
    }

    /// Prints the introduction.
    pub(super) fn opening(&mut self, messages: &[Message]) -> Result<(), Failure> {
        let calls: u64 = messages.iter().map(|message| message.calls().count() as u64).sum();
        self.line(&[piece(Bold, "A long conversation, condensed but complete")])?;
        self.blank()?;
        self.paragraph(&format!(
            "An engineer on call and her agent debug a failing checkout for two days: {}, {}. Sending the whole \
             conversation with each model call is slow and expensive, and later the conversation exceeds the model's \
             window. Epitome stores every message, and writes summaries while the conversation grows. This demo uses \
             the built-in extractive summarizer, which needs no key and no network.",
            count(messages.len() as u64, "message"),
            count(calls, "tool call"),
        ))?;
        self.blank()?;
        let tokens = if self.is_narrow() {
            "tokens replaced → summary"
        } else {
            "tokens: old summary + messages → new summary"
        };
        self.line(&[piece(Dim, format!("  slot   covers       {tokens}        took"))])
    }

    /// Updates the progress line, which shows a bar, counts, and the latest message of a person.
    pub(super) async fn progress(
        &mut self,
        message: &Message,
        done: u64,
        all: u64,
        tokens: Tokens,
    ) -> Result<(), Failure> {
        if !self.live {
            return Ok(());
        }
        let spoken = message.author.as_deref().zip(message.parts.first());
        if let Some((who, epitome::rules::message::Part::Text { text })) = spoken {
            self.said = format!("{who}: {text}");
        }
        let (full, empty) = bar(done, all, 14);
        let counts = format!("  {done:>3} messages {:>6} tokens  ", grouped(tokens));
        let left = self.width.saturating_sub(display_width(&counts) + 16 + 1);
        let pieces = [
            piece(Plain, "  "),
            piece(Accent, full),
            piece(Dim, empty),
            piece(Plain, counts),
            piece(Dim, clipped(&self.said, left)),
        ];
        // The last column stays empty, because a terminal may begin a new line after a character in that column.
        let line = self.painted(&fitting(&pieces, self.width.saturating_sub(1)));
        self.show.raw(format!("\r{line}\u{1b}[K").as_bytes())?;
        self.moving = true;
        let millis = if spoken.is_some() { 60 } else { 7 };
        self.pause(Duration::from_millis(millis)).await
    }

    /// Prints a row for a new summary.
    pub(super) fn written(&mut self, written: &WrittenSummary) -> Result<(), Failure> {
        let ink = if written.slot == "long" { Accent } else { Plain };
        let (replaced, new) = if self.is_narrow() { (18, 7) } else { (33, 11) };
        self.line(&[
            piece(ink, format!("  {:5}", written.slot)),
            piece(Plain, format!("  1-{:<8}", written.through)),
            piece(Dim, format!("{:>replaced$} → ", grouped(written.replaced))),
            piece(Plain, format!("{:new$}", format!("{:>5}", grouped(written.tokens)))),
            piece(Dim, format!("{:>12}", took(written.millis.saturating_mul(1_000)))),
        ])
    }

    /// Prints the totals at the end of the story.
    pub(super) fn played(&mut self, played: &Played) -> Result<(), Failure> {
        self.blank()?;
        let spent: u64 = played.summaries.iter().map(|written| written.tokens).max().unwrap_or(0);
        self.paragraph(&format!(
            "{} with {} are stored verbatim. {} were also written. The longest summary has {} tokens.",
            count(played.messages, "message"),
            count(played.tokens, "token"),
            count(played.summaries.len() as u64, "summary"),
            grouped(spent),
        ))
    }

    /// Prints a table of the contexts, one row per budget.
    pub(super) fn sizes(&mut self, sizes: &[ContextSize], all: Tokens) -> Result<(), Failure> {
        self.heading(&format!("{} tokens, condensed to the budget you request", grouped(all)))?;
        let drawn = self.width >= 76;
        let bars = if drawn { self.width.saturating_sub(61).min(28) } else { 0 };
        let space = " ".repeat(if drawn { bars + 2 } else { 0 });
        let head = format!("  budget    used  {space}summary  verbatim  exhaustive        took");
        self.line(&[piece(Dim, head)])?;
        for size in sizes {
            let mut line = vec![
                piece(Bold, format!("  {:>6}", grouped(size.budget))),
                piece(Plain, format!("  {:>6}  ", grouped(size.used))),
            ];
            if drawn {
                line.extend(parts(size, bars));
                line.push(piece(Plain, "  "));
            }
            let through = size.summary_through.map_or("-".to_owned(), |through| format!("1-{through}"));
            let (ink, whole) = if size.exhaustive { (Good, "yes") } else { (Bad, "no") };
            line.extend([
                piece(Plain, format!("{through:>7}  {:>8}  ", size.verbatim)),
                piece(ink, format!("{whole:>10}")),
                piece(Dim, format!("  {:>10}", took(size.micros))),
            ]);
            self.line(&line)?;
        }
        if drawn {
            self.line(&[
                piece(Plain, format!("{:18}", "")),
                piece(Plain, "▓"),
                piece(Dim, " pinned  "),
                piece(Accent, "█"),
                piece(Dim, " summary  "),
                piece(Good, "▒"),
                piece(Dim, " messages  "),
                piece(Dim, "· free"),
            ])?;
        }
        self.blank()?;
        self.paragraph(
            "A context contains a summary and the messages after the summary. With --fill, a context uses the rest \
             of its budget for older messages, verbatim.",
        )?;
        if let Some((size, gap)) = sizes.iter().find_map(|size| Some((size, size.gap?))) {
            self.blank()?;
            self.paragraph(&format!(
                "A context is exhaustive if each message is verbatim or covered by the summary. Here, {} tokens are \
                 not enough for that. The context reports that messages {}-{} are missing.",
                grouped(size.budget),
                gap.from,
                gap.through,
            ))?;
        }
        Ok(())
    }

    /// Prints which early facts each context contains, and which facts a search finds.
    pub(super) fn facts(&mut self, facts: &[FactCheck], sizes: &[ContextSize]) -> Result<(), Failure> {
        self.heading("What the contexts contain, and what a search finds")?;
        self.paragraph(
            "The last message requests the incident report, which needs facts from earlier messages. The table shows \
             which contexts contain each fact, and whether a search finds the fact.",
        )?;
        self.blank()?;
        // A narrow terminal has no room for all columns. The message number is left out there, and the description is
        // shortened.
        let narrow = self.is_narrow();
        let (size_width, search_width) = if narrow { (4, 7) } else { (5, 8) };
        let whole = facts.iter().map(|fact| display_width(fact.what)).max().unwrap_or(0).max(35);
        let rest = 2 + sizes.len() * size_width + search_width;
        let what = if narrow { self.width.saturating_sub(rest).clamp(8, whole) } else { whole };
        let where_said = |said: &str| if narrow { String::new() } else { format!("  {said:>7}") };
        let mut head = format!("  {:what$}{}", "", where_said("said in"));
        for size in sizes {
            head.push_str(&format!("{:>size_width$}", short(size.budget)));
        }
        head.push_str(&format!("{:>search_width$}", "search"));
        self.line(&[piece(Dim, head)])?;
        for fact in facts {
            let said = fact.message.map_or("-".to_owned(), |seq| format!("#{seq}"));
            let named = clipped(fact.what, what);
            let mut line = vec![piece(Plain, format!("  {named:what$}")), piece(Dim, where_said(&said))];
            line.extend(fact.in_contexts.iter().map(|there| mark(*there, size_width)));
            line.push(mark(fact.message.is_some(), search_width));
            self.line(&line)?;
        }
        let of = facts.len();
        let found = facts.iter().filter(|fact| fact.message.is_some()).count();
        let sum = |named: String, holds: &dyn Fn(&FactCheck, usize) -> bool| {
            let counts = (0..sizes.len()).map(|at| facts.iter().filter(|fact| holds(fact, at)).count());
            let counts: String = counts.map(|count| format!("{count:>size_width$}")).collect();
            format!("  {:what$}{}{counts}", clipped(&named, what), where_said(""))
        };
        let ours =
            sum(format!("in the context, of {of}"), &|fact, at| fact.in_contexts.get(at) == Some(&true));
        let alone = if narrow { "newest messages alone" } else { "in the newest messages alone" };
        let recent = sum(format!("{alone}, of {of}"), &|fact, at| fact.in_recent.get(at) == Some(&true));
        self.line(&[piece(Bold, format!("{ours}{found:>search_width$}"))])?;
        self.line(&[piece(Dim, recent)])?;
        let missing = |fact: &&FactCheck| fact.in_contexts.get(1) == Some(&false) && fact.excerpt.is_some();
        let Some((fact, size)) = facts.iter().find(missing).zip(sizes.get(1)) else { return Ok(()) };
        self.blank()?;
        self.paragraph(&format!(
            "A search also finds facts that a context of {} tokens does not contain. For example, the query {} finds \
             message #{}: \"{}\"",
            grouped(size.budget),
            fact.query,
            fact.message.unwrap_or(0),
            fact.excerpt.as_deref().unwrap_or_default(),
        ))
    }

    /// Prints one complete summary.
    pub(super) fn summary(&mut self, summary: &OneSummary) -> Result<(), Failure> {
        self.heading(&format!(
            "The summary in a context of {} tokens: messages 1-{} in {} tokens",
            grouped(summary.budget),
            summary.through,
            summary.tokens
        ))?;
        for line in summary.text.lines() {
            for (at, row) in wrapped(line, self.width.saturating_sub(4)).into_iter().enumerate() {
                let indent = if at == 0 { "  " } else { "    " };
                self.line(&[piece(Plain, indent), piece(Plain, row)])?;
            }
        }
        Ok(())
    }

    /// Prints the tokens sent and their cost.
    pub(super) fn savings(&mut self, savings: &Savings) -> Result<(), Failure> {
        self.heading(&format!("Tokens sent in the agent's {} model calls", grouped(savings.calls)))?;
        let narrow = self.is_narrow();
        let [label, tokens, price, caching] = if narrow { [22, 10, 12, 14] } else { [34, 12, 14, 16] };
        let head = format!(
            "  {:label$}{:>tokens$}{:>price$}{:>caching$}",
            "", "tokens", "list price", "with caching"
        );
        self.line(&[piece(Dim, head)])?;
        let budget = grouped(savings.budget);
        let (whole, contexts) = if narrow {
            ("whole conversation", format!("contexts of ≤ {budget}"))
        } else {
            ("the whole conversation", format!("contexts of at most {budget} tokens"))
        };
        for (what, sent, ink) in
            [(whole, &savings.whole, Plain), (contexts.as_str(), &savings.contexts, Good)]
        {
            let (list, cached) = (money(sent.dollars), money(sent.dollars_with_caching));
            self.line(&[
                piece(Plain, format!("  {what:label$}")),
                piece(ink, format!("{:>tokens$}{list:>price$}", grouped(sent.tokens))),
                piece(Dim, format!("{cached:>caching$}")),
            ])?;
        }
        self.blank()?;
        self.line(&[piece(Good, format!("  {:.1} times fewer tokens.", savings.times))])?;
        let left = savings.calls.saturating_sub(savings.exhaustive);
        let all = match left {
            0 => "All contexts were exhaustive".to_owned(),
            _ => format!(
                "{} contexts were exhaustive. In the other {left} contexts, some messages after the last summary did \
                 not fit; each of these contexts reports its missing messages",
                grouped(savings.exhaustive)
            ),
        };
        self.dim_paragraph(&format!(
            "{all}. The prices are an example: {PRICED_MODEL} has a list price of ${PRICE:.2} for a million input \
             tokens. With prompt caching, contexts save less. The last column shows the best case for caching: a \
             token that the previous call had at the same position costs a tenth of the list price, and every other \
             token costs a quarter more than the list price."
        ))
    }

    /// Prints commands to try.
    pub(super) fn next(&mut self, path: &Path, program: &str, session: &str) -> Result<(), Failure> {
        self.heading("Try it on this conversation")?;
        let path = path.display().to_string();
        let db = if path.contains([' ', '\'', '"']) { format!("{path:?}") } else { path };
        self.whole_line(&[piece(Accent, format!("  export EPITOME_DB={db}"))])?;
        for command in [
            format!("context {session} --tokens 1000"),
            "search ord_58213".to_owned(),
            format!("explain {session}"),
            format!("expand {session} --slot short --limit 5"),
            format!("undo {session} --slot short"),
            "--help".to_owned(),
        ] {
            self.whole_line(&[piece(Accent, format!("  {program} {command}"))])?;
        }
        Ok(())
    }

    /// Returns whether the terminal is too narrow for all table columns.
    fn is_narrow(&self) -> bool {
        self.width < 80
    }

    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        self.blank()?;
        for row in wrapped(text, self.width) {
            self.line(&[piece(Bold, row)])?;
        }
        self.blank()
    }

    fn blank(&mut self) -> Result<(), Failure> {
        self.line(&[])
    }

    fn paragraph(&mut self, text: &str) -> Result<(), Failure> {
        for row in wrapped(text, self.width) {
            self.line(&[piece(Plain, row)])?;
        }
        Ok(())
    }

    fn dim_paragraph(&mut self, text: &str) -> Result<(), Failure> {
        for row in wrapped(text, self.width.saturating_sub(2)) {
            self.line(&[piece(Dim, format!("  {row}"))])?;
        }
        Ok(())
    }

    /// Prints a line, clipped to the terminal's width.
    fn line(&mut self, pieces: &[Span]) -> Result<(), Failure> {
        let fitting = fitting(pieces, self.show.width.unwrap_or(usize::MAX));
        self.whole_line(&fitting)
    }

    /// Prints a line without clipping it, so that the user can copy a whole command.
    fn whole_line(&mut self, pieces: &[Span]) -> Result<(), Failure> {
        if self.mute {
            return Ok(());
        }
        if std::mem::take(&mut self.moving) {
            self.show.raw(b"\r\x1b[K")?;
        }
        let line = self.painted(pieces);
        self.show.line(line.trim_end())?;
        if self.live { self.show.flush() } else { Ok(()) }
    }

    fn painted(&self, pieces: &[Span]) -> String {
        let style = self.show.style;
        let paint = |(ink, text): &Span| match ink {
            Plain => text.clone(),
            Bold => style.bold(text),
            Dim => style.dim(text),
            Accent => style.cyan(text),
            Good => style.green(text),
            Bad => style.yellow(text),
        };
        pieces.iter().map(paint).collect()
    }
}

/// Clips a line to `left` columns.
fn fitting(pieces: &[Span], mut left: usize) -> Vec<Span> {
    let mut fitting = Vec::new();
    for (ink, text) in pieces {
        if left == 0 {
            break;
        }
        let short = clipped(text, left);
        left = if short == *text { left.saturating_sub(display_width(text)) } else { 0 };
        fitting.push((*ink, short));
    }
    fitting
}

/// Formats a duration in whole milliseconds, so that the output rarely differs between runs.
fn took(micros: u64) -> String {
    if micros < 1_000 { "under 1 ms".to_owned() } else { format!("{} ms", grouped(micros / 1_000)) }
}

/// Formats a token count, for example `16k`.
fn short(tokens: Tokens) -> String {
    if tokens >= 1_000 && tokens.is_multiple_of(1_000) {
        format!("{}k", tokens / 1_000)
    } else {
        tokens.to_string()
    }
}

fn money(dollars: f64) -> String {
    format!("${dollars:.2}")
}

/// Returns `✓` if the context or the search has the fact (`there`), otherwise `·`.
fn mark(there: bool, width: usize) -> Span {
    if there { piece(Good, format!("{:>width$}", "✓")) } else { piece(Dim, format!("{:>width$}", "·")) }
}

/// Returns the full part and the empty part of a progress bar.
fn bar(have: u64, need: u64, columns: usize) -> (String, String) {
    let full = share(have, need, columns);
    ("█".repeat(full), "░".repeat(columns.saturating_sub(full)))
}

/// Returns how many columns of a bar are full.
fn share(have: u64, need: u64, columns: usize) -> usize {
    let full = u128::from(have) * columns as u128 / u128::from(need.max(1));
    usize::try_from(full).unwrap_or(columns).min(columns)
}

/// Draws a bar that shows how a context's budget is used. Every part that is not empty gets at least one column.
fn parts(size: &ContextSize, columns: usize) -> Vec<Span> {
    let mut left = columns;
    let mut drawn = Vec::new();
    let spent =
        [(size.pinned(), Plain, "▓"), (size.spent.summary, Accent, "█"), (size.spent.messages, Good, "▒")];
    for (tokens, ink, glyph) in spent {
        let wide = share(tokens, size.budget, columns).max(usize::from(tokens > 0)).min(left);
        left = left.saturating_sub(wide);
        drawn.push(piece(ink, glyph.repeat(wide)));
    }
    drawn.push(piece(Dim, "·".repeat(left)));
    drawn
}

/// Wraps a text at `width` columns. A word that is longer than `width` gets its own row.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if display_width(row) + 1 + display_width(word) <= width => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}
