//! Compares the leases in the database with the calls that providers received.
//!
//! A trigger records every lease, with the role of the node that took or renewed it. Each node has a provider of its own.
//! All of them use the clock of the machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stage::{Node, Stage};
use crate::writers::session_of;

const TRIGGER: &str = "
CREATE TABLE public.leases (at bigint, node text, session text, slot text, fence bigint, until bigint);
CREATE FUNCTION public.record_leases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- An append writes the row over as well, and leaves the lease as it is.
    IF (NEW.work::json ->> 'until') IS NOT NULL AND (NEW.work::json ->> 'until', NEW.fence)
            IS DISTINCT FROM (OLD.work::json ->> 'until', OLD.fence) THEN
        INSERT INTO public.leases
        SELECT extract(epoch FROM clock_timestamp()) * 1000, session_user, sessions.name, NEW.name, NEW.fence,
               (NEW.work::json ->> 'until')::bigint
        FROM epitome.sessions WHERE sessions.id = NEW.session;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER record_leases AFTER UPDATE ON epitome.slots FOR EACH ROW EXECUTE FUNCTION public.record_leases();
";

/// Maximum time between a node's check of its lease and the call at the provider, on a busy machine, in milliseconds.
const DELAY: i64 = 1_500;

/// A lease of a slot by a node.
#[derive(Debug, Clone)]
pub struct Lease {
    pub node: String,
    pub session: String,
    pub slot: String,
    pub fence: i64,
    /// When it was taken, and when it ended, in milliseconds since 1970.
    pub from: i64,
    pub until: i64,
}

/// Records every lease from now on.
pub fn record_leases(stage: &Stage) {
    stage.database.psql(TRIGGER);
}

/// Returns every lease, in the order in which they were taken.
pub fn leases(stage: &Stage) -> Vec<Lease> {
    let rows = stage.database.psql(
        "SELECT node, session, slot, fence, min(at), max(until) FROM public.leases
         GROUP BY node, session, slot, fence ORDER BY min(at)",
    );
    let leases = rows.lines().map(|row| {
        let fields: Vec<&str> = row.split('|').collect();
        let number = |at: usize| fields[at].parse().unwrap();
        let name = |at: usize| fields[at].to_owned();
        Lease {
            node: name(0),
            session: name(1),
            slot: name(2),
            fence: number(3),
            from: number(4),
            until: number(5),
        }
    });
    leases.collect()
}

/// A call that a provider received.
#[derive(Debug, Clone)]
pub struct Call {
    pub node: String,
    pub session: String,
    pub slot: String,
    pub at: i64,
}

fn millis(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Returns the calls that a node's provider received.
pub fn calls(node: &Node) -> Vec<Call> {
    let calls = node.provider.requests().into_iter().map(|request| {
        let prompt = request.prompt();
        let said = prompt.lines().find(|line| line.starts_with('[')).unwrap_or_else(|| panic!("{prompt}"));
        let model = request.body["model"].as_str().unwrap();
        Call {
            node: node.name.clone(),
            session: session_of(said).unwrap_or_else(|| panic!("{said}")).to_owned(),
            slot: model.trim_end_matches("_spare").to_owned(),
            at: millis(request.at),
        }
    });
    calls.collect()
}

/// Calls for which the node had no lease, as far as it can be told from outside.
///
/// Between the last look at the lease and the request a node may be frozen, and then the request comes when it wakes. It
/// did not see the lease expired, so that is no fault; but it happens to one request at most, where it happens at all.
pub fn calls_without_lease(stage: &Stage, leases: &[Lease]) -> Vec<Call> {
    let mut calls_without_lease = Vec::new();
    for node in &stage.nodes {
        let frozen: Vec<i64> = node.frozen.lock().unwrap().iter().map(|(_, woken)| millis(*woken)).collect();
        let mut caught = vec![0; frozen.len()];
        for call in calls(node) {
            let theirs =
                |one: &&Lease| one.node == call.node && one.session == call.session && one.slot == call.slot;
            let had = |one: &Lease| one.from <= call.at && call.at <= one.until + DELAY;
            if leases.iter().filter(theirs).any(had) {
                continue;
            }
            let woken = frozen.iter().position(|woken| (*woken..*woken + DELAY).contains(&call.at));
            match woken.and_then(|at| caught.get_mut(at)) {
                Some(before) if *before == 0 => *before += 1,
                _ => calls_without_lease.push(call),
            }
        }
    }
    calls_without_lease
}

/// Leases that were taken under a fence that was not above all before it. Whether two nodes thought a slot theirs at once
/// cannot be told from outside, since one may be given back early; that only one of them can keep anything is the fence's doing.
pub fn fences_that_did_not_grow(leases: &[Lease]) -> Vec<&Lease> {
    let stale = |at: usize, one: &Lease| {
        let same = |other: &&Lease| other.session == one.session && other.slot == one.slot;
        leases[..at].iter().filter(same).any(|other| other.fence >= one.fence)
    };
    leases.iter().enumerate().filter(|(at, one)| stale(*at, one)).map(|(_, one)| one).collect()
}

/// Returns a duration after which a lease has certainly expired.
pub fn past(lease: Duration) -> Duration {
    lease + lease / 2
}
