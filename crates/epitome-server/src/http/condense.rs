//! Route that shortens the message list of a request, for agents that store their history themselves.
//!
//! Only the cost of model calls is stored. A request that waits for a remote model holds a separate permit, as for
//! summaries. Work that only counts and cuts runs where it does not block other requests.

use std::future::poll_fn;
use std::pin::pin;

use epitome::settings::Patch;
use epitome::{Condenser, Report};
use epitome_http::body::{Text, elsewhere};
use tokio::task::block_in_place;

use super::openapi::{Condensable, Condensed};
use super::prelude::*;
use crate::condensing::{Outcome, Request, Wish};

/// Header with a report as JSON: what was done, or what a context contains and leaves out. Used when the body is in a
/// provider's format and cannot contain it.
pub(crate) const REPORT: &str = "x-epitome-report";

/// Maximum length of a report header in bytes, so that every HTTP client accepts it.
const LONGEST_REPORT: usize = 4 << 10;

/// Longest time that a request waits for a model, with all its retries.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Shortens the message list of a request, or a bare list, if that is due; otherwise returns the same bytes.
///
/// All other fields are unchanged. The header `x-epitome-report` reports as JSON what was done. If the model fails that
/// should write a summary, the response is what was sent, and the report's `reason` is `model_failed`. Nothing is stored.
#[utoipa::path(post, path = "/v1/condense", tag = "condense", params(Wish), request_body = Condensable, responses(
    (status = 200, description = "The request; with `explain`, what would be done", body = Condensed, headers(
        ("x-epitome-report" = Option<String>, description = "What was done, as JSON; not with `explain`"),
    )),
))]
pub(crate) async fn condense(call: Writing<Wish>, Text { text, charged }: Text) -> Answer {
    let (app, access, wish) = (call.app, call.access, call.query);
    let (explain, patch) = (wish.explain, patch(&wish)?);
    let builder = access.workspace.condenser().await?.settings(patch);
    let turn = app.load.contexts.acquire().await;
    let size = text.len() as u64;
    let request = elsewhere(size, || Request::read(&text, wish)).await?.map_err(Problem::invalid)?;
    let condenser = request.condenser(builder)?;
    if explain {
        return done(StatusCode::OK, &elsewhere(size, || request.told(&request.forecast(&condenser))).await?);
    }
    let place = match condenser.is_local() {
        true => None,
        false => match app.load.waiting.enter(&access.workspace.name().into()) {
            Ok(place) => Some(place),
            // No permit is free. Continues without one if no model would be called.
            Err(_) if !block_in_place(|| request.asks(&condenser)) => None,
            Err(problem) => return Err(problem),
        },
    };
    let outcome = if place.is_some() {
        // A request that waits for a model holds a separate permit: it takes none from requests that are answered at once.
        drop(turn);
        let _access = access.staying();
        waited_for(&app, &request, &condenser).await
    } else {
        pushed(request.condense(&condenser)).await
    };
    let mut answer = Body::from(outcome.text.unwrap_or(text)).into_response();
    drop(charged);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(REPORT, told(outcome.report, &json!({})));
    Ok(answer)
}

async fn waited_for(app: &App, request: &Request, condenser: &Condenser) -> Outcome {
    let mut stop = app.stopping.clone();
    tokio::select! {
        outcome = pushed(request.condense(condenser)) => outcome,
        () = tokio::time::sleep(LONGEST_WAIT) => request.given_up(condenser, "the model took too long"),
        () = heard(&mut stop) => request.given_up(condenser, "the server is shutting down"),
    }
}

/// Runs each step where it does not block other requests: counting a long list takes a while.
async fn pushed<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| block_in_place(|| work.as_mut().poll(context))).await
}

/// Renders a report, with the fields of `besides`, as a header value: ASCII only, of limited length, and without details
/// that only the operator may see.
pub(crate) fn told(mut report: Report, besides: &Value) -> HeaderValue {
    #[derive(Serialize)]
    struct Told<'a> {
        #[serde(flatten)]
        report: &'a Report,
        #[serde(flatten)]
        besides: &'a Value,
    }

    report.notice = discreet(&report.notice);
    report.problems = report.problems.iter().map(|problem| discreet(problem)).collect();
    let mut text = ascii(&Told { report: &report, besides });
    if text.len() > LONGEST_REPORT {
        (report.problems, report.spent) = (Vec::new(), Vec::new());
        report.notice = report.notice.chars().take(200).collect();
        text = ascii(&Told { report: &report, besides });
    }
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("{}"))
}

/// Renders JSON in ASCII characters only.
fn ascii(report: &impl Serialize) -> String {
    let text = serde_json::to_string(report).unwrap_or_default();
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => plain.push(c),
            c => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| plain.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
    plain
}

/// Returns the settings that the parameters change.
fn patch(wish: &Wish) -> Result<Patch, Problem> {
    let given = wish.settings().map_err(Problem::invalid)?.into_iter();
    let given = given.filter_map(|(_, key, value)| Some((key.strip_prefix("condense.")?.to_owned(), value)));
    let condense: Map<String, Value> = given.collect();
    Patch::from_value(json!({"condense": condense})).map_err(|wrong| {
        let told = wrong.to_string();
        Problem::invalid(told.strip_prefix("condense.").unwrap_or(&told))
    })
}
