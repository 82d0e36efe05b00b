//! Draws line charts as SVG. A chart has a grid, and a legend to the right. The SVG contains no scripts and no fonts,
//! and its colours print well.

use std::collections::HashSet;
use std::fmt::Write;

use epitome::rules::message::Tokens;
use epitome_terminal::show::grouped;

use super::results::{FileResults, PolicyResults, Results};
use crate::evaluation::Mean;
use crate::play::DISTANCES;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Height of a legend line. The picture grows if the legend does not fit next to the chart.
const LEGEND: f64 = 14.0;
/// Maximum number of marks on the horizontal axis. More marks would be unreadable.
const MARKS: usize = 8;

/// Colours that colour-blind readers can distinguish. Lines with the same colour have different dash patterns.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"];
const DASHES: [&str; 3] = ["", "7 3", "2 3"];

/// A line of a chart with its name.
pub(super) struct ChartLine {
    pub(super) name: String,
    /// Index of the colour. A policy has the same colour in all charts.
    pub(super) colour: usize,
    /// Index of the dash pattern, which distinguishes several lines of one policy.
    pub(super) dash: usize,
    pub(super) budget: Option<Tokens>,
    pub(super) points: Vec<(f64, f64)>,
}

impl ChartLine {
    /// Returns the name and the budget. If both together have more than `most` characters, the name is cut.
    fn label(&self, most: usize) -> String {
        let budget = self.budget.map_or_else(String::new, |budget| format!(" {}", grouped(budget)));
        let room = most.saturating_sub(budget.chars().count());
        match self.name.char_indices().nth(room) {
            Some((at, _)) => format!("{}…{budget}", self.name.get(..at).unwrap_or_default()),
            None => format!("{}{budget}", self.name),
        }
    }
}

/// A horizontal axis.
pub(super) struct Axis {
    pub(super) title: &'static str,
    /// Positions of the marks, and their texts.
    pub(super) marks: Vec<(f64, String)>,
}

/// A chart.
pub(super) struct Chart {
    /// Base name of the chart's file.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) across: Axis,
    /// Positions of the marks on the vertical axis, and their texts. The chart's title says what this axis shows.
    pub(super) up: Vec<(f64, String)>,
    pub(super) lines: Vec<ChartLine>,
}

/// Returns the file name and the SVG text of each chart.
pub(super) fn all(results: &Results) -> Vec<(String, String)> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for chart in results.sets.iter().flat_map(|set| of_set(results, set)) {
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let mut name: String = chart.file.chars().map(plain).collect();
        while !names.insert(name.clone()) {
            name.push_str("-2");
        }
        all.push((format!("{name}.svg"), chart.svg(true)));
    }
    all
}

/// Returns the charts of one file that have data.
pub(super) fn of_set(results: &Results, set: &FileResults) -> Vec<Chart> {
    let charts = [
        recall(results, set, "names", "Names a later call needs and the list still contains", |cell| {
            &cell.sum.fer
        }),
        recall(results, set, "answers", "Questions that can still be answered", |cell| &cell.sum.ar),
        recall(results, set, "evidence", "Evidence that the list still contains", |cell| &cell.sum.er),
        distance(results, set),
        cost(results, set),
    ];
    charts.into_iter().flatten().collect()
}

/// Draws one measure by budget, with one line for each policy. Returns `None` if there is no data.
fn recall(
    results: &Results,
    set: &FileResults,
    file: &str,
    title: &str,
    of: fn(&PolicyResults) -> &Mean,
) -> Option<Chart> {
    let nth = |budget: u64| results.budgets.iter().position(|other| *other == budget);
    let mut lines = Vec::new();
    for policy in 0..results.policies.len() {
        let cells = set.cells.iter().filter(|((of_policy, _), _)| *of_policy == policy);
        let points: Vec<(f64, f64)> = cells
            .filter_map(|((_, budget), cell)| Some((nth((*budget)?)? as f64, of(cell).value()?)))
            .collect();
        if !points.is_empty() {
            lines.push(line(results, policy, None, points));
        }
    }
    let marks = results.budgets.iter().enumerate().map(|(at, budget)| (at as f64, grouped(*budget)));
    (!lines.is_empty()).then(|| Chart {
        file: format!("{}-{file}", set.name),
        title: format!("{title} ({})", set.name),
        across: Axis { title: "budget in tokens", marks: marks.collect() },
        up: shares(),
        lines,
    })
}

/// Draws the share of the names that the list still contains, by the distance in tokens since a name was last seen.
fn distance(results: &Results, set: &FileResults) -> Option<Chart> {
    let mut lines = Vec::new();
    for ((policy, budget), cell) in &set.cells {
        // The chart shows only policies without a budget, and the smallest budget, where the most names are lost.
        if budget.is_some() && *budget != results.budgets.first().copied() {
            continue;
        }
        let points: Vec<(f64, f64)> = cell
            .sum
            .by_distance
            .iter()
            .enumerate()
            .filter_map(|(at, mean)| Some((at as f64, mean.value()?)))
            .collect();
        if points.len() > 1 {
            lines.push(line(results, *policy, *budget, points));
        }
    }
    let upper = DISTANCES.iter().map(|most| format!("≤ {}", grouped(*most)));
    let further = DISTANCES.last().map(|most| format!("> {}", grouped(*most)));
    let marks = upper.chain(further).enumerate().map(|(at, mark)| (at as f64, mark));
    (!lines.is_empty()).then(|| Chart {
        file: format!("{}-distance", set.name),
        title: format!(
            "Names that the list still contains, by how long ago they were last seen ({})",
            set.name
        ),
        across: Axis { title: "tokens since a name was last seen", marks: marks.collect() },
        up: shares(),
        lines,
    })
}

/// Draws the total cost of the calls so far, by call number.
fn cost(results: &Results, set: &FileResults) -> Option<Chart> {
    let mut lines = Vec::new();
    let (mut most, mut longest) = (0.0f64, 0usize);
    let ends = [results.budgets.first(), results.budgets.last()];
    for ((policy, budget), cell) in &set.cells {
        // The chart shows only the smallest and the largest budget. The lines of other budgets lie between these lines.
        if budget.is_some_and(|budget| !ends.contains(&Some(&budget))) {
            continue;
        }
        let (mut points, mut spent) = (Vec::new(), 0.0);
        // If fewer than half of the conversations have this many calls, the mean is not meaningful.
        let enough = cell.curve.first().map_or(0, |(_, count)| count.div_ceil(2));
        for (at, (sum, count)) in cell.curve.iter().enumerate().take_while(|(_, (_, count))| *count >= enough)
        {
            spent += sum / *count as f64;
            points.push(((at + 1) as f64, spent));
        }
        if points.len() < 2 {
            continue;
        }
        longest = longest.max(points.len());
        most = points.iter().map(|(_, cost)| *cost).fold(most, f64::max);
        lines.push(line(results, *policy, *budget, thinned(points)));
    }
    let step = step(most);
    let marks = (0..=8u32).map(|nth| f64::from(nth) * step).take_while(|at| *at < most + step);
    let across = step_of_calls(longest);
    let calls = (0..=10usize).map(|nth| nth * across).take_while(|at| *at <= longest);
    (!lines.is_empty()).then(|| Chart {
        file: format!("{}-cost", set.name),
        title: format!(
            "Cost of an agent's calls with a prompt cache, in tokens of plain input ({})",
            set.name
        ),
        across: Axis { title: "calls", marks: calls.map(|at| (at as f64, at.to_string())).collect() },
        up: marks.map(|at| (at, thousands(at))).collect(),
        lines,
    })
}

fn line(results: &Results, policy: usize, budget: Option<Tokens>, points: Vec<(f64, f64)>) -> ChartLine {
    let others = COLOURS.len() - 1;
    // The baseline is black.
    let colour = if results.is_whole(policy) { others } else { policy % others };
    let first = budget.is_none() || budget.as_ref() == results.budgets.first();
    ChartLine {
        name: results.name(policy).to_owned(),
        colour,
        dash: policy / others + usize::from(!first),
        budget,
        points,
    }
}

fn shares() -> Vec<(f64, String)> {
    (0..=5u32).map(|nth| (f64::from(nth) / 5.0, format!("{} %", nth * 20))).collect()
}

/// Removes points that are too close to each other to be visible.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(200).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at % step == 0 || *at == last)
        .map(|(_, point)| point)
        .collect()
}

/// Returns a round step that divides the range into at most six parts.
fn step(most: f64) -> f64 {
    let mut step = 1.0;
    while most / step > 6.0 {
        let grown = [2.0, 5.0, 10.0].into_iter().map(|times| step * times).find(|step| most / step <= 6.0);
        step = grown.unwrap_or(step * 10.0);
    }
    step
}

fn step_of_calls(longest: usize) -> usize {
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
        .into_iter()
        .find(|step| longest / step <= 8)
        .unwrap_or(10_000)
}

fn thousands(number: f64) -> String {
    match number {
        large if large >= 1e6 => format!("{:.1} M", large / 1e6),
        large if large >= 1e3 => format!("{:.0} k", large / 1e3),
        small => format!("{small:.0}"),
    }
}

/// Escapes HTML markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// Returns the chart as SVG. A separate file needs the XML namespace; SVG inside an HTML page does not.
    pub(super) fn svg(&self, alone: bool) -> String {
        let mut out = String::new();
        let language = if alone { " xmlns=\"http://www.w3.org/2000/svg\"" } else { "" };
        let height = HEIGHT.max(TOP + LEGEND * self.lines.len() as f64);
        let _ = write!(
            out,
            "<svg{language} viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"600\" fill=\"#111\">{title}</text>\n",
            title = escaped(&self.title),
        );
        self.grid(&mut out);
        for (nth, line) in self.lines.iter().enumerate() {
            self.line(&mut out, nth, line);
        }
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (at, mark) in &self.up {
            let y = self.y(*at);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{mark}</text>",
                LEFT - 8.0,
                y + 4.0,
            );
        }
        let step = self.across.marks.len().div_ceil(MARKS).max(1);
        for (at, mark) in self.across.marks.iter().step_by(step) {
            let x = self.x(*at);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {bottom}v4\" stroke=\"#999\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#444\">{mark}</text>",
                bottom + 18.0,
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
            HEIGHT - 8.0,
            self.across.title,
        );
    }

    fn line(&self, out: &mut String, nth: usize, line: &ChartLine) {
        let colour = COLOURS.get(line.colour).unwrap_or(&"#000");
        let dash = DASHES.get(line.dash % DASHES.len()).unwrap_or(&"");
        let mut path = String::new();
        for (at, (x, y)) in line.points.iter().enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if at == 0 { "M" } else { "L" }, self.x(*x), self.y(*y));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
        );
        if line.points.len() <= 12 {
            for (x, y) in &line.points {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}</title></circle>",
                    self.x(*x),
                    self.y(*y),
                    escaped(&line.label(200)),
                    number_text(*y),
                );
            }
        }
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + LEGEND * nth as f64);
        let _ = writeln!(
            out,
            "<path d=\"M{x} {y:.1}h22\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#111\">{}</text>",
            x + 28.0,
            y + 4.0,
            escaped(&line.label(22)),
        );
    }

    fn x(&self, at: f64) -> f64 {
        place(
            &self.across.marks,
            at,
            LEFT,
            WIDTH - RIGHT,
            self.lines.iter().flat_map(|line| &line.points).map(|p| p.0),
        )
    }

    fn y(&self, at: f64) -> f64 {
        place(
            &self.up,
            at,
            HEIGHT - BOTTOM,
            TOP + 8.0,
            self.lines.iter().flat_map(|line| &line.points).map(|p| p.1),
        )
    }
}

/// Maps a value to a position between `from` and `to`. The range of values includes all marks and all points.
fn place(marks: &[(f64, String)], at: f64, from: f64, to: f64, shown: impl Iterator<Item = f64>) -> f64 {
    let all = marks.iter().map(|(mark, _)| *mark).chain(shown);
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    if high > low { from + (to - from) * (at - low) / (high - low) } else { (from + to) / 2.0 }
}

fn number_text(value: f64) -> String {
    if value <= 1.0 { format!("{:.1} %", value * 100.0) } else { thousands(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(names: impl IntoIterator<Item = String>) -> Chart {
        let points = vec![(0.0, 0.5), (1.0, 1.0)];
        let line = |name| ChartLine { name, colour: 0, dash: 0, budget: Some(1_000), points: points.clone() };
        let lines = names.into_iter().map(line);
        Chart {
            file: "x".to_owned(),
            title: "<b>&\"".to_owned(),
            across: Axis {
                title: "budget",
                marks: (0..30).map(|at| (f64::from(at), at.to_string())).collect(),
            },
            up: shares(),
            lines: lines.collect(),
        }
    }

    #[test]
    fn what_looks_like_markup_is_told_as_it_is() {
        let svg = chart(["<b>&\"".to_owned()]).svg(false);
        assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;&amp;&quot; 1,000"), "{svg}");
        assert!(!svg.contains("http:") && chart([]).svg(true).contains("xmlns="));
    }

    #[test]
    fn a_long_legend_makes_the_picture_higher_and_long_names_are_cut() {
        let svg = chart((0..40).map(|nth| format!("policy-with-a-very-long-name-{nth}"))).svg(false);
        assert!(
            svg.contains("viewBox=\"0 0 720 594\"") && svg.contains(">policy-with-a-ve… 1,000<"),
            "{svg}"
        );
        assert_eq!(
            svg.matches("text-anchor=\"middle\" fill=\"#444\">").count(),
            9,
            "eight marks and a title"
        );
    }
}
