//! Defines strategies: the ways to make a list of messages shorter.
//!
//! A [`Strategy`] is a setting. It defines what happens to the older messages of a list. It can also define how many of
//! the newest messages stay unchanged. A pipeline combines several strategies: an expensive strategy runs only if the
//! cheap strategies before it did not save enough tokens.
//!
//! | setting | what happens to the older messages | newest messages that stay by default |
//! |---|---|---|
//! | `noop` | they stay unchanged | all |
//! | `recent` | they are removed | `messages(50)` |
//! | `mask` | they stay, without their tool outputs | `messages(10)` |
//! | `summarize` | a summary replaces them | `messages(6)` |
//! | `amortized` | like `summarize`, but the newest half of the tokens stays, so that cuts are rare | `messages(6)` |
//! | `pipeline(...)` | each strategy runs in turn, until enough tokens are saved | each strategy's default |
//!
//! [`crate::condense`] applies a strategy, and [`crate::trigger`] decides when to apply it.

use std::fmt;

use crate::expr::{self, Arg, Expr, FormError, TextForm};
use crate::keep::Keep;
use crate::message::Tokens;

const STAGES: &str = "strategies other than pipeline";

/// A way to make a list shorter.
///
/// The text form of a strategy is its setting in the [module's table](self). Serde uses the same text form. A strategy
/// other than `noop` and `pipeline` may contain its own [`Keep`] in brackets.
///
/// ```
/// use epitome_core::keep::Keep;
/// use epitome_core::strategy::Strategy;
///
/// let strategy: Strategy = "pipeline(mask, summarize(turns(2)))".parse()?;
/// assert_eq!(strategy.to_string(), "pipeline(mask, summarize(turns(2)))");
/// let kept: Vec<_> = strategy.stages().map(|stage| stage.keep(None)).collect();
/// assert_eq!(kept, [Keep::Messages(10), Keep::Turns(2)]);
///
/// let refused = "pipeline()".parse::<Strategy>().unwrap_err();
/// assert_eq!(refused.to_string(), "pipeline: a value is missing; expected at least one strategy");
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Does nothing.
    Noop,
    /// Removes the older messages without a replacement.
    Recent(Option<Keep>),
    /// Replaces each old tool output by one line, which says that the output was left out.
    Mask(Option<Keep>),
    /// Replaces the older messages by a summary.
    Summarize(Option<Keep>),
    /// Like `Summarize`, but at least the newest half of the tokens stays.
    Amortized(Option<Keep>),
    /// Applies several strategies one after another, until enough tokens are saved.
    Pipeline(Vec<Strategy>),
}

impl Default for Strategy {
    /// Returns `summarize` without a keep of its own.
    fn default() -> Self {
        Self::Summarize(None)
    }
}

impl Strategy {
    /// The allowed names, for error messages and help texts.
    pub const NAMES: &'static str = "noop, recent, mask, summarize, amortized, pipeline";

    /// Returns the name of the strategy, without its keep.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Recent(_) => "recent",
            Self::Mask(_) => "mask",
            Self::Summarize(_) => "summarize",
            Self::Amortized(_) => "amortized",
            Self::Pipeline(_) => "pipeline",
        }
    }

    /// Returns whether any stage of the strategy writes a summary.
    pub fn summarizes(&self) -> bool {
        self.stages().any(|stage| matches!(stage, Self::Summarize(_) | Self::Amortized(_)))
    }

    /// Returns the stages of a pipeline. For any other strategy, returns only the strategy itself.
    pub fn stages(&self) -> impl Iterator<Item = &Strategy> {
        match self {
            Self::Pipeline(stages) => stages.as_slice(),
            one => std::slice::from_ref(one),
        }
        .iter()
    }

    /// Returns how many of the newest messages stay unchanged. The strategy's own keep has priority over `configured`.
    /// If both are missing, the strategy's default applies.
    pub fn keep(&self, configured: Option<Keep>) -> Keep {
        let default = match self {
            Self::Recent(_) => 50,
            Self::Mask(_) => 10,
            Self::Summarize(_) | Self::Amortized(_) => 6,
            Self::Noop | Self::Pipeline(_) => u64::MAX,
        };
        self.own_keep().or(configured).unwrap_or(Keep::Messages(default))
    }

    fn own_keep(&self) -> Option<Keep> {
        match self {
            Self::Recent(own) | Self::Mask(own) | Self::Summarize(own) | Self::Amortized(own) => *own,
            Self::Noop | Self::Pipeline(_) => None,
        }
    }

    /// Returns an error if the strategy cannot work. The error names the problem. `room` is the model's window minus
    /// its output reserve, in tokens; `None` if unknown.
    ///
    /// ```
    /// use epitome_core::strategy::Strategy;
    ///
    /// let strategy: Strategy = "recent(window(0.25))".parse()?;
    /// assert!(strategy.check(Some(120_000)).is_ok());
    /// assert_eq!(
    ///     strategy.check(None).unwrap_err().to_string(),
    ///     "recent: window(0.25): the model's window is unknown; set `window` for that model"
    /// );
    /// # Ok::<(), epitome_core::trigger::FormError>(())
    /// ```
    pub fn check(&self, room: Option<Tokens>) -> Result<(), FormError> {
        // A strategy that was built in code is valid if its text form can be parsed. Nested pipelines are rejected
        // before anything is printed or parsed, because deep nesting could exhaust the stack.
        for stage in self.stages() {
            if matches!(stage, Self::Pipeline(_)) {
                return Err(FormError::value("pipeline", "pipeline(...)", STAGES));
            }
            let keep = stage.own_keep().map_or(Ok(()), |keep| keep.check(room));
            keep.map_err(|error| FormError(format!("{}: {error}", stage.name())))?;
        }
        self.to_string().parse().map(|_: Self| ())
    }
}

impl TextForm for Strategy {
    const WHAT: &'static str = "strategy";
    const EXAMPLE: &'static str = "summarize";

    fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        let keep = || match expr.only()? {
            None => Ok(None),
            Some(Arg::Expr(keep)) => Keep::read(keep).map(Some),
            Some(number) => Err(FormError::value(expr.name, number, "a keep such as messages(6)")),
        };
        let stage = |arg: &Arg<'_>| match arg {
            Arg::Expr(stage) if stage.name != "pipeline" => Self::read(stage),
            other => Err(FormError::value("pipeline", other, STAGES)),
        };
        Ok(match expr.name {
            "noop" => {
                expr.at_most(0)?;
                Self::Noop
            }
            "recent" => Self::Recent(keep()?),
            "mask" => Self::Mask(keep()?),
            "summarize" => Self::Summarize(keep()?),
            "amortized" => Self::Amortized(keep()?),
            "pipeline" if expr.args.is_empty() => {
                return Err(FormError::missing("pipeline", "at least one strategy"));
            }
            "pipeline" => Self::Pipeline(expr.args.iter().map(stage).collect::<Result<_, _>>()?),
            _ => return Err(expr.unknown(Self::NAMES)),
        })
    }
}

expr::by_text!(Strategy);

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipeline(stages) => expr::write_call(f, "pipeline", stages),
            one => match one.own_keep() {
                Some(keep) => expr::write_call(f, one.name(), [keep]),
                None => f.write_str(one.name()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<Strategy>().unwrap_err().to_string()
    }

    #[test]
    fn a_strategy_is_printed_as_it_was_written() {
        for text in [
            "noop",
            "recent",
            "recent(messages(50))",
            "mask",
            "summarize(turns(2))",
            "amortized(window(0.25))",
            "pipeline(mask, summarize)",
            "pipeline(mask(messages(0)), recent(tokens(2000)), noop)",
        ] {
            let strategy: Strategy = text.parse().unwrap();
            assert_eq!(strategy.to_string(), text);
            assert!(strategy.check(Some(1)).is_ok());
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
        }
        assert_eq!(" summarize ( ) ".parse(), Ok(Strategy::Summarize(None)));
    }

    #[test]
    fn a_wrong_strategy_is_refused_by_name() {
        assert_eq!(
            refusal("sumarize"),
            format!(
                "position 1: `sumarize` is unknown; did you mean `summarize`? expected one of {}",
                Strategy::NAMES
            )
        );
        assert_eq!(refusal("recent(50)"), "recent: 50 is not allowed; expected a keep such as messages(6)");
        assert_eq!(
            refusal("mask(messages(1), messages(2))"),
            "mask: too many arguments (2); the maximum is 1"
        );
        assert_eq!(refusal("recent(messages(-1))"), "messages: -1 is not allowed; expected a whole number");
        assert_eq!(
            refusal("summarize(mask)"),
            "position 11: `mask` is unknown; expected one of messages, turns, tokens, window"
        );
        assert_eq!(refusal("noop(1)"), "noop: too many arguments (1); the maximum is 0");
        assert_eq!(refusal("pipeline"), "pipeline: a value is missing; expected at least one strategy");
        assert_eq!(refusal("pipeline(3)"), format!("pipeline: 3 is not allowed; expected {STAGES}"));
        assert_eq!(
            refusal("pipeline(pipeline(mask))"),
            format!("pipeline: pipeline(...) is not allowed; expected {STAGES}")
        );
        assert!(serde_json::from_str::<Strategy>("\"nop\"").unwrap_err().to_string().contains("strategy: "));
    }

    #[test]
    fn a_strategy_built_in_code_is_checked_too() {
        assert!(Strategy::Pipeline(vec![]).check(None).is_err());
        assert!(Strategy::Pipeline(vec![Strategy::Pipeline(vec![Strategy::Noop])]).check(None).is_err());
        assert!(Strategy::Pipeline(vec![Strategy::Mask(None); 2_000]).check(None).is_err());
    }

    #[test]
    fn an_own_keep_precedes_the_configured_one_and_that_the_default() {
        let keep = |text: &str, given| text.parse::<Strategy>().unwrap().keep(given);
        assert_eq!(keep("recent(turns(1))", Some(Keep::Messages(9))), Keep::Turns(1));
        assert_eq!(keep("recent", Some(Keep::Messages(9))), Keep::Messages(9));
        let defaults = ["recent", "mask", "summarize", "amortized"].map(|text| keep(text, None));
        assert_eq!(defaults, [50, 10, 6, 6].map(Keep::Messages));
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn any_text_is_read_or_refused(text in r"(pipeline|mask|recent|noop|messages|turns)?[a-z(),0-9 ]{0,40}") {
            if let Ok(strategy) = text.parse::<Strategy>() {
                prop_assert_eq!(strategy.to_string().parse(), Ok(strategy));
            }
        }
    }
}
