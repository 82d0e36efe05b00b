//! `epitome condense --explain`: what would leave, what would stay, and why, as people read it.

use epitome::condenser::{Fate, Forecast, Why};

use super::super::prelude::*;
use crate::condensing::Request;
use crate::show::clipped;

/// A run of messages with the same fate is shown by its first and its last ones, where it is longer than both.
const FIRST: usize = 5;
const LAST: usize = 3;

/// So much of a message is shown.
const WIDEST: usize = 60;

pub(super) fn show(request: &Request, forecast: &Forecast, show: &mut Show) -> Result<(), Failure> {
    if show.json {
        return show.object(&request.told(forecast));
    }
    let style = show.style;
    show.line(style.bold(&head(request, forecast)))?;
    show.line(format!("  trigger   {}", tame(&forecast.trigger)))?;
    for gauge in &forecast.gauges.gauges {
        let met = gauge.need.is_some_and(|need| gauge.have >= need);
        show.line(format!("            {gauge}{}", if met { style.yellow(", met") } else { String::new() }))?;
    }
    show.line(format!("  strategy  {}", tame(&forecast.strategy)))?;
    if !forecast.condenses {
        show.line(format!("  result    {}", style.green(&format!("as it is: {}", tame(&forecast.told)))))?;
        if forecast.reason == "not_due" {
            show.line(style.dim("            with --force it says what would leave"))?;
        }
        return Ok(());
    }
    show.line(format!("  result    {}", style.yellow(&result(forecast))))?;
    if let (Some(most), Some(model)) = (forecast.summary, &forecast.model) {
        show.line(format!("  summary   of at most {}, by {}", count(most, "token"), tame(model)))?;
    }
    let (stays, leaves): (Vec<&Fate>, Vec<&Fate>) = forecast.messages.iter().partition(|fate| fate.stays);
    for (title, fates) in [("Leaves", leaves), ("Stays", stays)] {
        if fates.is_empty() {
            continue;
        }
        let (messages, tokens) = (count(fates.len() as u64, "message"), count(sum(&fates), "token"));
        show.line("")?;
        show.line(format!("{}: {messages}, {tokens}", style.bold(title)))?;
        show.table(&table(request, &fates))?;
    }
    Ok(())
}

/// What the request is, on a line.
fn head(request: &Request, forecast: &Forecast) -> String {
    let model = request.model().map_or(String::new(), |model| format!(" for {}", tame(model)));
    let used =
        match forecast.window.map(|window| (window, forecast.tokens.saturating_mul(100).checked_div(window)))
        {
            Some((window, Some(percent))) => {
                format!("{} of {} tokens used, {percent} %", grouped(forecast.tokens), grouped(window))
            }
            _ => format!("{}, of a window nobody knows", count(forecast.tokens, "token")),
        };
    format!("{}{model}: {}, {used}", request.dialect(), count(request.len(), "message"))
}

fn result(forecast: &Forecast) -> String {
    let at_most = if forecast.summary.is_some() { "at most " } else { "" };
    format!(
        "{} would leave, {} become {at_most}{} ({})",
        count(forecast.leaving().count() as u64, "message"),
        count(forecast.tokens, "token"),
        grouped(forecast.tokens_after),
        tame(&forecast.told)
    )
}

fn sum(fates: &[&Fate]) -> u64 {
    fates.iter().fold(0, |sum, fate| sum.saturating_add(fate.tokens))
}

/// A row for each message; of long runs the first and the last ones.
fn table(request: &Request, fates: &[&Fate]) -> Table {
    let mut table = Table::new(&["#>", "role", "tokens>", "why", "begins"]);
    for run in fates.chunk_by(|one, next| one.why == next.why && one.place.saturating_add(1) == next.place) {
        let folds = run.len() > FIRST + LAST + 1;
        let first = if folds { FIRST } else { run.len() };
        let (shown, rest) = run.split_at_checked(first).unwrap_or((run, &[]));
        let (hidden, last) = rest.split_at_checked(rest.len().saturating_sub(LAST)).unwrap_or((rest, &[]));
        shown.iter().for_each(|fate| table.row(row(request, fate)));
        if !hidden.is_empty() {
            let more = format!("and {} more", grouped(hidden.len() as u64));
            table.row(["…".to_owned(), String::new(), grouped(sum(hidden)), String::new(), more]);
        }
        last.iter().for_each(|fate| table.row(row(request, fate)));
    }
    table
}

fn row(request: &Request, fate: &Fate) -> [String; 5] {
    let place = request.place(fate.place).map_or_else(|| "-".to_owned(), |place| place.to_string());
    let begins = clipped(&tame(&request.begins(fate)), WIDEST);
    [place, fate.role.to_string(), grouped(fate.tokens), why(fate.why).to_owned(), begins]
}

fn why(why: Why) -> &'static str {
    match why {
        Why::System => "standing orders",
        Why::Pinned => "pinned",
        Why::First => "among the first",
        Why::LastUser => "last thing asked",
        Why::OpenCall => "waits for an answer",
        Why::Newest => "newest",
        Why::Untouched => "as it is",
        Why::Summarized => "into the summary",
        Why::Dropped => "dropped",
        Why::Skipped => "skipped",
        Why::Stray => "answers nothing",
        Why::Masked => "output shortened",
        Why::Summary => "the summary before",
        _ => "",
    }
}
