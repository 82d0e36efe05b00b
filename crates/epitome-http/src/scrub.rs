//! Removes operator-only details from error texts: addresses of models, names of environment variables with keys, file
//! paths, and the number of failures of a provider. This number also counts failures of other workspaces. Only the
//! command line shows these details.

/// Returns the text without addresses, paths, names of variables, and counts that include other workspaces.
pub fn scrub(text: &str) -> String {
    let text = &without_failure_count(text);
    let mut scrubbed = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        let bare = word.trim_end();
        let end = bare.trim_end_matches([',', ';', ':', '.', ')']);
        let replacement = match end.trim_start_matches(['(', '`', '"']) {
            address if address.contains("://") => "its address",
            path if path.starts_with('/') || path.ends_with(".db") => "its path",
            name if is_variable(name) => "its variable",
            _ => {
                scrubbed.push_str(word);
                continue;
            }
        };
        scrubbed.push_str(replacement);
        scrubbed.push_str(word.get(end.len()..).unwrap_or_default());
    }
    scrubbed
}

/// Removes the number of a provider's failures, because this number also counts failures of other workspaces.
fn without_failure_count(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" times in a row") else { return text.to_owned() };
    match before.rsplit_once(" failed ") {
        Some((before, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before} failed several times in a row{rest}")
        }
        _ => text.to_owned(),
    }
}

/// Returns whether a text looks like the name of an environment variable, such as `OPENAI_API_KEY`.
fn is_variable(name: &str) -> bool {
    let name = name.trim_end_matches(['`', '"']);
    name.contains('_')
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_paths_and_variables_are_replaced_and_nothing_else() {
        let check = |text: &str, scrubbed: &str| assert_eq!(scrub(text), scrubbed);
        check(
            "due since message 20; failed once: nothing answers at http://10.0.0.7:8000: connection refused",
            "due since message 20; failed once: nothing answers at its address: connection refused",
        );
        check(
            "the key in OPENAI_API_KEY is not accepted (401)",
            "the key in its variable is not accepted (401)",
        );
        check(
            "no endpoint for messages at https://a.b/v1/messages (404); is base_url right?",
            "no endpoint for messages at its address (404); is base_url right?",
        );
        check(
            "http://10.0.0.7:8000 failed 11 times in a row and is not called for 60s",
            "its address failed several times in a row and is not called for 60s",
        );
        check(
            "the disk is full: make room at /data/d.db, then try again",
            "the disk is full: make room at its path, then try again",
        );
        check("`openai/gpt` failed 3 times: no answer", "`openai/gpt` failed 3 times: no answer");
        check("not due: messages 12 of 20", "not due: messages 12 of 20");
        check("", "");
    }
}
