//! Pictures, sounds and documents, as far as the dialects spell them alike.
//!
//! What a dialect has no place for is named in words, so that the reader of the list knows that there was
//! something. No bytes are ever changed or read, but for the first few where nobody said what they are.

use epitome_core::message::{Content, Media, MediaSource};
use serde_json::{Value, json};

use crate::field::{self, Object, Result};

/// A picture of which nobody said more.
pub(crate) const IMAGE: &str = "image/*";
/// A file of which nobody said what it is.
pub(crate) const FILE: &str = "application/octet-stream";

pub(crate) fn of(mime: &str, source: MediaSource) -> Media {
    Media { mime: mime.to_owned(), source, size: None }
}

/// A medium behind an address; the bytes themselves where the address holds them in base64. Parameters stay with the
/// type, so that the address can be given back.
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

/// The bytes of a file: as an address that holds them, or bare.
pub(crate) fn file_data(data: &str) -> Media {
    let media = at_address(data, "");
    let bare = matches!(media.source, MediaSource::Url(_));
    if bare { of("", MediaSource::Base64(data.to_owned())) } else { media }
}

/// What a tool said, spelled: a text where it is one, else a list of pieces.
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

/// Its address; none where it is with the provider.
pub(crate) fn address(media: &Media) -> Option<String> {
    match &media.source {
        // Nobody said what it is: the bare base64, as it came.
        MediaSource::Base64(data) if media.mime.is_empty() => Some(data.clone()),
        MediaSource::Base64(data) => Some(format!("data:{};base64,{data}", media.mime)),
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::File(_) => None,
    }
}

pub(crate) fn is_picture(media: &Media) -> bool {
    media.mime.starts_with("image/")
}

/// A picture that all providers can read, or of which nobody knows better.
pub(crate) fn is_known_picture(media: &Media) -> bool {
    matches!(media.mime.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp" | IMAGE)
}

/// Whether OpenAI's wires have the means to send a picture or a file: no picture of another kind, and no address that
/// holds the bytes in a way that is not read.
pub(crate) fn is_seen(media: &Media) -> bool {
    let inline = matches!(&media.source, MediaSource::Url(url) if url.starts_with("data:"));
    !inline && !is_sound(media) && (is_known_picture(media) || !is_picture(media))
}

/// Whether OpenAI's wires have the means to send it, apart from the role that says it.
pub(crate) fn is_sound(media: &Media) -> bool {
    media.mime.starts_with("audio/") || media.mime.starts_with("video/")
}

/// What is sent in place of a medium that a dialect cannot carry.
pub(crate) fn in_words(media: &Media) -> String {
    let mime: String = essence(&media.mime).chars().filter(|c| !c.is_control()).collect();
    if mime.trim().is_empty() { "[media]".to_owned() } else { format!("[{}]", mime.trim()) }
}

/// A type without its parameters.
fn essence(mime: &str) -> &str {
    mime.split(';').next().unwrap_or_default().trim()
}

/// A medium that has to say what it is by its proper name, where its first bytes tell.
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

/// `input_audio`, which both of OpenAI's wires spell alike.
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

/// What a file is called whose name nobody told; OpenAI wants one.
pub(crate) fn file_name(media: &Media) -> &'static str {
    if media.mime == "application/pdf" { "attachment.pdf" } else { "attachment" }
}
