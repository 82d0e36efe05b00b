//! States of lists that the proxy condensed, and proxy usage, for every store.

use epitome::store::*;
use epitome_core::message::Timestamp;

use super::support::*;

const HOUR: i64 = 3_600_000;

fn hash(n: u64) -> ListHash {
    let mut hash = ListHash::default();
    hash[..8].copy_from_slice(&n.to_be_bytes());
    hash
}

/// Returns the hashes of all prefixes of a list with these messages.
fn chain(messages: impl IntoIterator<Item = u64>) -> Vec<ListHash> {
    messages.into_iter().map(hash).collect()
}

fn done(chain: &[ListHash], kept: &str) -> ProxyStateRow {
    let (root, hash) = (chain[0], chain[chain.len() - 1]);
    ProxyStateRow { root, length: chain.len() as u64, hash, state: kept.to_owned() }
}

async fn found(store: &dyn Store, workspace: &str, chain: &[ListHash]) -> Option<String> {
    let row = store.find_proxy_state(workspace, chain.to_vec()).await.unwrap()?;
    assert_eq!((row.root, Some(&row.hash)), (chain[0], chain.get(usize::try_from(row.length).unwrap() - 1)));
    Some(row.state)
}

pub(crate) async fn the_state_of_the_longest_prefix_is_found(made: Made) {
    let store = &*made.store;
    let list = chain(1..=9);
    for (len, kept) in [(2, "two"), (5, "five"), (7, "seven")] {
        store.store_proxy_state("w", done(&list[..len], kept)).await.unwrap();
    }
    for (len, kept) in [
        (1, None),
        (2, Some("two")),
        (4, Some("two")),
        (6, Some("five")),
        (7, Some("seven")),
        (9, Some("seven")),
    ] {
        assert_eq!(found(store, "w", &list[..len]).await.as_deref(), kept, "{len}");
    }
    assert_eq!(store.find_proxy_state("w", Vec::new()).await.unwrap(), None);
    // Storing the state of the same list again replaces it.
    store.store_proxy_state("w", done(&list[..5], "five again")).await.unwrap();
    assert_eq!(found(store, "w", &list[..6]).await.as_deref(), Some("five again"));
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn no_state_is_found_for_a_different_list(made: Made) {
    let store = &*made.store;
    let list = chain(1..=6);
    store.store_proxy_state("w", done(&list, "mine")).await.unwrap();
    // Same length and prefix; same end and another start; the same list in another workspace.
    let other_end = chain([1, 2, 3, 4, 5, 66, 7]);
    let other_root = chain([11, 2, 3, 4, 5, 6, 7]);
    for other in [&other_end, &other_root] {
        assert_eq!(found(store, "w", other).await, None);
    }
    assert_eq!(found(store, "v", &list).await, None);
    store.store_proxy_state("v", done(&list, "theirs")).await.unwrap();
    assert_eq!(found(store, "w", &list).await.as_deref(), Some("mine"));
    // Two lists that diverged find their own state, and that of the common prefix.
    store.store_proxy_state("w", done(&other_end[..6], "fork")).await.unwrap();
    assert_eq!(found(store, "w", &other_end).await.as_deref(), Some("fork"));
    assert_eq!(found(store, "w", &list).await.as_deref(), Some("mine"));
}

pub(crate) async fn a_workspace_retains_the_newest_thousand_lists(made: Made) {
    let store = &*made.store;
    store.store_proxy_state("v", done(&chain([1]), "another's")).await.unwrap();
    // The clock stands still, and once goes back.
    made.clock.set(50);
    for n in 1..=1_000 {
        store.store_proxy_state("w", done(&chain([n]), "done")).await.unwrap();
    }
    // A list that is stored again counts as new.
    store.store_proxy_state("w", done(&chain([1]), "again")).await.unwrap();
    made.clock.set(10);
    for n in 1_001..=1_010 {
        store.store_proxy_state("w", done(&chain([n]), "done")).await.unwrap();
    }
    let mut left = Vec::new();
    for n in 1..=1_010 {
        if found(store, "w", &chain([n])).await.is_some() {
            left.push(n);
        }
    }
    assert_eq!(left.len(), 1_000);
    assert_eq!((left[0], left[1], left.last()), (1, 12, Some(&1_010)));
    assert_eq!(found(store, "v", &chain([1])).await.as_deref(), Some("another's"));
}

fn sum(model: &str, input: u64) -> ProxyUsage {
    ProxyUsage {
        model: model.to_owned(),
        shadow: false,
        requests: 1,
        shorter: 2,
        retried: 3,
        cut_off: 4,
        uncounted: 5,
        input,
        cached: 7,
        output: 8,
        saved: 9,
        cost: 10,
        saved_cost: -11,
    }
}

pub(crate) async fn proxy_usage_is_summed_by_model_and_hour(made: Made) {
    let store = &*made.store;
    made.clock.set(10 * HOUR + 1);
    store.add_proxy_usage("w", vec![sum("a", 100), sum("b", 1), sum("a", 10)]).await.unwrap();
    store.add_proxy_usage("w", vec![ProxyUsage { shadow: true, ..sum("a", 5) }]).await.unwrap();
    store.add_proxy_usage("v", vec![sum("a", 1_000)]).await.unwrap();
    made.clock.set(11 * HOUR);
    store.add_proxy_usage("w", vec![sum("a", 3)]).await.unwrap();
    store.add_proxy_usage("w", Vec::new()).await.unwrap();

    let all = store.proxy_usage("w", Timestamp(0)).await.unwrap();
    let told: Vec<_> = all.iter().map(|row| (row.model.as_str(), row.shadow, row.input)).collect();
    assert_eq!(told, [("a", false, 113), ("a", true, 5), ("b", false, 1)]);
    let thrice = ProxyUsage {
        requests: 3,
        shorter: 6,
        retried: 9,
        cut_off: 12,
        uncounted: 15,
        cached: 21,
        output: 24,
        saved: 27,
        cost: 30,
        saved_cost: -33,
        ..sum("a", 113)
    };
    assert_eq!(all[0], thrice);
    // An hour is returned as a whole or not at all.
    let inputs = async |since| {
        let rows = store.proxy_usage("w", Timestamp(since)).await.unwrap();
        rows.iter().map(|row| row.input).sum::<u64>()
    };
    assert_eq!(inputs(10 * HOUR + 59).await, 119);
    assert_eq!(
        (inputs(11 * HOUR - 1).await, inputs(11 * HOUR + 9).await, inputs(12 * HOUR).await),
        (119, 3, 0)
    );
    assert_eq!(store.proxy_usage("x", Timestamp(0)).await.unwrap(), []);
}

pub(crate) async fn models_above_the_limit_are_counted_as_other(made: Made) {
    let store = &*made.store;
    let many = (0..150).map(|n| sum(&format!("m{n:03}"), 1)).collect();
    store.add_proxy_usage("w", many).await.unwrap();
    // A model that has its own row keeps it.
    store.add_proxy_usage("w", vec![sum("m000", 10), sum("m149", 10), sum("m149", 10)]).await.unwrap();
    let rows = store.proxy_usage("w", Timestamp(0)).await.unwrap();
    assert_eq!(rows.len(), 101);
    assert_eq!(rows.iter().map(|row| row.input).sum::<u64>(), 180);
    let of = |name: &str| rows.iter().find(|row| row.model == name).map(|row| row.input);
    assert_eq!((of("m000"), of("m099"), of("m100"), of("other")), (Some(11), Some(1), None, Some(70)));
}

pub(crate) async fn proxy_data_is_deleted_with_its_workspace(made: Made) {
    let store = &*made.store;
    let list = chain(1..=3);
    for workspace in ["w", "v", "u"] {
        store.store_proxy_state(workspace, done(&list, "done")).await.unwrap();
        store.add_proxy_usage(workspace, vec![sum("a", 1)]).await.unwrap();
    }
    set_workspace(store, "w", Some("")).await;
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::Deleted);
    // The workspace itself need not exist.
    assert_eq!(store.delete_workspace("v").await.unwrap(), WorkspaceDeletion::NotFound);
    for (workspace, left) in [("w", 0), ("v", 0), ("u", 1)] {
        assert_eq!(store.proxy_usage(workspace, Timestamp(0)).await.unwrap().len(), left, "{workspace}");
        assert_eq!(found(store, workspace, &list).await.is_some(), left == 1, "{workspace}");
    }
    assert_eq!(store.verify().await.unwrap(), []);
}
