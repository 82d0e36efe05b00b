//! Random joins, messages, leaves and deletions, also by two engines on one file: authors and members match a simple model
//! after every step.

use std::collections::BTreeMap;

use epitome::{Engine, Error, Fork, Membership, Update, Workspace};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Map, Value, json};

use crate::directory::{api, authors, by, join, members, sessions};
use crate::support::{Home, cases};

const WORKSPACES: [&str; 2] = ["w", "v"];
const SESSIONS: [&str; 3] = ["a", "b", "c"];
const AUTHORS: [&str; 4] = ["ann", "bob", "eve", "zoe"];

#[derive(Debug, Clone)]
enum Operation {
    Say(Vec<usize>),
    Join(usize),
    Configure(usize, bool, u8),
    Leave(usize),
    /// All leave, and these are there instead.
    Replace(Vec<usize>),
    Note(usize, u8),
    Fork(usize),
    Delete,
    DeleteWorkspace,
}

fn step() -> impl Strategy<Value = Operation> {
    let author = || 0..AUTHORS.len();
    prop_oneof![
        6 => prop::collection::vec(author(), 1..3).prop_map(Operation::Say),
        2 => author().prop_map(Operation::Join),
        2 => (author(), any::<bool>(), any::<u8>()).prop_map(|(who, key, value)| Operation::Configure(who, key, value)),
        3 => author().prop_map(Operation::Leave),
        1 => prop::collection::vec(author(), 0..3).prop_map(Operation::Replace),
        2 => (author(), any::<u8>()).prop_map(|(who, value)| Operation::Note(who, value)),
        2 => (0..SESSIONS.len()).prop_map(Operation::Fork),
        2 => Just(Operation::Delete),
        2 => Just(Operation::DeleteWorkspace),
    ]
}

#[derive(Default)]
struct Talk {
    messages: usize,
    members: BTreeMap<&'static str, Map<String, Value>>,
}

/// The expected content of a workspace, in plain lists and maps.
#[derive(Default)]
struct ExpectedWorkspace {
    exists: bool,
    /// Oldest first.
    authors: Vec<(&'static str, Map<String, Value>)>,
    /// The same.
    sessions: Vec<(&'static str, Talk)>,
}

impl ExpectedWorkspace {
    fn session(&mut self, name: &'static str) -> &mut Talk {
        self.exists = true;
        let at = self.sessions.iter().position(|(each, _)| *each == name).unwrap_or_else(|| {
            self.sessions.push((name, Talk::default()));
            self.sessions.len() - 1
        });
        &mut self.sessions[at].1
    }

    fn author(&mut self, name: &'static str) -> &mut Map<String, Value> {
        self.exists = true;
        let at = self.authors.iter().position(|(each, _)| *each == name).unwrap_or_else(|| {
            self.authors.push((name, Map::new()));
            self.authors.len() - 1
        });
        &mut self.authors[at].1
    }

    fn joins(&mut self, session: &'static str, author: &'static str) -> &mut Map<String, Value> {
        self.author(author);
        self.session(session).members.entry(author).or_default()
    }

    /// Its members, in the order in which they were first heard of.
    fn members(&self, talk: &Talk) -> Vec<&'static str> {
        self.authors.iter().map(|(name, _)| *name).filter(|name| talk.members.contains_key(name)).collect()
    }
}

async fn take(
    step: &Operation,
    workspace: &Workspace,
    name: &'static str,
    expected: &mut ExpectedWorkspace,
) -> TestCaseResult {
    let session = workspace.session(name);
    let note = async |members: Vec<Membership>| {
        session.update(Update { members, ..Update::default() }).await.unwrap();
    };
    match step {
        Operation::Say(who) => {
            let said: Vec<_> = who.iter().map(|who| by(AUTHORS[*who], "A word.")).collect();
            session.append(said).await.unwrap();
            for who in who {
                expected.joins(name, AUTHORS[*who]);
                expected.session(name).messages += 1;
            }
        }
        Operation::Join(who) => {
            note(vec![join(AUTHORS[*who])]).await;
            expected.joins(name, AUTHORS[*who]);
        }
        Operation::Configure(who, key, value) => {
            let (key, who) = (key.to_string(), AUTHORS[*who]);
            let given = json!({key.as_str(): value});
            note(vec![Membership::Join(who.into(), Some(api(given)))]).await;
            expected.joins(name, who).insert(key, json!(value));
        }
        Operation::Leave(who) => {
            note(vec![Membership::Leave(AUTHORS[*who].into())]).await;
            expected.session(name).members.remove(AUTHORS[*who]);
        }
        Operation::Replace(who) => {
            let joined = who.iter().map(|who| join(AUTHORS[*who]));
            note([Membership::LeaveAll].into_iter().chain(joined).collect()).await;
            expected.session(name).members.clear();
            for who in who {
                expected.joins(name, AUTHORS[*who]);
            }
        }
        Operation::Note(who, value) => {
            let notes = Map::from_iter([("n".to_owned(), json!(value))]);
            let existed = expected.authors.iter().any(|(name, _)| *name == AUTHORS[*who]);
            let written = workspace.set_author(AUTHORS[*who], Some(notes.clone()), None).await.unwrap();
            prop_assert_eq!(written.created, !existed);
            *expected.author(AUTHORS[*who]) = notes;
        }
        Operation::Fork(to) => {
            let there = |name: &str| expected.sessions.iter().find(|(each, _)| *each == name);
            let (from, taken) = (there(name), there(SESSIONS[*to]).is_some());
            let copy = from.map(|(_, talk)| (talk.messages, talk.members.clone()));
            match (session.fork(Fork::whole(SESSIONS[*to])).await, copy) {
                (Ok(_), Some((messages, members))) if !taken && messages > 0 => {
                    *expected.session(SESSIONS[*to]) = Talk { messages, members };
                }
                (Err(Error::Conflict(_)), Some((messages, _))) if taken || messages == 0 => {}
                (Err(Error::NotFound { .. }), None) => {}
                (other, _) => return Err(TestCaseError::fail(format!("{:?}", other.map(|_| ())))),
            }
        }
        Operation::Delete => {
            let there = expected.sessions.iter().any(|(each, _)| *each == name);
            prop_assert_eq!(session.delete().await.unwrap(), there);
            expected.sessions.retain(|(each, _)| *each != name);
        }
        Operation::DeleteWorkspace => match workspace.delete().await {
            Ok(was_there) => {
                prop_assert_eq!((was_there, expected.sessions.len()), (expected.exists, 0));
                *expected = ExpectedWorkspace::default();
            }
            Err(Error::Conflict(_)) => prop_assert!(!expected.sessions.is_empty()),
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        },
    }
    Ok(())
}

async fn compare(workspace: &Workspace, expected: &ExpectedWorkspace) -> TestCaseResult {
    prop_assert_eq!(workspace.info().await.unwrap().is_some(), expected.exists);
    let names: Vec<&str> = expected.authors.iter().map(|(name, _)| *name).collect();
    prop_assert_eq!(authors(workspace).await, names);
    for (name, notes) in &expected.authors {
        prop_assert_eq!(&workspace.author(name).await.unwrap().unwrap().metadata, notes);
    }
    let names: Vec<&str> = expected.sessions.iter().map(|(name, _)| *name).collect();
    prop_assert_eq!(sessions(workspace, None).await, names);
    for (name, talk) in &expected.sessions {
        let session = workspace.session(*name);
        prop_assert_eq!(members(&session).await, expected.members(talk), "of {}", name);
        for (member, kept) in &talk.members {
            let attributes = session.member(member).await.unwrap().unwrap().attributes;
            let kept = if kept.is_empty() { Map::new() } else { api(kept.clone().into()) };
            prop_assert_eq!(attributes, kept);
        }
    }
    for author in AUTHORS {
        let belongs = expected.sessions.iter().filter(|(_, talk)| talk.members.contains_key(author));
        let names: Vec<&str> = belongs.map(|(name, _)| *name).collect();
        prop_assert_eq!(sessions(workspace, Some(author)).await, names, "of {}", author);
    }
    Ok(())
}

type Target = (usize, usize, usize);

/// Every step is taken by an engine, in a workspace, in a session.
async fn run(home: Home, engines: usize, steps: Vec<(Operation, Target)>) -> TestCaseResult {
    let mut open = Vec::new();
    for _ in 0..engines {
        open.push(home.open(Engine::builder().workers(0)).await);
    }
    let engines = open;
    let mut expected = [ExpectedWorkspace::default(), ExpectedWorkspace::default()];
    for (step, (engine, workspace, session)) in &steps {
        let (engine, name) = (&engines[*engine % engines.len()], WORKSPACES[*workspace]);
        take(step, &engine.workspace(name), SESSIONS[*session], &mut expected[*workspace]).await?;
        // Seen by all alike, and nothing of it in the other workspace.
        for engine in &engines {
            for (name, expected) in WORKSPACES.into_iter().zip(&expected) {
                compare(&engine.workspace(name), expected).await?;
            }
        }
    }
    prop_assert_eq!(engines[0].verify().await.unwrap(), []);
    for engine in engines {
        engine.close().await;
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<(Operation, Target)>> {
    prop::collection::vec((step(), (0..2usize, 0..WORKSPACES.len(), 0..SESSIONS.len())), 10..60)
}

fn block_on(work: impl Future<Output = TestCaseResult>) -> TestCaseResult {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn authors_and_members_match_a_model_after_every_step(steps in steps()) {
        block_on(run(Home::memory(), 1, steps))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(12), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_engines_see_the_same_authors_and_members_after_every_step(steps in steps()) {
        block_on(run(Home::file(), 2, steps))?;
    }
}
