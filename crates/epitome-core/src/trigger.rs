//! Defines triggers: the conditions under which a summary is due.
//!
//! A [`Trigger`] is an expression such as `any(messages(20), idle(600))`. It is evaluated from running sums. The time
//! of an evaluation therefore depends on the size of the expression, not on the length of the session. A trigger can
//! become due without a new message, only because time passes. Therefore the result of an evaluation is a [`When`] and
//! not a boolean. A store can save the timestamp of a [`When`] and evaluate the trigger again at that time.
//!
//! In this table, new messages are the messages since the last trigger event. In an inline condensation, `tokens` and
//! `window` measure the whole request instead of the new messages.
//!
//! | condition | is due if | default argument |
//! |---|---|---|
//! | `messages(n)` | n new messages arrived | 30 |
//! | `turns(n)` | n turns contain a new message | 100 |
//! | `tokens(n)` | the new messages have n tokens | |
//! | `chars(n)` | the new messages have n characters | |
//! | `window(f)` | the new messages fill the fraction f of the model's window minus its output reserve | |
//! | `every(s)` | s seconds passed since the last trigger event | 300 |
//! | `idle(s)` | s seconds passed since the last message | |
//! | `economic` | the request reaches the threshold that [`crate::economic`] computed | |
//! | `important(n)` | a part of a new message is longer than n characters | 10 |
//! | `all(...)` | all conditions in the brackets are due | |
//! | `any(...)` | at least one condition in the brackets is due | |
//!
//! This module decides neither where the log is cut nor which messages are counted.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::expr::FormError;
use crate::expr::{self, Arg, Expr, TextForm, Whole};
use crate::message::{Timestamp, Tokens};
pub use crate::num::grouped;
use crate::outline::Totals;

/// Share of a threshold at which a summary is prepared in advance.
pub const SOFT: Fraction = Fraction::percent(80);

const NAMES: &str = "messages, turns, tokens, chars, window, every, idle, economic, important, all, any";
const FROM_ONE: Whole = (1, "a whole number from 1");
const FRACTION: &str = "a number more than 0 and at most 1 (0.75 for 75 %), rounded to a millionth";
const SECONDS: Whole = (1, "a whole number of seconds from 1");

/// A fraction that is larger than 0 and at most 1.
///
/// It is stored as a whole number of millionths. Fractions can therefore be compared and hashed. A fraction is printed
/// as it was written, and its share of a token count is exact.
///
/// ```
/// use epitome_core::trigger::Fraction;
///
/// let most = Fraction::new(0.75)?;
/// assert_eq!((most.to_string(), most.of(200_001)), ("0.75".to_owned(), 150_000));
/// assert!(Fraction::new(0.0).is_err() && Fraction::new(1.5).is_err() && Fraction::new(f64::NAN).is_err());
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(u32);

impl Fraction {
    /// The fraction 1.
    pub const ONE: Self = Self::percent(100);

    /// Creates a fraction from `value`, rounded to the nearest millionth. Returns an error unless `0 < value <= 1` and
    /// the rounded value is larger than 0.
    pub fn new(value: f64) -> Result<Self, FormError> {
        Self::checked(value).ok_or_else(|| FormError::value("fraction", value, FRACTION))
    }

    /// Creates a fraction from a constant of this crate. The value is not checked.
    pub(crate) const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    fn checked(value: f64) -> Option<Self> {
        // The condition is written so that NaN fails too.
        if !(value > 0.0 && value <= 1.0) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 < value <= 1, so the product is between 0 and 1,000,000"
        )]
        let millionths = (value * 1_000_000.0).round() as u32;
        (millionths > 0).then_some(Self(millionths))
    }

    /// Returns the fraction as a floating-point number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1_000_000.0
    }

    /// Returns 1.5 times this fraction, at most 1.
    ///
    /// ```
    /// use epitome_core::trigger::Fraction;
    /// let (some, most) = (Fraction::new(0.4)?, Fraction::new(0.8)?);
    /// assert_eq!((some.and_a_half().get(), most.and_a_half()), (0.6, Fraction::ONE));
    /// # Ok::<(), epitome_core::trigger::FormError>(())
    /// ```
    pub const fn and_a_half(self) -> Self {
        let more = self.0 + self.0 / 2;
        if more < Self::ONE.0 { Self(more) } else { Self::ONE }
    }

    /// Returns this share of `whole`, rounded down: the largest number that does not exceed the share.
    pub fn of(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0) / 1_000_000;
        u64::try_from(share).unwrap_or(whole)
    }

    /// Returns this share of `whole`, rounded up: the smallest number that reaches the share.
    ///
    /// ```
    /// use epitome_core::trigger::SOFT;
    /// assert_eq!((SOFT.of_rounded_up(20), SOFT.of_rounded_up(21)), (16, 17));
    /// ```
    pub fn of_rounded_up(self, whole: u64) -> u64 {
        let share = (u128::from(whole) * u128::from(self.0)).div_ceil(1_000_000);
        u64::try_from(share).unwrap_or(whole)
    }

    /// Reads a fraction from the only argument of `expr`.
    pub(crate) fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        let arg = expr.only()?.ok_or_else(|| FormError::missing(expr.name, FRACTION))?;
        let value = match arg {
            Arg::Number(text) => text.replace('_', "").parse().ok(),
            Arg::Expr(_) => None,
        };
        value.and_then(Self::checked).ok_or_else(|| FormError::value(expr.name, arg, FRACTION))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints the shortest number with this value. A number with at most six decimals is therefore printed as it was
        // written.
        write!(f, "{}", self.get())
    }
}

impl TryFrom<f64> for Fraction {
    type Error = FormError;

    fn try_from(value: f64) -> Result<Self, FormError> {
        Self::new(value)
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.get()
    }
}

/// The condition under which a slot, or an inline condensation, is due.
///
/// The text form is described in the [module's table](self). Serde uses the same text form. A parsed trigger is valid.
/// Check a trigger that was built in code with [`Trigger::check`]. The text form of a valid trigger can be parsed, and
/// the result is the same trigger.
///
/// ```
/// use epitome_core::trigger::Trigger;
///
/// let trigger: Trigger = "any(messages, tokens(170_000))".parse()?;
/// assert_eq!(trigger, Trigger::any([Trigger::Messages(30), Trigger::Tokens(170_000)]));
/// assert_eq!(trigger.to_string(), "any(messages(30), tokens(170000))");
/// assert_eq!(Trigger::default().to_string(), "turns(100)");
///
/// let refused = "messages(0)".parse::<Trigger>().unwrap_err();
/// assert_eq!(refused.to_string(), "messages: 0 is not allowed; expected a whole number from 1");
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At least this number of new messages arrived.
    Messages(u64),
    /// This number of turns contain a new message.
    Turns(u64),
    /// The new messages have this number of tokens. In an inline condensation, the whole request must have this number
    /// of tokens.
    Tokens(u64),
    /// The new messages have this number of characters.
    Chars(u64),
    /// The new messages fill this share of the model's window minus its output reserve. In an inline condensation, the
    /// whole request must fill this share.
    Window(Fraction),
    /// This number of seconds passed since the last trigger event. Before the first event, the first message counts
    /// instead.
    Every(u64),
    /// This number of seconds passed since the last message.
    Idle(u64),
    /// The request reaches the size at which condensing costs least. Allowed only for inline condensation.
    Economic,
    /// A part of a new message is longer than this number of characters. Spaces at both ends of the part are not
    /// counted. With 0, every part that is not blank is long enough.
    Important(u64),
    /// All of these conditions are due. An empty list is always due.
    All(Vec<Trigger>),
    /// At least one of these conditions is due. An empty list is never due.
    Any(Vec<Trigger>),
}

impl Default for Trigger {
    /// Returns `turns(100)`, the trigger of a slot that sets no trigger.
    fn default() -> Self {
        Self::Turns(100)
    }
}

/// The data from which a trigger is evaluated.
///
/// ```
/// use epitome_core::message::Timestamp;
/// use epitome_core::outline::Totals;
/// use epitome_core::trigger::{TriggerFacts, Trigger};
///
/// let totals = Totals { messages: 3, tokens: 900, ..Totals::default() };
/// let slot = TriggerFacts::new(&totals, Timestamp(0));
/// let inline = TriggerFacts { request: Some(8_200), ..slot };
/// let trigger: Trigger = "tokens(8000)".parse()?;
/// assert!(!trigger.when(&slot).is_now());
/// assert!(trigger.when(&inline).is_now());
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TriggerFacts<'a> {
    /// Sums over the messages since the last trigger event.
    pub totals: &'a Totals,
    /// The current time.
    pub now: Timestamp,
    /// Size of the whole request in tokens, including system prompt, tools and summary. `None` for a slot. If set,
    /// `tokens` and `window` measure this size instead of the tokens in `totals`.
    pub request: Option<Tokens>,
    /// The model's window minus its output reserve, in tokens; `None` if unknown.
    pub room: Option<Tokens>,
    /// The result of [`crate::economic::threshold`], in tokens. `None` if unknown, and for a slot.
    pub economic: Option<Tokens>,
}

impl<'a> TriggerFacts<'a> {
    /// Creates facts that contain only the sums and the time. They describe a slot with an unknown model.
    pub fn new(totals: &'a Totals, now: Timestamp) -> Self {
        Self { totals, now, request: None, room: None, economic: None }
    }
}

/// The time at which a trigger is due. Values are ordered by time: `any` takes the smallest value of its conditions,
/// and `all` takes the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// The trigger is due now. [`Trigger::reason`] returns the reason.
    Now,
    /// The trigger will be due at this later time if no message arrives before.
    At(Timestamp),
    /// The trigger cannot become due without more messages.
    Never,
}

impl When {
    /// Returns whether the trigger is due now.
    pub fn is_now(self) -> bool {
        self == Self::Now
    }
}

/// The reason why a trigger is due. It is printed in this form: `messages: 20 of 20`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The conditions that are met. For `any`, this is only the first met condition. For `all`, these are all
    /// conditions.
    pub met: Vec<Gauge>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.met.is_empty() {
            return f.write_str("all(): has no conditions, so it is always due");
        }
        let met: Vec<_> = self.met.iter().map(|gauge| gauge.describe(": ")).collect();
        f.write_str(&met.join(" and "))
    }
}

/// The progress of all conditions of a trigger, both met and not met. It is printed in this form:
/// `messages 13 of 20, tokens 4,100 of 8,000`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TriggerProgress {
    /// Whether no message was counted since the last trigger event. If true, the trigger is not due, regardless of the
    /// gauges.
    pub nothing_new: bool,
    /// The progress of each condition, in the order of the text form. `all` and `any` have no gauge of their own.
    pub gauges: Vec<Gauge>,
}

impl fmt::Display for TriggerProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gauges: Vec<_> = self.gauges.iter().map(ToString::to_string).collect();
        match (self.nothing_new, gauges.join(", ").as_str()) {
            (true, "") => f.write_str("no new messages"),
            (true, gauges) => write!(f, "no new messages; {gauges}"),
            (false, "") => f.write_str("no conditions"),
            (false, gauges) => f.write_str(gauges),
        }
    }
}

/// The progress of one condition. It is printed in this form: `messages 13 of 20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Name of the condition, as in the text form.
    pub condition: &'static str,
    /// The current value in the condition's own unit: messages, turns, tokens, seconds or characters.
    pub have: u64,
    /// The smallest value at which the condition is met; `None` if unknown.
    pub need: Option<u64>,
}

impl Gauge {
    fn is_met(&self) -> bool {
        self.need.is_some_and(|need| self.have >= need)
    }

    fn describe(&self, separator: &str) -> String {
        let need = match (self.condition, self.need) {
            (_, None) => "an unknown threshold".to_owned(),
            ("important", Some(need)) => format!("more than {}", grouped(need.saturating_sub(1))),
            ("every" | "idle", Some(need)) => format!("{} s", grouped(need)),
            (_, Some(need)) => grouped(need),
        };
        format!("{}{separator}{} of {need}", self.condition, grouped(self.have))
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(" "))
    }
}

/// The place where a trigger is used. Some conditions are not allowed in every place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// In a slot. The trigger is evaluated when messages are stored.
    Slot,
    /// Before a model call. The trigger is evaluated from the request.
    Inline,
}

impl Trigger {
    /// The conditions that are useful for inline condensation, as shown in help texts.
    pub const INLINE: &'static str =
        "tokens(n), window(fraction), messages(n), turns(n), chars(n), economic, any(.., ..), all(.., ..)";

    /// Creates a trigger that is due when all of `triggers` are due.
    pub fn all(triggers: impl IntoIterator<Item = Trigger>) -> Self {
        Self::All(triggers.into_iter().collect())
    }

    /// Creates a trigger that is due when at least one of `triggers` is due.
    pub fn any(triggers: impl IntoIterator<Item = Trigger>) -> Self {
        Self::Any(triggers.into_iter().collect())
    }

    /// Returns whether the trigger contains `economic`. If so, the caller must compute the economic threshold.
    pub fn is_economic(&self) -> bool {
        match self {
            Self::Economic => true,
            Self::All(several) | Self::Any(several) => several.iter().any(Self::is_economic),
            _ => false,
        }
    }

    /// Returns when the trigger is due: now, at a later time, or only after more messages.
    ///
    /// If no message was counted since the last trigger event, the trigger is never due, because there would be nothing
    /// to summarize.
    ///
    /// ```
    /// use epitome_core::message::Timestamp;
    /// use epitome_core::outline::Totals;
    /// use epitome_core::trigger::{TriggerFacts, Trigger, When};
    ///
    /// let totals = Totals { messages: 20, last_at: Timestamp(5_000), ..Totals::default() };
    /// let facts = TriggerFacts::new(&totals, Timestamp(6_000));
    ///
    /// assert_eq!(Trigger::Messages(20).when(&facts), When::Now);
    /// assert_eq!(Trigger::Idle(60).when(&facts), When::At(Timestamp(65_000)));
    /// assert_eq!(Trigger::Messages(21).when(&facts), When::Never);
    /// ```
    pub fn when(&self, facts: &TriggerFacts<'_>) -> When {
        self.when_scaled(facts, Fraction::ONE)
    }

    /// Like [`Trigger::when`], but with smaller thresholds. Each threshold is multiplied by `scale`, rounded up, and is
    /// at least 1. Durations are thresholds too. With [`SOFT`], the result is the time to prepare a summary. The result
    /// is never later than the result of [`Trigger::when`].
    ///
    /// ```
    /// # use epitome_core::message::Timestamp;
    /// # use epitome_core::outline::Totals;
    /// use epitome_core::trigger::{TriggerFacts, SOFT, Trigger};
    ///
    /// let totals = Totals { messages: 16, ..Totals::default() };
    /// let facts = TriggerFacts::new(&totals, Timestamp(0));
    /// assert!(!Trigger::Messages(20).when(&facts).is_now());
    /// assert!(Trigger::Messages(20).when_scaled(&facts, SOFT).is_now());
    /// ```
    pub fn when_scaled(&self, facts: &TriggerFacts<'_>, scale: Fraction) -> When {
        if facts.totals.is_empty() { When::Never } else { self.due(facts, scale) }
    }

    /// Returns the reason why the trigger is due, or `None` if it is not due.
    ///
    /// ```
    /// # use epitome_core::message::Timestamp;
    /// # use epitome_core::outline::Totals;
    /// # use epitome_core::trigger::{TriggerFacts, Trigger};
    /// let totals = Totals { messages: 20, ..Totals::default() };
    /// let reason = Trigger::Messages(20).reason(&TriggerFacts::new(&totals, Timestamp(0))).unwrap();
    /// assert_eq!(reason.to_string(), "messages: 20 of 20");
    /// ```
    pub fn reason(&self, facts: &TriggerFacts<'_>) -> Option<Reason> {
        let mut met = Vec::new();
        self.when(facts).is_now().then(|| self.met(facts, &mut met))?;
        Some(Reason { met })
    }

    /// Returns the progress of every condition. It explains why the trigger is not due yet.
    ///
    /// ```
    /// # use epitome_core::message::Timestamp;
    /// # use epitome_core::outline::Totals;
    /// # use epitome_core::trigger::{TriggerFacts, Trigger};
    /// let totals = Totals { messages: 13, tokens: 4_100, ..Totals::default() };
    /// let trigger: Trigger = "any(messages(20), tokens(8000))".parse()?;
    /// let progress = trigger.progress(&TriggerFacts::new(&totals, Timestamp(0)));
    /// assert_eq!(progress.to_string(), "messages 13 of 20, tokens 4,100 of 8,000");
    /// # Ok::<(), epitome_core::trigger::FormError>(())
    /// ```
    pub fn progress(&self, facts: &TriggerFacts<'_>) -> TriggerProgress {
        let mut gauges = Vec::new();
        self.gauges(facts, &mut gauges);
        TriggerProgress { nothing_new: facts.totals.is_empty(), gauges }
    }

    /// Returns an error if the trigger is invalid, or if it cannot work for this use. `room` is the model's window
    /// minus its output reserve, in tokens; `None` if unknown.
    ///
    /// ```
    /// use epitome_core::trigger::{Use, Trigger};
    ///
    /// let trigger: Trigger = "window(0.75)".parse()?;
    /// assert!(trigger.check(Use::Slot, Some(120_000)).is_ok());
    /// assert_eq!(
    ///     trigger.check(Use::Slot, None).unwrap_err().to_string(),
    ///     "window(0.75): the model's window is unknown; set `window` for that model"
    /// );
    /// # Ok::<(), epitome_core::trigger::FormError>(())
    /// ```
    pub fn check(&self, site: Use, room: Option<Tokens>) -> Result<(), FormError> {
        self.check_within(site, room, 1)?;
        // A trigger that was built in code is valid if its text form can be parsed.
        self.to_string().parse().map(|_: Self| ())
    }

    /// Checks a trigger and its conditions. The function stops at the maximum depth, so that a deeply nested trigger
    /// that was built in code cannot exhaust the stack.
    fn check_within(&self, site: Use, room: Option<Tokens>, depth: usize) -> Result<(), FormError> {
        match self {
            _ if depth > expr::MAX_DEPTH => Err(FormError::too_deep()),
            Self::Window(fraction) if room.is_none() => Err(FormError::no_window(fraction)),
            Self::Economic if site == Use::Slot => Err(FormError(
                "economic: only an inline condensation has a request with a price; \
                 use messages, turns, tokens, chars, window, every, idle or important"
                    .to_owned(),
            )),
            Self::All(children) | Self::Any(children) => {
                children.iter().try_for_each(|child| child.check_within(site, room, depth + 1))
            }
            _ => Ok(()),
        }
    }

    fn due(&self, facts: &TriggerFacts<'_>, scale: Fraction) -> When {
        let due = |child: &Self| child.due(facts, scale);
        match self {
            Self::All(children) => children.iter().map(due).max().unwrap_or(When::Now),
            Self::Any(children) => children.iter().map(due).min().unwrap_or(When::Never),
            leaf => {
                let Some(gauge) = leaf.gauge(facts, scale) else { return When::Never };
                match leaf.due_at(facts, gauge) {
                    Some(due_at) if due_at > facts.now => When::At(due_at),
                    None if !gauge.is_met() => When::Never,
                    _ => When::Now,
                }
            }
        }
    }

    /// Collects the met conditions of a trigger that is due.
    fn met(&self, facts: &TriggerFacts<'_>, met: &mut Vec<Gauge>) {
        match self {
            Self::All(children) => children.iter().for_each(|child| child.met(facts, met)),
            Self::Any(children) => {
                let first = children.iter().find(|child| child.due(facts, Fraction::ONE).is_now());
                first.into_iter().for_each(|child| child.met(facts, met));
            }
            leaf => met.extend(leaf.gauge(facts, Fraction::ONE)),
        }
    }

    fn gauges(&self, facts: &TriggerFacts<'_>, gauges: &mut Vec<Gauge>) {
        match self {
            Self::All(children) | Self::Any(children) => {
                children.iter().for_each(|child| child.gauges(facts, gauges));
            }
            leaf => gauges.extend(leaf.gauge(facts, Fraction::ONE)),
        }
    }

    /// Returns the progress of a condition; `None` for `all` and `any`.
    fn gauge(&self, facts: &TriggerFacts<'_>, scale: Fraction) -> Option<Gauge> {
        let totals = facts.totals;
        let tokens = facts.request.unwrap_or(totals.tokens);
        let scaled = |threshold: u64| scale.of_rounded_up(threshold).max(1);
        let (have, need) = match self {
            Self::Messages(n) => (totals.messages, Some(*n)),
            Self::Turns(n) => (totals.turns, Some(*n)),
            Self::Tokens(n) => (tokens, Some(*n)),
            Self::Chars(n) => (totals.chars, Some(*n)),
            Self::Window(share) => (tokens, facts.room.map(|room| share.of_rounded_up(room))),
            Self::Every(seconds) | Self::Idle(seconds) => {
                (elapsed(self.start(facts)?, facts.now), Some(*seconds))
            }
            // Without the size of the request, there is nothing to compare with the threshold.
            Self::Economic => (tokens, facts.request.and(facts.economic)),
            // A part that is longer than n has at least n + 1 characters. If n is the largest number, no part is
            // longer.
            Self::Important(n) => (totals.longest, n.checked_add(1)),
            Self::All(_) | Self::Any(_) => return None,
        };
        Some(Gauge { condition: self.name(), have, need: need.map(scaled) })
    }

    /// Returns the timestamp from which a time condition measures; `None` for the other conditions.
    fn start(&self, facts: &TriggerFacts<'_>) -> Option<Timestamp> {
        match self {
            Self::Every(_) => Some(facts.totals.since.unwrap_or(facts.totals.last_at)),
            Self::Idle(_) => Some(facts.totals.last_at),
            _ => None,
        }
    }

    /// Returns when a time condition is met; `None` for the other conditions.
    fn due_at(&self, facts: &TriggerFacts<'_>, gauge: Gauge) -> Option<Timestamp> {
        Some(self.start(facts)?.plus_seconds(gauge.need?))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Messages(_) => "messages",
            Self::Turns(_) => "turns",
            Self::Tokens(_) => "tokens",
            Self::Chars(_) => "chars",
            Self::Window(_) => "window",
            Self::Every(_) => "every",
            Self::Idle(_) => "idle",
            Self::Economic => "economic",
            Self::Important(_) => "important",
            Self::All(_) => "all",
            Self::Any(_) => "any",
        }
    }
}

/// Returns the whole seconds from `start` to `now`; 0 if `now` is earlier than `start`.
fn elapsed(start: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.0.saturating_sub(start.0) / 1_000).unwrap_or(0)
}

impl TextForm for Trigger {
    const WHAT: &'static str = "trigger";
    const EXAMPLE: &'static str = "messages(20)";

    fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        let child = |arg: &Arg<'_>| match arg {
            Arg::Expr(expr) => Self::read(expr),
            Arg::Number(_) => Err(FormError::value(expr.name, arg, "a trigger")),
        };
        let children = || expr.args.iter().map(child).collect::<Result<_, _>>();
        Ok(match expr.name {
            "messages" => Self::Messages(expr.whole(Some(30), FROM_ONE)?),
            "turns" => Self::Turns(expr.whole(Some(100), FROM_ONE)?),
            "tokens" => Self::Tokens(expr.whole(None, FROM_ONE)?),
            "chars" => Self::Chars(expr.whole(None, FROM_ONE)?),
            "window" => Self::Window(Fraction::read(expr)?),
            "every" => Self::Every(expr.whole(Some(300), SECONDS)?),
            "idle" => Self::Idle(expr.whole(None, SECONDS)?),
            "economic" => {
                expr.at_most(0)?;
                Self::Economic
            }
            "important" => Self::Important(expr.whole(Some(10), (0, "a whole number"))?),
            "all" => Self::All(children()?),
            "any" => Self::Any(children()?),
            _ => return Err(expr.unknown(NAMES)),
        })
    }
}

expr::by_text!(Trigger);

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Economic => f.write_str(name),
            Self::Window(share) => expr::write_call(f, name, [share]),
            Self::All(children) | Self::Any(children) => expr::write_call(f, name, children),
            Self::Messages(n)
            | Self::Turns(n)
            | Self::Tokens(n)
            | Self::Chars(n)
            | Self::Every(n)
            | Self::Idle(n)
            | Self::Important(n) => expr::write_call(f, name, [n]),
        }
    }
}

#[cfg(test)]
mod tests;
