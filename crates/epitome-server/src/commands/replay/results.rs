//! What came of it all, added up by file, policy and budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use epitome::core::message::Tokens;
use epitome::replay::{Outcome, Policy};
use serde_json::{Value, json};

/// So many faults are told one by one.
const FAULTS: usize = 20;

/// All results.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// By file, in the order they were given.
    pub(super) sets: Vec<Set>,
    /// The policies' names, in order.
    pub(super) policies: Vec<String>,
    pub(super) budgets: Vec<Tokens>,
    pub(super) costs: bool,
}

/// What came of one file.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) name: Arc<str>,
    pub(super) conversations: u64,
    pub(super) messages: u64,
    /// By policy and budget.
    pub(super) cells: BTreeMap<(usize, Option<Tokens>), Cell>,
}

/// What came of one policy and budget.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) sum: Outcome,
    /// What the calls had cost after each, over all conversations that go on so long: the sum, and how many.
    pub(super) curve: Vec<(f64, u64)>,
}

impl Cell {
    fn add(&mut self, conversation: &str, outcome: Outcome) {
        let sum = &mut self.sum;
        sum.fer.join(&outcome.fer);
        sum.fer_far.join(&outcome.fer_far);
        sum.ar.join(&outcome.ar);
        sum.er.join(&outcome.er);
        sum.size.join(&outcome.size);
        for (mean, more) in sum.by_distance.iter_mut().zip(&outcome.by_distance) {
            mean.join(more);
        }
        sum.cost.join(&outcome.cost);
        sum.cuts += outcome.cuts;
        sum.faulty += outcome.faulty;
        let room = FAULTS.saturating_sub(sum.faults.len());
        sum.faults
            .extend(outcome.faults.into_iter().take(room).map(|fault| format!("{conversation}: {fault}")));
        if self.curve.len() < outcome.curve.len() {
            self.curve.resize(outcome.curve.len(), (0.0, 0));
        }
        for ((total, count), cost) in self.curve.iter_mut().zip(outcome.curve) {
            *total += cost;
            *count += 1;
        }
    }
}

impl Set {
    pub(super) fn add(&mut self, policy: usize, conversation: &str, outcome: Outcome) {
        let key = (policy, outcome.budget);
        self.cells
            .entry(key)
            .or_insert_with(|| Cell {
                sum: Outcome { budget: key.1, ..Outcome::default() },
                curve: Vec::new(),
            })
            .add(conversation, outcome);
    }
}

impl Results {
    pub(super) fn new(policies: &[Policy], budgets: &[Tokens], costs: bool) -> Self {
        Self {
            sets: Vec::new(),
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            budgets: budgets.to_vec(),
            costs,
        }
    }

    pub(super) fn name(&self, policy: usize) -> &str {
        self.policies.get(policy).map_or("", String::as_str)
    }

    /// The policy everything is compared with.
    pub(super) fn whole(&self, set: &Set) -> Option<&Cell> {
        let whole = self.policies.iter().position(|name| name == "whole")?;
        // Borrowed from the set, so that callers may hold it.
        let _ = set;
        self.sets.iter().find(|other| other.name == set.name)?.cells.get(&(whole, None))
    }

    pub(super) fn faulty(&self) -> u64 {
        self.sets.iter().flat_map(|set| set.cells.values()).map(|cell| cell.sum.faulty).sum()
    }

    pub(super) fn json(&self) -> Value {
        let sets: Vec<Value> = self.sets.iter().map(|set| self.set(set)).collect();
        json!({ "policies": self.policies, "budgets": self.budgets, "sets": sets, "faults": self.faulty() })
    }

    fn set(&self, set: &Set) -> Value {
        let whole = self.whole(set).map(|cell| cell.sum.cost);
        let cell = |((policy, budget), cell): (&(usize, Option<Tokens>), &Cell)| {
            let Outcome { fer, fer_far, ar, er, cost, .. } = &cell.sum;
            let measure = |mean: &epitome::core::measure::Mean| {
                mean.value().map(|value| json!({ "mean": value, "n": mean.count, "error": mean.error() }))
            };
            let of_whole = |mine: u64, whole: u64| (whole > 0).then(|| mine as f64 / whole as f64);
            let distances: Vec<Value> =
                cell.sum.by_distance.iter().map(|mean| json!(measure(mean))).collect();
            json!({
                "policy": self.name(*policy),
                "budget": budget,
                "fer": measure(fer),
                "fer_far": measure(fer_far),
                "ar": measure(ar),
                "er": measure(er),
                "fer_by_distance": distances,
                "tokens": cell.sum.size.value(),
                "cost": self.costs.then(|| json!({
                    "calls": cost.calls,
                    "plain": cost.plain,
                    "cached": cost.cached(),
                    "summarizer": cost.summarizer,
                    "summaries": cost.summaries,
                    "peak": cost.peak,
                    "cuts": cell.sum.cuts,
                    "plain_of_whole": whole.and_then(|whole| of_whole(cost.plain + cost.summarizer, whole.plain)),
                    "cached_of_whole": whole.and_then(|whole| of_whole(cost.cached() + cost.summarizer, whole.cached())),
                })),
                "faults": cell.sum.faulty,
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
