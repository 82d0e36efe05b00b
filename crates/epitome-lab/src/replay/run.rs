//! Plays all conversations through all policies. Several conversations are played at the same time.
//!
//! Files are read as a stream, one conversation after the other. Only the conversations that are being played are in
//! memory.

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

use super::dumps::DumpFiles;
use super::read::{self, ReadOptions};
use super::results::{ConversationResult, FileResults, Results};
use crate::play::{Conversation, PlayOptions, Policy, ReplayEvent, play};

/// The input of a run.
pub(super) struct ReplayJob {
    pub(super) files: Vec<PathBuf>,
    pub(super) dialect: Option<Dialect>,
    pub(super) pinned: Option<usize>,
    pub(super) policies: Arc<Vec<Policy>>,
    pub(super) options: Arc<PlayOptions>,
    pub(super) jobs: usize,
}

/// Interval between two updates of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A conversation and the index of its file, or the error that ended reading.
type ReadResult = Result<(usize, Conversation), Failure>;

/// The result of a conversation and the conversation's position in the input, or the error.
type PlayResult = Result<(u64, ConversationResult), Failure>;

pub(super) async fn run(job: ReplayJob, dumps: DumpFiles, show: &mut Show) -> Result<Results, Failure> {
    let total = job.files.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.len())).sum();
    let progress = show.bytes_progress("playing", total);
    let (bytes, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let update = || async {
        progress.bar.set_position(bytes.load(Ordering::Relaxed));
        progress.bar.set_message(count(done.load(Ordering::Relaxed), "conversation"));
    };
    let (sender, receiver) = mpsc::channel(1);
    let (files, read_options) = (job.files.clone(), ReadOptions { dialect: job.dialect, pinned: job.pinned });
    let counted = Arc::clone(&bytes);
    let names = dumps.needs_unique_names().then(HashSet::new);
    let reading =
        tokio::task::spawn_blocking(move || read_all(&files, read_options, names, &counted, &sender));
    let played = Progress::during(play_all(&job, &dumps, receiver, &done), PROGRESS_INTERVAL, update).await;
    let results = played.and_then(|results| match results.sets.iter().all(|set| set.messages == 0) {
        true => Err(Failure::Input("there are no messages to replay".to_owned())),
        false => Ok(results),
    });
    dumps.end(results.is_ok())?;
    reading.await.map_err(|_| Failure::Failed("reading failed".to_owned()))?;
    results
}

/// Reads the files one after the other. If `names` is set, a conversation whose id occurred before is an error.
fn read_all(
    files: &[PathBuf],
    options: ReadOptions,
    mut names: Option<HashSet<String>>,
    bytes: &Arc<AtomicU64>,
    sender: &mpsc::Sender<ReadResult>,
) {
    for (nth, file) in files.iter().enumerate() {
        let mut duplicate = None;
        let send = |conversation: Conversation| {
            let again = names.as_mut().is_some_and(|names| !names.insert(conversation.name.clone()));
            if again {
                duplicate = Some(conversation.name);
                return false;
            }
            sender.blocking_send(Ok((nth, conversation))).is_ok()
        };
        let read = read::each(file, options, bytes, send).and_then(|()| match duplicate {
            None => Ok(()),
            Some(name) => Err(Failure::Input(format!(
                "{}: id {name:?} occurs twice; --contexts and --requests identify conversations by their ids, \
                 so each conversation needs its own id",
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
    job: &ReplayJob,
    dumps: &DumpFiles,
    mut receiver: mpsc::Receiver<ReadResult>,
    done: &AtomicU64,
) -> Result<Results, Failure> {
    let mut results = Results::new(&job.policies, &job.options.budgets, job.options.costs);
    results.sets = read::sets(&job.files)
        .into_iter()
        .map(|name| FileResults { name, ..FileResults::default() })
        .collect();
    let mut playing: JoinSet<PlayResult> = JoinSet::new();
    // Results are added up in the order of the input, so the sums do not depend on the number of parallel jobs.
    let (mut begun, mut added, mut waiting) = (0, 0, BTreeMap::new());
    let mut open = true;
    while open || !playing.is_empty() {
        tokio::select! {
            read = receiver.recv(), if open && playing.len() < job.jobs.max(1) => match read {
                Some(read) => {
                    let (file, conversation) = read?;
                    let (policies, options) = (Arc::clone(&job.policies), Arc::clone(&job.options));
                    let dumps = dumps.clone();
                    let nth = begun;
                    begun += 1;
                    playing.spawn(async move { Ok((nth, play_one(file, conversation, &policies, &options, &dumps).await?)) });
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

async fn play_one(
    set: usize,
    conversation: Conversation,
    policies: &[Policy],
    options: &PlayOptions,
    dumps: &DumpFiles,
) -> Result<ConversationResult, Failure> {
    let mut outcomes = Vec::with_capacity(policies.len());
    for (nth, policy) in policies.iter().enumerate() {
        let name = conversation.name.as_str();
        let mut on_event = |event: ReplayEvent<'_>| dumps.write(nth, name, &event);
        let played = play(&conversation, policy, options, &mut on_event).await;
        outcomes.push(played.map_err(Failure::Engine)?);
    }
    Ok(ConversationResult {
        set,
        messages: conversation.messages.len() as u64,
        name: conversation.name,
        outcomes,
    })
}
