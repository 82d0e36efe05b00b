//! Writes the results as one HTML page without scripts or external resources.

use std::fmt::Write;

use epitome::rules::message::Tokens;
use epitome_terminal::show::{count, grouped};

use super::chart::{self, escaped};
use super::results::{Cells, Counter, FileResults, MEASURES, PolicyResults, Results, cost_shares, share};
use crate::evaluation::Mean;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#111;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}\
table{border-collapse:collapse;margin:1rem 0;font-size:.85rem;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #e4e4e4;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #999;white-space:normal;vertical-align:bottom}\
.wide{overflow-x:auto}\
svg{max-width:100%;height:auto;display:block;margin:1rem 0}\
.big{font-size:1.1rem;background:#f3f6f9;border-left:4px solid #0072b2;padding:.5rem 1rem;margin:.4rem 0}\
.bad{border-left-color:#d55e00}.small{color:#555;font-size:.9rem}\
@media print{body{font-size:10px;margin:0}svg,tr{break-inside:avoid}}";

pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>What will I lose, what will I save?</title><style>{STYLE}</style></head><body>\n\
         <h1>What will I lose, what will I save?</h1>\n",
    );
    let pooled = results.pooled();
    for line in sentences(results, &pooled) {
        let _ = writeln!(out, "<p class=\"big\">{line}</p>");
    }
    let faulty = results.faulty();
    if faulty > 0 {
        let _ = writeln!(
            out,
            "<p class=\"big bad\">{}. A fault is a list that a provider rejects, a list over its budget, or a failed \
             summary.</p>",
            count(faulty, "fault")
        );
    }
    let sum = |of: fn(&FileResults) -> u64| results.sets.iter().map(of).sum();
    let _ = writeln!(
        out,
        "<p>{} with {} were played message by message through Epitome {}. Before each reply, each policy built the \
         list that the agent's model would have received. The next tool calls use names from earlier messages, and \
         questions have answers in earlier messages. The loss is the share of these names and answers that the list \
         does not contain. The saving is computed from the tokens sent.</p>",
        count(sum(|set| set.conversations), "recorded conversation"),
        count(sum(|set| set.messages), "message"),
        env!("CARGO_PKG_VERSION"),
    );
    if results.sets.iter().filter(|set| set.messages > 0).count() > 1 {
        out.push_str("<h2>All together</h2>\n");
        table(results, &pooled, &mut out);
    }
    for set in results.sets.iter().filter(|set| set.messages > 0) {
        section(results, set, &mut out);
    }
    out.push_str(METHOD);
    out.push_str("</body></html>\n");
    out
}

fn section(results: &Results, set: &FileResults, out: &mut String) {
    let _ = write!(
        out,
        "<h2>{}</h2>\n<p class=\"small\">{}, {}</p>\n",
        escaped(&set.name),
        count(set.conversations, "conversation"),
        count(set.messages, "message"),
    );
    for chart in chart::of_set(results, set) {
        out.push_str(&chart.svg(false));
    }
    table(results, &set.cells, out);
}

/// Returns one sentence for each policy. The sentence is about the middle budget. If there is no measurement with the
/// middle budget, the sentence is about the next smaller budget with a measurement.
fn sentences(results: &Results, cells: &Cells) -> Vec<String> {
    let whole = results.whole(cells);
    let is_measured = |cell: &PolicyResults| cell.sum.fer.count + cell.sum.ar.count + cell.sum.er.count > 0;
    let has =
        |budget: &&Tokens| cells.iter().any(|((_, of), cell)| *of == Some(**budget) && is_measured(cell));
    let middle = results.budgets.len() / 2;
    let small = results.budgets.get(..=middle).unwrap_or_default();
    let shown = small.iter().rev().find(has).or(results.budgets.get(middle));
    let mut lines = Vec::new();
    for ((policy, budget), cell) in cells {
        if results.is_whole(*policy) || budget.is_some_and(|budget| shown != Some(&budget)) {
            continue;
        }
        let lost = |mean: &Mean, what: String| {
            mean.value().map(|retained| match (1.0 - retained) * 100.0 {
                little if little > 0.0 && little < 1.0 => format!("<b>under 1&nbsp;%</b> of {what}"),
                lost => format!("<b>{lost:.0}&nbsp;%</b> of {what}"),
            })
        };
        let lost: Vec<String> = [
            lost(&cell.sum.fer, format!("{} that later calls need", count(cell.sum.fer.count, "name"))),
            lost(&cell.sum.ar, count(cell.sum.ar.count, "answer")),
            lost(&cell.sum.er, format!("the evidence for {}", count(cell.sum.er.count, "answer"))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut parts = Vec::new();
        parts.push(match lost.as_slice() {
            [] => "what you lose could not be measured here".to_owned(),
            lost => format!("you lose {}", lost.join(", ")),
        });
        if let Some(whole) = &whole {
            let (plain, cached) = cost_shares(&cell.sum.cost, whole);
            parts.push(format!(
                "compared with sending everything, you {} without a prompt cache and {} with a prompt cache",
                saved(plain),
                saved(cached)
            ));
        }
        let budget = budget.map_or_else(String::new, |budget| format!(" with {} tokens", grouped(budget)));
        lines.push(format!("<b>{}</b>{budget}: {}.", escaped(results.name(*policy)), parts.join("; ")));
    }
    lines
}

fn saved(share: f64) -> String {
    match (1.0 - share) * 100.0 {
        saved if saved > -0.5 => format!("save <b>{:.0}&nbsp;%</b>", saved.max(0.0)),
        more => format!("pay <b>{:.0}&nbsp;% more</b>", -more),
    }
}

fn table(results: &Results, cells: &Cells, out: &mut String) {
    let whole = results.whole(cells);
    let measures: Vec<_> =
        MEASURES.iter().filter(|(_, of)| cells.values().any(|cell| of(cell).count > 0)).collect();
    let mut headings = vec!["policy", "budget"];
    headings.extend(measures.iter().map(|(name, _)| *name));
    headings.extend((!measures.is_empty()).then_some("cases"));
    if whole.is_some() {
        headings.extend(["plain", "cached", "largest", "cuts"]);
    }
    let counters: [Counter; 2] = [("gaps", |cell| cell.sum.gaps), ("faults", |cell| cell.sum.faulty)];
    let counters: Vec<_> =
        counters.into_iter().filter(|(_, of)| cells.values().any(|cell| of(cell) > 0)).collect();
    headings.extend(counters.iter().map(|(name, _)| *name));
    let _ = writeln!(
        out,
        "<div class=\"wide\"><table><thead><tr><th>{}</th></tr></thead><tbody>",
        headings.join("</th><th>")
    );
    for ((policy, budget), cell) in cells {
        let PolicyResults { sum, .. } = cell;
        let mut row = vec![escaped(results.name(*policy)), budget.map_or_else(String::new, grouped)];
        row.extend(measures.iter().map(|(_, of)| share(of(cell))));
        row.extend(measures.iter().map(|(_, of)| of(cell).count).max().map(grouped));
        if let Some(whole) = &whole {
            let (plain, cached) = cost_shares(&sum.cost, whole);
            row.extend([plain, cached].map(|share| format!("{:.0} %", share * 100.0)));
            row.extend([grouped(sum.cost.peak), grouped(sum.cuts)]);
        }
        row.extend(counters.iter().map(|(_, of)| grouped(of(cell))));
        let _ = writeln!(out, "<tr><td>{}</td></tr>", row.join("</td><td>"));
    }
    out.push_str("</tbody></table></div>\n");
    if cells.values().all(|cell| cell.sum.faulty == 0) {
        out.push_str("<p class=\"small\">Every list was valid and inside its budget.</p>\n");
    }
}

const METHOD: &str = "<h2>How this was measured</h2>\n\
<p class=\"small\"><b>Policies.</b> A policy is a way to build the list that the agent's model receives. The list of \
slots has the current summaries and as many of the newest messages as the budget allows. The list of steady is the \
same, but its beginning changes as rarely as possible, for prompt caches. The list of recent has only the newest \
messages that fit. inline, economic and mask shorten the agent's own list: inline shortens the list when its trigger \
is reached, economic when that costs least, and mask leaves out old tool outputs. The list of whole has all \
messages.</p>\n\
<p class=\"small\"><b>Loss.</b> <em>Names needed</em> are paths, identifiers, ids, dates and numbers that the next \
tool call uses and that an earlier message contains. The column shows the share of these names that the list still \
contains verbatim. <em>With meaning</em> counts a name only if half of the words near it are near it again, so a \
bare list of names counts nothing. <em>Older names</em> were last seen more than 2,000 tokens before the call. <em>Answers</em> is the \
share of the questions for which one passage of the list contains three quarters of the answer's words and a word of \
the question. <em>Evidence</em> is the share of the words in the messages that prove an answer, as far as the best \
single passage contains these words. The number after ± is the standard error. These measures compare words, not \
meaning: a paraphrase counts as lost, and a name that is present may be in the wrong place.</p>\n\
<p class=\"small\"><b>Cost.</b> The cost is in percent of the cost of sending everything. In the column \
<em>plain</em>, every input token costs the same. In the column <em>cached</em>, the beginning that a request shares \
with the previous request costs a tenth, and the rest costs a quarter more. Both columns include the cost of summaries \
by a model. <em>largest</em> is the size of the largest request in tokens. <em>cuts</em> is the number of requests \
that do not begin with the whole previous request.</p>\n\
<p class=\"small\"><b>Gaps and faults.</b> Messages that always stay are not counted in a budget. A gap is a context \
that leaves out messages which no summary covers. A fault is a list that a provider rejects, a list over its budget, \
or a failed summary.</p>\n";
