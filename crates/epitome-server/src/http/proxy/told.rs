//! What an answer's headers say of what was done.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use epitome::Report;
use epitome::settings::Money;
use serde::Serialize;

use super::super::condense::{ascii, told_as};
use super::account::Known;
use super::decide::Decided;

/// What was done, in a word.
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("x-epitome");

/// The word of answers that came from here, and not from the provider.
pub(super) const WORD_REFUSED: &str = "refused";

/// What was done, as JSON.
const REPORT: HeaderName = HeaderName::from_static("x-epitome-report");

#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The conversation it was taken for.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    /// How many tokens the request has fewer than it came with; in shadow mode, would have.
    saved: u64,
    /// What was saved in this conversation by the requests before, as the provider counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    so_far: Option<SoFar>,
}

#[derive(Serialize)]
struct SoFar {
    saved: u64,
    /// In the prices' money; 0 where nobody knows them.
    saved_cost: f64,
}

impl Decided {
    /// Says it in an answer's headers.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(OUTCOME, HeaderValue::from_static(self.outcome.in_a_word()));
        headers.insert(REPORT, told_as(self.report.clone(), |report| self.text_of(report)));
    }

    fn text_of(&self, report: &Report) -> String {
        let known = self.known.as_ref();
        ascii(&Told {
            report,
            run: known.map(|known| &*known.run),
            saved: known.map_or(0, |known| known.full.saturating_sub(known.short)),
            so_far: known.map(|Known { earlier, .. }| SoFar {
                saved: earlier.saved,
                saved_cost: Money::millionths(earlier.saved_cost).get(),
            }),
        })
    }
}
