//! Suggests the names that a user may have meant.

/// Maximum length of a compared name, in characters. The running time is the product of the lengths of both names.
const MAX_CHARS: usize = 128;

/// Returns at most `limit` names that are similar to `mistyped`, the most similar name first. The result is empty if no
/// name is similar.
///
/// A name is similar if few letters differ or are swapped, or if one of the two names contains the other. Case is
/// ignored.
///
/// ```
/// use epitome_core::suggest::similar_names;
///
/// assert_eq!(similar_names("sumarize", ["recent", "mask", "summarize"], 1), ["summarize"]);
/// ```
pub fn similar_names<'a>(
    mistyped: &str,
    names: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let mistyped = mistyped.to_lowercase();
    let length = mistyped.chars().count();
    let max_distance = (length / 3).clamp(1, 3);
    let mut similar: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = name.to_lowercase();
            let other_length = other.chars().count();
            if length.max(other_length) > MAX_CHARS {
                return None;
            }
            let distance = strsim::osa_distance(&mistyped, &other);
            let contained =
                length.min(other_length) >= 3 && (other.contains(&mistyped) || mistyped.contains(&other));
            (distance <= max_distance || contained).then_some((distance, name))
        })
        .collect();
    similar.sort_unstable();
    similar.into_iter().take(limit).map(|(_, name)| name).collect()
}

/// Returns a question for an error message, such as "did you mean `summarize`? ". The question ends with a space.
/// Returns an empty text if no name is similar.
pub fn did_you_mean<'a>(mistyped: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let similar = similar_names(mistyped, names, 1);
    similar.first().map(|name| format!("did you mean `{name}`? ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_few_other_letters_or_a_common_part_are_similar() {
        let names = ["ann", "anne", "bob", "support-42", "support-43"];
        assert_eq!(similar_names("Ann", names, 3), ["ann", "anne"]);
        assert_eq!(similar_names("suport-42", names, 3), ["support-42", "support-43"]);
        assert_eq!(similar_names("support", names, 1), ["support-42"]);
        assert!(similar_names("zzz", names, 3).is_empty() && similar_names("", names, 3).is_empty());
        assert_eq!(similar_names("modle", ["stream", "model"], 1), ["model"]);
        assert_eq!(did_you_mean("bop", names), "did you mean `bob`? ");
        assert_eq!(did_you_mean("zzz", names), "");
    }
}
