//! `epitome condense --explain`: prints which messages would be removed, which would stay, and why.

use epitome::condenser::{Forecast, ForecastReason, MessageForecast};

use super::super::prelude::*;
use crate::condensing::CondenseRequest;
use crate::show::clipped;

/// If many consecutive messages have the same reason, only the first 5 and the last 3 messages are shown.
const SHOWN_FIRST: usize = 5;
const SHOWN_LAST: usize = 3;

/// Maximum number of characters shown of a message.
const PREVIEW_CHARS: usize = 60;

pub(super) fn show(request: &CondenseRequest, forecast: &Forecast, show: &mut Show) -> Result<(), Failure> {
    if show.json {
        return show.object(&request.forecast_json(forecast));
    }
    let style = show.style;
    show.line(style.bold(&head(request, forecast)))?;
    show.line(format!("  trigger   {}", printable(&forecast.trigger)))?;
    for gauge in &forecast.gauges.gauges {
        let met = gauge.need.is_some_and(|need| gauge.have >= need);
        show.line(format!("            {gauge}{}", if met { style.yellow(", met") } else { String::new() }))?;
    }
    show.line(format!("  strategy  {}", printable(&forecast.strategy)))?;
    if !forecast.condenses {
        show.line(format!(
            "  result    {}",
            style.green(&format!("unchanged: {}", printable(&forecast.explanation)))
        ))?;
        if forecast.reason == "not_due" {
            show.line(style.dim("            --force shows what would be removed"))?;
        }
        return Ok(());
    }
    show.line(format!("  result    {}", style.yellow(&result(forecast))))?;
    if let (Some(max_tokens), Some(model)) = (forecast.summary, &forecast.model) {
        show.line(format!(
            "  summary   at most {}, written by {}",
            count(max_tokens, "token"),
            printable(model)
        ))?;
    }
    let (staying, leaving): (Vec<&MessageForecast>, Vec<&MessageForecast>) =
        forecast.messages.iter().partition(|message| message.stays);
    for (title, messages) in [("Removed", leaving), ("Stays", staying)] {
        if messages.is_empty() {
            continue;
        }
        let (number, tokens) = (count(messages.len() as u64, "message"), count(sum(&messages), "token"));
        show.line("")?;
        show.line(format!("{}: {number}, {tokens}", style.bold(title)))?;
        show.table(&table(request, &messages))?;
    }
    Ok(())
}

/// Describes the request in one line.
fn head(request: &CondenseRequest, forecast: &Forecast) -> String {
    let model = request.model().map_or(String::new(), |model| format!(" for {}", printable(model)));
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
        printable(&forecast.explanation)
    )
}

fn sum(messages: &[&MessageForecast]) -> u64 {
    messages.iter().fold(0, |sum, message| sum.saturating_add(message.tokens))
}

/// Returns a table with a row for each message. Shortens long runs of messages with the same reason, see
/// [`SHOWN_FIRST`].
fn table(request: &CondenseRequest, messages: &[&MessageForecast]) -> Table {
    let mut table = Table::new(&["#>", "role", "tokens>", "why", "begins"]);
    for run in
        messages.chunk_by(|one, next| one.why == next.why && one.position.saturating_add(1) == next.position)
    {
        let folds = run.len() > SHOWN_FIRST + SHOWN_LAST + 1;
        let first = if folds { SHOWN_FIRST } else { run.len() };
        let (shown, rest) = run.split_at_checked(first).unwrap_or((run, &[]));
        let (hidden, last) =
            rest.split_at_checked(rest.len().saturating_sub(SHOWN_LAST)).unwrap_or((rest, &[]));
        shown.iter().for_each(|message| table.row(row(request, message)));
        if !hidden.is_empty() {
            let more = format!("and {} more", grouped(hidden.len() as u64));
            table.row(["…".to_owned(), String::new(), grouped(sum(hidden)), String::new(), more]);
        }
        last.iter().for_each(|message| table.row(row(request, message)));
    }
    table
}

fn row(request: &CondenseRequest, message: &MessageForecast) -> [String; 5] {
    let position =
        request.position(message.position).map_or_else(|| "-".to_owned(), |position| position.to_string());
    let preview = clipped(&printable(&request.preview(message)), PREVIEW_CHARS);
    [position, message.role.to_string(), grouped(message.tokens), reason(message.why).to_owned(), preview]
}

fn reason(reason: ForecastReason) -> &'static str {
    match reason {
        ForecastReason::System => "system prompt",
        ForecastReason::Pinned => "pinned",
        ForecastReason::First => "one of the first",
        ForecastReason::LastUser => "last user message",
        ForecastReason::OpenCall => "open tool call",
        ForecastReason::Newest => "newest",
        ForecastReason::Untouched => "unchanged",
        ForecastReason::Summarized => "summarized",
        ForecastReason::Dropped => "dropped",
        ForecastReason::Skipped => "skipped",
        ForecastReason::Stray => "answers no call",
        ForecastReason::Masked => "output shortened",
        ForecastReason::Summary => "previous summary",
        _ => "",
    }
}
