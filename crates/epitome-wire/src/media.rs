//! Reads and writes media in the forms that the dialects share.
//!
//! A medium that a dialect cannot carry is replaced by text, so that the model knows that there was one.
//! Bytes are never changed. They are read only to detect a missing type, and only the first few.

use epitome_core::message::{Content, Media, MediaSource};
use serde_json::{Value, json};

use crate::field::{self, Object, Result};

/// An image of unknown type.
pub(crate) const IMAGE: &str = "image/*";
/// A file of unknown type.
pub(crate) const FILE: &str = "application/octet-stream";

pub(crate) fn of(mime: &str, source: MediaSource) -> Media {
    Media { mime: mime.to_owned(), source, size: None }
}

/// Reads a medium from a URL. A URL that contains the bytes in base64 gives the bytes. The type keeps its
/// parameters, so that the URL can be restored.
pub(crate) fn at_address(url: &str, mime: &str) -> Media {
    let rest = url.strip_prefix("data:");
    if let Some((told, data)) = rest.and_then(|rest| rest.split_once(";base64,"))
        && !told.is_empty()
        && !told.contains(',')
    {
        return of(told, MediaSource::Base64(data.to_owned()));
    }
    let told = rest.and_then(|rest| rest.split([';', ',']).next()).filter(|told| told.starts_with("image/"));
    let mime = if mime == IMAGE { told.unwrap_or(mime) } else { mime };
    of(mime, MediaSource::Url(url.to_owned()))
}

/// Reads the bytes of a file: a `data:` URL, or plain base64.
pub(crate) fn file_data(data: &str) -> Media {
    let media = at_address(data, "");
    let bare = matches!(media.source, MediaSource::Url(_));
    if bare { of("", MediaSource::Base64(data.to_owned())) } else { media }
}

/// Writes the content of a tool result: a string if it is a single text, else a list of pieces.
pub(crate) fn spelled(content: &[Content], words: fn(&str) -> Value, media: fn(&Media) -> Value) -> Value {
    match content {
        [] => json!(""),
        [Content::Text { text }] => json!(text),
        several => several
            .iter()
            .map(|piece| match piece {
                Content::Text { text } => words(text),
                Content::Media(found) => media(found),
            })
            .collect(),
    }
}

/// Returns its URL; `None` if it is stored at the provider.
pub(crate) fn address(media: &Media) -> Option<String> {
    match &media.source {
        // Unknown type: the plain base64, as it was received.
        MediaSource::Base64(data) if media.mime.is_empty() => Some(data.clone()),
        MediaSource::Base64(data) => Some(format!("data:{};base64,{data}", media.mime)),
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::File(_) => None,
    }
}

pub(crate) fn is_picture(media: &Media) -> bool {
    media.mime.starts_with("image/")
}

/// Returns whether it is an image that all providers can read, or an image of unknown type.
pub(crate) fn is_known_picture(media: &Media) -> bool {
    matches!(media.mime.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp" | IMAGE)
}

/// Returns whether OpenAI's formats can carry it as an image or a file. Images of other types and URLs that
/// contain the bytes in an unsupported way are excluded.
pub(crate) fn is_seen(media: &Media) -> bool {
    let inline = matches!(&media.source, MediaSource::Url(url) if url.starts_with("data:"));
    !inline && !is_sound(media) && (is_known_picture(media) || !is_picture(media))
}

/// Returns whether it is audio or video.
pub(crate) fn is_sound(media: &Media) -> bool {
    media.mime.starts_with("audio/") || media.mime.starts_with("video/")
}

/// Returns the text that replaces a medium that a dialect cannot carry.
pub(crate) fn in_words(media: &Media) -> String {
    let mime: String = essence(&media.mime).chars().filter(|c| !c.is_control()).collect();
    if mime.trim().is_empty() { "[media]".to_owned() } else { format!("[{}]", mime.trim()) }
}

/// Returns the type without its parameters.
fn essence(mime: &str) -> &str {
    mime.split(';').next().unwrap_or_default().trim()
}

/// Returns the medium with its normalised type, detected from its first bytes if it is missing.
pub(crate) fn told(media: &Media) -> Media {
    let mut media = media.clone();
    media.mime = essence(&media.mime).to_ascii_lowercase();
    if matches!(media.mime.as_str(), "image/jpg" | "image/pjpeg") {
        media.mime = "image/jpeg".to_owned();
    }
    if let MediaSource::Base64(data) = &media.source
        && (media.mime.is_empty() || media.mime == IMAGE || media.mime == FILE)
    {
        let starts = [
            ("iVBORw0KGgo", "image/png"),
            ("/9j/", "image/jpeg"),
            ("R0lGOD", "image/gif"),
            ("UklGR", "image/webp"),
            ("JVBERi0", "application/pdf"),
        ];
        let known = starts.into_iter().find(|(start, _)| data.starts_with(start)).map(|(_, mime)| mime);
        media.mime = known.unwrap_or(FILE).to_owned();
    }
    media
}

/// Reads `input_audio`, which both OpenAI formats write in the same way.
pub(crate) fn sound(piece: &Object) -> Result<Media> {
    field::inner(piece, "input_audio", |audio| {
        let mime = match field::name(audio, "format")? {
            "mp3" => "audio/mpeg".to_owned(),
            format => format!("audio/{format}"),
        };
        Ok(of(&mime, MediaSource::Base64(field::text(audio, "data")?.to_owned())))
    })
}

/// The inverse of [`sound`].
pub(crate) fn sound_spelled(media: &Media) -> Option<Value> {
    let MediaSource::Base64(data) = &media.source else { return None };
    let format = match media.mime.strip_prefix("audio/")? {
        "mpeg" => "mp3",
        "x-wav" | "wave" | "vnd.wave" => "wav",
        format => format,
    };
    Some(json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } }))
}

/// Returns a name for a file without one, because OpenAI requires it.
pub(crate) fn file_name(media: &Media) -> &'static str {
    if media.mime == "application/pdf" { "attachment.pdf" } else { "attachment" }
}
