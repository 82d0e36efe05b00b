//! One page that stands by itself: no script, nothing fetched.

use std::fmt::Write;

use epitome::core::measure::Mean;

use super::chart::{self, escaped};
use super::results::{Cell, Results, Set};
use crate::show::{count, grouped};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#111;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e4e4e4}\
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #999}\
svg{max-width:100%;height:auto;display:block;margin:1rem 0}\
.big{font-size:1.15rem;background:#f3f6f9;border-left:4px solid #0072b2;padding:.6rem 1rem}\
.bad{border-left-color:#d55e00}.small{color:#555;font-size:.9rem}";

pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>What will I lose, what will I save?</title><style>{STYLE}</style></head><body>\n\
         <h1>What will I lose, what will I save?</h1>\n\
         <p>Recorded conversations, played message by message through Epitome {}. Before each reply the list was made \
         that the agent's model would have been sent, from what had been said until then. What survives is measured by \
         what the recording turns out to need next; what it costs, by what was sent.</p>\n",
        env!("CARGO_PKG_VERSION"),
    );
    for set in results.sets.iter().filter(|set| set.messages > 0) {
        section(results, set, &mut out);
    }
    out.push_str(METHOD);
    out.push_str("</body></html>\n");
    out
}

fn section(results: &Results, set: &Set, out: &mut String) {
    let _ = write!(
        out,
        "<h2>{}</h2>\n<p class=\"small\">{}, {}</p>\n",
        escaped(&set.name),
        count(set.conversations, "conversation"),
        count(set.messages, "message"),
    );
    for line in said(results, set) {
        let _ = writeln!(out, "<p class=\"big\">{}</p>", escaped(&line));
    }
    let faulty: u64 = set.cells.values().map(|cell| cell.sum.faulty).sum();
    if faulty > 0 {
        let _ = writeln!(
            out,
            "<p class=\"big bad\">{} a provider would refuse or that broke a promise.</p>",
            count(faulty, "list")
        );
    }
    for chart in chart::of_set(results, set) {
        out.push_str(&chart.svg());
    }
    table(results, set, out);
}

/// The answer in words: for each policy the largest and the smallest budget.
fn said(results: &Results, set: &Set) -> Vec<String> {
    let whole = results.whole(set).map(|cell| cell.sum.cost);
    let mut lines = Vec::new();
    for ((policy, budget), cell) in &set.cells {
        let name = results.name(*policy);
        let end = budget.is_none_or(|budget| {
            results.budgets.first() == Some(&budget) || results.budgets.last() == Some(&budget)
        });
        if name == "whole" || !end {
            continue;
        }
        let mut parts = Vec::new();
        let kept =
            |mean: &Mean, what: &str| mean.value().map(|value| format!("{:.0} % of {what}", value * 100.0));
        parts.extend(kept(&cell.sum.fer, "the names a later call needed"));
        parts.extend(kept(&cell.sum.ar, "the answers"));
        parts.extend(kept(&cell.sum.er, "the evidence"));
        let saved = whole.filter(|whole| results.costs && whole.plain > 0).map(|whole| {
            let cost = &cell.sum.cost;
            let of = |mine: u64, whole: u64| 100.0 * (1.0 - mine as f64 / (whole as f64).max(1.0));
            let (plain, cached) = (
                of(cost.plain + cost.summarizer, whole.plain),
                of(cost.cached() + cost.summarizer, whole.cached()),
            );
            let word = |saved: f64| match saved {
                saved if saved >= 0.0 => format!("{saved:.0} % less"),
                more => format!("{:.0} % more", -more),
            };
            format!("it costs {} than everything, {} with a prompt cache", word(plain), word(cached))
        });
        if parts.is_empty() && saved.is_none() {
            continue;
        }
        let budget = budget.map_or_else(String::new, |budget| format!(" with {} tokens", grouped(budget)));
        let kept = if parts.is_empty() { String::new() } else { format!(" keeps {}", parts.join(", ")) };
        let saved = saved.map_or_else(String::new, |saved| format!("; {saved}"));
        lines.push(format!("{name}{budget}{kept}{saved}."));
    }
    lines
}

fn table(results: &Results, set: &Set, out: &mut String) {
    out.push_str(
        "<table><thead><tr><th>policy</th><th>budget</th><th>names</th><th>long ago</th><th>answers</th>\
         <th>evidence</th><th>largest</th><th>cuts</th><th>plain</th><th>cached</th><th>faults</th></tr></thead><tbody>\n",
    );
    let whole = results.whole(set).map(|cell| cell.sum.cost);
    for ((policy, budget), cell) in &set.cells {
        let Cell { sum, .. } = cell;
        let cost = &sum.cost;
        let of = |mine: u64, whole: u64| {
            if whole > 0 { format!("{:.2}", mine as f64 / whole as f64) } else { String::new() }
        };
        let plain = whole.map_or_else(String::new, |whole| of(cost.plain + cost.summarizer, whole.plain));
        let cached =
            whole.map_or_else(String::new, |whole| of(cost.cached() + cost.summarizer, whole.cached()));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{plain}</td><td>{cached}</td><td>{}</td></tr>",
            escaped(results.name(*policy)),
            budget.map_or_else(String::new, grouped),
            share(&sum.fer),
            share(&sum.fer_far),
            share(&sum.ar),
            share(&sum.er),
            if results.costs { grouped(cost.peak) } else { String::new() },
            if results.costs { grouped(sum.cuts) } else { String::new() },
            sum.faulty,
        );
    }
    out.push_str("</tbody></table>\n");
}

fn share(mean: &Mean) -> String {
    mean.value().map_or_else(String::new, |value| format!("{:.1} %", value * 100.0))
}

const METHOD: &str = "<h2>How this was measured</h2>\n\
<p class=\"small\">Names: of the paths, identifiers, ids, dates and figures that the next tool call uses and that were \
seen before it, those the list still holds word for word; long ago means more than 2,000 tokens back. Answers: questions \
about the conversation of which some passage of the list holds three quarters of the answer's words and a word of the \
question. Evidence: the share of the words of the messages that prove an answer, in the best single passage. Messages \
that always stay are not counted in a budget. Cost is in tokens of plain input: plain where all input costs the same; \
cached where the beginning that a request shares with the one before it costs a tenth and everything else a quarter \
more. A model's summaries are in both. These measures see words, not meaning: a paraphrase counts as lost, and a name \
that is there may stand in the wrong place.</p>\n";
