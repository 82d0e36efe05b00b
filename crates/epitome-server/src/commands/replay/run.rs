//! Plays all conversations through all policies, several at a time.
//!
//! Files are read as a stream, one conversation after the other, and no more are held than are played.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use epitome::dialect::Dialect;
use epitome::replay::{Conversation, Options, Outcome, Policy, play};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::read::{self, How};
use super::results::{Results, Set};
use super::written::Written;
use crate::failure::Failure;
use crate::show::{Progress, Show, count};

/// What is to be played.
pub(super) struct Plan {
    pub(super) files: Vec<PathBuf>,
    pub(super) dialect: Option<Dialect>,
    pub(super) pinned: Option<usize>,
    pub(super) policies: Arc<Vec<Policy>>,
    pub(super) options: Arc<Options>,
    pub(super) jobs: usize,
}

/// How often it is shown how far it is.
const TICK: Duration = Duration::from_millis(100);

/// What was read: a conversation of the file of this number, or why there are no more.
type Read = Result<(usize, Conversation), Failure>;

/// What came of a conversation: of which file, its name and length, and for each policy its outcomes.
type Played = Result<(usize, String, usize, Vec<Vec<Outcome>>), Failure>;

pub(super) async fn run(plan: Plan, written: Written, show: &mut Show) -> Result<Results, Failure> {
    let total = plan.files.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.len())).sum();
    let progress = show.bytes_progress("playing", total);
    let (bytes, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let look = || async {
        progress.set(bytes.load(Ordering::Relaxed));
        progress.say(count(done.load(Ordering::Relaxed), "conversation"));
    };
    let (sender, receiver) = mpsc::channel(1);
    let (files, how) = (plan.files.clone(), How { dialect: plan.dialect, pinned: plan.pinned });
    let counted = Arc::clone(&bytes);
    let reading = tokio::task::spawn_blocking(move || read_all(&files, how, &counted, &sender));
    let results = Progress::during(play_all(&plan, &written, receiver, &done), TICK, look).await?;
    reading.await.map_err(|_| Failure::Failed("reading failed".to_owned()))?;
    written.end()?;
    if results.sets.iter().all(|set| set.messages == 0) {
        return Err(Failure::Input("there are no messages to replay".to_owned()));
    }
    Ok(results)
}

fn read_all(files: &[PathBuf], how: How, bytes: &Arc<AtomicU64>, sender: &mpsc::Sender<Read>) {
    for (nth, file) in files.iter().enumerate() {
        let send = |conversation| sender.blocking_send(Ok((nth, conversation))).is_ok();
        if let Err(failure) = read::each(file, how, bytes, send) {
            // Nobody listens any more where this fails.
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
    results.sets = plan.files.iter().map(|file| Set { name: read::set_of(file), ..Set::default() }).collect();
    let mut playing: JoinSet<Played> = JoinSet::new();
    let mut open = true;
    while open || !playing.is_empty() {
        tokio::select! {
            read = receiver.recv(), if open && playing.len() < plan.jobs.max(1) => match read {
                Some(read) => {
                    let (file, conversation) = read?;
                    let (policies, options) = (Arc::clone(&plan.policies), Arc::clone(&plan.options));
                    let written = written.clone();
                    playing.spawn(async move { one(file, conversation, &policies, &options, &written).await });
                }
                None => open = false,
            },
            played = playing.join_next(), if !playing.is_empty() => {
                let Some(played) = played else { continue };
                let failed = |_| Failure::Failed("a conversation could not be played to its end".to_owned());
                let (file, name, messages, outcomes) = played.map_err(failed)??;
                if let Some(set) = results.sets.get_mut(file) {
                    set.conversations += 1;
                    set.messages += messages as u64;
                    for (policy, outcomes) in outcomes.into_iter().enumerate() {
                        outcomes.into_iter().for_each(|outcome| set.add(policy, &name, outcome));
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(results)
}

async fn one(
    file: usize,
    conversation: Conversation,
    policies: &[Policy],
    options: &Options,
    written: &Written,
) -> Played {
    let mut outcomes = Vec::with_capacity(policies.len());
    for (nth, policy) in policies.iter().enumerate() {
        let name = conversation.name.as_str();
        let mut take = |made: epitome::replay::Made<'_>| written.take(nth, name, &made);
        let played = play(&conversation, policy, options, &mut take).await;
        outcomes.push(played.map_err(Failure::Engine)?);
    }
    Ok((file, conversation.name, conversation.messages.len(), outcomes))
}
