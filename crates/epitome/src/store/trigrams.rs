//! Hashes trigrams (three characters of text) to numbers for PostgreSQL's search index. Each workspace has its own
//! hashes.

use std::collections::BTreeSet;

use crate::search::{Query, indexed};

/// Hashes the trigrams of one workspace. The field is the seed of the hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrigramHash(u64);

impl TrigramHash {
    pub(super) fn of(workspace: &str) -> Self {
        let hash = blake3::hash(workspace.as_bytes());
        let seed = hash.as_bytes().first_chunk::<8>().copied().unwrap_or_default();
        Self(u64::from_le_bytes(seed))
    }

    /// Hashes a trigram. A character has 21 bits, so three characters fit into one 64-bit number. The number is then
    /// mixed, so that the characters cannot be recognised. If two trigrams have the same hash, a search may read a
    /// message that does not match the query, but the search does not return this message.
    fn hash(self, [one, two, three]: [char; 3]) -> i32 {
        let mut mixed = self.0 ^ (u64::from(one) | u64::from(two) << 21 | u64::from(three) << 42);
        for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
        }
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 33)).to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    }

    /// Returns the hashes under which a message with this text is indexed.
    pub(super) fn in_text(self, text: &str) -> Vec<i32> {
        let text: Vec<char> = indexed(text).chars().collect();
        let threes = text.windows(3).filter_map(|three| <[char; 3]>::try_from(three).ok());
        let hashes: BTreeSet<i32> = threes.map(|three| self.hash(three)).collect();
        hashes.into_iter().collect()
    }

    /// Returns the hashes to look up for a query. Returns `None` if the query has no trigrams. All messages are then
    /// candidates.
    pub(super) fn in_query(self, query: &Query) -> Option<Vec<i32>> {
        let hashes: Vec<i32> = query.trigram_chars().into_iter().map(|three| self.hash(three)).collect();
        (!hashes.is_empty()).then_some(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_and_text_have_common_hashes_only_within_a_workspace() {
        let (ours, theirs) = (TrigramHash::of("here"), TrigramHash::of("there"));
        let text = ours.in_text("The parser fails 東京駅");
        for query in ["parser", "FAILS the", "東京"] {
            let looked_up = ours.in_query(&Query::parse(query).unwrap()).unwrap();
            assert!(looked_up.iter().all(|gram| text.contains(gram)), "{query}");
        }
        let looked_up = theirs.in_query(&Query::parse("parser").unwrap()).unwrap();
        assert!(!looked_up.iter().all(|gram| text.contains(gram)));
        assert_eq!(ours.in_query(&Query::parse("a").unwrap()), None);
    }
}
