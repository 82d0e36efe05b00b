//! What a store does, in groups.
//!
//! [`Store`] is what each database does in its own way: reaching it, retrying, backing up. Everything else is written once, as
//! methods of `dyn Store` that pass an operation to [`Store::run`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;

use super::ask::{self, Op, Task, Way};
use super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, UsageQuery, View, Window};
use super::changes::{Decide, Load, Standing};
use super::check::Fault;
use super::copy::{self, CopiedSession};
use super::decode;
use super::directory::{AuthorRow, DecideRow, Deleted, Listed, Listing, MemberRow, WorkspaceRow};
use super::error::{Result, StoreError};
use super::inlines::{self, InlineRow, ListHash};
use super::keyring::{self, KeyRow, PickKeys};
use super::lease::{self, Lease, Poll, Taken, Want};
use super::people::{self, List, page};
use super::recent::{Recent, Since};
use super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, SessionRow, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::sql::Sql;
use super::trouble::nonsense;
use super::usage::{self, Passed};
use super::{change, events, find, queue, read, verify, window};
use crate::event::Events;
use crate::key::Key;

/// Has something done with a store's database.
pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
    store: &(impl Store + ?Sized),
    way: Way,
    args: A,
    op: Op<A, T>,
) -> Result<T> {
    let (args, done) = (Arc::new(args), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&done);
    let task = Task(Box::new(move |ask| {
        let (args, kept) = (Arc::clone(&args), Arc::clone(&kept));
        Box::pin(async move {
            let value = op(&args, ask).await?;
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        })
    }));
    store.run(way, task).await?;
    done.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
}

/// Runs an operation on a store: `run!(store, Way(arguments), |ask| future)`. The arguments move into the operation, which may
/// run on another thread, and the future borrows them. `key = key.clone()` moves a copy.
macro_rules! run {
    ($store:expr, $way:ident($($arg:ident $(= $own:expr)?),*), |$ask:ident| $what:expr) => {{
        $($(let $arg = $own;)?)*
        run($store, Way::$way, ($($arg,)*), |($($arg,)*), $ask| Box::pin($what)).await
    }};
}

/// Stores everything an engine needs. The methods that every database shares are methods of `dyn Store`; a `Sqlite` or `Postgres`
/// dereferences to it.
///
/// A store is added in this crate: it implements this trait over an `Ask` of its own, and passes `tests/store_contract.rs`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Runs an operation in that way. It may run several times; the last run counts.
    #[doc(hidden)]
    async fn run(&self, way: Way, task: Task) -> Result<()>;

    /// The only way to write to a session: reads where it stands, asks `decide`, and writes what it says;
    /// all of that as if nobody else were there, and durable when it returns. Gives the number of the session that
    /// was written to (0 where only what models cost was written down, and there is none); `None` when `decide`
    /// wanted nothing written.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<Option<SessionId>> {
        run!(self, Notes(key = key.clone(), load, decide), |ask| change::change(ask, key, load, decide))
    }

    /// Returns when another node said that something may be ready. Only a hint, which may come late, for nothing, or
    /// not at all: whoever works looks for itself now and then. One that came while nobody waited is told to whoever
    /// waits next. A store that knows of no others never returns.
    async fn nudged(&self) {
        std::future::pending::<()>().await;
    }

    /// Copies the whole store into a new file, while it goes on being used.
    async fn backup(&self, to: &Path) -> Result<()>;

    /// Finishes what is under way and lets go of the file.
    async fn close(&self);

    /// Numbers the events of a workspace that have no number yet.
    #[doc(hidden)]
    async fn number_all(&self, _workspace: &str) -> Result<()> {
        Ok(())
    }

    /// Where the search for whose turn it is goes on.
    #[doc(hidden)]
    fn walked(&self) -> Arc<lease::Place>;

    /// What was read of sessions lately.
    #[doc(hidden)]
    fn recent(&self) -> &Recent;

    /// A session was deleted.
    #[doc(hidden)]
    fn deleted(&self) {}

    /// A copy is shown.
    #[doc(hidden)]
    fn revealed(&self, _copy: SessionId) {}
}

/// The log: sessions, their messages, summaries and events.
impl dyn Store {
    /// Where a session stands.
    pub async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing> {
        run!(self, Reads(key = key.clone(), load), |ask| change::standing(ask, key, load, ""))
    }

    /// Whether anything changed that a context is made from: one row is read. `None` where there is no such session.
    pub async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>> {
        run!(self, LooksHere(key = key.clone()), |ask| change::stamp(ask, key))
    }

    /// What a context is made from: one consistent state. `None` where there is no such session, or `look`
    /// wants nothing.
    pub async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>> {
        let recent = self.recent();
        let (reads, looks) = match view.at_hand {
            true => (Way::ReadsHere, Way::LooksHere),
            false => (Way::Reads, Way::Looks),
        };
        // Windows of other views are seldom read twice.
        let usual = view.scope == Scope::Session && view.as_of.is_none();
        if let Some(held) = recent.window(key).filter(|_| usual) {
            let args = (key.clone(), held, Arc::clone(&look));
            let since = run(self, looks, args, |(key, held, look), ask| Box::pin(held.since(ask, key, look)));
            match since.await? {
                Some(Since::Nothing) => return Ok(None),
                Some(Since::Same(window)) => return Ok(Some(window)),
                Some(Since::Grown(window, next)) => {
                    recent.put(key, next);
                    return Ok(Some(window));
                }
                // It would be read in vain the next time too.
                None => recent.forget_window(key),
            }
        }
        let args = (key.clone(), view, look, recent.number(key));
        let seen = run(self, reads, args, |(key, view, look, likely), ask| {
            Box::pin(window::window(ask, key, view, look, *likely))
        });
        Ok(seen.await?.map(|seen| recent.saw(key, seen, usual)))
    }

    /// The shapes of the scope's messages after this one, at most so many; of a session that is being copied,
    /// those that were, their end unknown.
    pub async fn ahead(&self, session: SessionId, scope: &Scope, after: Seq, limit: usize) -> Result<Ahead> {
        run!(self, Reads(session, scope = scope.clone(), after, limit), |ask| {
            read::ahead(ask, *session, scope, *after, *limit)
        })
    }

    /// Messages with their words. Those that do not exist are left out.
    pub async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>> {
        run!(self, Reads(session, pick), |ask| read::messages(ask, *session, pick))
    }

    /// Summaries.
    pub async fn summaries(&self, session: SessionId, pick: PickSummaries) -> Result<Vec<SummaryRow>> {
        run!(self, Reads(session, pick), |ask| read::summaries(ask, *session, pick))
    }

    /// The text of a summary that was written to the very same question, by the hash of that
    /// ([`super::Facts::asked`]), in any session of the workspace, the newest. None is given that was undone in this
    /// session: whoever took it back wants another.
    pub async fn recall(&self, workspace: &str, session: SessionId, asked: &str) -> Result<Option<String>> {
        run!(self, Looks(workspace = workspace.to_owned(), session, asked = asked.to_owned()), |ask| {
            read::recall(ask, workspace, *session, asked)
        })
    }

    /// Messages by their words, newest session and newest message first.
    pub async fn search(&self, search: Search) -> Result<Portion<Hit>> {
        run!(self, Looks(search), |ask| find::search(ask, search))
    }

    /// What happened in a workspace after the event of that number, in one session or in all: at most so many, oldest
    /// first. Numbers are dense inside a workspace and never given twice, whatever is deleted. The newest 10,000 of a
    /// workspace are kept, and not many more.
    pub async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events> {
        self.number_all(workspace).await?;
        let (workspace, session) = (workspace.to_owned(), session.map(str::to_owned));
        run!(self, Reads(workspace, after, session, limit), |ask| {
            events::read(ask, workspace, *after, session.as_deref(), *limit)
        })
    }

    /// How often messages became a summary, by session, among the events that are kept. At most 10,000 or so are looked at.
    pub async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>> {
        run!(self, Looks(workspace = workspace.to_owned()), |ask| events::condensed(ask, workspace))
    }

    /// Copies messages `1..=through` into a session that nobody sees yet, in pieces, so that no other
    /// writer waits long. Leftovers of a copy that was not finished are removed in time.
    pub async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let copied = run!(self, Writes(from), |ask| copy::begin(ask, *from))?.ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let piece = run!(self, Writes(from, copied, first, through), |ask| {
                copy::piece(ask, *from, *copied, (*first, *through))
            });
            match piece {
                Ok(Some(last)) if last >= through => break,
                Ok(Some(last)) => first = last.saturating_add(1),
                failed => {
                    // Where this fails too, it is found by its age later.
                    let _ = run!(self, Writes(copied), |ask| copy::give_up(ask, *copied));
                    return Err(failed.err().unwrap_or_else(gone));
                }
            }
        }
        Ok(copied)
    }

    /// Shows a copied session under this name. Returns false when the name is taken.
    pub async fn reveal(&self, key: &SessionKey, mut copied: CopiedSession) -> Result<bool> {
        copied.renumber();
        let id = copied.id;
        let shown = run!(self, Writes(key = key.clone(), copied), |ask| copy::reveal(ask, key, copied));
        self.revealed(id);
        shown
    }

    /// Deletes a session with all that was made from it and told of it; usage stays. Nobody sees it any more when this
    /// returns. False when there is none.
    pub async fn delete(&self, key: &SessionKey) -> Result<bool> {
        // What is told of it counts, though nobody will hear of it.
        self.number_all(&key.workspace).await?;
        let deleted = run!(self, Writes(key = key.clone()), |ask| copy::delete(ask, key))?;
        self.recent().forget(key);
        self.deleted();
        Ok(deleted)
    }
}

/// Slots: what is due, and who works on it.
impl dyn Store {
    /// Takes a slot that is ready: its time has come, and nobody holds it or their hold ran out. Of the workspace
    /// whose turn it is ([`Want::after`]) the one that waits longest. Where time alone made it due, it fires now. Its
    /// fence rises.
    ///
    /// It is asked often, mostly for nothing, and looks at no more than so many slots, however many are ready. One that is
    /// being written to at that moment may be passed over.
    pub async fn lease(&self, want: Want) -> Result<Option<Lease>> {
        let Some(now) = run!(self, LooksHere(), |ask| lease::anything_ready(ask))? else { return Ok(None) };
        let poll = Arc::new(Poll { want, now, walked: self.walked() });
        let turns = run!(self, Looks(this = Arc::clone(&poll)), |ask| this.whose_turn(ask))?;
        // Each of them is tried in a transaction of its own, so that nobody waits for one that was tried in vain.
        for of in &turns {
            let taken =
                run!(self, Notes(this = Arc::clone(&poll), of = of.clone()), |ask| this.take(ask, of));
            if let Taken::Lease(lease) = taken? {
                poll.walked.took(&lease.key.workspace);
                return Ok(Some(*lease));
            }
        }
        for of in turns {
            let held = run!(self, Looks(this = Arc::clone(&poll), of), |ask| this.passed_over(ask, of))?;
            let Some(held) = held else { continue };
            match run!(self, Notes(this = Arc::clone(&poll), held), |ask| this.take(ask, held))? {
                Taken::Nothing => {}
                Taken::StillHeld => return Ok(None),
                Taken::Lease(lease) => return Ok(Some(*lease)),
            }
        }
        Ok(None)
    }

    /// The workspace's slots that have something to do now, or once they may: how many, and at most so many of
    /// them, those waiting longest first. Without a workspace those of all, which is for whoever runs the engine. It
    /// is asked often: what it costs depends on how many have something to do, and not on how many sessions there are.
    pub async fn queue(&self, workspace: Option<&str>, limit: usize) -> Result<(QueueCounts, Vec<QueueRow>)> {
        run!(self, Reads(workspace = workspace.map(str::to_owned), limit), |ask| {
            queue::queue(ask, workspace.as_deref(), *limit)
        })
    }
}

/// Keys.
impl dyn Store {
    /// Keeps a new key. `created` is set to the moment, by the store's clock, and the key given back.
    pub async fn add_key(&self, row: KeyRow) -> Result<Key> {
        run!(self, Notes(row), |ask| keyring::add(ask, row))
    }

    /// Keys, revoked and expired ones too, and the moment by the store's clock. As they stand now: nothing of them is
    /// remembered between two calls.
    pub async fn keys(&self, pick: PickKeys) -> Result<(Vec<KeyRow>, Timestamp)> {
        run!(self, Reads(pick), |ask| keyring::pick(ask, pick))
    }

    /// Revokes a key, of that workspace where one is named. One that was revoked before stays as it is. False when there
    /// is no such key.
    pub async fn revoke_key(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        run!(self, Notes(id = id.to_owned(), workspace = workspace.map(str::to_owned)), |ask| {
            keyring::revoke(ask, id, workspace.as_deref())
        })
    }
}

/// Lists that the proxy condensed.
impl dyn Store {
    /// What was last done to this list, given by the hashes of its beginnings: of the first message, of the first two, and
    /// so on.
    pub async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>> {
        run!(self, Reads(workspace = workspace.to_owned(), chain), |ask| inlines::find(ask, workspace, chain))
    }

    /// Keeps what was done to a list, in place of what was kept for the very same. The newest 1,000 of a workspace are kept.
    pub async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<()> {
        run!(self, Notes(workspace = workspace.to_owned(), row), |ask| inlines::keep(ask, workspace, row))
    }

    /// Adds to what passed through in this hour. Of more than 100 models in an hour the others are told as `other`.
    pub async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<()> {
        run!(self, Notes(workspace = workspace.to_owned(), more), |ask| {
            usage::add_passed(ask, workspace, more)
        })
    }

    /// What passed through since the hour of that moment, added up by model.
    pub async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>> {
        run!(self, Looks(workspace = workspace.to_owned(), since), |ask| {
            usage::passed(ask, workspace, *since)
        })
    }
}

/// Usage of models.
impl dyn Store {
    /// Records calls of models.
    pub async fn record(&self, usage: Vec<UsageRow>) -> Result<()> {
        run!(self, Notes(usage), |ask| usage::record(ask, usage))
    }

    /// Calls of models, added up.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>> {
        run!(self, Looks(query), |ask| usage::usage(ask, query))
    }
}

/// The directory: workspaces, sessions, authors, members.
impl dyn Store {
    /// The workspaces that anything was ever written to.
    pub async fn workspaces(&self, listing: Listing<WorkspaceRow>) -> Result<Listed<WorkspaceRow>> {
        run!(self, Reads(listing), |ask| page(ask, List::workspaces(), listing, decode::workspace))
    }

    /// A workspace's sessions; only those an author belongs to, where one is named.
    pub async fn sessions(
        &self,
        workspace: &str,
        member: Option<&str>,
        listing: Listing<(Arc<str>, SessionRow)>,
    ) -> Result<Listed<(Arc<str>, SessionRow)>> {
        let (workspace, member) = (workspace.to_owned(), member.map(str::to_owned));
        run!(self, Reads(workspace, member, listing), |ask| {
            page(ask, List::sessions(workspace, member.as_deref()), listing, decode::named_session)
        })
    }

    /// A workspace's authors. They are not listed by name.
    pub async fn authors(&self, workspace: &str, listing: Listing<AuthorRow>) -> Result<Listed<AuthorRow>> {
        run!(self, Reads(workspace = workspace.to_owned(), listing), |ask| {
            page(ask, List::authors(workspace), listing, decode::author)
        })
    }

    /// A session's members, in the order in which their authors came to be. They are not listed by name.
    pub async fn members(
        &self,
        session: SessionId,
        listing: Listing<MemberRow>,
    ) -> Result<Listed<MemberRow>> {
        run!(self, Reads(session, listing), |ask| {
            page(ask, List::members(*session), listing, decode::member)
        })
    }

    /// Changes what is kept of a workspace, which comes to be where there is none: `created` is the store's to say. As if
    /// nobody else were there.
    pub async fn change_workspace(&self, workspace: &str, decide: DecideRow<WorkspaceRow>) -> Result<()> {
        run!(self, Writes(workspace = workspace.to_owned(), decide), |ask| people::change_workspace(
            ask, workspace, decide
        ))
    }

    /// Changes what is kept of an author, who comes to be where there is none, and the workspace with them: `created` is
    /// the store's to say. As if nobody else were there.
    pub async fn change_author(
        &self,
        workspace: &str,
        name: &str,
        decide: DecideRow<AuthorRow>,
    ) -> Result<()> {
        run!(self, Writes(workspace = workspace.to_owned(), name = name.to_owned(), decide), |ask| {
            people::change_author(ask, workspace, name, decide)
        })
    }

    /// Deletes a workspace that has no sessions, with its settings, notes and authors. What it spent stays known.
    pub async fn delete_workspace(&self, workspace: &str) -> Result<Deleted> {
        run!(self, Writes(workspace = workspace.to_owned()), |ask| people::delete_workspace(ask, workspace))
    }
}

/// Maintenance.
impl dyn Store {
    /// The store's secret: made with it, never changed, the same for everybody who opens it.
    pub async fn secret(&self) -> Result<[u8; 32]> {
        run!(self, Looks(), |ask| async move {
            let sql = Sql::new("SELECT secret FROM epitome.secrets", []);
            let secret = ask::first(ask, sql, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
            secret.unwrap_or_default().try_into().map_err(|_| nonsense("the store has no secret"))
        })
    }

    /// Looks everything through.
    pub async fn verify(&self) -> Result<Vec<Fault>> {
        run!(self, ReadsAll(), |ask| verify::verify(ask))
    }
}
