//! Shows the results in a terminal.

use epitome_terminal::failure::Failure;
use epitome_terminal::show::{Show, Table, count, grouped};

use super::results::{Counter, FileResults, MEASURES, PolicyResults, Results, cost_shares, share};

pub(super) fn show(results: &Results, show: &mut Show) -> Result<(), Failure> {
    if show.json {
        return show.object(&results.json());
    }
    for set in results.sets.iter().filter(|set| set.messages > 0) {
        let size =
            format!("{}, {}", count(set.conversations, "conversation"), count(set.messages, "message"));
        show.line(format!("{}: {size}", set.name))?;
        show.line("")?;
        retained(results, set, show)?;
        if results.costs {
            costs(results, set, show)?;
        }
        for ((policy, budget), cell) in &set.cells {
            let budget = budget.map_or_else(String::new, |budget| format!(" {}", grouped(budget)));
            for fault in &cell.sum.faults {
                show.error(format!("{}{budget}: {fault}", results.name(*policy)))?;
            }
        }
    }
    Ok(())
}

/// Shows the table of the measures: what the lists retain.
fn retained(results: &Results, set: &FileResults, show: &mut Show) -> Result<(), Failure> {
    let measures: Vec<_> =
        MEASURES.iter().filter(|(_, of)| set.cells.values().any(|cell| of(cell).count > 0)).collect();
    if measures.is_empty() {
        show.line(
            "what survives: not measured, because no call uses an earlier name and there are no questions",
        )?;
        return show.line("");
    }
    let mut headings = vec!["what survives".to_owned(), "budget>".to_owned()];
    headings.extend(measures.iter().map(|(name, _)| format!("{name}>")));
    headings.push("cases>".to_owned());
    let gaps = set.cells.values().any(|cell| cell.sum.gaps > 0);
    headings.extend(gaps.then(|| "gaps>".to_owned()));
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for ((policy, budget), cell) in &set.cells {
        if measures.iter().all(|(_, of)| of(cell).count == 0) {
            continue;
        }
        let mut row = vec![results.name(*policy).to_owned(), budget.map_or_else(String::new, grouped)];
        row.extend(measures.iter().map(|(_, of)| share(of(cell))));
        row.push(grouped(measures.iter().map(|(_, of)| of(cell).count).max().unwrap_or(0)));
        row.extend(gaps.then(|| grouped(cell.sum.gaps)));
        table.row(row);
    }
    show.table(&table)?;
    if gaps {
        show.line("gaps: number of contexts that leave out messages which no summary covers")?;
    }
    show.line("")
}

/// Shows the cost, in percent of the cost of sending everything.
fn costs(results: &Results, set: &FileResults, show: &mut Show) -> Result<(), Failure> {
    let Some(whole) = results.whole(&set.cells) else { return Ok(()) };
    let any = |of: fn(&PolicyResults) -> u64| set.cells.values().any(|cell| of(cell) > 0);
    let extra: [Counter; 2] =
        [("summaries>", |cell| cell.sum.cost.summaries), ("faults>", |cell| cell.sum.faulty)];
    let extra: Vec<_> = extra.into_iter().filter(|(_, of)| any(*of)).collect();
    let mut headings = vec!["what it costs", "budget>", "plain>", "cached>", "largest>", "cuts>"];
    headings.extend(extra.iter().map(|(name, _)| *name));
    let mut table = Table::new(&headings);
    for ((policy, budget), cell) in &set.cells {
        let cost = &cell.sum.cost;
        let (plain, cached) = cost_shares(cost, &whole);
        let mut row = vec![results.name(*policy).to_owned(), budget.map_or_else(String::new, grouped)];
        row.extend([percent(plain), percent(cached), grouped(cost.peak), grouped(cell.sum.cuts)]);
        row.extend(extra.iter().map(|(_, of)| grouped(of(cell))));
        table.row(row);
    }
    show.table(&table)?;
    let calls = count(whole.calls, "call");
    show.line(format!("{calls}. The costs are in percent of the cost of sending everything."))?;
    show.line("plain: cost without a prompt cache. cached: cost with a prompt cache.")?;
    show.line("largest: size of the largest request, in tokens.")?;
    show.line("cuts: number of requests that do not begin with the whole previous request.")?;
    if !any(|cell| cell.sum.faulty) {
        show.line("Every list was valid and inside its budget.")?;
    }
    show.line("")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
