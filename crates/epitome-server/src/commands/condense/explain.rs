//! `epitome condense --explain`: prints which messages would be removed, which would stay, and why.

use epitome::condenser::{Fate, Forecast, Why};

use super::super::prelude::*;
use crate::condensing::CondenseRequest;
use crate::show::clipped;

/// A longer run of messages with the same reason is shown by its first 5 and its last 3 messages.
const FIRST: usize = 5;
const LAST: usize = 3;

/// Maximum number of characters shown of a message.
const WIDEST: usize = 60;

pub(super) fn show(request: &CondenseRequest, forecast: &Forecast, show: &mut Show) -> Result<(), Failure> {
    if show.json {
        return show.object(&request.forecast_json(forecast));
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
        show.line(format!("  result    {}", style.green(&format!("unchanged: {}", tame(&forecast.told)))))?;
        if forecast.reason == "not_due" {
            show.line(style.dim("            --force shows what would be removed"))?;
        }
        return Ok(());
    }
    show.line(format!("  result    {}", style.yellow(&result(forecast))))?;
    if let (Some(most), Some(model)) = (forecast.summary, &forecast.model) {
        show.line(format!("  summary   at most {}, written by {}", count(most, "token"), tame(model)))?;
    }
    let (stays, leaves): (Vec<&Fate>, Vec<&Fate>) = forecast.messages.iter().partition(|fate| fate.stays);
    for (title, fates) in [("Removed", leaves), ("Stays", stays)] {
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

/// Describes the request in one line.
fn head(request: &CondenseRequest, forecast: &Forecast) -> String {
    let model = request.model().map_or(String::new(), |model| format!(" for {}", tame(model)));
    let used =
        match forecast.window.map(|window| (window, forecast.tokens.saturating_mul(100).checked_div(window)))
        {
            Some((window, Some(percent))) => {
                format!("{} of {} tokens used, {percent} %", grouped(forecast.tokens), grouped(window))
            }
            _ => format!("{}; the model's window is unknown", count(forecast.tokens, "token")),
        };
    format!("{}{model}: {}, {used}", request.dialect(), count(request.len(), "message"))
}

fn result(forecast: &Forecast) -> String {
    let at_most = if forecast.summary.is_some() { "at most " } else { "" };
    format!(
        "{} would be removed, {} become {at_most}{} ({})",
        count(forecast.leaving().count() as u64, "message"),
        count(forecast.tokens, "token"),
        grouped(forecast.tokens_after),
        tame(&forecast.told)
    )
}

fn sum(fates: &[&Fate]) -> u64 {
    fates.iter().fold(0, |sum, fate| sum.saturating_add(fate.tokens))
}

/// One row per message; of a long run, only the first and the last messages.
fn table(request: &CondenseRequest, fates: &[&Fate]) -> Table {
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

fn row(request: &CondenseRequest, fate: &Fate) -> [String; 5] {
    let place = request.position(fate.place).map_or_else(|| "-".to_owned(), |place| place.to_string());
    let preview = clipped(&tame(&request.preview(fate)), WIDEST);
    [place, fate.role.to_string(), grouped(fate.tokens), why(fate.why).to_owned(), preview]
}

fn why(why: Why) -> &'static str {
    match why {
        Why::System => "system prompt",
        Why::Pinned => "pinned",
        Why::First => "one of the first",
        Why::LastUser => "last user message",
        Why::OpenCall => "open tool call",
        Why::Newest => "newest",
        Why::Untouched => "unchanged",
        Why::Summarized => "summarized",
        Why::Dropped => "dropped",
        Why::Skipped => "skipped",
        Why::Stray => "answers no call",
        Why::Masked => "output shortened",
        Why::Summary => "previous summary",
        _ => "",
    }
}
