//! Route that shortens the message list of a request, for agents that store their history themselves.
//!
//! The route stores only the cost of model calls. While a request waits for a remote model, it holds a separate permit.
//! Requests that wait for a summary hold the same kind of permit. Counting and cutting run where they do not block
//! other requests.

use std::future::poll_fn;
use std::pin::pin;

use epitome::settings::Patch;
use epitome::{Condenser, Report};
use epitome_http::body::{TextBody, run_blocking};
use tokio::task::block_in_place;

use super::openapi::{Condensable, Condensed};
use super::prelude::*;
use crate::condensing::{CondenseOptions, CondenseOutcome, CondenseRequest};

/// Header with a report as JSON. The report says what was done with a request, or what a context contains and leaves
/// out. The report is in a header if the body is in a provider's format, because such a body cannot contain a report.
pub(crate) const REPORT_HEADER: &str = "x-epitome-report";

/// Maximum length of a report header in bytes, so that every HTTP client accepts it.
const MAX_REPORT_BYTES: usize = 4 << 10;

/// Longest time that a request waits for a model, including all retries.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Shortens the message list of a request, or a bare list, if condensing is due. Otherwise returns the same bytes.
///
/// All other fields are unchanged. The header `x-epitome-report` contains a report as JSON. If the model fails, the
/// report's `reason` is `model_failed`, and the list is unchanged or was shortened without a model. The server stores
/// no message of the request.
#[utoipa::path(post, path = "/v1/condense", tag = "condense", params(CondenseOptions), request_body = Condensable, responses(
    (status = 200, description = "The request; with `explain`, a forecast", body = Condensed, headers(
        ("x-epitome-report" = Option<String>, description = "The report, as JSON; omitted with `explain`"),
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
            // No permit is free. The request continues without a permit if it would call no model.
            Err(_) if !block_in_place(|| request.needs_summary(&condenser)) => None,
            Err(problem) => return Err(problem),
        },
    };
    let outcome = if permit.is_some() {
        // While the request waits for a model, it holds only the separate permit. It releases the permits that other
        // requests need.
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

/// Polls the work where it does not block other requests, because counting a long list takes long.
async fn poll_blocking<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| block_in_place(|| work.as_mut().poll(context))).await
}

/// Renders a report and extra fields as a header value. The value is ASCII, has a limited length, and contains no
/// details that only the operator may see.
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
        // A parameter has the name of its setting without the section, so the error names the setting without the
        // section too.
        let detail = wrong.to_string();
        Problem::invalid(detail.strip_prefix("condense.").unwrap_or(&detail))
    })
}
