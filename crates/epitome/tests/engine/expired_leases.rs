//! A worker that slept past its lease notices this by its own clock, and calls no model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome::hook::{DueMessages, Hook, HookError};
use epitome::{Builder, Pace, Session};
use epitome_testkit::scripted::{Gate, Scripted};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::metrics::Seen;
use crate::support::{Home, coverage, history, one_slot, talk, wait_until, within_timeout};

const LEASE: Duration = Duration::from_millis(200);

/// Something a worker waits for right before it asks a model: as if its process were stopped there.
#[derive(Clone, Default)]
struct Sleep {
    begun: Arc<Notify>,
    ended: Arc<Notify>,
}

#[async_trait]
impl Hook for Sleep {
    async fn before(&self, _: &DueMessages) -> Result<Option<String>, HookError> {
        self.begun.notify_one();
        self.ended.notified().await;
        Ok(None)
    }
}

/// A hold that is short, and never renewed by itself.
fn short(builder: Builder) -> Builder {
    let renew = Duration::from_secs(3_600);
    let pace = Pace { lease: LEASE, renew, poll: Duration::from_millis(10), workers: 0, ..Pace::default() };
    builder.pace(pace).hook_timeout(Duration::from_secs(600))
}

fn works(session: &Session) -> JoinHandle<()> {
    let session = session.clone();
    tokio::spawn(async move { session.work().await.unwrap() })
}

/// Waits until what was leased by now has run out, by the machine's clock and by the store's.
async fn run_out(home: &Home) {
    let begun = Instant::now();
    wait_until("the lease runs out", || async { begun.elapsed() > LEASE }).await;
    home.clock.pass(LEASE + Duration::from_millis(1));
}

#[tokio::test]
async fn no_model_is_called_after_another_worker_took_the_expired_lease() {
    let seen = Seen::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    let home = Home::file();
    let (sleep, late, fast) = (Sleep::default(), Scripted::new().named("late"), Scripted::new());
    let sleeper = home.open(short(one_slot(&late)).hook(sleep.clone())).await;
    let other = home.open(one_slot(&fast)).await;
    let session = sleeper.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = works(&session);
    within_timeout("the sleep", sleep.begun.notified()).await;
    run_out(&home).await;
    other.work().await.unwrap();
    assert_eq!((coverage(&session, "short").await, fast.calls()), (vec![20], 1));
    sleep.ended.notify_one();
    within_timeout("the work", working).await.unwrap();
    assert_eq!(late.calls(), 0, "it saw that its lease had run out");
    assert_eq!(seen.sum("epitome_lease_losses_total{}"), 1.0);
    assert_eq!(coverage(&session, "short").await, [20]);
    assert_eq!(sleeper.verify().await.unwrap(), []);
}

#[tokio::test]
async fn an_expired_lease_that_is_still_free_is_renewed_first() {
    let home = Home::file();
    let (sleep, late) = (Sleep::default(), Scripted::new().named("late"));
    let sleeper = home.open(short(one_slot(&late)).hook(sleep.clone())).await;
    let session = sleeper.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = works(&session);
    within_timeout("the sleep", sleep.begun.notified()).await;
    let held = home.row("short").await;
    run_out(&home).await;
    sleep.ended.notify_one();
    within_timeout("the work", working).await.unwrap();
    assert_eq!((late.calls(), coverage(&session, "short").await), (1, vec![20]));
    let after = home.row("short").await;
    assert_eq!((held.fence, after.fence, after.work.owner), (1, 1, None));
}

#[tokio::test]
async fn no_second_model_is_called_under_an_expired_lease() {
    let home = Home::file();
    let gate = Gate::new();
    let late = Scripted::new().named("late").waits_for(&gate).replies("502 Bad Gateway");
    let fast = Scripted::new().named("fast");
    let sleeper = home.open(short(one_slot(&late))).await;
    let other = home.open(one_slot(&fast)).await;
    let session = sleeper.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = works(&session);
    within_timeout("the call", gate.reached()).await;
    run_out(&home).await;
    other.work().await.unwrap();
    gate.open();
    within_timeout("the work", working).await.unwrap();
    assert_eq!((late.calls(), fast.calls()), (1, 1), "its answer was refused, and it was not asked again");
    let all = history(&session, "short").await;
    assert_eq!(all.iter().map(|row| row.model.as_str()).collect::<Vec<_>>(), ["fast"]);
    // What it had cost was written down.
    let usage = session.usage().await.unwrap();
    assert_eq!(usage.iter().filter(|row| row.model == "late").map(|row| row.calls).sum::<u64>(), 1);
    assert_eq!(sleeper.verify().await.unwrap(), []);
}
