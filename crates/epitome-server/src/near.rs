//! What somebody may have meant.

/// Longer names are not compared: nobody mistypes by a letter what they cannot have typed.
const LONGEST: usize = 128;

/// The names nearest to what was given, best first, at most so many; none where none is near.
///
/// Near is: few letters changed, whatever the case, or one a part of the other.
pub(crate) fn near<'a>(given: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let given: Vec<char> = fold(given);
    let allowed = (given.len() / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = fold(name);
            if other.len() > LONGEST || given.len() > LONGEST {
                return None;
            }
            let distance = distance(&given, &other);
            let part =
                given.len() >= 3 && other.len() >= 3 && (holds(&other, &given) || holds(&given, &other));
            (distance <= allowed || part).then_some((distance, name))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(most).map(|(_, name)| name).collect()
}

fn fold(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

fn holds(text: &[char], part: &[char]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// How many letters must be put in, left out or changed.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(at + 1);
        for ((above, pair), wanted) in row.iter().skip(1).zip(&row).zip(other) {
            let left = next.last().copied().unwrap_or(at + 1);
            next.push((above + 1).min(left + 1).min(pair + usize::from(letter != wanted)));
        }
        row = next;
    }
    row.last().copied().unwrap_or(one.len())
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
