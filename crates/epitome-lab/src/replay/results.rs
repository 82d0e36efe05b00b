//! Adds up the results by file, policy and budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use epitome::rules::message::Tokens;
use serde_json::{Value, json};

use crate::evaluation::Mean;
use crate::evaluation::cost::Cost;
use crate::play::{ListMethod, Outcome, Policy};

/// Maximum number of faults that are listed individually.
const MAX_FAULTS: usize = 20;

/// All results.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// One entry per file, in the order of the command line.
    pub(super) sets: Vec<FileResults>,
    /// The policies' names, in order. Other fields refer to a policy by its index in this list.
    pub(super) policies: Vec<String>,
    pub(super) budgets: Vec<Tokens>,
    /// Whether the cost was measured.
    pub(super) costs: bool,
    /// Index of the baseline policy, which sends all messages; `None` if that policy was not played.
    whole: Option<usize>,
}

/// The result of one conversation.
pub(super) struct ConversationResult {
    /// Index of the conversation's file.
    pub(super) set: usize,
    pub(super) name: String,
    /// Number of messages.
    pub(super) messages: u64,
    /// For each policy, its outcomes: one for each budget.
    pub(super) outcomes: Vec<Vec<Outcome>>,
}

/// The results of one file.
#[derive(Debug, Default)]
pub(super) struct FileResults {
    pub(super) name: Arc<str>,
    pub(super) conversations: u64,
    pub(super) messages: u64,
    /// The results of each policy with each budget.
    pub(super) cells: Cells,
}

/// The results of one policy with one budget.
#[derive(Debug, Default)]
pub(super) struct PolicyResults {
    /// The outcomes of all conversations together.
    pub(super) sum: Outcome,
    /// One entry for each call number. An entry has the sum of the costs of this call over all conversations that reach
    /// this call number, and the number of these conversations. The costs are not running totals, because the mean of
    /// running totals would fall where an expensive conversation ends.
    pub(super) curve: Vec<(f64, u64)>,
}

impl PolicyResults {
    fn add(&mut self, outcome: Outcome) {
        let sum = &mut self.sum;
        sum.fer.join(&outcome.fer);
        sum.fem.join(&outcome.fem);
        sum.lists.join(outcome.lists);
        sum.fer_far.join(&outcome.fer_far);
        sum.ar.join(&outcome.ar);
        sum.er.join(&outcome.er);
        sum.size.join(&outcome.size);
        for (mean, more) in sum.by_distance.iter_mut().zip(&outcome.by_distance) {
            mean.join(more);
        }
        sum.cost.join(&outcome.cost);
        sum.cuts += outcome.cuts;
        sum.gaps += outcome.gaps;
        sum.faulty += outcome.faulty;
        let room = MAX_FAULTS.saturating_sub(sum.faults.len());
        sum.faults.extend(outcome.faults.into_iter().take(room));
        if self.curve.len() < outcome.curve.len() {
            self.curve.resize(outcome.curve.len(), (0.0, 0));
        }
        let before = std::iter::once(0.0).chain(outcome.curve.iter().copied());
        for ((total, count), (cost, before)) in self.curve.iter_mut().zip(outcome.curve.iter().zip(before)) {
            *total += cost - before;
            *count += 1;
        }
    }
}

/// A column heading, and the counter that the column shows.
pub(super) type Counter = (&'static str, fn(&PolicyResults) -> u64);

/// A column heading, and the measure that the column shows.
pub(super) type Measure = (&'static str, fn(&PolicyResults) -> &Mean);

/// All measures of what a list retains.
pub(super) const MEASURES: [Measure; 5] = [
    ("names needed", |cell| &cell.sum.fer),
    ("with meaning", |cell| &cell.sum.fem),
    ("older names", |cell| &cell.sum.fer_far),
    ("answers", |cell| &cell.sum.ar),
    ("evidence", |cell| &cell.sum.er),
];

/// Formats a mean and its standard error in percent.
pub(super) fn share(mean: &Mean) -> String {
    match (mean.value(), mean.error()) {
        (Some(value), Some(error)) => format!("{:.1} ±{:.1} %", value * 100.0, error * 100.0),
        (Some(value), None) => format!("{:.1} %", value * 100.0),
        _ => "–".to_owned(),
    }
}

/// Results of each policy with each budget. The key is the policy's index, and the budget if the policy has one.
pub(super) type Cells = BTreeMap<(usize, Option<Tokens>), PolicyResults>;

fn add(cells: &mut Cells, policy: usize, outcome: Outcome) {
    let cell = cells.entry((policy, outcome.budget)).or_default();
    cell.sum.budget = outcome.budget;
    cell.add(outcome);
}

impl Results {
    pub(super) fn new(policies: &[Policy], budgets: &[Tokens], costs: bool) -> Self {
        Self {
            sets: Vec::new(),
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            budgets: budgets.to_vec(),
            costs,
            whole: policies.iter().position(|policy| policy.method == ListMethod::Whole),
        }
    }

    /// Adds the result of a conversation.
    pub(super) fn add(&mut self, one: ConversationResult) {
        let Some(set) = self.sets.get_mut(one.set) else { return };
        set.conversations += 1;
        set.messages += one.messages;
        for (policy, outcomes) in one.outcomes.into_iter().enumerate() {
            for mut outcome in outcomes {
                outcome.faults.iter_mut().for_each(|fault| *fault = format!("{}: {fault}", one.name));
                add(&mut set.cells, policy, outcome);
            }
        }
    }

    pub(super) fn name(&self, policy: usize) -> &str {
        self.policies.get(policy).map_or("", String::as_str)
    }

    pub(super) fn is_whole(&self, policy: usize) -> bool {
        self.whole == Some(policy)
    }

    /// Returns the cost of sending all messages in each request; `None` if this cost was not measured.
    pub(super) fn whole(&self, cells: &Cells) -> Option<Cost> {
        let cost = cells.get(&(self.whole?, None))?.sum.cost;
        (self.costs && cost.plain > 0).then_some(cost)
    }

    /// Returns the results of all files together.
    pub(super) fn pooled(&self) -> Cells {
        let mut cells = Cells::new();
        for (key, cell) in self.sets.iter().flat_map(|set| &set.cells) {
            add(&mut cells, key.0, cell.sum.clone());
        }
        cells
    }

    pub(super) fn faulty(&self) -> u64 {
        self.sets.iter().flat_map(|set| set.cells.values()).map(|cell| cell.sum.faulty).sum()
    }

    pub(super) fn json(&self) -> Value {
        let sets: Vec<Value> = self.sets.iter().map(|set| self.set(set)).collect();
        json!({ "policies": self.policies, "budgets": self.budgets, "sets": sets, "faults": self.faulty() })
    }

    fn set(&self, set: &FileResults) -> Value {
        let whole = self.whole(&set.cells);
        let cell = |((policy, budget), cell): (&(usize, Option<Tokens>), &PolicyResults)| {
            let Outcome { fer, fem, fer_far, ar, er, cost, lists, .. } = &cell.sum;
            let measure = |mean: &Mean| {
                mean.value().map(|value| json!({ "mean": value, "n": mean.count, "error": mean.error() }))
            };
            let distances: Vec<Value> =
                cell.sum.by_distance.iter().map(|mean| json!(measure(mean))).collect();
            json!({
                "policy": self.name(*policy),
                "budget": budget,
                "fer": measure(fer),
                "fem": measure(fem),
                "fer_far": measure(fer_far),
                "ar": measure(ar),
                "er": measure(er),
                "fer_by_distance": distances,
                "list_share": lists.share(),
                "tokens": cell.sum.size.value(),
                "cost": self.costs.then(|| json!({
                    "calls": cost.calls,
                    "plain": cost.plain,
                    "cached": cost.cached(),
                    "summarizer": cost.summarizer,
                    "summaries": cost.summaries,
                    "peak": cost.peak,
                    "cuts": cell.sum.cuts,
                    "plain_of_whole": whole.map(|whole| cost_shares(cost, &whole).0),
                    "cached_of_whole": whole.map(|whole| cost_shares(cost, &whole).1),
                })),
                "gaps": cell.sum.gaps,
                "faults": cell.sum.faulty,
                "fault_texts": cell.sum.faults,
                // The older name of `fault_texts`.
                "told": cell.sum.faults,
            })
        };
        json!({
            "name": &*set.name,
            "conversations": set.conversations,
            "messages": set.messages,
            "results": set.cells.iter().map(cell).collect::<Vec<Value>>(),
        })
    }
}

/// Returns the cost as a share of the cost of sending all messages. The first value is without a prompt cache, the
/// second with a prompt cache. Both include the cost of summaries.
pub(super) fn cost_shares(cost: &Cost, whole: &Cost) -> (f64, f64) {
    let of = |mine: u64, whole: u64| mine.saturating_add(cost.summarizer) as f64 / (whole as f64).max(1.0);
    (of(cost.plain, whole.plain), of(cost.cached(), whole.cached()))
}
