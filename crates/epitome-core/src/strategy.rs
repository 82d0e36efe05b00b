//! By which means a list is made shorter.
//!
//! A [`Strategy`] is a setting: it names what happens to the older part of a list and, if it
//! likes, how much of the newest part it leaves alone. Strategies form pipelines, so that a cheap
//! one may be enough and a dear one is asked only when it is not.
//!
//! | written | the older part | keeps by default |
//! |---|---|---|
//! | `noop` | stays | |
//! | `recent` | leaves | `messages(50)` |
//! | `mask` | stays, without its tools' outputs | `messages(10)` |
//! | `summarize` | becomes a summary | `messages(6)` |
//! | `amortized` | becomes a summary; the newest half stays, so that it cuts rarely | `messages(6)` |
//! | `pipeline(...)` | each in turn, while the list is still due | |
//!
//! Carrying a strategy out is [`crate::condense`]'s work, and saying when is [`crate::trigger`]'s.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::expr::{self, Arg, Expr, FormError};
use crate::keep::{Keep, KeepError};
use crate::message::Tokens;

const KEEP: &str = "a keep such as messages(6)";
const STAGES: &str = "strategies that are no pipeline themselves";

/// By which means a list is made shorter.
///
/// Read from and printed as the form in the [module's table](self); serde uses the same text. Each
/// may have a [`Keep`] of its own.
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
/// assert_eq!(refused.to_string(), "pipeline: nothing given; it needs at least one strategy");
/// # Ok::<(), epitome_core::strategy::StrategyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Nothing is done.
    Noop,
    /// What is older leaves, and nothing stands for it.
    Recent(Option<Keep>),
    /// What tools gave back long ago is replaced by a line that says so.
    Mask(Option<Keep>),
    /// What is older becomes a summary.
    Summarize(Option<Keep>),
    /// The same, keeping at least the newest half of the tokens.
    Amortized(Option<Keep>),
    /// One after the other, each only while the list is still due.
    Pipeline(Vec<Strategy>),
}

impl Default for Strategy {
    /// `summarize`.
    fn default() -> Self {
        Self::Summarize(None)
    }
}

/// Why a strategy was refused. All of these mean: mend the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// It cannot be read, or holds a value that is not allowed.
    #[error(transparent)]
    Form(#[from] FormError),
    /// A keep that cannot be measured.
    #[error("{strategy}: {source}")]
    Keep {
        /// Whose keep.
        strategy: &'static str,
        /// What is wrong with it.
        source: KeepError,
    },
}

impl Strategy {
    /// The names that are allowed, for errors and help.
    pub const NAMES: &'static str = "noop, recent, mask, summarize, amortized, pipeline";

    /// Its name, without its keep.
    #[must_use]
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

    /// Whether a model may be asked to write a summary, in any of its stages.
    #[must_use]
    pub fn summarizes(&self) -> bool {
        match self {
            Self::Noop | Self::Recent(_) | Self::Mask(_) => false,
            Self::Summarize(_) | Self::Amortized(_) => true,
            Self::Pipeline(stages) => stages.iter().any(Self::summarizes),
        }
    }

    /// What is done in turn: a pipeline's stages, or the strategy itself.
    pub fn stages(&self) -> impl Iterator<Item = &Strategy> {
        match self {
            Self::Pipeline(stages) => stages.as_slice(),
            one => std::slice::from_ref(one),
        }
        .iter()
    }

    /// How much of the newest it leaves alone: its own keep, else the `given` one, else its default.
    #[must_use]
    pub fn keep(&self, given: Option<Keep>) -> Keep {
        let (own, default) = match self {
            Self::Recent(own) => (*own, Keep::Messages(50)),
            Self::Mask(own) => (*own, Keep::Messages(10)),
            Self::Summarize(own) | Self::Amortized(own) => (*own, Keep::Messages(6)),
            Self::Noop | Self::Pipeline(_) => (None, Keep::Messages(u64::MAX)),
        };
        own.or(given).unwrap_or(default)
    }

    /// Refuses what could not work, by name. `room` is the model's window less its output reserve.
    ///
    /// ```
    /// use epitome_core::strategy::Strategy;
    ///
    /// let strategy: Strategy = "recent(window(0.25))".parse()?;
    /// assert!(strategy.check(Some(120_000)).is_ok());
    /// assert_eq!(
    ///     strategy.check(None).unwrap_err().to_string(),
    ///     "recent: window(0.25): the model's window is not known; set `window` for its model"
    /// );
    /// # Ok::<(), epitome_core::strategy::StrategyError>(())
    /// ```
    pub fn check(&self, room: Option<Tokens>) -> Result<(), StrategyError> {
        match self {
            Self::Noop => Ok(()),
            Self::Recent(keep) | Self::Mask(keep) | Self::Summarize(keep) | Self::Amortized(keep) => keep
                .map_or(Ok(()), |keep| keep.check(room))
                .map_err(|source| StrategyError::Keep { strategy: self.name(), source }),
            Self::Pipeline(stages) => {
                if stages.is_empty() {
                    return Err(no_stages().into());
                }
                // Looked at before going deeper, so that no nesting can exhaust the stack.
                if let Some(nested) = stages.iter().find(|stage| matches!(stage, Self::Pipeline(_))) {
                    let given = format!("{}(...)", nested.name());
                    return Err(FormError::Value { field: "pipeline", given, allowed: STAGES }.into());
                }
                expr::check_printed(self)?;
                stages.iter().try_for_each(|stage| stage.check(room))
            }
        }
    }

    fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        let keep = |field: &'static str| match expr.only(field)? {
            None => Ok(None),
            Some(Arg::Expr(keep)) => Keep::read(keep).map(Some),
            Some(number) => Err(FormError::Value { field, given: number.to_string(), allowed: KEEP }),
        };
        Ok(match expr.name {
            "noop" => {
                expr.nothing("noop")?;
                Self::Noop
            }
            "recent" => Self::Recent(keep("recent")?),
            "mask" => Self::Mask(keep("mask")?),
            "summarize" => Self::Summarize(keep("summarize")?),
            "amortized" => Self::Amortized(keep("amortized")?),
            "pipeline" => {
                let stage = |arg: &Arg<'_>| match arg {
                    Arg::Expr(stage) if stage.name != "pipeline" => Self::read(stage),
                    other => {
                        let given = other.to_string();
                        Err(FormError::Value { field: "pipeline", given, allowed: STAGES })
                    }
                };
                if expr.args.is_empty() {
                    return Err(no_stages());
                }
                Self::Pipeline(expr.args.iter().map(stage).collect::<Result<_, _>>()?)
            }
            _ => return Err(expr.unknown(Self::NAMES)),
        })
    }
}

fn no_stages() -> FormError {
    FormError::Missing { field: "pipeline", allowed: "at least one strategy" }
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let strategy = Self::read(&Expr::parse(text)?)?;
        expr::check_printed(&strategy)?;
        Ok(strategy)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recent(Some(keep))
            | Self::Mask(Some(keep))
            | Self::Summarize(Some(keep))
            | Self::Amortized(Some(keep)) => expr::write_call(f, self.name(), [keep]),
            Self::Pipeline(stages) => expr::write_call(f, "pipeline", stages),
            bare => f.write_str(bare.name()),
        }
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        expr::deserialize(deserializer, "strategy", "summarize")
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
    fn what_is_read_is_printed_as_it_was_written() {
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
    fn what_is_wrong_is_refused_by_name() {
        assert_eq!(
            refusal("sumarize"),
            format!("position 1: `sumarize` is not known; allowed are {}", Strategy::NAMES)
        );
        assert_eq!(refusal("recent(50)"), "recent: 50 given; allowed is a keep such as messages(6)");
        assert_eq!(
            refusal("mask(messages(1), messages(2))"),
            "mask: too many arguments, 2; at most 1 allowed"
        );
        assert_eq!(refusal("recent(messages(-1))"), "messages: -1 given; allowed is a whole number");
        assert_eq!(
            refusal("summarize(mask)"),
            "position 11: `mask` is not known; allowed are messages, turns, tokens, window"
        );
        assert_eq!(refusal("noop(1)"), "noop: too many arguments, 1; at most 0 allowed");
        assert_eq!(refusal("pipeline"), "pipeline: nothing given; it needs at least one strategy");
        assert_eq!(refusal("pipeline(3)"), format!("pipeline: 3 given; allowed is {STAGES}"));
        assert_eq!(
            refusal("pipeline(pipeline(mask))"),
            format!("pipeline: pipeline(...) given; allowed is {STAGES}")
        );
        assert!(serde_json::from_str::<Strategy>("\"nop\"").unwrap_err().to_string().contains("strategy: "));
    }

    #[test]
    fn one_put_together_by_hand_is_checked_too() {
        assert!(Strategy::Pipeline(vec![]).check(None).is_err());
        assert!(Strategy::Pipeline(vec![Strategy::Pipeline(vec![Strategy::Noop])]).check(None).is_err());
        assert!(Strategy::Pipeline(vec![Strategy::Mask(None); 2_000]).check(None).is_err());
    }

    #[test]
    fn a_keep_of_its_own_comes_before_the_given_one_and_that_before_the_default() {
        let keep = |text: &str, given| text.parse::<Strategy>().unwrap().keep(given);
        assert_eq!(keep("recent(turns(1))", Some(Keep::Messages(9))), Keep::Turns(1));
        assert_eq!(keep("recent", Some(Keep::Messages(9))), Keep::Messages(9));
        let defaults = ["recent", "mask", "summarize", "amortized"].map(|text| keep(text, None));
        assert_eq!(defaults, [50, 10, 6, 6].map(Keep::Messages));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r"(pipeline|mask|recent|noop|messages|turns)?[a-z(),0-9 ]{0,40}") {
            if let Ok(strategy) = text.parse::<Strategy>() {
                prop_assert_eq!(strategy.to_string().parse(), Ok(strategy));
            }
        }
    }
}
