//! Splits lines that are too long to count as one.

/// Maximum length of a summary's line, in characters. A longer line counts as several lines.
const MAX_LINE_CHARS: usize = 1_000;

/// Splits a line into pieces of at most [`MAX_LINE_CHARS`] characters.
pub(super) fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(MAX_LINE_CHARS).map_or(rest.len(), |(at, _)| at);
        let (piece, left) = rest.split_at_checked(end)?;
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}
