//! Parses values of flags that several commands have.

/// Parses a whole number of at least 1.
pub fn whole(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a whole number from 1".to_owned()),
    }
}
