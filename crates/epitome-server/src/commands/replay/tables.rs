//! The results in a terminal.

use epitome::core::measure::Mean;

use super::results::{Cell, Results, Set};
use crate::failure::Failure;
use crate::show::{Show, Table, count, grouped};

pub(super) fn show(results: &Results, show: &mut Show) -> Result<(), Failure> {
    if show.json {
        return show.object(&results.json());
    }
    for set in results.sets.iter().filter(|set| set.messages > 0) {
        let size =
            format!("{}, {}", count(set.conversations, "conversation"), count(set.messages, "message"));
        show.line(format!("{}: {size}", set.name))?;
        show.line("")?;
        kept(results, set, show)?;
        if results.costs {
            paid(results, set, show)?;
        }
        for cell in set.cells.values() {
            for fault in &cell.sum.faults {
                show.error(fault)?;
            }
        }
    }
    Ok(())
}

/// What survives.
fn kept(results: &Results, set: &Set, show: &mut Show) -> Result<(), Failure> {
    let measures: [(&str, fn(&Cell) -> &Mean); 4] = [
        ("names needed", |cell| &cell.sum.fer),
        ("of long ago", |cell| &cell.sum.fer_far),
        ("answers", |cell| &cell.sum.ar),
        ("evidence", |cell| &cell.sum.er),
    ];
    let there: Vec<_> =
        measures.iter().filter(|(_, of)| set.cells.values().any(|cell| of(cell).count > 0)).collect();
    if there.is_empty() {
        show.line("  nothing in it tells what a later turn needs: no tool calls, no questions")?;
        return show.line("");
    }
    let mut headings = vec!["what survives".to_owned(), "budget>".to_owned()];
    headings.extend(there.iter().map(|(name, _)| format!("{name}>")));
    headings.push("cases>".to_owned());
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for ((policy, budget), cell) in &set.cells {
        if there.iter().all(|(_, of)| of(cell).count == 0) {
            continue;
        }
        let mut row = vec![results.name(*policy).to_owned(), budget.map_or_else(String::new, grouped)];
        row.extend(there.iter().map(|(_, of)| share(of(cell))));
        row.push(grouped(there.iter().map(|(_, of)| of(cell).count).max().unwrap_or(0)));
        table.row(row);
    }
    show.table(&table)?;
    show.line("")
}

fn share(mean: &Mean) -> String {
    match (mean.value(), mean.error()) {
        (Some(value), Some(error)) => format!("{:.1} ±{:.1} %", value * 100.0, error * 100.0),
        (Some(value), None) => format!("{:.1} %", value * 100.0),
        _ => "–".to_owned(),
    }
}

/// What it costs.
fn paid(results: &Results, set: &Set, show: &mut Show) -> Result<(), Failure> {
    let Some(whole) = results.whole(set).map(|cell| cell.sum.cost) else { return Ok(()) };
    let mut table = Table::new(&[
        "what it costs",
        "budget>",
        "calls>",
        "largest>",
        "cuts>",
        "plain>",
        "cached>",
        "summaries>",
        "faults>",
    ]);
    let of_whole = |mine: u64, whole: u64| match whole {
        0 => "–".to_owned(),
        whole => format!("{:.2}", mine as f64 / whole as f64),
    };
    for ((policy, budget), cell) in &set.cells {
        let cost = &cell.sum.cost;
        table.row([
            results.name(*policy).to_owned(),
            budget.map_or_else(String::new, grouped),
            grouped(cost.calls),
            grouped(cost.peak),
            grouped(cell.sum.cuts),
            of_whole(cost.plain.saturating_add(cost.summarizer), whole.plain),
            of_whole(cost.cached().saturating_add(cost.summarizer), whole.cached()),
            grouped(cost.summaries),
            grouped(cell.sum.faulty),
        ]);
    }
    show.table(&table)?;
    show.line("")
}
