//! Adds a text file as messages.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use bytes::Bytes;
use epitome_http::body::RawBody;

use super::messages::append;
use super::prelude::*;
use super::validate::MessageIn;

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 5 << 20;

/// Maximum length of a message in characters.
const MAX_MESSAGE_CHARS: usize = 25_000;

/// Maximum number of messages into which one file is split.
const MAX_MESSAGES: usize = 1_000;

/// Adds the text of a file to a session. A long text is split into several messages. Appends these messages in order,
/// either all or none.
pub(super) async fn upload(Authorized(access): CanWrite, request: Request) -> Answer {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(|value| multer::parse_boundary(value).ok()).ok_or_else(|| {
        let detail = "content-type: expected multipart/form-data with a boundary";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-a-form", detail)
    })?;
    let raw = RawBody::from_request(request, &access.app).await?;
    let (file, fields) = form(raw.bytes.clone(), boundary).await?;
    let _memory = raw.into_memory()?;
    let (text, fields) = (text(file)?, Value::Object(message_fields(fields)?));
    let sample = validate::body(&fields, validate::message)?;
    let pieces = pieces(&text);
    if pieces.len() > MAX_MESSAGES {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            format!(
                "file: the text is too long for {MAX_MESSAGES} messages; split the file into smaller files"
            ),
        ));
    }
    let messages = pieces.into_iter().map(|piece| MessageIn { content: piece.to_owned(), ..sample.clone() });
    append(&access, messages.collect(), |fault, _| fault).await
}

/// A file: its content type and its bytes.
type File = (String, Bytes);

/// Returns the file of a form, and the names and values of the form's other fields.
async fn form(bytes: Bytes, boundary: String) -> Result<(Option<File>, Vec<(String, String)>), Problem> {
    let broken =
        |_| unprocessable("the form is malformed or incomplete; send it again as multipart/form-data");
    let mut form = multer::Multipart::new(Body::from(bytes).into_data_stream(), boundary);
    let (mut file, mut fields) = (None, Vec::new());
    while let Some(field) = form.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            let kind = field.content_type().map(|kind| kind.essence_str().to_owned()).unwrap_or_default();
            file = Some((kind, field.bytes().await.map_err(broken)?));
        } else {
            fields.push((name, field.text().await.map_err(broken)?));
        }
    }
    Ok((file, fields))
}

/// Returns the text of a file.
fn text(file: Option<File>) -> Result<String, Problem> {
    let (kind, bytes) =
        file.ok_or_else(|| unprocessable("file: the form has no part `file`; add the file under this name"))?;
    if bytes.len() > MAX_FILE_BYTES {
        let detail = format!("File size exceeds maximum allowed size of {MAX_FILE_BYTES} bytes");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail));
    }
    let not_text = ["image/", "audio/", "video/", "application/pdf", "application/zip"];
    let is_text = !not_text.iter().any(|other| kind.starts_with(other));
    let Some(text) = is_text.then(|| decoded(&kind, &bytes)).flatten() else {
        let detail = format!(
            "Unsupported file type: {kind:?}; only text files are accepted: in UTF-8, in UTF-16 with a byte order mark, \
             or in Latin-1 as text/plain"
        );
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-text", detail));
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace('\0', "");
    if text.trim().is_empty() {
        Err(unprocessable("file: the file contains no text; send a text file that is not empty"))
    } else {
        Ok(text)
    }
}

/// Converts the fields of a form, other than the file, into the fields of a message.
fn message_fields(form: Vec<(String, String)>) -> Result<Map<String, Value>, Problem> {
    let mut fields = Map::from_iter([("content".to_owned(), Value::from(""))]);
    for (name, text) in form {
        let value = match name.as_str() {
            "peer_id" | "created_at" => Value::from(text),
            "metadata" | "configuration" => serde_json::from_str(&text)
                .map_err(|_| unprocessable(format!("{name}: the value is not JSON; send a JSON object")))?,
            _ => continue,
        };
        fields.insert(name, value);
    }
    Ok(fields)
}

/// Decodes bytes as text: UTF-8, or UTF-16 with a byte order mark. If the bytes are in neither encoding, but the
/// content type is text, they are decoded as Latin-1. In Latin-1, every byte except NUL is a character. Returns `None`
/// if the bytes are not text.
fn decoded<'a>(kind: &str, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Some(text.into());
    }
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ if kind.starts_with("text/") && !bytes.contains(&0) => {
            return Some(bytes.iter().copied().map(char::from).collect());
        }
        _ => return None,
    };
    let (pairs, rest) = bytes.as_chunks();
    let text: String = char::decode_utf16(pairs.iter().copied().map(unit)).collect::<Result<_, _>>().ok()?;
    (rest.is_empty() && !text.contains('\0')).then(|| text.into())
}

/// Splits a text into pieces of at most [`MAX_MESSAGE_CHARS`] characters. A piece ends at a line end if there is a line
/// end in the last half of the piece, and otherwise at any character. The pieces, joined again, are the whole text.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((most, _)) = rest.char_indices().nth(MAX_MESSAGE_CHARS) {
        let head = rest.get(..most).unwrap_or(rest);
        let line = head.rfind('\n').map(|at| at.saturating_add(1)).filter(|at| *at > most / 2);
        let (piece, next) = rest.split_at_checked(line.unwrap_or(most)).unwrap_or((rest, ""));
        pieces.push(piece);
        rest = next;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_joined_again_are_the_text() {
        let lines = "a line of forty characters, more or less\n".repeat(2_000);
        let words = "é".repeat(MAX_MESSAGE_CHARS + 1);
        for text in [lines.as_str(), &words, "short", &"x".repeat(MAX_MESSAGE_CHARS)] {
            let pieces = pieces(text);
            assert_eq!(pieces.concat(), text);
            assert!(pieces.iter().all(|piece| (1..=MAX_MESSAGE_CHARS).contains(&piece.chars().count())));
        }
        assert!(pieces(&lines).iter().all(|piece| piece.ends_with('\n')));
        assert_eq!(pieces(&words).len(), 2);
    }

    #[test]
    fn a_text_is_decoded_from_each_supported_encoding() {
        let text = "\u{feff}Grüße, ✓ 日本 😀\n";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for kind in ["text/plain", "", "application/octet-stream"] {
            for bytes in [text.as_bytes(), &little, &big] {
                assert_eq!(decoded(kind, bytes).as_deref(), Some(text), "{kind} {bytes:x?}");
            }
            // Half a character, half a surrogate pair, and UTF-32.
            for broken in [&little[..little.len() - 1], b"\xff\xfe\x00\xd8", b"\xff\xfe\0\0a\0\0\0"] {
                assert_eq!(decoded(kind, broken), None, "{kind} {broken:x?}");
            }
        }
        let latin = b"Gr\xfc\xdfe, 20 \xb0C";
        assert_eq!(decoded("text/csv", latin).as_deref(), Some("Grüße, 20 °C"));
        for (kind, bytes) in [("text/plain", b"\xfc\0".as_slice()), ("application/x", latin), ("", latin)] {
            assert_eq!(decoded(kind, bytes), None, "{kind}");
        }
    }
}
