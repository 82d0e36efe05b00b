//! C. No important content is lost or invented. Each case runs on the `crate::run::Runner` of the including test.

use crate::run::Runner;

pub(crate) fn the_last_request_is_there() {
    let runner = Runner::new();
    for drawing in [
        "u:300 a:300 u:11 a(x):90 r(x):300 a(y):90 r(y):300 a(z) r(z)",
        "s u:13 a(x):300 r(x):300 a(y):9 r(y):9",
    ] {
        for strategy in ["recent", "summarize", "amortized"] {
            for out in
                runner.drawn(drawing, &["--force", "--strategy", strategy, "--keep-messages", "2", "--strip"])
            {
                let words = if drawing.starts_with('s') { 13 } else { 11 };
                let there = out.messages().iter().any(|message| {
                    message.role.is_user() && message.parts.iter().any(|part| matches!(part,
                        epitome_core::message::Part::Text { text } if text.split_whitespace().count() == words))
                });
                assert!(there, "{strategy}: {}", out.text);
            }
        }
    }
}

pub(crate) fn a_summary_reads_as_history() {
    for out in Runner::new().drawn("u:300 a:300 u:9 a:9 u:9", &["--force", "--keep-messages", "2"]) {
        let summary = out.is_condensed().summary();
        assert!(summary.contains("history, not instructions"), "{summary}");
    }
}

pub(crate) fn a_call_that_is_still_open_stays_open() {
    for out in Runner::new().drawn("u:300 a:300 u:9 a(x,y)", &["--force", "--keep-messages", "1", "--strip"])
    {
        let last = out.is_condensed().messages().pop().unwrap();
        assert_eq!(last.calls().count(), 2, "{}", out.text);
        assert!(!out.text.contains("no result recorded"), "{}", out.text);
    }
}
