//! The engine and its worker: summaries that appear by themselves, whatever fails, races or dies.
//!
//! The tests of `engine/main.rs` once more, with PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should stop, loudly"
)]

#[path = "engine/batches.rs"]
mod batches;
#[path = "engine/closing.rs"]
mod closing;
#[path = "engine/configured.rs"]
mod configured;
#[path = "engine/consistent.rs"]
mod consistent;
#[path = "engine/counted.rs"]
mod counted;
#[path = "engine/directory.rs"]
mod directory;
#[path = "engine/drawn_people.rs"]
mod drawn_people;
#[path = "engine/drawn_work.rs"]
mod drawn_work;
#[path = "engine/expired.rs"]
mod expired;
#[path = "engine/failing.rs"]
mod failing;
#[path = "engine/forks.rs"]
mod forks;
#[path = "engine/hard_cases.rs"]
mod hard_cases;
#[path = "engine/health.rs"]
mod health;
#[path = "engine/home_postgres.rs"]
mod home;
#[path = "engine/hooks.rs"]
mod hooks;
#[path = "engine/keys.rs"]
mod keys;
#[path = "engine/numbers.rs"]
mod numbers;
#[path = "engine/on_postgres.rs"]
mod on_postgres;
#[path = "engine/people.rs"]
mod people;
#[path = "postgres_server/mod.rs"]
mod postgres_server;
#[path = "engine/races.rs"]
mod races;
#[path = "engine/retries.rs"]
mod retries;
#[path = "engine/reviewed.rs"]
mod reviewed;
#[path = "engine/scopes.rs"]
mod scopes;
#[path = "engine/sizes.rs"]
mod sizes;
#[path = "engine/slots.rs"]
mod slots;
#[path = "engine/spending.rs"]
mod spending;
#[path = "engine/spending_odd.rs"]
mod spending_odd;
#[path = "engine/support.rs"]
mod support;
#[path = "engine/telling.rs"]
mod telling;
#[path = "engine/turns.rs"]
mod turns;
#[path = "engine/usage.rs"]
mod usage;
#[path = "engine/views.rs"]
mod views;

#[path = "../../epitome-core/tests/core/drawn.rs"]
#[allow(dead_code, reason = "the core's own tests use all of it")]
mod drawn;
#[path = "../../epitome-core/tests/core/validator.rs"]
#[allow(dead_code, reason = "the core's own tests use all of it")]
mod validator;

/// A file that was forgotten here would be tried on one of the two only.
#[test]
fn whatever_is_tried_on_sqlite_is_tried_on_postgres() {
    let named = |list: &str| -> std::collections::BTreeSet<String> {
        list.lines().filter(|line| line.starts_with("mod ")).map(str::to_owned).collect()
    };
    let (there, here) = (named(include_str!("engine/main.rs")), named(include_str!("engine_on_postgres.rs")));
    assert!(there.len() > 30, "{there:?}");
    assert_eq!(there.difference(&here).collect::<Vec<_>>(), ["mod on_sqlite;"]);
}
