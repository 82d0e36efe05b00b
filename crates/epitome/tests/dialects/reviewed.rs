//! Found in review: shapes that providers really send and refuse.

use epitome::dialect::Dialect;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use serde_json::{Value, json};

fn written(dialect: Dialect, messages: &[Message]) -> Value {
    Value::Object(dialect.write(messages))
}

fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::ToolResult(result) => Some(
            result
                .content
                .iter()
                .filter_map(|piece| match piece {
                    Content::Text { text } => Some(text.as_str()),
                    Content::Media(_) => None,
                })
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn asked_and_failed(content: Vec<Content>) -> Vec<Message> {
    let result = Part::ToolResult(ToolResult { call: "t1".into(), content, error: true });
    vec![
        Message::user("Look."),
        Message::new(Role::Assistant, [Part::call("t1", "look", "{}")]),
        Message::new(Role::Tool, [result]),
    ]
}

/// "content cannot be empty if `is_error` is true"
#[test]
fn a_failed_tool_that_said_nothing_says_something_to_anthropic() {
    for content in [vec![], vec![Content::Text { text: " \n".to_owned() }]] {
        let body = written(Dialect::Anthropic, &asked_and_failed(content));
        let result = &body["messages"][2]["content"][0];
        let empty = result["content"].as_str().is_none_or(str::is_empty)
            && result["content"].as_array().is_none_or(Vec::is_empty);
        assert!(result["is_error"] != json!(true) || !empty, "{result}");
    }
}

/// "all content must be type `text` if `is_error` is true"
#[test]
fn a_failed_tool_shows_no_picture_to_anthropic() {
    let picture = Media {
        mime: "image/png".to_owned(),
        source: MediaSource::Base64("iVBORw0KGgo=".to_owned()),
        size: None,
    };
    let content = vec![Content::Text { text: "failed".to_owned() }, Content::Media(picture)];
    let body = written(Dialect::Anthropic, &asked_and_failed(content));
    let result = &body["messages"][2]["content"][0];
    let kinds: Vec<&Value> =
        result["content"].as_array().into_iter().flatten().map(|piece| &piece["type"]).collect();
    assert!(
        result["is_error"] != json!(true) || kinds.iter().all(|kind| **kind == json!("text")),
        "{result}"
    );
}

/// Blocks of reasoning must be given back as they came: "cannot be modified", order included.
#[test]
fn reasoning_between_words_stays_where_it_was() {
    let came = json!({ "messages": [
        { "role": "user", "content": [{ "type": "text", "text": "Find it." }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "First.", "signature": "c2ln" },
            { "type": "text", "text": "I look." },
            { "type": "thinking", "thinking": "Then.", "signature": "c2lo" },
            { "type": "tool_use", "id": "t1", "name": "find", "input": {} },
        ] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "one" }] },
    ] });
    let messages = Dialect::Anthropic.read(&came).unwrap();
    assert_eq!(written(Dialect::Anthropic, &messages)["messages"][1], came["messages"][1]);
}

/// The name is wrong and everywhere; OpenAI takes it.
#[test]
fn a_jpg_is_a_jpeg() {
    let came = json!([{ "role": "user", "content": [
        { "type": "text", "text": "What is this?" },
        { "type": "image_url", "image_url": { "url": "data:image/jpg;base64,/9j/4AAQ" } },
    ] }]);
    let messages = Dialect::OpenAi.read(&came).unwrap();
    let body = written(Dialect::Anthropic, &messages);
    assert_eq!(
        body["messages"][0]["content"][1],
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ" } })
    );
}

/// Anthropic fetches https only.
#[test]
fn bytes_in_an_address_are_never_sent_as_an_address() {
    for url in ["data:image/png;charset=utf-8;base64,iVBORw0KGgo=", "data:image/svg+xml,%3Csvg%3E"] {
        let came =
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": url } }] }]);
        let messages = Dialect::OpenAi.read(&came).unwrap();
        let body = written(Dialect::Anthropic, &messages);
        let source = &body["messages"][0]["content"][0]["source"];
        assert!(
            source["type"] != json!("url") || source["url"].as_str().unwrap().starts_with("http"),
            "{body}"
        );
    }
}

/// `message.refusal`, as OpenAI answers it.
#[test]
fn the_words_of_a_refusal_are_words() {
    let came = json!([
        { "role": "user", "content": "Do it." },
        { "role": "assistant", "content": null, "refusal": "I can't help with that." },
        { "role": "user", "content": "Why?" },
    ]);
    let messages = Dialect::OpenAi.read(&came).unwrap();
    assert!(text_of(&messages[1]).contains("I can't help with that."), "{:?}", messages[1].parts);
    let body = written(Dialect::OpenAi, &messages);
    assert_eq!(body["messages"].as_array().unwrap().len(), 3, "{body}");
}

#[test]
fn the_words_of_documents_and_search_results_are_words() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let list = json!([
        { "role": "user", "content": [
            { "type": "document", "source": { "type": "content", "content": [text("Chapter one.")] } },
            text("Sum it up."),
        ] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "find", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": [
            { "type": "search_result", "source": "https://x.org", "title": "X", "content": [text("Found in Oslo.")] },
        ] }] },
    ]);
    let messages = Dialect::Anthropic.read(&list).unwrap();
    assert!(text_of(&messages[0]).contains("Chapter one."), "{:?}", messages[0].parts);
    assert!(text_of(&messages[2]).contains("Found in Oslo."), "{:?}", messages[2].parts);
}

/// OpenAI's chat takes png, jpeg, gif and webp as pictures.
#[test]
fn pictures_that_openai_cannot_read_are_named_in_words() {
    for mime in ["image/svg+xml", "image/tiff", "image/heic"] {
        let media =
            Media { mime: mime.to_owned(), source: MediaSource::Base64("AAAA".to_owned()), size: None };
        let list = [Message::new(Role::User, [Part::text("Look."), Part::Media(media)])];
        for (dialect, list_key, kind) in
            [(Dialect::OpenAi, "messages", "image_url"), (Dialect::Responses, "input", "input_image")]
        {
            let body = written(dialect, &list);
            let pieces = body[list_key][0]["content"].as_array().unwrap().clone();
            assert!(pieces.iter().all(|piece| piece["type"] != kind), "{mime}: {body}");
        }
    }
}
