//! Route that shortens the message list of a request, for agents that store their history themselves.
//!
//! Only the cost of model calls is stored. A request that waits for a remote model holds a separate permit, as for
//! summaries. Work that only counts and cuts runs where it does not block other requests.

use std::future::poll_fn;
use std::pin::pin;

use epitome::settings::Patch;
use epitome::{Condenser, Report};
use epitome_http::body::{TextBody, run_blocking};
use tokio::task::block_in_place;

use super::openapi::{Condensable, Condensed};
use super::prelude::*;
use crate::condensing::{CondenseOptions, CondenseOutcome, CondenseRequest};

/// Header with a report as JSON: what was done, or what a context contains and leaves out. Used when the body is in a
/// provider's format and cannot contain it.
pub(crate) const REPORT_HEADER: &str = "x-epitome-report";

/// Maximum length of a report header in bytes, so that every HTTP client accepts it.
const MAX_REPORT_BYTES: usize = 4 << 10;

/// Longest time that a request waits for a model, with all its retries.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Shortens the message list of a request, or a bare list, if that is due; otherwise returns the same bytes.
///
/// All other fields are unchanged. The header `x-epitome-report` reports as JSON what was done. If the model fails that
/// should write a summary, the response is what was sent, and the report's `reason` is `model_failed`. Nothing is stored.
#[utoipa::path(post, path = "/v1/condense", tag = "condense", params(CondenseOptions), request_body = Condensable, responses(
    (status = 200, description = "The request; with `explain`, what would be done", body = Condensed, headers(
        ("x-epitome-report" = Option<String>, description = "What was done, as JSON; not with `explain`"),
    )),
))]
pub(crate) async fn condense(call: Writing<CondenseOptions>, TextBody { text, memory }: TextBody) -> Answer {
    let (app, access, options) = (call.app, call.access, call.query);
    let (explain, patch) = (options.explain, patch(&options)?);
    let builder = access.workspace.condenser().await?.settings(patch);
    let turn = app.permits.contexts.acquire().await;
    let size = text.len() as u64;
    let request =
        run_blocking(size, || CondenseRequest::read(&text, options)).await?.map_err(Problem::invalid)?;
    let condenser = request.condenser(builder)?;
    if explain {
        let forecast = || request.forecast_json(&request.forecast(&condenser));
        return json_response(StatusCode::OK, &run_blocking(size, forecast).await?);
    }
    let permit = match condenser.is_local() {
        true => None,
        false => match app.permits.summary_waits.acquire(&access.workspace.name().into()) {
            Ok(permit) => Some(permit),
            // No permit is free. Continues without one if no model would be called.
            Err(_) if !block_in_place(|| request.needs_summary(&condenser)) => None,
            Err(problem) => return Err(problem),
        },
    };
    let outcome = if permit.is_some() {
        // A request that waits for a model holds a separate permit: it takes none from requests that are answered at once.
        drop(turn);
        let _access = access.without_permit();
        condense_with_timeout(&app, &request, &condenser).await
    } else {
        poll_blocking(request.condense(&condenser)).await
    };
    let mut answer = Body::from(outcome.text.unwrap_or(text)).into_response();
    drop(memory);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(REPORT_HEADER, report_header(outcome.report, &json!({})));
    Ok(answer)
}

async fn condense_with_timeout(
    app: &App,
    request: &CondenseRequest,
    condenser: &Condenser,
) -> CondenseOutcome {
    let mut stop = app.stopping.clone();
    tokio::select! {
        outcome = poll_blocking(request.condense(condenser)) => outcome,
        () = tokio::time::sleep(LONGEST_WAIT) => request.abandoned(condenser, "the model took too long"),
        () = wait_for_stop(&mut stop) => request.abandoned(condenser, "the server is shutting down"),
    }
}

/// Runs each step where it does not block other requests: counting a long list takes a while.
async fn poll_blocking<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| block_in_place(|| work.as_mut().poll(context))).await
}

/// Renders a report, with extra fields, as a header value: ASCII only, of limited length, and without details that only the
/// operator may see.
pub(crate) fn report_header(mut report: Report, extra: &Value) -> HeaderValue {
    #[derive(Serialize)]
    struct Header<'a> {
        #[serde(flatten)]
        report: &'a Report,
        #[serde(flatten)]
        extra: &'a Value,
    }

    report.notice = scrub(&report.notice);
    report.problems = report.problems.iter().map(|problem| scrub(problem)).collect();
    let mut text = ascii(&Header { report: &report, extra });
    if text.len() > MAX_REPORT_BYTES {
        (report.problems, report.spent) = (Vec::new(), Vec::new());
        report.notice = report.notice.chars().take(200).collect();
        text = ascii(&Header { report: &report, extra });
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
fn patch(options: &CondenseOptions) -> Result<Patch, Problem> {
    let settings = options.settings().map_err(Problem::invalid)?.into_iter();
    let settings =
        settings.filter_map(|(_, key, value)| Some((key.strip_prefix("condense.")?.to_owned(), value)));
    let condense: Map<String, Value> = settings.collect();
    Patch::from_value(json!({"condense": condense})).map_err(|wrong| {
        // The parameters have the names of the settings, without the section.
        let detail = wrong.to_string();
        Problem::invalid(detail.strip_prefix("condense.").unwrap_or(&detail))
    })
}
