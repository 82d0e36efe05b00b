use serde_json::json;

use super::*;
use crate::wire::MESSAGE_FIELDS as KNOWN;

mod drawn;

fn keeps(filter: &Filter, item: &Value) -> bool {
    filter.matches(item)
}

fn read(filters: &Value) -> Filter {
    Filter::parse(filters, KNOWN).unwrap_or_else(|wrong| panic!("{filters}: {wrong}"))
}

/// A message with everything that the cases below need.
fn message() -> Value {
    json!({
        "id": "m1",
        "content": "Thank you, the Ümlaut works",
        "peer_id": "ann",
        "session_id": null,
        "created_at": "2024-06-01T12:00:00.500000Z",
        "token_count": 7,
        "metadata": {
            "score": 8.5,
            "count": 3,
            "tags": ["important", "Late", 5, {"by": "bob", "at": 1}],
            "profile": {"role": "admin", "team": {"name": "core", "size": 4}},
            "urgent": true,
            "nothing": null,
            "big": 9_007_199_254_740_993_i64,
        },
    })
}

fn check(wanted: bool, filters: &[Value]) {
    for filters in filters {
        assert_eq!(keeps(&read(filters), &message()), wanted, "{filters}");
    }
}

#[test]
fn an_empty_filter_matches_everything() {
    for filters in [
        json!(null),
        json!({}),
        json!({"AND": []}),
        json!({"NOT": []}),
        json!({"AND": [{}, {"AND": [{}]}]}),
        json!({"OR": [{}]}),
        json!({"peer_id": "*"}),
        json!({"peer_id": {"in": ["ann", "*"]}}),
        json!({"metadata": "*"}),
        json!({"metadata": {"type": "*", "profile": {"age": "*"}}}),
        json!({"created_at": {"gte": "*", "lt": "*"}}),
    ] {
        assert!(read(&filters).is_empty(), "{filters}");
        check(true, &[filters]);
    }
    assert!(!read(&json!({"peer_id": "ann"})).is_empty());
    assert!(!read(&json!({"OR": []})).is_empty());
    assert!(!read(&json!({"NOT": [{}]})).is_empty());
}

#[test]
fn a_plain_value_means_equality() {
    check(
        true,
        &[
            json!({"peer_id": "ann"}),
            json!({"peer_id": "ann", "token_count": 7}),
            json!({"token_count": 7.0}),
            json!({"session_id": null}),
            json!({"workspace_id": null}),
            json!({"created_at": "2024-06-01T12:00:00.5"}),
            json!({"created_at": "2024-06-01T14:00:00.500000+02:00"}),
        ],
    );
    check(
        false,
        &[
            json!({"peer_id": "Ann"}),
            json!({"peer_id": "ann", "token_count": 8}),
            json!({"token_count": "7"}),
            json!({"peer_id": null}),
            json!({"session_id": "x"}),
            json!({"workspace_id": "x"}),
            json!({"created_at": "2024-06-01"}),
        ],
    );
}

#[test]
fn operators_compare() {
    check(
        true,
        &[
            json!({"token_count": {"gt": 6.5, "gte": 7, "lt": 8, "lte": 7, "ne": 6}}),
            json!({"created_at": {"gte": "2024-01-01", "lte": "2024-12-31"}}),
            json!({"created_at": {"gt": "2024-06-01T13:00:00.4+01:00"}}),
            json!({"created_at": {"ne": "2024-06-01"}}),
            json!({"created_at": {"in": ["2020-01-01", "2024-06-01T12:00:00.5Z"]}}),
            json!({"peer_id": {"gt": "anm", "lt": "ao"}}),
            json!({"peer_id": {"in": ["bob", "ann"]}}),
            json!({"peer_id": {"ne": "bob"}}),
            json!({"peer_id": {"ne": null}}),
            json!({"content": {"contains": "Thank"}}),
            json!({"content": {"icontains": "thank YOU", "contains": "works"}}),
            json!({"content": {"icontains": "üMLAUT"}}),
            json!({"content": {"contains": ""}}),
        ],
    );
    check(
        false,
        &[
            json!({"token_count": {"gt": 7}}),
            json!({"token_count": {"gt": 6, "lt": 7}}),
            json!({"token_count": {"gt": "6"}}),
            json!({"created_at": {"lt": "2024-06-01T12:00:00.5"}}),
            json!({"created_at": {"ne": "2024-06-01T12:00:00.500Z"}}),
            json!({"peer_id": {"in": []}}),
            json!({"peer_id": {"in": ["bob"]}}),
            json!({"peer_id": {"ne": "ann"}}),
            json!({"content": {"contains": "thank"}}),
            json!({"content": {"contains": 5}}),
            json!({"token_count": {"contains": "7"}}),
            json!({"token_count": {"icontains": "7"}}),
        ],
    );
}

#[test]
fn conditions_on_metadata_match_what_it_contains() {
    check(
        true,
        &[
            json!({"metadata": {}}),
            json!({"metadata": {"score": 8.5, "count": 3.0, "urgent": true}}),
            json!({"metadata": {"profile": {"team": {"name": "core"}}}}),
            json!({"metadata": {"profile": {}}}),
            json!({"metadata": {"tags": []}}),
            json!({"metadata": {"tags": [5, "important", "important"]}}),
            json!({"metadata": {"tags": [{"by": "bob"}]}}),
            json!({"metadata": {"nothing": null}}),
            json!({"metadata": {"score": {"gt": 8, "lte": 8.5}, "profile": {"team": {"size": {"lt": 5}}}}}),
            json!({"metadata": {"tags": {"contains": "important"}}}),
            json!({"metadata": {"tags": {"contains": 5.0}}}),
            json!({"metadata": {"tags": {"contains": [5, "Late"]}}}),
            json!({"metadata": {"tags": {"contains": {"at": 1}}}}),
            json!({"metadata": {"tags": {"icontains": "late"}}}),
            json!({"metadata": {"profile": {"role": {"contains": "dmi"}}}}),
            json!({"metadata": {"profile": {"contains": {"role": "admin"}}}}),
            json!({"metadata": {"contains": {"profile": {"role": "admin"}}}}),
            json!({"metadata": {"profile": {"in": [{"role": "user"}, {"role": "admin"}]}}}),
            json!({"metadata": {"urgent": {"in": [false, true]}}}),
            json!({"metadata": {"big": 9_007_199_254_740_993_i64}}),
            json!({"metadata": {"big": {"gt": 9_007_199_254_740_992_i64}}}),
        ],
    );
    check(
        false,
        &[
            json!({"metadata": {"score": "8.5"}}),
            json!({"metadata": {"urgent": 1}}),
            json!({"metadata": {"other": null}}),
            json!({"metadata": {"count": {}}}),
            json!({"metadata": {"tags": "important"}}),
            json!({"metadata": {"tags": ["important", "more"]}}),
            json!({"metadata": {"tags": {"by": "bob"}}}),
            json!({"metadata": {"tags": {"contains": "import"}}}),
            json!({"metadata": {"tags": {"contains": "late"}}}),
            json!({"metadata": {"profile": {"role": "admin", "age": "5"}}}),
            json!({"metadata": {"profile": {"team": "core"}}}),
            json!({"metadata": {"score": {"gt": "8"}}}),
            json!({"metadata": {"urgent": {"gt": 0}}}),
            json!({"metadata": {"big": 9_007_199_254_740_992_i64}}),
        ],
    );
}

#[test]
fn conditions_on_missing_values_are_false() {
    check(
        false,
        &[
            json!({"metadata": {"other": {"ne": 5}}}),
            json!({"metadata": {"nothing": {"ne": 5}}}),
            json!({"metadata": {"nothing": {"ne": null}}}),
            json!({"metadata": {"other": {"gt": 5}}}),
            json!({"metadata": {"other": {"in": [5]}}}),
            json!({"workspace_id": {"ne": "x"}}),
            json!({"session_id": {"ne": "x"}}),
        ],
    );
    check(
        true,
        &[
            json!({"NOT": [{"metadata": {"other": 5}}]}),
            json!({"NOT": [{"metadata": {"other": {"gt": 5}}}]}),
            json!({"NOT": [{"session_id": "x"}]}),
            json!({"metadata": {"score": {"ne": "8.5"}, "tags": {"ne": ["more"]}}}),
        ],
    );
}

#[test]
fn and_or_and_not_combine_filters() {
    let (yes, no) = (json!({"peer_id": "ann"}), json!({"peer_id": "bob"}));
    check(
        true,
        &[
            json!({"AND": [yes, {"token_count": 7}]}),
            json!({"OR": [no, yes]}),
            json!({"NOT": [no, {"token_count": 8}]}),
            json!({"AND": [{"OR": [yes, no]}, {"NOT": [{"metadata": {"archived": true}}]}]}),
            json!({"peer_id": "ann", "OR": [no, {"token_count": {"lt": 9}}], "NOT": [no]}),
        ],
    );
    check(
        false,
        &[
            json!({"AND": [yes, no]}),
            json!({"OR": []}),
            json!({"OR": [no, no]}),
            json!({"NOT": [no, yes]}),
            json!({"NOT": [{}]}),
            json!({"NOT": [{"peer_id": "*"}]}),
            json!({"peer_id": "bob", "OR": [yes]}),
        ],
    );
}

#[test]
fn a_required_text_is_found_for_the_index() {
    for (filters, told) in [
        (json!({"peer_id": "ann"}), Some("ann")),
        (json!({"peer_id": {"in": ["ann"]}}), Some("ann")),
        (json!({"token_count": 7, "AND": [{}, {"AND": [{"peer_id": "ann"}, {"id": "x"}]}]}), Some("ann")),
        (json!({"OR": [{"peer_id": "ann"}]}), Some("ann")),
        (json!({"peer_id": "*"}), None),
        (json!({"peer_id": null}), None),
        (json!({"peer_id": {"ne": "ann"}}), None),
        (json!({"peer_id": {"gte": "ann"}}), None),
        (json!({"peer_id": {"contains": "ann"}}), None),
        (json!({"peer_id": {"in": ["ann", "bob"]}}), None),
        (json!({"OR": [{"peer_id": "ann"}, {"id": "x"}]}), None),
        (json!({"NOT": [{"peer_id": "ann"}]}), None),
        (json!({"metadata": {"peer_id": "ann"}}), None),
    ] {
        assert_eq!(read(&filters).must_equal("peer_id"), told, "{filters}");
    }
}

#[test]
fn mentions_counts_every_condition_on_a_field() {
    for (filters, times) in [
        (json!({}), 0),
        (json!({"peer_id": "*", "content": "x"}), 0),
        (json!({"metadata": {"peer_id": "ann"}}), 0),
        (json!({"peer_id": {"in": ["ann", "bob"], "ne": "eve"}}), 1),
        (json!({"NOT": [{"peer_id": "ann"}]}), 1),
        (json!({"AND": [{"peer_id": "ann"}], "OR": [{"peer_id": "bob"}, {"content": "x"}]}), 2),
        (json!({"peer_id": "ann", "NOT": [{"AND": [{"peer_id": {"ne": "bob"}}, {"peer_id": "eve"}]}]}), 3),
    ] {
        assert_eq!(read(&filters).mentions("peer_id"), times, "{filters}");
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    for (filters, named) in [
        (json!([]), "must be a dict"),
        (json!("peer_id"), "must be a dict"),
        (json!({"peer": "ann"}), "unknown field `peer`; allowed are id, content,"),
        (json!({"and": []}), "unknown field `and`"),
        (json!({"OR": [{"AND": [{"x": "*"}]}]}), "unknown field `x`"),
        (
            json!({"created_at": {"invalid_operator": "2024-01-01"}}),
            "unknown operator `invalid_operator` at `created_at`",
        ),
        (json!({"peer_id": {"gt": "a", "eq": "b"}}), "unknown operator `eq` at `peer_id`"),
        (json!({"metadata": {"a": {"gt": 1, "name": 2}}}), "unknown operator `name` at `metadata.a`"),
        (json!({"peer_id": {}}), "`peer_id` takes a value"),
        (json!({"AND": {}}), "`AND` takes a list"),
        (json!({"OR": "x"}), "`OR` takes a list"),
        (json!({"NOT": {"peer_id": "ann"}}), "`NOT` takes a list"),
        (json!({"NOT": ["ann"]}), "`NOT` takes a list"),
        (json!({"AND": [[]]}), "`AND` takes a list"),
        (json!({"AND": [null]}), "`AND` takes a list"),
        (json!({"peer_id": ["ann"]}), "`peer_id` takes one value"),
        (json!({"peer_id": {"in": "ann"}}), "`in` at `peer_id` takes a list"),
        (json!({"peer_id": {"in": [["ann"]]}}), "`peer_id` takes one value"),
        (json!({"peer_id": {"ne": {}}}), "`peer_id` takes one value"),
        (json!({"token_count": {"gt": null}}), "`gt` at `token_count` takes a number or a text"),
        (json!({"metadata": {"a": {"b": {"lte": true}}}}), "`lte` at `metadata.a.b` takes"),
        (json!({"metadata": 5}), "`metadata` takes a dict"),
        (json!({"metadata": null}), "`metadata` takes a dict"),
        (json!({"created_at": "yesterday"}), "`created_at` takes a time"),
        (json!({"created_at": 5}), "`created_at` takes a time"),
        (json!({"created_at": {"gt": "2024-13-01"}}), "`created_at` takes a time"),
        (json!({"created_at": {"in": ["2024-01-01", "x"]}}), "`created_at` takes a time"),
        (json!({"created_at": {"contains": "2024"}}), "`contains` is not for times"),
        (json!({"content": {"contains": null}}), "`contains` at `content`"),
        (json!({"content": {"icontains": 5}}), "`icontains` at `content` takes a text"),
        (json!({"x".repeat(10_000): 1}), "x…`"),
    ] {
        let wrong = Filter::parse(&filters, KNOWN).unwrap_err();
        assert!(wrong.contains(named), "{filters}: {wrong}");
        assert!(wrong.len() < 300, "{wrong}");
    }
}

#[test]
fn filters_are_limited_in_depth() {
    let wrapped =
        |start: Value, wrap: fn(Value) -> Value, times: usize| (0..times).fold(start, |inner, _| wrap(inner));
    let every = |times| wrapped(json!({}), |inner| json!({"AND": [inner]}), times);
    let nots = |times| wrapped(json!({}), |inner| json!({"NOT": [inner]}), times);
    let dicts =
        |times| json!({"metadata": wrapped(json!({"gt": 5}), |inner| json!({"a": inner}), times - 1)});
    let lists = |times| json!({"metadata": {"a": wrapped(json!(5), |inner| json!([inner]), times)}});
    for filters in [&every as &dyn Fn(usize) -> Value, &nots, &dicts, &lists] {
        keeps(&read(&filters(15)), &message());
        for times in [16, 17, 100] {
            let wrong = Filter::parse(&filters(times), KNOWN).unwrap_err();
            assert_eq!(wrong, "filters are nested deeper than 16 levels; use fewer levels");
        }
    }
}

#[test]
fn filters_are_limited_to_a_thousand_conditions() {
    let peers = |count: usize| json!({"OR": vec![json!({"peer_id": "bob"}); count]});
    let names = |count: usize| json!({"peer_id": {"in": vec!["bob"; count]}});
    let empty = |count: usize| json!({"AND": vec![json!({}); count]});
    let tags = |count: usize| json!({"metadata": {"tags": vec![1; count]}});
    for filters in [&peers as &dyn Fn(usize) -> Value, &names, &empty, &tags] {
        assert!(Filter::parse(&filters(1_000), KNOWN).is_ok());
        let wrong = Filter::parse(&filters(1_001), KNOWN).unwrap_err();
        assert_eq!(
            wrong,
            "filters have more than 1000 conditions (each value of a list counts as one); use fewer"
        );
    }
}

#[test]
fn filters_are_limited_in_text_searches() {
    let folded = |count: usize| json!({"OR": vec![json!({"content": {"icontains": "x"}}); count]});
    let within = |count: usize| json!({"AND": vec![json!({"metadata": {"a": {"contains": "x"}}}); count]});
    for filters in [&folded as &dyn Fn(usize) -> Value, &within] {
        assert!(Filter::parse(&filters(32), KNOWN).is_ok());
        let wrong = Filter::parse(&filters(33), KNOWN).unwrap_err();
        assert_eq!(wrong, "filters use `contains` and `icontains` more than 32 times; use fewer");
    }
}

#[test]
fn aliases_of_id_match_the_id() {
    let fields = FilterFields { allowed: &["id", "name", "peer_id"], id_aliases: &["name"] };
    for (filters, wanted) in [
        (json!({"name": "ann"}), true),
        (json!({"id": "ann"}), true),
        (json!({"name": "bob"}), false),
        (json!({"peer_id": "ann"}), false),
    ] {
        let filter = Filter::parse(&filters, fields).unwrap();
        assert_eq!(filter.matches(&json!({"id": "ann", "name": "bob"})), wanted, "{filters}");
    }
}
