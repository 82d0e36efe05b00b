//! Defines how many of the newest messages stay verbatim.
//!
//! A [`Keep`] is a number of messages, turns or tokens, or a share of the model's window. It computes the position in
//! the log where the newest messages begin. It counts backwards from the last message. The running time therefore
//! depends on the number of messages that stay, not on the length of the log. [`crate::cut`] decides whether the log
//! may be cut at that position.

use std::fmt;

use crate::expr::{self, Expr, FormError, TextForm, Whole};
use crate::message::Tokens;
use crate::outline::Outline;
use crate::trigger::Fraction;

const NAMES: &str = "messages, turns, tokens, window";
const WHOLE: Whole = (0, "a whole number");

/// How many of the newest messages stay verbatim.
///
/// The text form is like that of a trigger: `messages(6)`, `turns(2)`, `tokens(2000)` or `window(0.25)`. Serde uses the
/// same text form. With 0 messages, turns or tokens, no message stays verbatim.
///
/// ```
/// use epitome_core::keep::Keep;
///
/// let keep: Keep = "tokens(2_000)".parse()?;
/// assert_eq!((keep, keep.to_string()), (Keep::Tokens(2_000), "tokens(2000)".to_owned()));
/// assert_eq!(Keep::default().to_string(), "messages(0)");
/// assert_eq!(
///     "messages(-1)".parse::<Keep>().unwrap_err().to_string(),
///     "messages: -1 is not allowed; expected a whole number"
/// );
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    /// This number of the newest messages. Messages flagged `skip` do not count.
    Messages(u64),
    /// This number of the newest turns. A turn that contains only skipped messages does not count.
    Turns(u64),
    /// As many of the newest messages as fit in this number of tokens. Skipped messages are shown, so they count.
    Tokens(u64),
    /// As many of the newest messages as fit in this share of the model's window minus its output reserve.
    Window(Fraction),
}

impl Default for Keep {
    /// Returns `messages(0)`: no message stays verbatim.
    fn default() -> Self {
        Self::Messages(0)
    }
}

impl Keep {
    /// Returns the index in `outlines` where the verbatim part begins. `outlines` starts with the oldest message. The
    /// result 0 means that all messages stay. The result `outlines.len()` means that no message stays. `room` is the
    /// model's window minus its output reserve, in tokens; `None` if unknown.
    ///
    /// If there are fewer messages than the configured number, all messages stay. All messages also stay if a share of
    /// the window is configured and the window is unknown. The reason is that a message which stays by mistake can
    /// still be removed later. [`Keep::check`] rejects a keep with an unknown window.
    ///
    /// ```
    /// use epitome_testkit::drawing::outlines;
    /// use epitome_core::keep::Keep;
    ///
    /// let outlines = outlines("u:50 a:900 u:60 a:40").unwrap();
    /// assert_eq!(Keep::Messages(3).start(&outlines, None), 1);
    /// assert_eq!(Keep::Turns(1).start(&outlines, None), 2);
    /// assert_eq!(Keep::Tokens(99).start(&outlines, None), 3);
    /// assert_eq!(Keep::default().start(&outlines, None), 4);
    /// ```
    pub fn start(&self, outlines: &[Outline], room: Option<Tokens>) -> usize {
        match *self {
            Self::Messages(n) => messages(outlines, n),
            Self::Turns(n) => turns(outlines, n),
            Self::Tokens(n) => tokens(outlines, n),
            Self::Window(share) => room.map_or(0, |room| tokens(outlines, share.of(room))),
        }
    }

    /// Returns an error if the keep is a share of the window and the window is unknown.
    ///
    /// ```
    /// use epitome_core::keep::Keep;
    ///
    /// let keep: Keep = "window(0.25)".parse()?;
    /// assert!(keep.check(Some(120_000)).is_ok());
    /// assert_eq!(
    ///     keep.check(None).unwrap_err().to_string(),
    ///     "window(0.25): the model's window is unknown; set `window` for that model"
    /// );
    /// # Ok::<(), epitome_core::trigger::FormError>(())
    /// ```
    pub fn check(&self, room: Option<Tokens>) -> Result<(), FormError> {
        match (self, room) {
            (Self::Window(fraction), None) => Err(FormError::no_window(fraction)),
            _ => Ok(()),
        }
    }
}

fn messages(outlines: &[Outline], n: u64) -> usize {
    let Some(older) = n.checked_sub(1) else { return outlines.len() };
    let mut counted = outlines.iter().enumerate().rev().filter(|(_, outline)| !outline.skip);
    counted.nth(usize::try_from(older).unwrap_or(usize::MAX)).map_or(0, |(i, _)| i)
}

fn turns(outlines: &[Outline], n: u64) -> usize {
    let mut remaining = n;
    let mut turn = None;
    for (i, outline) in outlines.iter().enumerate().rev() {
        if turn == Some(outline.turn) {
            continue;
        }
        if remaining == 0 {
            return i + 1;
        }
        // A turn counts if at least one of its messages is not skipped. Skipped messages before or after that message
        // belong to the same turn.
        if !outline.skip {
            remaining -= 1;
            turn = Some(outline.turn);
        }
    }
    if n == 0 { outlines.len() } else { 0 }
}

fn tokens(outlines: &[Outline], n: u64) -> usize {
    let mut left = n;
    for (i, outline) in outlines.iter().enumerate().rev() {
        match left.checked_sub(outline.tokens) {
            // A message with 0 tokens would fit even `tokens(0)`. But with `tokens(0)`, no message stays.
            Some(rest) if n > 0 => left = rest,
            _ => return i + 1,
        }
    }
    0
}

impl TextForm for Keep {
    const WHAT: &'static str = "keep";
    const EXAMPLE: &'static str = "messages(6)";

    fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        Ok(match expr.name {
            "messages" => Self::Messages(expr.whole(None, WHOLE)?),
            "turns" => Self::Turns(expr.whole(None, WHOLE)?),
            "tokens" => Self::Tokens(expr.whole(None, WHOLE)?),
            "window" => Self::Window(Fraction::read(expr)?),
            _ => return Err(expr.unknown(NAMES)),
        })
    }
}

expr::by_text!(Keep);

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(n) => expr::write_call(f, "messages", [n]),
            Self::Turns(n) => expr::write_call(f, "turns", [n]),
            Self::Tokens(n) => expr::write_call(f, "tokens", [n]),
            Self::Window(share) => expr::write_call(f, "window", [share]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::message::Message;
    use crate::tokens::{Counter, Encoding};
    use crate::track::Tracker;

    /// Describes each message by one word: its turn, its tokens, and `~` if it is skipped: `1:50 1:900~`.
    fn outlines(drawing: &str) -> Vec<Outline> {
        let outline = |word: &str| {
            let (turn, tokens) = word.trim_end_matches('~').split_once(':').unwrap();
            drawn(turn.parse().unwrap(), tokens.parse().unwrap(), word.ends_with('~'))
        };
        drawing.split_whitespace().map(outline).collect()
    }

    fn drawn(turn: u64, tokens: u64, skip: bool) -> Outline {
        // Built once. Fields not set here are those of any user message.
        static USER: LazyLock<Outline> =
            LazyLock::new(|| Tracker::default().push(&Message::user("m1"), &Counter::new(Encoding::O200k)));
        Outline { turn, tokens, skip, ..USER.clone() }
    }

    /// Checks that the verbatim part begins at the `|` in the drawing.
    fn check(keep: &str, drawing: &str) {
        let keep: Keep = keep.parse().unwrap();
        let mut words: Vec<&str> = drawing.split_whitespace().filter(|word| *word != "|").collect();
        words.insert(keep.start(&outlines(&words.join(" ")), Some(1_000)), "|");
        assert_eq!(words.join(" "), drawing, "{keep}");
    }

    #[test]
    fn messages_are_counted_from_the_newest() {
        check("messages(0)", "1:5 1:5 2:5 |");
        check("messages(1)", "1:5 1:5 | 2:5");
        check("messages(3)", "| 1:5 1:5 2:5");
        check("messages(4)", "| 1:5 1:5 2:5");
        check("messages(4)", "|");
    }

    #[test]
    fn a_skipped_message_is_not_counted_but_kept_with_the_others() {
        check("messages(0)", "1:5 1:5~ |");
        check("messages(2)", "1:5 1:5~ | 1:5 1:5~ 2:5 2:5~");
        check("messages(9)", "| 1:5~ 1:5 1:5~");
    }

    #[test]
    fn turns_are_kept_from_their_start() {
        check("turns(0)", "1:5 1:5 2:5 |");
        check("turns(1)", "0:5 1:5 1:5 | 2:5 2:5 2:5");
        check("turns(2)", "0:5 | 1:5 1:5 2:5 2:5 2:5");
        check("turns(3)", "| 0:5 1:5 1:5 2:5 2:5 2:5");
        check("turns(4)", "| 0:5 1:5 1:5 2:5 2:5 2:5");
    }

    #[test]
    fn turn_numbers_may_have_gaps() {
        check("turns(2)", "3:5 3:5 | 17:5 90:5 90:5");
    }

    #[test]
    fn a_turn_of_skipped_messages_only_is_not_counted() {
        check("turns(1)", "1:5 | 2:5~ 2:5 2:5~ 3:5~ 3:5~");
        check("turns(0)", "1:5 2:5~ |");
    }

    #[test]
    fn tokens_keep_the_longest_tail_that_fits() {
        check("tokens(0)", "1:5 1:5 |");
        check("tokens(4)", "1:5 1:5 |");
        check("tokens(10)", "1:5 | 1:5 2:5");
        check("tokens(14)", "1:5 | 1:5 2:5");
        check("tokens(15)", "| 1:5 1:5 2:5");
        check("tokens(7)", "1:1 1:90 | 2:5");
    }

    #[test]
    fn zero_keeps_no_message_even_of_zero_tokens() {
        check("tokens(0)", "1:5 1:0 |");
        check("tokens(5)", "1:9 | 1:0 1:5 1:0");
    }

    #[test]
    fn very_large_sizes_do_not_wrap() {
        check("tokens(18446744073709551615)", "1:1 | 1:18446744073709551615");
    }

    #[test]
    fn a_share_of_the_window_is_that_many_tokens() {
        check("window(0.5)", "1:1 | 1:250 2:250");
        check("window(0.499)", "1:1 1:250 | 2:250");
    }

    #[test]
    fn a_share_of_an_unknown_window_keeps_everything_and_is_refused_when_configured() {
        let keep: Keep = "window(0.001)".parse().unwrap();
        assert_eq!(keep.start(&outlines("1:5 1:5"), None), 0);
        assert!(keep.check(None).unwrap_err().to_string().contains("the model's window is unknown"));
        assert_eq!(Keep::Messages(3).check(None), Ok(()));
    }

    #[test]
    fn a_bad_keep_is_refused_by_name() {
        let refusal = |text: &str| text.parse::<Keep>().unwrap_err().to_string();
        assert_eq!(refusal("messages"), "messages: a value is missing; expected a whole number");
        assert_eq!(refusal("turns(1.5)"), "turns: 1.5 is not allowed; expected a whole number");
        assert_eq!(refusal("tokens(1, 2)"), "tokens: too many arguments (2); the maximum is 1");
        assert!(refusal("window(0)").starts_with("window: 0 is not allowed; expected a number more than 0"));
        assert_eq!(
            refusal("all(messages(3))"),
            "position 1: `all` is unknown; expected one of messages, turns, tokens, window"
        );
        assert_eq!(refusal("6"), "position 1: expected a name, found '6'");
    }

    #[test]
    fn serde_uses_the_readable_form() {
        let keep: Keep = serde_json::from_str(r#"" messages( 6 ) ""#).unwrap();
        assert_eq!(serde_json::to_string(&keep).unwrap(), r#""messages(6)""#);
        assert!(serde_json::from_str::<Keep>(r#""messages(x)""#).is_err());
    }

    fn keep() -> impl Strategy<Value = Keep> {
        let n = || prop_oneof![9 => 0..60_u64, 1 => any::<u64>()];
        prop_oneof![
            n().prop_map(Keep::Messages),
            n().prop_map(Keep::Turns),
            n().prop_map(Keep::Tokens),
            (1..=1_000_000_u32).prop_map(|n| Keep::Window(Fraction::new(f64::from(n) / 1e6).unwrap())),
        ]
    }

    fn any_outlines() -> impl Strategy<Value = Vec<Outline>> {
        let step = (prop_oneof![3 => Just(0_u64), 1 => 1..4_u64], 0..9_u64, prop::bool::weighted(0.2));
        prop::collection::vec(step, 0..40).prop_map(|steps| {
            let mut turn = 0;
            steps
                .into_iter()
                .map(|(more, tokens, skip)| {
                    turn += more;
                    drawn(turn, tokens, skip)
                })
                .collect()
        })
    }

    /// The size of the part, computed from all its messages.
    fn size(keep: Keep, tail: &[Outline]) -> u64 {
        let counted = || tail.iter().filter(|outline| !outline.skip);
        match keep {
            Keep::Messages(_) => counted().count() as u64,
            Keep::Turns(_) => {
                counted().map(|outline| outline.turn).collect::<std::collections::BTreeSet<_>>().len() as u64
            }
            Keep::Tokens(_) | Keep::Window(_) => tail.iter().map(|outline| outline.tokens).sum(),
        }
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn a_printed_keep_parses_to_the_same_keep(keep in keep()) {
            prop_assert_eq!(keep.to_string().parse::<Keep>(), Ok(keep));
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<Keep>();
        }

        #[test]
        fn the_verbatim_part_has_exactly_the_set_size(
            keep in keep(), outlines in any_outlines(), room in 0..200_u64,
        ) {
            let asked = match keep {
                Keep::Messages(n) | Keep::Turns(n) | Keep::Tokens(n) => n,
                Keep::Window(share) => share.of(room),
            };
            let start = keep.start(&outlines, Some(room));
            prop_assert!(size(keep, &outlines[start..]) <= asked);
            match keep {
                _ if asked == 0 => prop_assert_eq!(start, outlines.len()),
                // All messages, if there are fewer.
                Keep::Messages(_) | Keep::Turns(_) => {
                    prop_assert_eq!(size(keep, &outlines[start..]), asked.min(size(keep, &outlines)));
                }
                // With one more message the limit would be exceeded.
                Keep::Tokens(_) | Keep::Window(_) if start > 0 => {
                    prop_assert!(size(keep, &outlines[start - 1..]) > asked);
                }
                _ => {}
            }
            if let Keep::Turns(1..) = keep && 0 < start && start < outlines.len() {
                prop_assert_ne!(outlines[start - 1].turn, outlines[start].turn);
            }
        }

        #[test]
        fn a_larger_keep_never_keeps_less(n in 0..50_u64, outlines in any_outlines()) {
            for keep in [Keep::Messages, Keep::Turns, Keep::Tokens] {
                prop_assert!(keep(n + 1).start(&outlines, None) <= keep(n).start(&outlines, None));
            }
        }
    }
}
