//! Drawn wire messages, as clients and gateways send them: plain ones, old ones, odd ones, with fields and kinds that
//! nobody here knows.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON that a field of somebody else's might hold.
pub(crate) fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(vec![0.5, -0.0, 1e300, 3.0]).prop_map(Value::from),
        words(),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..3).prop_map(object),
        ]
    })
    .boxed()
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "role", "content", "type", "text", "id", "name", "tool_calls", "function", "arguments", "tool_call_id",
            "input", "output", "call_id", "summary", "source", "data", "url", "image_url", "file", "epitome", "pinned",
            "parts", "wire", "raw", "items", "=", "@", "instructions", "thinking", "tool_use_id", "system", "messages",
        ]).prop_map(str::to_owned),
        1 => "[a-z_]{1,6}",
    ]
}

fn object(fields: Vec<(String, Value)>) -> Value {
    Value::Object(fields.into_iter().collect())
}

fn words() -> BoxedStrategy<Value> {
    prop_oneof![
        2 => prop::sample::select(vec![
            "", " ", "Hello", "a text that is long enough to be pointed at", "data:image/png;base64,aGVsbG8=",
            "data:image/png;charset=utf-8;base64,aGVsbG8=", "data:image/svg+xml,%3Csvg%3E", "data:;base64,aGVsbG8=",
            "data:;base64,aGVsbG8=", "data:text/plain,hello", "aGVsbG8=", "https://example.org/a.png", "{\"a\": 1}",
        ]).prop_map(Value::from),
        1 => ".{0,30}".prop_map(Value::from),
    ]
    .boxed()
}

fn id() -> BoxedStrategy<Value> {
    prop::sample::select(vec!["call_1", "call_2", "a|b", "ü", "rs_1", "fc_1"]).prop_map(Value::from).boxed()
}

fn just(value: Value) -> BoxedStrategy<Value> {
    Just(value).boxed()
}

fn one_of(values: &[&str]) -> BoxedStrategy<Value> {
    prop::sample::select(values.iter().map(|value| Value::from(*value)).collect::<Vec<_>>()).boxed()
}

/// An object of these fields: now and then one is missing, one is null, one is unknown, or their order is another.
fn fields(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<&str>, Vec<BoxedStrategy<Value>>) = fields.into_iter().unzip();
    let unknown = prop_oneof![
        4 => Just(None),
        1 => ("x_[a-z]{1,3}", anything()).prop_map(Some),
    ];
    (values, unknown, 0..12usize, any::<prop::sample::Index>())
        .prop_map(move |(values, unknown, change, at)| {
            let mut all: Vec<(String, Value)> =
                names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            all.extend(unknown);
            if !all.is_empty() {
                let at = at.index(all.len());
                match change {
                    0 => drop(all.remove(at)),
                    1 => all[at].1 = Value::Null,
                    2 | 3 => all.rotate_left(at),
                    _ => {}
                }
            }
            object(all)
        })
        .boxed()
}

fn list(items: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    prop::collection::vec(items, 0..4).prop_map(Value::from).boxed()
}

fn maybe(value: BoxedStrategy<Value>, flagged: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    (value, prop_oneof![6 => Just(None), 1 => flagged.prop_map(Some)])
        .prop_map(|(mut value, flags)| {
            if let (Some(fields), Some(flags)) = (value.as_object_mut(), flags) {
                fields.insert("epitome".to_owned(), flags);
            }
            value
        })
        .boxed()
}

/// With our flags now and then.
fn flagged(value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let flags = prop::sample::select(vec![
        json!({ "pinned": true }),
        json!({ "skip": true, "pinned": false }),
        json!({ "note": "kept", "skip": true }),
        json!({}),
        Value::Null,
    ]);
    maybe(value, flags.boxed())
}

fn unknown_block() -> BoxedStrategy<Value> {
    (
        prop::sample::select(vec![
            "server_tool_use",
            "web_search_tool_result",
            "container_upload",
            "new_kind",
        ]),
        anything(),
    )
        .prop_map(|(kind, value)| json!({ "type": kind, "content": value }))
        .boxed()
}

/// A chat message.
pub(crate) fn chat() -> BoxedStrategy<Value> {
    let url = fields(vec![("url", words()), ("detail", just(json!("auto")))]);
    let file = fields(vec![("filename", words()), ("file_data", words()), ("file_id", id())]);
    let audio = fields(vec![("data", words()), ("format", one_of(&["wav", "mp3", "flac"]))]);
    let piece = prop_oneof![
        4 => fields(vec![("type", just(json!("text"))), ("text", words())]),
        1 => fields(vec![("type", just(json!("refusal"))), ("refusal", words())]),
        1 => fields(vec![("type", just(json!("image_url"))), ("image_url", prop_oneof![url, words()].boxed())]),
        1 => fields(vec![("type", just(json!("file"))), ("file", file)]),
        1 => fields(vec![("type", just(json!("input_audio"))), ("input_audio", audio)]),
        1 => unknown_block(),
    ];
    let content = || prop_oneof![4 => words(), 4 => list(piece.clone()), 1 => just(Value::Null)].boxed();
    let function = || fields(vec![("name", one_of(&["f", "files.read"])), ("arguments", words())]);
    let call = prop_oneof![
        5 => fields(vec![("id", id()), ("type", just(json!("function"))), ("function", function())]),
        1 => fields(vec![
            ("id", id()),
            ("type", just(json!("custom"))),
            ("custom", fields(vec![("name", one_of(&["f"])), ("input", words())])),
        ]),
        1 => fields(vec![("id", id()), ("function", fields(vec![("name", one_of(&["f"])), ("arguments", anything())]))]),
        1 => fields(vec![("id", id()), ("type", just(json!("new_kind")))]),
    ];
    let role = one_of(&["system", "developer", "user", "assistant"]);
    let assistant = || ("role", just(json!("assistant")));
    flagged(
        prop_oneof![
            4 => fields(vec![("role", role.clone()), ("content", content())]),
            1 => fields(vec![("role", role), ("content", content()), ("name", one_of(&["ann", "", "Ann Lee"]))]),
            3 => fields(vec![assistant(), ("content", content()), ("tool_calls", list(call))]),
            1 => fields(vec![assistant(), ("content", content()), ("reasoning_content", words())]),
            1 => fields(vec![assistant(), ("reasoning", words()), ("reasoning_details", anything()), ("content", words())]),
            1 => fields(vec![assistant(), ("content", just(Value::Null)), ("function_call", function())]),
            3 => fields(vec![("role", just(json!("tool"))), ("tool_call_id", id()), ("content", content())]),
            1 => fields(vec![("role", just(json!("function"))), ("name", one_of(&["f"])), ("content", words())]),
            1 => fields(vec![assistant(), ("content", words()), ("refusal", words()), ("audio", anything())]),
        ]
        .boxed(),
    )
}

/// An item of Responses.
pub(crate) fn responses() -> BoxedStrategy<Value> {
    let piece = prop_oneof![
        3 => fields(vec![("type", one_of(&["input_text", "output_text", "text"])), ("text", words())]),
        1 => fields(vec![("type", just(json!("output_text"))), ("text", words()), ("annotations", anything())]),
        1 => fields(vec![("type", just(json!("refusal"))), ("refusal", words())]),
        1 => fields(vec![("type", just(json!("input_image"))), ("image_url", words()), ("detail", words())]),
        1 => fields(vec![("type", one_of(&["input_image", "input_file"])), ("file_id", id())]),
        1 => fields(vec![("type", just(json!("input_file"))), ("filename", words()), ("file_data", words())]),
        1 => fields(vec![("type", just(json!("input_file"))), ("file_url", words())]),
        1 => unknown_block(),
    ];
    let content = || prop_oneof![4 => words(), 4 => list(piece.clone()), 1 => just(Value::Null)].boxed();
    let role = one_of(&["system", "developer", "user", "assistant", "assistant"]);
    let message = || ("type", just(json!("message")));
    let thought = fields(vec![("type", just(json!("summary_text"))), ("text", words())]);
    let call = |kind: &'static str, input: &'static str| {
        fields(vec![
            ("type", just(json!(kind))),
            ("id", id()),
            ("call_id", id()),
            ("name", one_of(&["f"])),
            (input, words()),
            ("status", just(json!("completed"))),
        ])
    };
    let output = |kind: &'static str, said: BoxedStrategy<Value>| {
        fields(vec![("type", just(json!(kind))), ("call_id", id()), ("output", said)])
    };
    flagged(
        prop_oneof![
            3 => fields(vec![("role", role.clone()), ("content", content())]),
            3 => fields(vec![message(), ("role", role.clone()), ("content", content())]),
            1 => fields(vec![("id", id()), message(), ("role", role), ("content", content()), ("status", words())]),
            3 => fields(vec![
                ("type", just(json!("reasoning"))),
                ("id", id()),
                ("summary", list(thought)),
                ("encrypted_content", prop_oneof![words(), just(Value::Null)].boxed()),
            ]),
            3 => call("function_call", "arguments"),
            1 => call("custom_tool_call", "input"),
            2 => output("function_call_output", prop_oneof![words(), list(piece.clone())].boxed()),
            1 => output("custom_tool_call_output", words()),
            1 => fields(vec![
                ("type", one_of(&["local_shell_call", "shell_call", "computer_call", "_call"])),
                ("id", id()),
                ("call_id", id()),
                ("action", anything().prop_map(|value| json!({ "inner": value })).boxed()),
            ]),
            1 => output("computer_call_output", fields(vec![
                ("type", just(json!("computer_screenshot"))),
                ("image_url", words()),
            ])),
            1 => output("shell_call_output", anything()),
            1 => fields(vec![("type", one_of(&["web_search_call", "mcp_list_tools", "compaction"])), ("id", id())]),
            1 => fields(vec![("type", just(json!("item_reference"))), ("id", id())]),
            1 => fields(vec![("type", just(json!("mcp_approval_response"))), ("approve", just(json!(true)))]),
            1 => fields(vec![("instructions", words())]),
            1 => words(),
        ]
        .boxed(),
    )
}

/// A message of Anthropic's.
pub(crate) fn anthropic() -> BoxedStrategy<Value> {
    let cache = || ("cache_control", just(json!({ "type": "ephemeral" })));
    let found = || {
        let text = fields(vec![("type", just(json!("text"))), ("text", words())]);
        prop_oneof![3 => list(text), 1 => words(), 1 => anything(), 1 => list(anything())].boxed()
    };
    let source = || {
        prop_oneof![
            fields(vec![("type", just(json!("base64"))), ("media_type", words()), ("data", words())]),
            fields(vec![("type", just(json!("url"))), ("url", words())]),
            fields(vec![("type", just(json!("file"))), ("file_id", id())]),
            fields(vec![("type", just(json!("text"))), ("media_type", words()), ("data", words())]),
            fields(vec![("type", just(json!("content"))), ("content", found())]),
        ]
        .boxed()
    };
    let said = || {
        prop_oneof![
            4 => fields(vec![("type", just(json!("text"))), ("text", words())]),
            1 => fields(vec![("type", just(json!("text"))), ("text", words()), cache()]),
            1 => fields(vec![("type", one_of(&["image", "document"])), ("source", source())]),
            1 => fields(vec![("type", just(json!("document"))), ("title", words()), ("source", source()), cache()]),
            1 => fields(vec![("type", just(json!("search_result"))), ("title", words()), ("content", found())]),
            1 => unknown_block(),
        ]
        .boxed()
    };
    let result = || {
        fields(vec![
            ("type", just(json!("tool_result"))),
            ("tool_use_id", id()),
            ("content", prop_oneof![words(), list(said())].boxed()),
            ("is_error", any::<bool>().prop_map(Value::from).boxed()),
        ])
    };
    let own = prop_oneof![
        3 => said(),
        2 => fields(vec![("type", just(json!("thinking"))), ("thinking", words()), ("signature", words())]),
        1 => fields(vec![("type", just(json!("redacted_thinking"))), ("data", words())]),
        3 => fields(vec![
            ("type", just(json!("tool_use"))),
            ("id", id()),
            ("name", one_of(&["f"])),
            ("input", prop_oneof![
                3 => prop::collection::vec((key(), anything()), 0..3).prop_map(object),
                1 => anything(),
            ].boxed()),
        ]),
    ];
    flagged(
        prop_oneof![
            2 => fields(vec![("role", one_of(&["user", "assistant"])), ("content", words())]),
            2 => fields(vec![("role", just(json!("user"))), ("content", list(said()))]),
            2 => fields(vec![("role", just(json!("user"))), ("content", list(result()))]),
            1 => fields(vec![("role", just(json!("user"))), ("content", list(prop_oneof![result(), said()]))]),
            4 => fields(vec![("role", just(json!("assistant"))), ("content", list(own))]),
            1 => fields(vec![("content", list(said())), ("role", just(json!("system")))]),
        ]
        .boxed(),
    )
}

/// A message of ours.
pub(crate) fn ours() -> BoxedStrategy<Value> {
    let text = || fields(vec![("type", just(json!("text"))), ("text", words())]);
    let source = one_of(&["base64", "url", "file"]).prop_flat_map(|kind| {
        words().prop_map(move |value| json!({ kind.as_str().unwrap_or("url"): value }))
    });
    let media = fields(vec![("type", just(json!("media"))), ("mime", words()), ("source", source.boxed())]);
    let part = prop_oneof![
        3 => text(),
        1 => fields(vec![("type", just(json!("thinking"))), ("text", words()), ("signature", words())]),
        1 => fields(vec![
            ("type", just(json!("tool_call"))),
            ("id", id()),
            ("name", one_of(&["f"])),
            ("arguments", words()),
        ]),
        1 => fields(vec![
            ("type", just(json!("tool_result"))),
            ("call", id()),
            ("content", list(prop_oneof![text(), media.clone()])),
        ]),
        1 => media,
    ];
    fields(vec![
        ("role", one_of(&["system", "user", "assistant", "tool", "peer"])),
        ("author", one_of(&["ann", ""])),
        ("parts", list(part)),
        ("pinned", any::<bool>().prop_map(Value::from).boxed()),
        ("seq", (0..3u64).prop_map(Value::from).boxed()),
        ("at", (-1..2i64).prop_map(Value::from).boxed()),
        ("metadata", anything().prop_map(|value| json!({ "note": value })).boxed()),
        (
            "wire",
            prop_oneof![3 => just(Value::Null), 1 => just(json!({ "openai": { "raw": ["{}"] } }))].boxed(),
        ),
    ])
}

/// Objects of any shape, with keys that mean something somewhere.
pub(crate) fn noise() -> impl Strategy<Value = Value> {
    let fields = (anything(), anything(), prop::collection::vec((key(), anything()), 0..4));
    fields.prop_map(|(role, content, rest)| {
        let mut out = Map::new();
        out.insert("role".to_owned(), role);
        out.insert("content".to_owned(), content);
        out.extend(rest);
        Value::Object(out)
    })
}
