//! Estimates how many tokens an image, audio clip, video or document costs.
//!
//! Media are sent as base64, but providers do not read them as text. A 1 MB image costs about 1,600 tokens, not
//! 333,000. The exact number depends on the provider and the model, so this module only estimates it. The estimates are
//! slightly too high rather than too low:
//!
//! | medium | tokens |
//! | --- | --- |
//! | image | the largest result of the three rules below, at most [`IMAGE_MOST`] |
//! | image, rule of Claude | 1 per patch of 28 × 28 pixels |
//! | image, rule of GPT | 85, plus 170 per tile of 512 × 512 pixels, for at most eight tiles |
//! | image, rule of Gemini | 258 per tile of 768 × 768 pixels |
//! | image of unknown size | [`IMAGE_UNKNOWN`] |
//! | audio | 32 per second, estimated as 1 per 125 bytes, or 1 per 500 bytes if uncompressed |
//! | video | 300 per second, estimated as 1 per 400 bytes |
//! | text | 1 per 3 bytes |
//! | PDF and anything else | 1 per 10 bytes, at least [`PAGE`] |
//! | audio of unknown size | [`AUDIO_UNKNOWN`] |
//! | video of unknown size | [`VIDEO_UNKNOWN`] |
//! | document of unknown size | [`DOCUMENT_UNKNOWN`] |
//!
//! Two cases cost more than this estimate: GPT's `detail: original` (up to 10,000 patches), and GPT-4o mini, which
//! charges a multiple. They are left out because the caller must select them by name.
//!
//! An image's dimensions come from the sender, or from the first bytes of a PNG, GIF, JPEG or WebP file. No other data
//! are decoded, and invalid data never cause an error.

use crate::message::{Media, MediaSource, Tokens};

/// Maximum estimate for one image, in tokens. Claude charges this number for an image whose longer edge has 2,576
/// pixels.
pub const IMAGE_MOST: Tokens = 4_784;
/// Estimate for an image of unknown size, in tokens. Most models charge this number for a large image.
pub const IMAGE_UNKNOWN: Tokens = 1_600;
/// Estimate for audio of unknown size, in tokens. It corresponds to one minute.
pub const AUDIO_UNKNOWN: Tokens = 1_920;
/// Estimate for video of unknown size, in tokens. It corresponds to one minute.
pub const VIDEO_UNKNOWN: Tokens = 18_000;
/// Estimate for a full document page, in tokens. Claude charges a page both as text and as an image.
pub const PAGE: Tokens = 3_000;
/// Estimate for a document of unknown size, in tokens. It corresponds to five pages.
pub const DOCUMENT_UNKNOWN: Tokens = 5 * PAGE;

/// Maximum number of base64 characters searched for an image's dimensions. In a photograph the dimensions come after
/// the EXIF data and the colour profile, which are rarely larger than 100 KB.
const LOOK: usize = 256 << 10;

/// Maximum length of the header of a `data:` URL (the part before the comma), in bytes.
const DATA_HEADER: usize = 256;

/// Estimates the tokens that a medium costs.
///
/// ```
/// use epitome_core::media;
/// use epitome_core::message::{Media, MediaSource};
///
/// let screenshot = Media {
///     mime: "image/png".to_owned(),
///     source: MediaSource::Url("https://example.org/a.png".to_owned()),
///     size: Some((1280, 720)),
/// };
/// assert_eq!(media::tokens(&screenshot), 46 * 26);
/// ```
pub fn tokens(media: &Media) -> Tokens {
    let bytes = inline(&media.source).map(size_in_bytes);
    let by_rate = |per: u64, unknown: Tokens| bytes.map_or(unknown, |bytes| bytes.div_ceil(per));
    let essence = media.mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.split_once('/').unwrap_or((&essence, "")) {
        ("image", _) => dimensions(media).map_or(IMAGE_UNKNOWN, image),
        ("audio", "wav" | "wave" | "x-wav" | "vnd.wave" | "l16" | "pcm" | "aiff" | "x-aiff") => {
            by_rate(500, AUDIO_UNKNOWN)
        }
        ("audio", _) => by_rate(125, AUDIO_UNKNOWN),
        ("video", _) => by_rate(400, VIDEO_UNKNOWN),
        ("text", _) | ("application", "json" | "xml" | "yaml" | "toml" | "javascript") => {
            by_rate(3, DOCUMENT_UNKNOWN)
        }
        _ => by_rate(10, DOCUMENT_UNKNOWN).max(PAGE),
    }
}

/// Returns an image's width and height in pixels. If the sender set no size, it is read from the first bytes of the
/// file. Returns `None` if the size is unknown.
///
/// ```
/// use epitome_core::media;
/// use epitome_core::message::{Media, MediaSource};
///
/// let dot = Media {
///     mime: "image/gif".to_owned(),
///     source: MediaSource::Base64("R0lGODlhAwAFAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7".to_owned()),
///     size: None,
/// };
/// assert_eq!(media::dimensions(&dot), Some((3, 5)));
/// ```
pub fn dimensions(media: &Media) -> Option<(u32, u32)> {
    let real = |&(width, height): &(u32, u32)| width > 0 && height > 0;
    media.size.filter(real).or_else(|| pixels(&mut bytes(inline(&media.source)?)).filter(real))
}

fn image((width, height): (u32, u32)) -> Tokens {
    // Both factors fit in 32 bits, so their product fits in 64 bits.
    let tiles = |edge: u32| u64::from(width.div_ceil(edge)) * u64::from(height.div_ceil(edge));
    let claude = tiles(28);
    let gpt = 85 + 170 * tiles(512).min(8);
    let gemini = tiles(768).saturating_mul(258);
    claude.max(gpt).max(gemini).min(IMAGE_MOST)
}

/// Returns the base64 data that a source contains. Some dialects put it in a `data:` URL.
fn inline(source: &MediaSource) -> Option<&str> {
    match source {
        MediaSource::Base64(data) => Some(after_data_header(data).unwrap_or(data)),
        MediaSource::Url(url) => after_data_header(url),
        MediaSource::File(_) => None,
    }
}

fn after_data_header(text: &str) -> Option<&str> {
    text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"))?;
    let comma = text.bytes().take(DATA_HEADER).position(|byte| byte == b',')?;
    text.get(comma.saturating_add(1)..)
}

fn size_in_bytes(base64: &str) -> u64 {
    let sextets = base64.trim_end_matches(['=', '\r', '\n']).len() as u64;
    sextets.saturating_mul(3) / 4
}

/// Decodes base64, at most [`LOOK`] characters. Stops at the first character that is not base64.
fn bytes(base64: &str) -> impl Iterator<Item = u8> {
    let mut letters = base64.bytes().take(LOOK);
    let (mut bits, mut count) = (0, 0);
    std::iter::from_fn(move || {
        while count < 8 {
            let sextet = match letters.next()? {
                letter @ b'A'..=b'Z' => letter - b'A',
                letter @ b'a'..=b'z' => letter - b'a' + 26,
                letter @ b'0'..=b'9' => letter - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(sextet);
            count += 6;
        }
        count -= 8;
        let [byte, ..] = (bits >> count).to_le_bytes();
        Some(byte)
    })
}

fn take<const N: usize>(bytes: &mut impl Iterator<Item = u8>) -> Option<[u8; N]> {
    let mut taken = [0; N];
    for slot in &mut taken {
        *slot = bytes.next()?;
    }
    Some(taken)
}

/// Reads width and height from the image file's header.
fn pixels(bytes: &mut impl Iterator<Item = u8>) -> Option<(u32, u32)> {
    match take(bytes)? {
        [0x89, b'P', b'N', b'G'] => png(bytes),
        [b'G', b'I', b'F', b'8'] => gif(bytes),
        [b'R', b'I', b'F', b'F'] => webp(bytes),
        [0xff, 0xd8, 0xff, marker] => jpeg(marker, bytes),
        _ => None,
    }
}

fn png(bytes: &mut impl Iterator<Item = u8>) -> Option<(u32, u32)> {
    let [b'\r', b'\n', 0x1a, b'\n', _, _, _, _, b'I', b'H', b'D', b'R'] = take(bytes)? else {
        return None;
    };
    Some((u32::from_be_bytes(take(bytes)?), u32::from_be_bytes(take(bytes)?)))
}

fn gif(bytes: &mut impl Iterator<Item = u8>) -> Option<(u32, u32)> {
    let [b'7' | b'9', b'a'] = take(bytes)? else { return None };
    Some((u16::from_le_bytes(take(bytes)?).into(), u16::from_le_bytes(take(bytes)?).into()))
}

fn webp(bytes: &mut impl Iterator<Item = u8>) -> Option<(u32, u32)> {
    let [_, _, _, _, b'W', b'E', b'B', b'P', chunk @ .., _, _, _, _]: [u8; 16] = take(bytes)? else {
        return None;
    };
    match &chunk {
        b"VP8X" => {
            let [_, _, _, _, w0, w1, w2, h0, h1, h2] = take(bytes)?;
            Some((u32::from_le_bytes([w0, w1, w2, 0]) + 1, u32::from_le_bytes([h0, h1, h2, 0]) + 1))
        }
        b"VP8L" => {
            let [0x2f, packed @ ..]: [u8; 5] = take(bytes)? else { return None };
            let packed = u32::from_le_bytes(packed);
            Some(((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1))
        }
        b"VP8 " => {
            let [_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1] = take(bytes)? else { return None };
            let edge = |bytes| u32::from(u16::from_le_bytes(bytes) & 0x3fff);
            Some((edge([w0, w1]), edge([h0, h1])))
        }
        _ => None,
    }
}

/// Reads the segments of a JPEG file up to the frame header. `marker` is the second byte of the first segment.
fn jpeg(mut marker: u8, bytes: &mut impl Iterator<Item = u8>) -> Option<(u32, u32)> {
    loop {
        while marker == 0xff {
            marker = bytes.next()?;
        }
        match marker {
            // These markers have no payload.
            0x00 | 0x01 | 0xd0..=0xd8 => {}
            // The image ends, or its pixel data begins, before a frame header was found.
            0xd9 | 0xda => return None,
            // This is a frame header. The three excluded markers lie in the same range but are not frame headers.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let [_, _, _, h0, h1, w0, w1] = take(bytes)?;
                return Some((u16::from_be_bytes([w0, w1]).into(), u16::from_be_bytes([h0, h1]).into()));
            }
            _ => {
                let length = usize::from(u16::from_be_bytes(take(bytes)?)).checked_sub(2)?;
                if let Some(last) = length.checked_sub(1) {
                    bytes.nth(last)?;
                }
            }
        }
        bytes.find(|&byte| byte == 0xff)?;
        marker = bytes.next()?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base64(bytes: &[u8]) -> String {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(*chunk.get(i).unwrap_or(&0)));
            for i in 0..4 {
                let letter = letters[(bits >> (18 - 6 * i) & 63) as usize] as char;
                text.push(if i <= chunk.len() { letter } else { '=' });
            }
        }
        text
    }

    fn inline_media(mime: &str, bytes: &[u8]) -> Media {
        Media { mime: mime.to_owned(), source: MediaSource::Base64(base64(bytes)), size: None }
    }

    fn linked(mime: &str) -> Media {
        Media { mime: mime.to_owned(), source: MediaSource::Url("https://x.org/a".to_owned()), size: None }
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        file.extend(width.to_be_bytes());
        file.extend(height.to_be_bytes());
        file
    }

    /// Builds a JPEG whose frame header comes after `before` bytes of EXIF data.
    fn jpeg(before: u16) -> Vec<u8> {
        let mut file = b"\xff\xd8\xff\xe1".to_vec();
        file.extend((before + 2).to_be_bytes());
        file.extend(std::iter::repeat_n(0xff, before.into()));
        file.extend(b"\xff\xff\xc4\x00\x04zz\xff\xc2\x00\x11\x08\x02\xd0\x05\x00\x03");
        file
    }

    #[track_caller]
    fn check_size(file: &[u8], expected: Option<(u32, u32)>) {
        assert_eq!(dimensions(&inline_media("image/*", file)), expected);
    }

    #[test]
    fn an_images_size_is_read_from_its_first_bytes() {
        check_size(&png(1280, 720), Some((1280, 720)));
        check_size(b"GIF87a\x2c\x01\x90\x00", Some((300, 144)));
        check_size(&jpeg(0), Some((1280, 720)));
        check_size(&jpeg(60_000), Some((1280, 720)));
        check_size(b"RIFF....WEBPVP8X....\x10\0\0\0\xff\x04\0\xcf\x02\0", Some((1280, 720)));
        check_size(b"RIFF....WEBPVP8L....\x2f\xff\xc4\xb3\0", Some((1280, 720)));
        check_size(b"RIFF....WEBPVP8 ....\0\0\0\x9d\x01\x2a\x00\x05\xd0\x02", Some((1280, 720)));
    }

    #[test]
    fn a_truncated_or_absurd_image_has_no_size() {
        check_size(b"", None);
        check_size(&png(1280, 720)[..20], None);
        check_size(&png(0, 720), None);
        check_size(b"\xff\xd8\xff\xda\x00\x02", None);
        check_size(b"\xff\xd8\xff\xe0\x00\x01", None);
        check_size(b"%PDF-1.7", None);
        assert_eq!(tokens(&inline_media("image/png", b"not a png")), IMAGE_UNKNOWN);
    }

    #[test]
    fn the_senders_size_goes_before_the_files_unless_it_is_nothing() {
        let told = |size| Media { size: Some(size), ..inline_media("image/png", &png(1280, 720)) };
        assert_eq!(dimensions(&told((10, 20))), Some((10, 20)));
        assert_eq!(dimensions(&told((0, 20))), Some((1280, 720)));
    }

    #[test]
    fn base64_in_a_data_address_or_in_lines_is_read_too() {
        // A size whose base64 contains both characters that differ between the two alphabets.
        let size = (0xfbef, 0xbfff_ffff);
        let plain = base64(&png(size.0, size.1));
        assert!(plain.contains('+') && plain.contains('/'));

        let address = format!("data:image/png;base64,{plain}");
        let lines = plain.as_bytes().chunks(7).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\r\n");
        let url_safe = plain.replace('+', "-").replace('/', "_");
        for source in [
            MediaSource::Url(address.clone()),
            MediaSource::Base64(address),
            MediaSource::Base64(lines),
            MediaSource::Base64(url_safe),
        ] {
            let media = Media { mime: "image/png".to_owned(), source, size: None };
            assert_eq!(dimensions(&media), Some(size));
        }
    }

    #[test]
    fn an_image_costs_what_the_dearest_rule_says() {
        assert_eq!(image((1, 1)), 258); // Gemini
        assert_eq!(image((2048, 32)), 774); // Gemini, three tiles
        assert_eq!(image((1024, 1024)), 37 * 37); // Claude
        assert_eq!(image((100, 1500)), 595); // GPT, three tiles
        assert_eq!(image((100, 4100)), 1_548); // Gemini; GPT shrinks it to eight tiles
        assert_eq!(image((8000, 8000)), IMAGE_MOST);
        assert_eq!(image((u32::MAX, u32::MAX)), IMAGE_MOST);
    }

    #[test]
    fn a_megabyte_of_image_is_counted_by_its_pixels() {
        let mut file = png(1280, 720);
        file.resize(1 << 20, 0xaa);
        assert_eq!(tokens(&inline_media("image/png", &file)), 46 * 26);
    }

    #[test]
    fn sounds_and_documents_are_counted_by_their_bytes() {
        let kilobytes = vec![0; 30_000];
        let of = |mime| tokens(&inline_media(mime, &kilobytes));
        assert_eq!(of("audio/mpeg"), 240);
        assert_eq!(of("audio/wav"), 60);
        assert_eq!(of("video/mp4"), 75);
        assert_eq!(of("text/markdown; charset=utf-8"), 10_000);
        assert_eq!(of("Application/PDF"), 3_000);
        assert_eq!(of("application/zip"), 3_000);
        assert_eq!(of(""), 3_000);
        assert_eq!(tokens(&inline_media("application/pdf", &vec![0; 300_000])), 30_000);
    }

    #[test]
    fn media_stored_elsewhere_count_as_the_documented_default() {
        assert_eq!(tokens(&linked("image/jpeg")), IMAGE_UNKNOWN);
        assert_eq!(tokens(&linked("audio/mpeg")), AUDIO_UNKNOWN);
        assert_eq!(tokens(&linked("video/mp4")), VIDEO_UNKNOWN);
        assert_eq!(tokens(&linked("application/pdf")), DOCUMENT_UNKNOWN);
        let file = Media { source: MediaSource::File("file-1".to_owned()), ..linked("image/png") };
        assert_eq!(tokens(&file), IMAGE_UNKNOWN);
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(2_000))]

        #[test]
        fn any_bytes_give_an_answer(
            head in prop::sample::select(vec![
                &b""[..], b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF....WEBPVP8X", b"RIFF....WEBPVP8L",
                b"RIFF....WEBPVP8 ",
            ]),
            rest in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), 0xc0..=0xdfu8], 0..200),
        ) {
            let most = tokens(&inline_media("image/png", &[head, &rest].concat()));
            prop_assert!((258..=IMAGE_MOST).contains(&most));
        }

        #[test]
        fn any_text_in_place_of_base64_gives_an_answer(text in any::<String>(), mime in any::<String>()) {
            for source in [MediaSource::Base64(text.clone()), MediaSource::Url(format!("data:{text}"))] {
                let _ = tokens(&Media { mime: mime.clone(), source: source.clone(), size: None });
                let _ = tokens(&Media { mime: "image/png".to_owned(), source, size: None });
            }
        }
    }
}
