//! Makes histories malformed in ways that occur in practice.

use epitome_core::message::{CallId, Content, Media, MediaSource, Message, Part, Role};

/// Makes a generated history malformed in ways that occur in practice. Adds ids with unusual characters and lengths,
/// media, arguments that are not objects, and blank parts. Changes the order of the parts in replies. `odds` are
/// random numbers that select the changes.
pub fn odd(mut messages: Vec<Message>, odds: &[u16]) -> Vec<Message> {
    let kind = odds.first().map_or(0, |odd| usize::from(*odd));
    let rename = |id: &mut CallId| *id = odd_id(id, kind).into();
    for (message, odd) in messages.iter_mut().zip(odds.iter().map(|odd| usize::from(*odd)).cycle()) {
        for part in &mut message.parts {
            match part {
                Part::ToolCall(call) => {
                    rename(&mut call.id);
                    call.item_id.iter_mut().for_each(rename);
                    if let Some(arguments) = odd_arguments(odd) {
                        call.arguments = arguments;
                    }
                }
                Part::ToolResult(result) => {
                    rename(&mut result.call);
                    result.error = odd % 5 == 0;
                    match odd % 7 {
                        0 => result.content.clear(),
                        1 => result.content.push(Content::Media(media(odd))),
                        2 => result.content.push(Content::Text { text: " \n".to_owned() }),
                        _ => {}
                    }
                }
                // Only user texts get whitespace at their end. In a final reply, Anthropic rejects whitespace at the
                // end, so the dialect must remove the whitespace there.
                Part::Text { text } if message.role == Role::User && odd % 3 == 0 => text.push('\n'),
                _ => {}
            }
        }
        match (message.role, odd % 11) {
            (Role::User, 0 | 1) => message.parts.push(Part::Media(media(odd))),
            (Role::User, 2) => message.parts = vec![Part::Media(media(odd))],
            (Role::Tool, 3) => message.parts.push(Part::text("stray words")),
            (Role::Tool, 4) => message.parts.clear(),
            (_, 5) => message.parts.push(Part::text("\t")),
            // These parts may get into a message of the wrong role. Reasoning and calls are valid only in replies,
            // and results are valid only in tool and user messages.
            (_, 6) => message.parts.push(Part::thinking("hm")),
            (_, 7) => message.parts.push(Part::result("x", "misplaced")),
            (_, 8) => message.parts.insert(0, Part::call("y", "f", "{}")),
            _ => {}
        }
        if message.role == Role::Assistant && !message.parts.is_empty() {
            let by = odd / 11 % message.parts.len();
            message.parts.rotate_left(by);
        }
    }
    messages
}

fn odd_id(id: &str, kind: usize) -> String {
    match kind % 6 {
        0 => id.to_owned(),
        1 => format!("call|{id}"),
        2 => format!("call {id} ü"),
        3 => format!("{}{id}", "long".repeat(20)),
        // The id has forty characters, so that a renamed duplicate is longer than the wire format allows.
        4 => format!("{id:x>40}"),
        // Ids that the repair of the list would itself choose for a duplicate id.
        _ => match id {
            "w" => "x_2".to_owned(),
            "y" => "x_3".to_owned(),
            "z" => "x_2_2".to_owned(),
            id => id.to_owned(),
        },
    }
}

fn odd_arguments(odd: usize) -> Option<String> {
    let odd = match odd % 17 {
        0 => "",
        1 => "  ",
        2 => "[1, 2]",
        3 => "null",
        4 => "\"words\"",
        5 => "{\"path\": \"a",
        6 => "{\"half\": \"\\ud800\"}",
        7 => "{\"large\": 1e999}",
        8 => " {\"a\": 1} ",
        9 => "{\"a\": 1} {\"b\": 2}",
        _ => return None,
    };
    Some(odd.to_owned())
}

fn media(odd: usize) -> Media {
    let (mime, source) = match odd % 4 {
        0 => ("image/png", MediaSource::Base64("aGVsbG8=".to_owned())),
        1 => ("image/jpeg", MediaSource::Url("https://example.org/a.jpg".to_owned())),
        2 => ("application/pdf", MediaSource::Base64("aGVsbG8=".to_owned())),
        _ => ("application/pdf", MediaSource::File("file-1".to_owned())),
    };
    Media { mime: mime.to_owned(), source, size: None }
}
