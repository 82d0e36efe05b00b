//! Plays all conversations through all policies, several at a time.
//!
//! Files are read as a stream, one conversation after the other. Only the conversations in progress are in memory.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use epitome::dialect::Dialect;
use epitome_terminal::failure::Failure;
use epitome_terminal::show::{Progress, Show, count};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::read::{self, How};
use super::results::{One, Results, Set};
use super::written::Written;
use crate::play::{Conversation, Options, Policy, play};

/// The input of a run.
pub(super) struct Plan {
    pub(super) files: Vec<PathBuf>,
    pub(super) dialect: Option<Dialect>,
    pub(super) pinned: Option<usize>,
    pub(super) policies: Arc<Vec<Policy>>,
    pub(super) options: Arc<Options>,
    pub(super) jobs: usize,
}

/// How often the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// A conversation with the number of its file, or the error that ended reading.
type Read = Result<(usize, Conversation), Failure>;

/// The result of a conversation, with the conversation's position in the input.
type Played = Result<(u64, One), Failure>;

pub(super) async fn run(plan: Plan, written: Written, show: &mut Show) -> Result<Results, Failure> {
    let total = plan.files.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.len())).sum();
    let progress = show.bytes_progress("playing", total);
    let (bytes, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let look = || async {
        progress.bar.set_position(bytes.load(Ordering::Relaxed));
        progress.bar.set_message(count(done.load(Ordering::Relaxed), "conversation"));
    };
    let (sender, receiver) = mpsc::channel(1);
    let (files, how) = (plan.files.clone(), How { dialect: plan.dialect, pinned: plan.pinned });
    let counted = Arc::clone(&bytes);
    let names = written.names().then(HashSet::new);
    let reading = tokio::task::spawn_blocking(move || read_all(&files, how, names, &counted, &sender));
    let played = Progress::during(play_all(&plan, &written, receiver, &done), TICK, look).await;
    let results = played.and_then(|results| match results.sets.iter().all(|set| set.messages == 0) {
        true => Err(Failure::Input("there are no messages to replay".to_owned())),
        false => Ok(results),
    });
    written.end(results.is_ok())?;
    reading.await.map_err(|_| Failure::Failed("reading failed".to_owned()))?;
    results
}

/// Reads the files one after the other. If `names` is set, a conversation whose id occurred before is refused.
fn read_all(
    files: &[PathBuf],
    how: How,
    mut names: Option<HashSet<String>>,
    bytes: &Arc<AtomicU64>,
    sender: &mpsc::Sender<Read>,
) {
    for (nth, file) in files.iter().enumerate() {
        let mut twice = None;
        let send = |conversation: Conversation| {
            let again = names.as_mut().is_some_and(|names| !names.insert(conversation.name.clone()));
            if again {
                twice = Some(conversation.name);
                return false;
            }
            sender.blocking_send(Ok((nth, conversation))).is_ok()
        };
        let read = read::each(file, how, bytes, send).and_then(|()| match twice {
            None => Ok(()),
            Some(name) => Err(Failure::Input(format!(
                "{}: id {name:?} occurs twice; --contexts and --requests identify conversations by their ids, \
                 so each needs its own",
                file.display()
            ))),
        });
        if let Err(failure) = read {
            // If sending fails, the receiver has already stopped.
            let _ = sender.blocking_send(Err(failure));
            return;
        }
    }
}

async fn play_all(
    plan: &Plan,
    written: &Written,
    mut receiver: mpsc::Receiver<Read>,
    done: &AtomicU64,
) -> Result<Results, Failure> {
    let mut results = Results::new(&plan.policies, &plan.options.budgets, plan.options.costs);
    results.sets = read::sets(&plan.files).into_iter().map(|name| Set { name, ..Set::default() }).collect();
    let mut playing: JoinSet<Played> = JoinSet::new();
    // Results are added up in reading order, so the sums do not depend on the number of parallel jobs.
    let (mut begun, mut added, mut waiting) = (0, 0, BTreeMap::new());
    let mut open = true;
    while open || !playing.is_empty() {
        tokio::select! {
            read = receiver.recv(), if open && playing.len() < plan.jobs.max(1) => match read {
                Some(read) => {
                    let (file, conversation) = read?;
                    let (policies, options) = (Arc::clone(&plan.policies), Arc::clone(&plan.options));
                    let written = written.clone();
                    let nth = begun;
                    begun += 1;
                    playing.spawn(async move { Ok((nth, one(file, conversation, &policies, &options, &written).await?)) });
                }
                None => open = false,
            },
            played = playing.join_next(), if !playing.is_empty() => {
                let Some(played) = played else { continue };
                let failed = |_| Failure::Failed("a conversation could not be played to its end".to_owned());
                let (nth, one) = played.map_err(failed)??;
                waiting.insert(nth, one);
                while let Some(one) = waiting.remove(&added) {
                    results.add(one);
                    added += 1;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(results)
}

async fn one(
    set: usize,
    conversation: Conversation,
    policies: &[Policy],
    options: &Options,
    written: &Written,
) -> Result<One, Failure> {
    let mut outcomes = Vec::with_capacity(policies.len());
    for (nth, policy) in policies.iter().enumerate() {
        let name = conversation.name.as_str();
        let mut take = |made: crate::play::Made<'_>| written.take(nth, name, &made);
        let played = play(&conversation, policy, options, &mut take).await;
        outcomes.push(played.map_err(Failure::Engine)?);
    }
    Ok(One { set, messages: conversation.messages.len() as u64, name: conversation.name, outcomes })
}
