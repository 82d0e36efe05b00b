//! Timing by criterion, and a table at the end of what came out.
//!
//! A figure is the median of criterion's own samples, and the best of them stands beside it, with
//! what we claim. Where the claim is a ratio, both sides take turns inside one measurement, so that
//! whatever else the machine does hits both alike.

#![allow(clippy::print_stdout, reason = "the table is what this is for")]
#![allow(dead_code, reason = "each bench needs a part of it")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;

const SAMPLES: usize = 20;

/// So many inputs are made ahead, and their runs timed as one.
const BATCH: u64 = 64;

/// What we say a figure is.
#[derive(Clone, Copy)]
pub(crate) enum Claim {
    Nothing,
    Under(Duration),
    /// In megabytes a second.
    AtLeast(f64),
}

pub(crate) struct Bench {
    pub(crate) criterion: Criterion,
    rows: Vec<[String; 4]>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let criterion = Criterion::default()
            .sample_size(SAMPLES)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_millis(800))
            .nresamples(10_000)
            .configure_from_args();
        Self { criterion, rows: Vec::new() }
    }

    pub(crate) fn finish(&mut self) {
        self.criterion.final_summary();
        if times() {
            self.print();
        }
    }

    pub(crate) fn measure<I, O>(
        &mut self,
        name: &str,
        claim: Claim,
        setup: impl Fn() -> I,
        routine: impl Fn(&mut I) -> O,
    ) {
        let figures = self.run(name, setup, routine);
        self.row(name, &figures, 1, claim);
    }

    /// As [`Bench::measure`], where one run is many times the thing.
    pub(crate) fn measure_many<I, O>(
        &mut self,
        name: &str,
        times: usize,
        setup: impl Fn() -> I,
        routine: impl Fn(&mut I) -> O,
    ) {
        let figures = self.run(name, setup, routine);
        self.row(name, &figures, times, Claim::Nothing);
    }

    /// Seconds a run, for each sample.
    fn run<I, O>(&mut self, name: &str, setup: impl Fn() -> I, routine: impl Fn(&mut I) -> O) -> Vec<f64> {
        let mut figures = Vec::new();
        self.criterion.bench_function(name, |b| {
            b.iter_custom(|iters| {
                let time = batches(iters).map(|batch| timed(batch, &setup, &routine)).sum::<Duration>();
                figures.push(time.as_secs_f64() / iters as f64);
                time
            });
        });
        figures
    }

    pub(crate) fn row(&mut self, name: &str, figures: &[f64], times: usize, claim: Claim) {
        let Some((median, best)) = summed_up(figures) else { return };
        let [median, best] = [median, best].map(|seconds| seconds / times as f64);
        let claim = match claim {
            Claim::Nothing | Claim::AtLeast(_) => String::new(),
            Claim::Under(most) if median < most.as_secs_f64() => format!("< {most:?}, met"),
            Claim::Under(most) => format!("< {most:?}, NOT met"),
        };
        self.rows.push([name.to_owned(), time(median), time(best), claim]);
    }

    /// The same for seconds a byte, printed as megabytes a second.
    pub(crate) fn rate(&mut self, name: &str, figures: &[f64], claim: Claim) {
        let Some((median, best)) = summed_up(figures) else { return };
        let [median, best] = [median, best].map(|seconds| 1e-6 / seconds);
        let claim = match claim {
            Claim::Nothing | Claim::Under(_) => String::new(),
            Claim::AtLeast(least) if median >= least => format!(">= {least} MB/s, met"),
            Claim::AtLeast(least) => format!(">= {least} MB/s, NOT met"),
        };
        self.rows.push([name.to_owned(), format!("{median:.1} MB/s"), format!("{best:.1} MB/s"), claim]);
    }

    /// How many times as large one is as the other, of which at most `most` is claimed.
    pub(crate) fn ratio(&mut self, name: &str, ratios: &[f64], most: f64) {
        if let Some((median, _)) = summed_up(ratios) {
            let verdict = if median <= most { "met" } else { "NOT met" };
            self.text_row(name, &format!("{median:.3}"), &format!("<= {most}, {verdict}"));
        }
    }

    /// A row that was measured elsewhere.
    pub(crate) fn text_row(&mut self, name: &str, figure: &str, claim: &str) {
        self.rows.push([name, figure, "", claim].map(str::to_owned));
    }

    fn print(&self) {
        println!("{:<72} {:>10} {:>10}  claim", "", "median", "best");
        for [name, median, best, claim] in &self.rows {
            println!("{}", format!("{name:<72} {median:>10} {best:>10}  {claim}").trim_end());
        }
    }
}

/// Whether anything is timed. Otherwise criterion runs everything once, as a test.
pub(crate) fn times() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

pub(crate) fn batches(iters: u64) -> impl Iterator<Item = u64> {
    (0..iters.div_ceil(BATCH)).map(move |batch| BATCH.min(iters - batch * BATCH))
}

/// What so many runs take, without making their inputs and dropping what they give.
pub(crate) fn timed<I, O>(runs: u64, setup: impl Fn() -> I, routine: impl Fn(&mut I) -> O) -> Duration {
    let mut inputs: Vec<I> = (0..runs).map(|_| setup()).collect();
    let mut outputs: Vec<O> = Vec::with_capacity(inputs.len());
    let start = Instant::now();
    for input in &mut inputs {
        outputs.push(black_box(routine(black_box(input))));
    }
    start.elapsed()
}

/// The median and the best. Criterion warms up first; only its samples count.
fn summed_up(figures: &[f64]) -> Option<(f64, f64)> {
    let mut samples = figures[figures.len().saturating_sub(SAMPLES)..].to_vec();
    samples.sort_by(f64::total_cmp);
    Some((*samples.get(samples.len() / 2)?, *samples.first()?))
}

fn time(seconds: f64) -> String {
    match seconds * 1e9 {
        nanos if nanos < 1e3 => format!("{nanos:.1} ns"),
        nanos if nanos < 1e6 => format!("{:.2} µs", nanos / 1e3),
        nanos => format!("{:.2} ms", nanos / 1e6),
    }
}
