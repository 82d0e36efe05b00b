//! Reads and writes media in the forms that several dialects use.
//!
//! Media that a dialect cannot carry are replaced with a placeholder text, so that the model knows that media
//! were sent. The bytes of media are never changed. Only the first bytes are read, to detect a missing media
//! type.

use epitome_core::message::{Content, Media, MediaSource};
use serde_json::{Value, json};

use crate::field::{self, Object, Result};

/// An image of unknown type.
pub(crate) const IMAGE: &str = "image/*";
/// A file of unknown type.
pub(crate) const FILE: &str = "application/octet-stream";

pub(crate) fn new(mime: &str, source: MediaSource) -> Media {
    Media { mime: mime.to_owned(), source, size: None }
}

/// Reads media from a URL. If the URL contains the bytes in base64, the result contains these bytes. The media
/// type keeps its parameters, so that the URL can be restored. `mime` is the type of media whose URL contains
/// no bytes.
pub(crate) fn from_url(url: &str, mime: &str) -> Media {
    let rest = url.strip_prefix("data:");
    if let Some((mime, data)) = rest.and_then(|rest| rest.split_once(";base64,"))
        && !mime.is_empty()
        && !mime.contains(',')
    {
        return new(mime, MediaSource::Base64(data.to_owned()));
    }
    let in_url =
        rest.and_then(|rest| rest.split([';', ',']).next()).filter(|mime| mime.starts_with("image/"));
    let mime = if mime == IMAGE { in_url.unwrap_or(mime) } else { mime };
    new(mime, MediaSource::Url(url.to_owned()))
}

/// Reads the bytes of a file: a `data:` URL, or plain base64.
pub(crate) fn file_data(data: &str) -> Media {
    let media = from_url(data, "");
    let bare = matches!(media.source, MediaSource::Url(_));
    if bare { new("", MediaSource::Base64(data.to_owned())) } else { media }
}

/// Writes the content of a tool result. A single text is written as a string, and empty content as an empty
/// string. Other content is written as a list of pieces.
pub(crate) fn encode_content(
    content: &[Content],
    words: fn(&str) -> Value,
    media: fn(&Media) -> Value,
) -> Value {
    match content {
        [] => json!(""),
        [Content::Text { text }] => json!(text),
        several => several
            .iter()
            .map(|piece| match piece {
                Content::Text { text } => words(text),
                Content::Media(item) => media(item),
            })
            .collect(),
    }
}

/// Returns the URL of the media. If the media contain their bytes, returns a `data:` URL with these bytes.
/// `None` if the media are stored at the provider.
pub(crate) fn url(media: &Media) -> Option<String> {
    match &media.source {
        // If the type is unknown, the plain base64 is returned, as it was received.
        MediaSource::Base64(data) if media.mime.is_empty() => Some(data.clone()),
        MediaSource::Base64(data) => Some(format!("data:{};base64,{data}", media.mime)),
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::File(_) => None,
    }
}

pub(crate) fn is_image(media: &Media) -> bool {
    media.mime.starts_with("image/")
}

/// Returns whether the media are an image that all providers can read, or an image of unknown type.
pub(crate) fn is_common_image(media: &Media) -> bool {
    matches!(media.mime.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp" | IMAGE)
}

/// Returns whether OpenAI's formats can carry the media as an image or a file. The formats cannot carry the
/// following media in this way: audio, video, images of rare types, and `data:` URLs whose bytes are not in
/// base64.
pub(crate) fn is_accepted_by_openai(media: &Media) -> bool {
    let inline = matches!(&media.source, MediaSource::Url(url) if url.starts_with("data:"));
    !inline && !is_audio_or_video(media) && (is_common_image(media) || !is_image(media))
}

/// Returns whether the media are audio or video.
pub(crate) fn is_audio_or_video(media: &Media) -> bool {
    media.mime.starts_with("audio/") || media.mime.starts_with("video/")
}

/// Returns the text that replaces media that a dialect cannot carry, such as `[image/tiff]`.
pub(crate) fn placeholder(media: &Media) -> String {
    let mime: String = without_parameters(&media.mime).chars().filter(|c| !c.is_control()).collect();
    if mime.trim().is_empty() { "[media]".to_owned() } else { format!("[{}]", mime.trim()) }
}

/// Returns the media type without its parameters.
fn without_parameters(mime: &str) -> &str {
    mime.split(';').next().unwrap_or_default().trim()
}

/// Returns the media with a normalized media type. A missing or generic type is detected from the first bytes.
pub(crate) fn normalized(media: &Media) -> Media {
    let mut media = media.clone();
    media.mime = without_parameters(&media.mime).to_ascii_lowercase();
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
        let detected = starts.into_iter().find(|(start, _)| data.starts_with(start)).map(|(_, mime)| mime);
        media.mime = detected.unwrap_or(FILE).to_owned();
    }
    media
}

/// Reads `input_audio`, which both OpenAI formats write in the same way.
pub(crate) fn audio(piece: &Object) -> Result<Media> {
    field::inner(piece, "input_audio", |audio| {
        let mime = match field::name(audio, "format")? {
            "mp3" => "audio/mpeg".to_owned(),
            format => format!("audio/{format}"),
        };
        Ok(new(&mime, MediaSource::Base64(field::text(audio, "data")?.to_owned())))
    })
}

/// Writes audio as `input_audio`: the inverse of [`audio`]. `None` if the media are not the bytes of audio.
pub(crate) fn encode_audio(media: &Media) -> Option<Value> {
    let MediaSource::Base64(data) = &media.source else { return None };
    let format = match media.mime.strip_prefix("audio/")? {
        "mpeg" => "mp3",
        "x-wav" | "wave" | "vnd.wave" => "wav",
        format => format,
    };
    Some(json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } }))
}

/// Returns a file name. OpenAI requires a name for each file, and media have no name.
pub(crate) fn file_name(media: &Media) -> &'static str {
    if media.mime == "application/pdf" { "attachment.pdf" } else { "attachment" }
}
