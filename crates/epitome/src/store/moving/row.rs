//! A row on its way from one database to the other, and the one form in which both sides are hashed.

use serde_json::json;

use super::tables::Table;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Cell {
    Null,
    /// Numbers of every size; truth as 0 and 1.
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row, in the order of its table's columns.
pub(in crate::store) type Cells = Vec<Cell>;

impl Cell {
    /// About how much memory it takes.
    pub(in crate::store) fn size(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) => 8,
            Self::Text(text) => text.len() + 24,
            Self::Bytes(bytes) => bytes.len() + 24,
        }
    }

    pub(in crate::store) fn int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    pub(in crate::store) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(in crate::store) fn bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// Adds it to a hash, so that no two rows of different values give the same bytes.
    fn hash_into(&self, hasher: &mut blake3::Hasher) {
        let (kind, bytes): (u8, &[u8]) = match self {
            Self::Null => (0, &[]),
            Self::Int(value) => (1, &value.to_le_bytes()),
            Self::Text(text) => (2, text.as_bytes()),
            Self::Bytes(bytes) => (3, bytes),
        };
        hasher.update(&[kind]);
        hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(bytes);
    }
}

/// Adds a row to its table's hash.
pub(in crate::store) fn hash_into(row: &[Cell], hasher: &mut blake3::Hasher) {
    for cell in row {
        cell.hash_into(hasher);
    }
}

/// What a row is known by.
pub(in crate::store) fn key_of(table: &Table, row: &[Cell]) -> Cells {
    row.iter().take(table.key().len()).cloned().collect()
}

/// A key as people read it. Only what is a number or a name is told: no hashes, and nothing anybody made up as a key.
pub(in crate::store) fn shown(table: &Table, key: &[Cell]) -> String {
    let told = table.key().iter().zip(key).filter_map(|(column, cell)| match cell {
        Cell::Int(value) => Some(format!("{} {value}", column.name)),
        Cell::Text(text) if column.name != "key" => Some(format!("{} {text:?}", column.name)),
        _ => None,
    });
    told.collect::<Vec<_>>().join(", ")
}

/// A key as it is noted beside what was moved.
pub(in crate::store) fn noted(key: &[Cell]) -> String {
    let cells: Vec<serde_json::Value> = key
        .iter()
        .map(|cell| match cell {
            Cell::Null => json!(null),
            Cell::Int(value) => json!(value),
            Cell::Text(text) => json!(text),
            Cell::Bytes(bytes) => json!({ "bytes": bytes }),
        })
        .collect();
    serde_json::Value::Array(cells).to_string()
}

/// The same again; none where it is none.
pub(in crate::store) fn read_noted(text: &str) -> Option<Cells> {
    let cells: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    cells
        .into_iter()
        .map(|cell| match cell {
            serde_json::Value::Null => Some(Cell::Null),
            serde_json::Value::String(text) => Some(Cell::Text(text)),
            serde_json::Value::Number(number) => Some(Cell::Int(number.as_i64()?)),
            serde_json::Value::Object(mut entries) => {
                Some(Cell::Bytes(serde_json::from_value(entries.remove("bytes")?).ok()?))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(row: &[Cell]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        hash_into(row, &mut hasher);
        hasher.finalize()
    }

    #[test]
    fn rows_that_differ_are_hashed_to_different_sums() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let rows: [&[Cell]; 7] = [
            &[text("ab"), text("c")],
            &[text("a"), text("bc")],
            &[text("abc")],
            &[Cell::Bytes(b"abc".to_vec())],
            &[Cell::Null, text("abc")],
            &[text(""), text("abc")],
            &[Cell::Int(0), text("abc")],
        ];
        for (at, one) in rows.iter().enumerate() {
            for (other_at, other) in rows.iter().enumerate() {
                assert_eq!(hash(one) == hash(other), at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_key_is_noted_and_read_again() {
        let key =
            vec![Cell::Text("a\"b\n".to_owned()), Cell::Bytes(vec![0, 255]), Cell::Int(i64::MIN), Cell::Null];
        assert_eq!(read_noted(&noted(&key)), Some(key));
        assert_eq!((read_noted("5"), read_noted("[1.5]"), read_noted("[{}]")), (None, None, None));
    }
}
