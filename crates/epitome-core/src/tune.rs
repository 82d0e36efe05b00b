//! Temporary: weights from the environment.
use std::collections::HashMap;
use std::sync::OnceLock;
static MAP: OnceLock<HashMap<String, f64>> = OnceLock::new();
/// A weight.
pub fn tune(name: &str, default: f64) -> f64 {
    let map = MAP.get_or_init(|| {
        let text = std::env::var("EPI_TUNE").unwrap_or_default();
        text.split(',').filter_map(|kv| { let (k, v) = kv.split_once('=')?; Some((k.to_owned(), v.parse().ok()?)) }).collect()
    });
    if map.is_empty() { default } else { map.get(name).copied().unwrap_or(default) }
}
