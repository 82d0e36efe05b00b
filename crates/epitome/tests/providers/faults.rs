//! Tests every failure of a provider with a whole engine, in both formats, streamed and not.
//!
//! [`check`] contains what all failures share; each failure is one line.

use std::time::Duration;

use epitome::rules::message::Seq;
use serde_json::{Value, json};

use crate::provider::{Act, CACHED, INPUT, OUTPUT, Provider, Request};
use crate::support::{Clock, WAYS, Way, assert_no_secrets, assert_whole, engine, history, slot, talk};

/// A provider's behaviour, the recorded outcome, a part of the error text, and whether the cost is known.
type Fault = (Act, &'static str, &'static str, bool);

const SECOND: Duration = Duration::from_secs(1);

/// Cost of one call in millionths, with prices per million of 10 for input, 1 for cached input and 100 for output.
const COST: u64 = (INPUT - CACHED) * 10 + CACHED + OUTPUT * 100;

/// Messages 1..=20 are summarized, the provider fails on 21..=40, and then works again.
async fn check(way: Way, fault: &Fault) {
    let (act, outcome, cause, told) = fault;
    let about = format!("{way:?} {act:?}");
    let (provider, clock) = (Provider::start().await, Clock::new());
    let engine = engine(way.within(&provider, SECOND), &clock, "never").await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let before = history(&session).await;
    assert_eq!(before.len(), 1, "{about}: {:?}", slot(&session).await.last_error);
    assert!(before[0].text.starts_with("Messages 1 to 20:"), "{about}: {}", before[0].text);

    provider.always(act.clone());
    if *act == GONE {
        provider.leave().await;
    }
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(history(&session).await, before, "{about}: nothing is kept of it");
    assert_whole(&session.context(8_000).await.unwrap(), 40);
    let explained = slot(&session).await;
    let error = explained.last_error.clone().unwrap_or_default();
    assert!(error.contains(cause) && explained.why.contains(cause), "{about}: {error} / {}", explained.why);
    let usage = session.usage().await.unwrap();
    let recorded: u64 = usage.iter().map(|row| row.calls).sum();
    assert!(recorded >= provider.calls() as u64, "{about}: {usage:?}");
    if *outcome != "too_long" && *act != GONE {
        assert_eq!(recorded, provider.calls() as u64, "{about}: every call is recorded, once");
    }
    let row =
        usage.iter().find(|row| row.outcome == *outcome).unwrap_or_else(|| panic!("{about}: {usage:?}"));
    if *told {
        assert_eq!((row.input, row.cached), (INPUT * row.calls, CACHED * row.calls), "{about}");
        assert!(row.output > 0 && row.cost.is_some_and(|cost| cost > 0), "{about}: {row:?}");
        if row.output == OUTPUT * row.calls {
            assert_eq!(row.cost, Some((COST * row.calls) as i64), "{about}");
        }
    }
    assert_no_secrets(&format!("{explained:?} {usage:?} {error} {:?}", engine.worker_problem()));

    provider.heal();
    if *act == GONE {
        provider.come_back().await;
    }
    clock.wait_for(&session).await;
    session.work().await.unwrap();
    let after = history(&session).await;
    let last = after.last().unwrap();
    assert_eq!((last.through, last.stand_in), (40, false), "{about}: {:?}", slot(&session).await.last_error);
    assert_eq!((after[0].id, &after[0].text), (before[0].id, &before[0].text), "{about}");
    let shown: Vec<u64> =
        provider.requests().iter().rev().take(after.len() - 1).rev().flat_map(Request::seqs).collect();
    assert_eq!(shown, (21..=40).collect::<Vec<Seq>>(), "{about}: the whole window, and nothing before it");
    assert_whole(&session.context(8_000).await.unwrap(), 40);
    assert_eq!(slot(&session).await.last_error, None, "{about}");
}

/// The provider's port is closed.
const GONE: Act = Act::Status(0);

/// Failures that are known immediately.
fn quick(way: Way) -> Vec<Fault> {
    // If the cost comes first, a truncated answer is an answer with a cost that fails inspection.
    let broken = |act: Act, why: &'static str| match way.reports_usage_first() {
        true => (act, "cut_off", "cut off", true),
        false => (act, "no_answer", why, false),
    };
    let unfinished = if way.stream { "broke off" } else { "not JSON" };
    vec![
        broken(Act::Cut, "broke off"),
        broken(Act::Unfinished, unfinished),
        broken(Act::Huge, "larger than 4 MiB"),
        (GONE, "no_answer", "connection refused", false),
        (Act::Close, "no_answer", "closed the connection", false),
        (Act::Garbage, "no_answer", "not JSON", false),
        (Act::WrongLength, "no_answer", "not JSON", false),
        (Act::Html, "no_answer", "web page", false),
        (Act::WrongShape, "no_answer", "shape", false),
        (Act::Status(500), "no_answer", "failed (500", false),
        (Act::Status(502), "no_answer", "failed (502", false),
        (Act::Status(529), "busy", "busy", false),
        (Act::ErrorInside, "busy", "busy", false),
        (Act::Busy(Some("7".to_owned())), "busy", "retry after 7s", false),
        (Act::WrongKey, "refused", "not accepted (401)", false),
        (Act::NoCredit, "refused", "no credit", false),
        (Act::NoModel, "refused", "no model `stand-in-1`", false),
        (Act::Redirect("http://127.0.0.1:1/".to_owned()), "refused", "redirects (307)", false),
        (Act::Echo, "refused", "refused the request (400)", false),
        (Act::TooLong { sent: 9_000, limit: 8_000 }, "too_long", "too long", false),
        (Act::Empty, "empty", "no summary", true),
        (Act::CallsTool, "empty", "no summary", true),
        (Act::Loops, "loops", "again and again", true),
        (Act::Declines, "declined", "declined", true),
        (Act::Length, "cut_off", "cut off", true),
        (Act::ThinksForEver, "cut_off", "cut off", true),
    ]
}

/// Failures that are known at the timeout.
fn slow(way: Way) -> Vec<Fault> {
    let late = |act| (act, "no_answer", "no answer within 1s", false);
    let stalled = match way.reports_usage_first() {
        true => (Act::Stall, "cut_off", "cut off", true),
        false => late(Act::Stall),
    };
    vec![late(Act::Silent), late(Act::Slow(Duration::from_secs(30))), stalled]
}

async fn check_quick(way: Way) {
    for fault in quick(way) {
        check(way, &fault).await;
    }
}

#[tokio::test]
async fn no_failure_of_an_openai_server_is_stored_or_loses_messages() {
    check_quick(WAYS[0]).await;
}

#[tokio::test]
async fn no_failure_of_an_openai_stream_is_stored_or_loses_messages() {
    check_quick(WAYS[1]).await;
}

#[tokio::test]
async fn no_failure_of_an_anthropic_server_is_stored_or_loses_messages() {
    check_quick(WAYS[2]).await;
}

#[tokio::test]
async fn no_failure_of_an_anthropic_stream_is_stored_or_loses_messages() {
    check_quick(WAYS[3]).await;
}

/// As OpenRouter returns it: status 200, a part of the text, and the error inside the choice.
#[tokio::test]
async fn an_answer_that_ended_in_an_error_is_never_stored() {
    let half = "The customer in Oslo wrote twice about the parcel of order 10071. It was sent yesterday.";
    let body = |more: Value| {
        let mut choice = json!({"index": 0, "finish_reason": "error",
            "message": {"role": "assistant", "content": half}});
        choice.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 20});
        Act::Raw(200, Vec::new(), json!({"choices": [choice], "usage": usage}).to_string())
    };
    let upstream = json!({"error": {"code": 502, "message": "Upstream failed"}});
    for (more, cause) in [(upstream, "failed (502"), (json!({}), "failed (500, error)")] {
        check(WAYS[0], &(body(more), "no_answer", cause, false)).await;
    }
}

#[tokio::test]
async fn no_slow_answer_is_stored_or_loses_messages() {
    let mut checks = tokio::task::JoinSet::new();
    for way in WAYS {
        for fault in slow(way) {
            checks.spawn(async move { check(way, &fault).await });
        }
    }
    checks.join_all().await;
}
