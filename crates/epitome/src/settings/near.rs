//! Suggests the names that a caller may have meant.

/// Maximum length of the names that are compared, in characters: the cost is the product of both lengths.
const LONGEST: usize = 128;

/// Returns the names most similar to `given`, best first, at most `most`. The result is empty if no name is similar.
///
/// A name is similar if few letters differ, ignoring case, or if one name contains the other.
pub fn near<'a>(given: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let given = given.to_lowercase();
    let length = given.chars().count();
    let allowed = (length / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = name.to_lowercase();
            let others = other.chars().count();
            if length.max(others) > LONGEST {
                return None;
            }
            let distance = strsim::levenshtein(&given, &other);
            let part = length.min(others) >= 3 && (other.contains(&given) || given.contains(&other));
            (distance <= allowed || part).then_some((distance, name))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(most).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_seen() {
        let names = ["ann", "anne", "bob", "support-42", "support-43"];
        assert_eq!(near("Ann", names, 3), ["ann", "anne"]);
        assert_eq!(near("suport-42", names, 3), ["support-42", "support-43"]);
        assert_eq!(near("support", names, 1), ["support-42"]);
        assert!(near("zzz", names, 3).is_empty() && near("", names, 3).is_empty());
    }
}
