//! Suggests a similar name when serde does not recognise a name.

use epitome::settings::suggest::similar_names;

/// Returns a question for the end of an error text, such as "; did you mean `settings`?". `error` is serde's error text
/// about an unknown field or variant, which lists the allowed names. Returns an empty text for other errors, and if no
/// allowed name is similar.
pub(crate) fn suggestion(error: &str) -> String {
    similar_name(error).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn similar_name(error: &str) -> Option<&str> {
    let starts = ["unknown field `", "unknown variant `"];
    let named = starts.iter().find_map(|start| error.strip_prefix(start))?;
    // The unknown name comes from the client, so it may contain any text. The allowed names follow the last separator.
    let (unknown, allowed) = named.rsplit_once("`, expected ")?;
    similar_names(unknown, allowed.split('`').skip(1).step_by(2), 1).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_similar_name_of_the_allowed_names_is_suggested() {
        for (error, expected) in [
            ("unknown field `setings`, expected one of `settings`, `x`, `y`", "; did you mean `settings`?"),
            ("unknown field `setings`, expected `settings` or `metadata`", "; did you mean `settings`?"),
            ("unknown field `setings`, expected `settings`", "; did you mean `settings`?"),
            ("unknown variant `writ`, expected one of `read`, `write`, `admin`", "; did you mean `write`?"),
            ("unknown field ``, expected `b`, expected `settings`", ""),
            ("unknown field `zzz`, expected `settings`", ""),
            ("unknown field `zzz`, there are no fields", ""),
            ("missing field `settings`", ""),
        ] {
            assert_eq!(suggestion(error), expected, "{error}");
        }
    }
}
