//! Errors as they were recorded from Honcho, or as its validation library (pydantic 2) returns them, word for word.
//! Differences are for length, or in rules whose original wording was not recorded.

use serde_json::{Value, json};

use super::*;

/// An error as it is sent.
fn refused<T: std::fmt::Debug>(read: Result<T, Faults>) -> Value {
    serde_json::to_value(read.unwrap_err()).unwrap()
}

/// Kinds and locations alone.
fn kinds<T: std::fmt::Debug>(read: Result<T, Faults>) -> Vec<String> {
    let told = refused(read);
    let step = |step: &Value| step.as_str().map_or_else(|| step.to_string(), str::to_owned);
    let one = |fault: &Value| {
        let place: Vec<String> = fault["loc"].as_array().unwrap().iter().map(step).collect();
        format!("{} {}", place.join("."), fault["type"].as_str().unwrap())
    };
    told.as_array().unwrap().iter().map(one).collect()
}

type Reader<T> = fn(&Value) -> Result<T, Faults>;

fn new(sent: &Value, reader: Reader<NewIn>) -> Result<NewIn, Faults> {
    body(sent, reader)
}

fn put(sent: &Value, reader: Reader<Put>) -> Result<Put, Faults> {
    body(sent, reader)
}

fn search(sent: &Value) -> Result<SearchIn, Faults> {
    body(sent, super::search)
}

fn messages(sent: &Value) -> Result<Vec<MessageIn>, Faults> {
    body(sent, super::messages)
}

fn members(sent: &Value) -> Result<Map<String, Value>, Faults> {
    body(sent, super::members)
}

fn names(sent: &Value) -> Result<Vec<String>, Faults> {
    body(sent, super::names)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("no object: {other}"),
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn says(content: &str) -> Value {
    json!({"messages": [{"content": content, "peer_id": "ann"}]})
}

#[test]
fn recorded_errors_are_returned_word_for_word() {
    assert_eq!(
        refused(messages(&json!({"messages": []}))),
        json!([{"type": "too_short", "loc": ["body", "messages"],
            "msg": "List should have at least 1 item after validation, not 0", "input": [],
            "ctx": {"field_type": "List", "min_length": 1, "actual_length": 0}}])
    );
    assert_eq!(
        refused(new(&json!({"id": "bad name!"}), NEW_WORKSPACE)),
        json!([{"type": "string_pattern_mismatch", "loc": ["body", "id"],
            "msg": "String should match pattern '^[a-zA-Z0-9_-]+$'", "input": "bad name!",
            "ctx": {"pattern": "^[a-zA-Z0-9_-]+$"}}])
    );
    assert_eq!(
        refused(put(&json!({"configuration": {"summary": {"messages_per_short_summary": 5}}}), PUT)),
        json!([{"type": "greater_than_equal",
            "loc": ["body", "configuration", "summary", "messages_per_short_summary"],
            "msg": "Input should be greater than or equal to 10", "input": 5, "ctx": {"ge": 10}}])
    );
    let same = json!({"messages_per_short_summary": 30, "messages_per_long_summary": 30});
    assert_eq!(
        refused(put(&json!({"configuration": {"summary": same}}), PUT)),
        json!([{"type": "value_error", "loc": ["body", "configuration", "summary"],
            "msg": "Value error, messages_per_short_summary must be less than messages_per_long_summary",
            "input": same, "ctx": {"error": {}}}])
    );
    assert_eq!(
        refused(ContextIn::read(&pairs("tokens=100001"))),
        json!([{"type": "less_than_equal", "loc": ["query", "tokens"],
            "msg": "Input should be less than or equal to 100000", "input": "100001", "ctx": {"le": 100_000}}])
    );
    let conflict = ContextIn::read(&pairs("peer_perspective=ann")).unwrap().invalid_combination();
    assert_eq!(conflict, Some("peer_target must be provided if peer_perspective is provided"));
}

#[test]
fn recorded_errors_about_long_input_differ_only_in_what_they_repeat() {
    let many = vec![json!({"peer_id": "ann", "content": "y"}); 101];
    let mut told = refused(messages(&json!({"messages": many})));
    let repeated = told[0]["input"].take();
    assert_eq!(
        told,
        json!([{"type": "too_long", "loc": ["body", "messages"],
            "msg": "List should have at most 100 items after validation, not 101", "input": null,
            "ctx": {"field_type": "List", "max_length": 100, "actual_length": 101}}])
    );
    let repeated = repeated.as_array().unwrap();
    assert!(many.starts_with(repeated.as_slice()) && (5..50).contains(&repeated.len()), "{repeated:?}");
    assert_eq!(
        refused(messages(&says(&"y".repeat(25_001)))),
        json!([{"type": "string_too_long", "loc": ["body", "messages", 0, "content"],
            "msg": "String should have at most 25000 characters", "input": "y".repeat(200) + "…",
            "ctx": {"max_length": 25_000}}])
    );
}

#[test]
fn everything_that_the_client_sends_is_read() {
    let given = new(&json!({"id": "home", "metadata": {"a": 1}, "configuration": null}), NEW_WORKSPACE);
    let metadata = Some(object(json!({"a": 1})));
    assert_eq!(given, Ok(NewIn { id: "home".into(), metadata, ..NewIn::default() }));
    let sent = json!({"id": "s-1", "peers": {"zoe": {}, "ann": {"observe_me": false}, "bob": null}, "scopes": ["x"]});
    let peers = object(json!({"zoe": {}, "ann": {"observe_me": false}, "bob": {}}));
    let given = new(&sent, NEW_SESSION);
    assert!(
        given.as_ref().unwrap().peers.as_ref().unwrap().keys().eq(["zoe", "ann", "bob"]),
        "in their order"
    );
    assert_eq!(given, Ok(NewIn { id: "s-1".into(), peers: Some(peers), ..NewIn::default() }));
    let sent = json!({"messages": [{"content": "", "peer_id": "ann", "created_at": "2026-11-15T02:17:11+01:00",
        "configuration": {"reasoning": {"enabled": false}}}]});
    let message = MessageIn {
        peer_id: "ann".into(),
        configuration: Some(object(json!({"reasoning": {"enabled": false}}))),
        created_at: Some("2026-11-15T02:17:11+01:00".into()),
        ..MessageIn::default()
    };
    assert_eq!(messages(&sent), Ok(vec![message]));
    assert_eq!(names(&json!(["ann", "bob"])), Ok(vec!["ann".to_owned(), "bob".to_owned()]));
    assert_eq!(members(&json!({})), Ok(Map::new()));
    assert_eq!(filters(&Value::Null), Ok(Value::Null));
    let wanted = json!({"AND": [{"peer_id": "ann"}]});
    assert_eq!(filters(&json!({"filters": wanted})), Ok(wanted));
    let found = search(&json!({"query": "green", "filters": null, "limit": "7"}));
    assert_eq!(found, Ok(SearchIn { query: "green".into(), filters: Value::Null, limit: 7 }));
    assert_eq!(search(&json!({"query": "green"})).unwrap().limit, 10);
    assert_eq!(body(&json!({}), super::message_metadata), Ok(None));
}

#[test]
fn every_fault_is_reported_with_its_location() {
    let sent = json!({"messages": [
        1,
        {},
        {"content": 5, "peer_id": "", "metadata": 5, "configuration": [], "created_at": 12},
        {"content": "x", "peer_id": "a\n", "metadata": null, "configuration": {"reasoning": 1}},
    ]});
    assert_eq!(
        kinds(messages(&sent)),
        [
            "body.messages.0 model_attributes_type",
            "body.messages.1.content missing",
            "body.messages.1.peer_id missing",
            "body.messages.2.content string_type",
            "body.messages.2.peer_id string_too_short",
            "body.messages.2.metadata dict_type",
            "body.messages.2.configuration model_attributes_type",
            "body.messages.2.created_at datetime_type",
            "body.messages.3.peer_id string_pattern_mismatch",
            "body.messages.3.configuration.reasoning model_attributes_type",
        ]
    );
    assert_eq!(
        kinds(members(&json!({"a b": {"observe_me": "perhaps"}, "ann": 5}))),
        [
            "body.a b.[key] string_pattern_mismatch",
            "body.a b.observe_me bool_parsing",
            "body.ann model_attributes_type"
        ]
    );
    assert_eq!(kinds(members(&json!(["ann"]))), ["body dict_type"]);
    assert_eq!(kinds(names(&json!({"ann": {}}))), ["body list_type"]);
    assert_eq!(kinds(names(&json!(["ann", 5]))), ["body.1 string_type"]);
    assert_eq!(
        kinds(new(&json!({"id": null, "peers": 1}), NEW_SESSION)),
        ["body.id string_type", "body.peers dict_type"]
    );
    assert_eq!(kinds(new(&json!({"id": "x".repeat(513)}), NEW_PEER)), ["body.id string_too_long"]);
    assert!(new(&json!({"id": "x".repeat(512)}), NEW_PEER).is_ok());
    assert_eq!(kinds(messages(&json!({"messages": {}}))), ["body.messages list_type"]);
    assert_eq!(kinds(body(&json!("ann"), member)), ["body model_attributes_type"]);
    assert_eq!(kinds(filters(&json!({"filters": []}))), ["body.filters dict_type"]);
    assert_eq!(
        kinds(search(&json!({"query": "", "limit": 101}))),
        ["body.query string_too_short", "body.limit less_than_equal"]
    );
    assert_eq!(kinds(search(&json!({"query": "x", "limit": null}))), ["body.limit int_type"]);
}

#[test]
fn a_missing_body_and_one_that_is_not_json_are_reported() {
    let missing = json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}]);
    assert_eq!(refused(new(&Value::Null, NEW_WORKSPACE)), missing);
    assert_eq!(
        refused(new(&json!({"name": "home"}), NEW_WORKSPACE)),
        json!([{"type": "missing", "loc": ["body", "id"], "msg": "Field required", "input": {"name": "home"}}])
    );
    let body = b"{\n \"id\": secret}";
    let wrong = serde_json::from_slice::<Value>(body).unwrap_err();
    assert_eq!(
        refused::<()>(Err(Faults::no_json(body, &wrong))),
        json!([{"type": "json_invalid", "loc": ["body", 9], "msg": "JSON decode error", "input": {},
            "ctx": {"error": "expected value"}}])
    );
    let told = refused::<()>(Err(Faults::invalid_time(&"x".repeat(300)).within("created_at").within("body")));
    assert_eq!(told[0]["loc"], json!(["body", "created_at"]));
    assert_eq!(told[0]["input"], json!("x".repeat(200) + "…"));
}

#[test]
fn lengths_are_in_characters_before_nul_is_removed() {
    let read = |content: &str| messages(&says(content)).map(|read| read[0].content.clone());
    assert_eq!(read(&"é🦀".repeat(12_500)).unwrap().chars().count(), 25_000);
    assert!(read(&"🦀".repeat(25_001)).is_err());
    assert_eq!(read("a\0b\0").unwrap(), "ab");
    assert!(read(&("y".repeat(25_000) + "\0")).is_err());
    assert_eq!(read("<|endoftext|>").unwrap(), "<|endoftext|>");
}

#[test]
fn metadata_is_limited_and_stored_without_nul_characters() {
    let read = |notes: Value| body(&json!({"metadata": notes}), message_metadata);
    let kept = read(json!({"a\0": ["b\0", {"c\0": "\0", "n": null}], "n": null}));
    let clean = json!({"a": ["b", {"c": "", "n": null}], "n": null});
    assert_eq!(kept, Ok(Some(object(clean))));
    let keys = |count: usize| (0..count).map(|key| (key.to_string(), json!(key))).collect::<Value>();
    assert!(read(keys(100)).is_ok());
    assert!(read(json!({"a": keys(1_000)})).is_ok());
    assert_eq!(kinds(read(keys(101))), ["body.metadata value_error"]);
    assert!(read(json!({"1": {"2": {"3": {"4": {"5": 0}}}}})).is_ok());
    assert!(read(json!({"1": {"2": [{"4": {"5": 0}}]}})).is_ok());
    assert_eq!(
        refused(read(json!({"1": {"2": {"3": {"4": {"5": {}}}}}})))[0]["msg"],
        "Value error, nested too deep; at most 5 levels of objects and lists are allowed"
    );
    assert!(read(json!({"a": "x".repeat((64 << 10) - 8)})).is_ok());
    assert_eq!(kinds(read(json!({"a": "x".repeat((64 << 10) - 7)}))), ["body.metadata value_error"]);
}

#[test]
fn configurations_are_read_field_by_field() {
    let read = |configuration: Value| {
        let put = put(&json!({"configuration": configuration}), PUT)?;
        Ok::<_, Faults>(Value::Object(put.configuration.unwrap_or_default()))
    };
    let sent = json!({
        "summary": {"enabled": "yes", "messages_per_short_summary": "10", "messages_per_long_summary": 20.0,
            "custom_instructions": null},
        "dream": null,
        "mine": {"a": null, "b": [null], "c": {"d": null}},
        "nothing": null,
    });
    let kept = json!({
        "summary": {"enabled": true, "messages_per_short_summary": 10, "messages_per_long_summary": 20},
        "mine": {"b": [null], "c": {}},
        // Removed values.
        "dream": null,
        "nothing": null,
    });
    assert_eq!(read(sent), Ok(kept));
    // The client refuses a table with fields that it does not define.
    assert_eq!(read(json!({"summary": {"often": true}})), Ok(json!({"summary": {}})));
    assert_eq!(
        kinds(read(json!({
            "summary": {"enabled": [], "messages_per_short_summary": true, "messages_per_long_summary": 19},
            "reasoning": {"enabled": 2, "custom_instructions": 5},
            "dialectic": [],
            "custom_instructions": {},
        }))),
        [
            "body.configuration.custom_instructions string_type",
            "body.configuration.reasoning.enabled bool_parsing",
            "body.configuration.reasoning.custom_instructions string_type",
            "body.configuration.summary.enabled bool_type",
            "body.configuration.summary.messages_per_short_summary int_type",
            "body.configuration.summary.messages_per_long_summary greater_than_equal",
            "body.configuration.dialectic model_attributes_type",
        ]
    );
    assert_eq!(kinds(read(json!({"mine": [[[[[]]]]]}))), ["body.configuration value_error"]);
    assert_eq!(kinds(read(json!({"mine": "x".repeat(64 << 10)}))), ["body.configuration value_error"]);
    let message = json!({"messages": [{"content": "", "peer_id": "a", "configuration": {"summary": 5}}]});
    assert!(messages(&message).is_ok());
    assert_eq!(
        kinds(put(&json!({"configuration": {"observe_me": "perhaps"}}), PUT_PEER)),
        ["body.configuration.observe_me bool_parsing"]
    );
    let peer =
        new(&json!({"id": "ann", "configuration": {"observe_me": true, "mine": 1}}), NEW_PEER).unwrap();
    assert_eq!(peer.configuration, Some(object(json!({"observe_me": true, "mine": 1}))));
}

#[test]
fn integers_are_read_as_in_honcho() {
    let read = |limit: Value| search(&json!({"query": "x", "limit": limit})).map(|read| read.limit);
    for ten in [json!(10), json!(10.0), json!("10"), json!(" +10\n"), json!("1_0.00"), json!("010")] {
        assert_eq!(read(ten), Ok(10));
    }
    let msg = |limit: Value| refused(read(limit))[0]["msg"].clone();
    for none in ["", " ", "ten", "10.", "10.5", "1e1", "0x1", "1__0", "_1", ".0", "- 1", "١", "1.0.0"] {
        assert_eq!(
            msg(json!(none)),
            "Input should be a valid integer, unable to parse string as an integer",
            "{none}"
        );
    }
    assert_eq!(msg(json!(10.5)), "Input should be a valid integer, got a number with a fractional part");
    assert_eq!(msg(json!(1e300)), "Unable to parse input string as an integer, exceeded maximum size");
    assert_eq!(msg(json!(true)), "Input should be a valid integer");
    for large in [json!(u64::MAX), json!("9".repeat(60)), json!(101)] {
        assert_eq!(msg(large), "Input should be less than or equal to 100");
    }
    for small in [json!(i64::MIN), json!("-".to_owned() + &"9".repeat(60)), json!(0), json!(-0.0)] {
        assert_eq!(msg(small), "Input should be greater than or equal to 1");
    }
}

#[test]
fn the_last_value_of_a_parameter_applies() {
    assert_eq!(Paging::read(&[]), Ok(Paging { page: 1, size: 50, reverse: false }));
    let read = Paging::read(&pairs("page=2&size=9&page=3&reverse=ON&what=ever"));
    assert_eq!(read, Ok(Paging { page: 3, size: 9, reverse: true }));
    assert_eq!(
        kinds(Paging::read(&pairs("page=0&size=101&reverse=perhaps"))),
        ["query.page greater_than_equal", "query.size less_than_equal", "query.reverse bool_parsing"]
    );
    let usual = ContextIn::read(&[]).unwrap();
    assert_eq!((usual.tokens, usual.summary, usual.peer_target.as_deref()), (None, true, None));
    let read = ContextIn::read(&pairs("summary=False&limit_to_session=0&tokens=-5&peer_target=ann")).unwrap();
    assert_eq!((read.tokens, read.summary, read.peer_target.as_deref()), (Some(-5), false, Some("ann")));
    assert_eq!(
        refused(ContextIn::read(&pairs("tokens=&search_max_distance=nan"))),
        json!([
            {"type": "int_parsing", "loc": ["query", "tokens"], "input": "",
                "msg": "Input should be a valid integer, unable to parse string as an integer"},
            {"type": "less_than_equal", "loc": ["query", "search_max_distance"], "input": "nan",
                "msg": "Input should be less than or equal to 1", "ctx": {"le": 1.0}},
        ])
    );
    assert_eq!(
        kinds(ContextIn::read(&pairs(
            "search_top_k=0&search_max_distance=x&include_most_frequent=2&max_conclusions=101&summary="
        ))),
        [
            "query.summary bool_parsing",
            "query.search_top_k greater_than_equal",
            "query.search_max_distance float_parsing",
            "query.include_most_frequent bool_parsing",
            "query.max_conclusions less_than_equal",
        ]
    );
}

#[test]
fn parameters_that_exclude_each_other_are_refused() {
    let conflict = |query: &str| ContextIn::read(&pairs(query)).unwrap().invalid_combination();
    assert_eq!(conflict("peer_target=a&peer_perspective=b&limit_to_session=true"), None);
    assert_eq!(conflict("peer_target=a&sessions=s&sessions=t"), None);
    assert_eq!(conflict("sessions=s"), Some("peer_target must be provided if sessions is provided"));
    assert_eq!(conflict("scope=s"), Some("peer_target must be provided if scope is provided"));
    for query in ["sessions=s&scope=x", "sessions=s&limit_to_session=1", "scope=x&peer_perspective=b"] {
        let told = conflict(&format!("peer_target=a&{query}")).unwrap();
        assert!(told.ends_with("are mutually exclusive"), "{told}");
    }
}

#[test]
fn an_error_is_limited_in_length() {
    let size = |told: &Value| told.to_string().len();
    let rude = "\u{1}🦀".repeat(1_000);
    let deep = (0..100).fold(json!(rude), |value, _| json!({rude.as_str(): [value]}));
    for one in [json!(rude), deep, json!(vec![rude.as_str(); 1_000]), json!(vec![0; 100_000])] {
        let told = refused(new(&json!({"id": one, "metadata": "x"}), NEW_PEER));
        assert!(size(&told) < 16 << 10, "{}", size(&told));
        assert_eq!(told.as_array().unwrap().len(), 2);
    }
    let members: Map<String, Value> = (0..500).map(|nr| (format!("{rude} {nr}"), json!(rude))).collect();
    let told = refused(self::members(&members.into()));
    assert!(size(&told) < 17 << 10 && told.as_array().unwrap().len() > 2, "{}", size(&told));
    let told = refused(messages(&json!({"messages": vec![1; 100]})));
    assert!(size(&told) < 17 << 10, "{}", size(&told));
    assert!(told.as_array().unwrap().len() > 50);
}
