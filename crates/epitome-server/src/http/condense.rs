//! A request in, the same with a shorter list out: for agents that hold their history themselves.
//!
//! Nothing of it is kept but what a model cost. Whoever waits for a model over a network has a place of their own, as for
//! summaries; what only counts and cuts is done where it keeps nobody waiting.

use std::future::poll_fn;
use std::pin::pin;

use epitome::settings::Patch;
use epitome::{Condenser, Report};
use epitome_http::body::{Text, elsewhere};
use tokio::task::block_in_place;

use super::openapi::{Condensable, Condensed};
use super::prelude::*;
use crate::condensing::{Outcome, Request, Wish};

/// What was done, or what a context holds and leaves out, as JSON: where the body is as its provider wants it.
pub(crate) const REPORT: &str = "x-epitome-report";

/// A report is no longer than this, so that every client takes it.
const LONGEST_REPORT: usize = 4 << 10;

/// For so long a model is waited for, with all its attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A request or a list of messages in, the same with a shorter list out, where that is due; else the same bytes.
///
/// All other fields stay as they are. What was done is told in the header `x-epitome-report`, as JSON. Where the model failed
/// that was to write a summary, the answer is what was sent and the report's `reason` is `model_failed`. Nothing is kept.
#[utoipa::path(post, path = "/v1/condense", tag = "condense", params(Wish), request_body = Condensable, responses(
    (status = 200, description = "The request, or with `explain` what would be done", body = Condensed, headers(
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
            // Where no model would be asked, nobody has to wait.
            Err(_) if !block_in_place(|| request.asks(&condenser)) => None,
            Err(problem) => return Err(problem),
        },
    };
    let outcome = if place.is_some() {
        // Whoever waits for a model has a place of their own, and takes none from those who are answered at once.
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

/// Each step of it is done where it keeps nobody else waiting: a long list takes a while to count.
async fn pushed<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| block_in_place(|| work.as_mut().poll(context))).await
}

/// A report as a header holds it, with what else there is to tell: letters of ASCII, not too many, and nothing that is the
/// matter of whoever runs the server.
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

/// As JSON in letters of ASCII.
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

/// What it changes of the settings.
fn patch(wish: &Wish) -> Result<Patch, Problem> {
    let given = wish.settings().map_err(Problem::invalid)?.into_iter();
    let given = given.filter_map(|(_, key, value)| Some((key.strip_prefix("condense.")?.to_owned(), value)));
    let condense: Map<String, Value> = given.collect();
    Patch::from_value(json!({"condense": condense})).map_err(|wrong| {
        let told = wrong.to_string();
        Problem::invalid(told.strip_prefix("condense.").unwrap_or(&told))
    })
}
