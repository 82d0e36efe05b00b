//! When a summary is due.
//!
//! A [`Trigger`] is written as people would say it, `any(messages(20), idle(600))`, and judged
//! from running sums, so asking costs the size of the expression and never the length of the
//! session. Time alone can make one due, so the answer is not yes or no but [`When`]: a store
//! writes the moment down and needs no further message to act on it.
//!
//! | written | due when | default |
//! |---|---|---|
//! | `messages(n)` | n messages came | 30 |
//! | `turns(n)` | something was said in n turns | 100 |
//! | `tokens(n)` | they are n tokens; inline, the whole request is | |
//! | `chars(n)` | they are n characters | |
//! | `window(f)` | they, or the request, fill the fraction f of the model's room | |
//! | `every(s)` | s seconds passed since it last fired | 300 |
//! | `idle(s)` | s seconds passed since the last message | |
//! | `economic` | the request reaches what [`crate::economic`] worked out | |
//! | `important(n)` | some part is longer than n characters | 10 |
//! | `all(...)` | every one of them is | |
//! | `any(...)` | one of them is | |
//!
//! Where the log is then divided is not decided here, and neither is whose messages were summed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::expr::FormError;
use crate::expr::{self, Arg, Expr};
use crate::message::{Timestamp, Tokens};
use crate::outline::Totals;

/// How much of the hard threshold makes the soft one, at which a summary is prepared.
pub const SOFT: Fraction = Fraction::percent(80);

const NAMES: &str = "messages, turns, tokens, chars, window, every, idle, economic, important, all, any";
const FROM_ONE: &str = "a whole number from 1";
const FROM_ZERO: &str = "a whole number";
const FRACTION: &str = "a number more than 0 and at most 1, kept to the millionth";

/// A share of a whole: more than 0, at most 1.
///
/// Kept in millionths. So it can be compared and hashed, is printed as it was written, and its
/// share of a number of tokens is exact.
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
    /// The whole of it.
    pub const ONE: Self = Self::percent(100);

    /// `value` to the nearest millionth; refused unless `0 < value <= 1`, and where nothing would
    /// be left of it.
    pub fn new(value: f64) -> Result<Self, FormError> {
        Self::checked(value).ok_or_else(|| FormError::Value {
            field: "fraction",
            given: value.to_string(),
            allowed: FRACTION,
        })
    }

    /// For constants of this crate, which are right by inspection.
    pub(crate) const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    fn checked(value: f64) -> Option<Self> {
        // Written so that NaN fails.
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

    /// Its value.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1_000_000.0
    }

    /// This share of `whole`, rounded down: what fits in it.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0) / 1_000_000;
        u64::try_from(share).unwrap_or(whole)
    }

    /// This share of `whole`, rounded up: the first number that reaches it.
    ///
    /// ```
    /// use epitome_core::trigger::SOFT;
    /// assert_eq!((SOFT.of_rounded_up(20), SOFT.of_rounded_up(21)), (16, 17));
    /// ```
    #[must_use]
    pub fn of_rounded_up(self, whole: u64) -> u64 {
        let share = (u128::from(whole) * u128::from(self.0)).div_ceil(1_000_000);
        u64::try_from(share).unwrap_or(whole)
    }

    /// The only argument of `field(f)`.
    pub(crate) fn read(expr: &Expr<'_>, field: &'static str) -> Result<Self, FormError> {
        let (value, given) = expr.number(field, FRACTION)?;
        Self::checked(value).ok_or(FormError::Value { field, given, allowed: FRACTION })
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest number that is this one; with six digits, that is the one written.
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

/// When a slot, or an inline condensation, is due.
///
/// Read from and printed as the form in the [module's table](self); serde uses the same text. A
/// trigger that was read is lawful; one put together by hand is so once [`Trigger::check`] says
/// it. What is lawful prints to a text that reads as the same trigger.
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
/// assert_eq!(refused.to_string(), "messages: 0 given; allowed is a whole number from 1");
/// # Ok::<(), epitome_core::trigger::TriggerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// So many messages came.
    Messages(u64),
    /// Something was said in so many turns.
    Turns(u64),
    /// They are so many tokens; inline, the whole request is.
    Tokens(u64),
    /// They are so many characters.
    Chars(u64),
    /// They, or the request, fill this share of the model's window less its output reserve.
    Window(Fraction),
    /// So many seconds passed since it last fired, or since the first message.
    Every(u64),
    /// So many seconds passed since the last message.
    Idle(u64),
    /// The request reaches the size at which cutting costs least. Inline only.
    Economic,
    /// Some part is longer than so many characters, trimmed. With 0, one that is not blank.
    Important(u64),
    /// Every one of them is met. None at all are.
    All(Vec<Trigger>),
    /// One of them is met. None at all never are.
    Any(Vec<Trigger>),
}

impl Default for Trigger {
    /// What a slot without a trigger has: `turns(100)`.
    fn default() -> Self {
        Self::Turns(100)
    }
}

/// What a trigger is judged by.
///
/// ```
/// use epitome_core::message::Timestamp;
/// use epitome_core::outline::Totals;
/// use epitome_core::trigger::{Facts, Trigger};
///
/// let totals = Totals { messages: 3, tokens: 900, ..Totals::default() };
/// let slot = Facts::new(&totals, Timestamp(0));
/// let inline = Facts { request: Some(8_200), ..slot };
/// let trigger: Trigger = "tokens(8000)".parse()?;
/// assert!(!trigger.when(&slot).is_now());
/// assert!(trigger.when(&inline).is_now());
/// # Ok::<(), epitome_core::trigger::TriggerError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Sums since it last fired.
    pub totals: &'a Totals,
    /// The moment of asking.
    pub now: Timestamp,
    /// Inline: the size of the whole request, with its system prompt, tools and summary. `tokens`
    /// and `window` measure it instead of the totals' tokens.
    pub request: Option<Tokens>,
    /// The model's window less its output reserve, where known.
    pub room: Option<Tokens>,
    /// Inline: what [`crate::economic::threshold`] gave.
    pub economic: Option<Tokens>,
}

impl<'a> Facts<'a> {
    /// The facts of a slot whose model is not known: sums and the moment only.
    #[must_use]
    pub fn new(totals: &'a Totals, now: Timestamp) -> Self {
        Self { totals, now, request: None, room: None, economic: None }
    }
}

/// When a trigger is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// It is met, and this is why.
    Now(Reason),
    /// It will be met at that moment, later than the one of asking, if no message comes before.
    At(Timestamp),
    /// It will not be met without more messages.
    Never,
}

impl When {
    /// Whether it is met.
    #[must_use]
    pub fn is_now(&self) -> bool {
        matches!(self, Self::Now(_))
    }
}

/// Why a trigger is met, for people: `messages: 20 of 20`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What was met: for `any` the first that was, for `all` every one.
    pub met: Vec<Gauge>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.met.is_empty() {
            return f.write_str("all(): there is nothing to wait for");
        }
        for (i, gauge) in self.met.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " and " })?;
            gauge.write(f, ": ")?;
        }
        Ok(())
    }
}

/// How far every condition of a trigger is, due or not: `messages 13 of 20, tokens 4,100 of 8,000`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Whether no message was counted since it last fired. Then nothing is due, however far the
    /// gauges are.
    pub nothing_new: bool,
    /// Every condition in the order written; `all` and `any` themselves have none.
    pub gauges: Vec<Gauge>,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.nothing_new.then(|| "no new message".to_owned()),
            (!self.gauges.is_empty()).then(|| {
                let gauges: Vec<_> = self.gauges.iter().map(ToString::to_string).collect();
                gauges.join(", ")
            }),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "no conditions" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

/// How far one condition is: `messages 13 of 20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Which condition, by its written name.
    pub condition: &'static str,
    /// How far it is, in its own unit: messages, tokens, seconds, characters.
    pub have: u64,
    /// From where on it is met; none where that is not known.
    pub need: Option<u64>,
}

impl Gauge {
    fn is_met(&self) -> bool {
        self.need.is_some_and(|need| self.have >= need)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, separator: &str) -> fmt::Result {
        let (condition, have) = (self.condition, Grouped(self.have));
        write!(f, "{condition}{separator}{have} of ")?;
        let Some(need) = self.need else { return f.write_str("a number not known") };
        match condition {
            "important" => write!(f, "more than {}", Grouped(need.saturating_sub(1))),
            "every" | "idle" => write!(f, "{} s", Grouped(need)),
            _ => write!(f, "{}", Grouped(need)),
        }
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, " ")
    }
}

/// A number for people: 8,000.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.char_indices() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Where a trigger is to work, which decides what it may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a slot, judged when messages are stored.
    Slot {
        /// The model's window less its output reserve, where known.
        room: Option<Tokens>,
    },
    /// Before a model call, judged by the request.
    Inline {
        /// The model's window less its output reserve, where known.
        room: Option<Tokens>,
    },
}

/// Why a trigger was refused. All of these mean: mend the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// It cannot be read, or holds a value that is not allowed.
    #[error(transparent)]
    Form(#[from] FormError),
    /// A share of a window nobody knows.
    #[error("window({fraction}): the model's window is not known; set `window` for its model")]
    WindowUnknown {
        /// The share.
        fraction: Fraction,
    },
    /// A price comparison where there is nothing to price.
    #[error(
        "economic: only an inline condensation has a request to price; \
         use messages, turns, tokens, chars, window, every, idle or important"
    )]
    EconomicInSlot,
}

/// [`When`] without its reason, so that a reason is made only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    // In order of time: `any` takes the least, `all` the greatest.
    Now,
    At(Timestamp),
    Never,
}

impl Trigger {
    /// Met when every one of `triggers` is.
    pub fn all(triggers: impl IntoIterator<Item = Trigger>) -> Self {
        Self::All(triggers.into_iter().collect())
    }

    /// Met when one of `triggers` is.
    pub fn any(triggers: impl IntoIterator<Item = Trigger>) -> Self {
        Self::Any(triggers.into_iter().collect())
    }

    /// When it is met: now, at a moment, or not without more messages.
    ///
    /// Never when nothing was counted since it last fired, whatever it says: there would be
    /// nothing to summarize.
    ///
    /// ```
    /// use epitome_core::message::Timestamp;
    /// use epitome_core::outline::Totals;
    /// use epitome_core::trigger::{Facts, Trigger, When};
    ///
    /// let totals = Totals { messages: 20, last_at: Timestamp(5_000), ..Totals::default() };
    /// let facts = Facts::new(&totals, Timestamp(6_000));
    ///
    /// let When::Now(reason) = Trigger::Messages(20).when(&facts) else { panic!() };
    /// assert_eq!(reason.to_string(), "messages: 20 of 20");
    /// assert_eq!(Trigger::Idle(60).when(&facts), When::At(Timestamp(65_000)));
    /// assert_eq!(Trigger::Messages(21).when(&facts), When::Never);
    /// ```
    #[must_use]
    pub fn when(&self, facts: &Facts<'_>) -> When {
        self.when_scaled(facts, Fraction::ONE)
    }

    /// The same with every threshold multiplied by `scale`, rounded up, at least 1; a span of time
    /// as well. With [`SOFT`], when to prepare. Never later than [`Trigger::when`].
    ///
    /// ```
    /// # use epitome_core::message::Timestamp;
    /// # use epitome_core::outline::Totals;
    /// use epitome_core::trigger::{Facts, SOFT, Trigger};
    ///
    /// let totals = Totals { messages: 16, ..Totals::default() };
    /// let facts = Facts::new(&totals, Timestamp(0));
    /// assert!(!Trigger::Messages(20).when(&facts).is_now());
    /// assert!(Trigger::Messages(20).when_scaled(&facts, SOFT).is_now());
    /// ```
    #[must_use]
    pub fn when_scaled(&self, facts: &Facts<'_>, scale: Fraction) -> When {
        if facts.totals.is_empty() {
            return When::Never;
        }
        let mut met = Vec::new();
        match self.due(facts, scale, &mut met) {
            Due::Now => When::Now(Reason { met }),
            Due::At(moment) => When::At(moment),
            Due::Never => When::Never,
        }
    }

    /// How far every condition is, for people who ask why nothing happens yet.
    ///
    /// ```
    /// # use epitome_core::message::Timestamp;
    /// # use epitome_core::outline::Totals;
    /// # use epitome_core::trigger::{Facts, Trigger};
    /// let totals = Totals { messages: 13, tokens: 4_100, ..Totals::default() };
    /// let trigger: Trigger = "any(messages(20), tokens(8000))".parse()?;
    /// let standing = trigger.standing(&Facts::new(&totals, Timestamp(0)));
    /// assert_eq!(standing.to_string(), "messages 13 of 20, tokens 4,100 of 8,000");
    /// # Ok::<(), epitome_core::trigger::TriggerError>(())
    /// ```
    #[must_use]
    pub fn standing(&self, facts: &Facts<'_>) -> Standing {
        let mut gauges = Vec::new();
        self.gauges(facts, &mut gauges);
        Standing { nothing_new: facts.totals.is_empty(), gauges }
    }

    /// Refuses what could not work at `place`, and what is not lawful anywhere.
    ///
    /// ```
    /// use epitome_core::trigger::{Place, Trigger};
    ///
    /// let trigger: Trigger = "window(0.75)".parse()?;
    /// let known = Place::Slot { room: Some(120_000) };
    /// let unknown = Place::Slot { room: None };
    /// assert!(trigger.check(known).is_ok());
    /// assert_eq!(
    ///     trigger.check(unknown).unwrap_err().to_string(),
    ///     "window(0.75): the model's window is not known; set `window` for its model"
    /// );
    /// # Ok::<(), epitome_core::trigger::TriggerError>(())
    /// ```
    pub fn check(&self, place: Place) -> Result<(), TriggerError> {
        self.check_lawful()?;
        self.check_place(place)
    }

    /// Leaves in `met` what made it met, and nothing otherwise. Every gauge is pushed and dropped
    /// at most once, which keeps this linear in the expression.
    fn due(&self, facts: &Facts<'_>, scale: Fraction, met: &mut Vec<Gauge>) -> Due {
        let before = met.len();
        let due = match self {
            Self::All(children) => {
                let mut latest = Due::Now;
                for child in children {
                    latest = latest.max(child.due(facts, scale, met));
                }
                latest
            }
            Self::Any(children) => {
                let mut earliest = Due::Never;
                for child in children {
                    earliest = earliest.min(child.due(facts, scale, met));
                    if earliest == Due::Now {
                        break;
                    }
                }
                earliest
            }
            leaf => {
                let Some(gauge) = leaf.gauge(facts, scale) else { return Due::Never };
                met.push(gauge);
                match leaf.moment(facts, gauge) {
                    Some(moment) if moment > facts.now => Due::At(moment),
                    Some(_) => Due::Now,
                    None if gauge.is_met() => Due::Now,
                    None => Due::Never,
                }
            }
        };
        if due != Due::Now {
            met.truncate(before);
        }
        due
    }

    fn gauges(&self, facts: &Facts<'_>, gauges: &mut Vec<Gauge>) {
        match self {
            Self::All(children) | Self::Any(children) => {
                children.iter().for_each(|child| child.gauges(facts, gauges));
            }
            leaf => gauges.extend(leaf.gauge(facts, Fraction::ONE)),
        }
    }

    /// How far a condition is; none for `all` and `any`.
    fn gauge(&self, facts: &Facts<'_>, scale: Fraction) -> Option<Gauge> {
        let totals = facts.totals;
        let tokens = facts.request.unwrap_or(totals.tokens);
        let scaled = |threshold: u64| scale.of_rounded_up(threshold).max(1);
        let (condition, have, need) = match self {
            Self::Messages(n) => ("messages", totals.messages, Some(*n)),
            Self::Turns(n) => ("turns", totals.turns, Some(*n)),
            Self::Tokens(n) => ("tokens", tokens, Some(*n)),
            Self::Chars(n) => ("chars", totals.chars, Some(*n)),
            Self::Window(share) => ("window", tokens, facts.room.map(|room| share.of_rounded_up(room))),
            Self::Every(seconds) => ("every", elapsed(self.start(facts)?, facts.now), Some(*seconds)),
            Self::Idle(seconds) => ("idle", elapsed(self.start(facts)?, facts.now), Some(*seconds)),
            // Without a request there is nothing to compare.
            Self::Economic => ("economic", tokens, facts.request.and(facts.economic)),
            // Longer than n is from n + 1 on; nothing is longer than the largest number.
            Self::Important(n) => ("important", totals.longest, n.checked_add(1)),
            Self::All(_) | Self::Any(_) => return None,
        };
        Some(Gauge { condition, have, need: need.map(scaled) })
    }

    /// From when a condition on time runs; none for the others.
    fn start(&self, facts: &Facts<'_>) -> Option<Timestamp> {
        match self {
            Self::Every(_) => Some(facts.totals.since.unwrap_or(facts.totals.last_at)),
            Self::Idle(_) => Some(facts.totals.last_at),
            _ => None,
        }
    }

    /// The moment a condition on time is met; none for the others.
    fn moment(&self, facts: &Facts<'_>, gauge: Gauge) -> Option<Timestamp> {
        Some(self.start(facts)?.plus_seconds(gauge.need?))
    }

    fn read(expr: &Expr<'_>) -> Result<Self, FormError> {
        let children = |field: &'static str| {
            let child = |arg: &Arg<'_>| match arg {
                Arg::Expr(expr) => Self::read(expr),
                Arg::Number(_) => {
                    Err(FormError::Value { field, given: arg.to_string(), allowed: "triggers only" })
                }
            };
            expr.args.iter().map(child).collect::<Result<Vec<_>, _>>()
        };
        Ok(match expr.name {
            "messages" => Self::Messages(expr.whole("messages", Some(30), FROM_ONE)?),
            "turns" => Self::Turns(expr.whole("turns", Some(100), FROM_ONE)?),
            "tokens" => Self::Tokens(expr.whole("tokens", None, FROM_ONE)?),
            "chars" => Self::Chars(expr.whole("chars", None, FROM_ONE)?),
            "window" => Self::Window(Fraction::read(expr, "window")?),
            "every" => Self::Every(expr.whole("every", Some(300), FROM_ONE)?),
            "idle" => Self::Idle(expr.whole("idle", None, FROM_ONE)?),
            "economic" => {
                expr.nothing("economic")?;
                Self::Economic
            }
            "important" => Self::Important(expr.whole("important", Some(10), FROM_ZERO)?),
            "all" => Self::All(children("all")?),
            "any" => Self::Any(children("any")?),
            _ => return Err(expr.unknown(NAMES)),
        })
    }

    /// Whether it could have been read, and what it prints could be.
    fn check_lawful(&self) -> Result<(), FormError> {
        self.check_values(1)?;
        expr::check_printed(self)
    }

    /// Stops at the depth allowed, so that even a trigger made by hand cannot exhaust the stack.
    fn check_values(&self, depth: usize) -> Result<(), FormError> {
        if depth > expr::MAX_DEPTH {
            return Err(FormError::TooDeep { limit: expr::MAX_DEPTH });
        }
        let from_one = |field, n: u64| match n {
            0 => Err(FormError::Value { field, given: n.to_string(), allowed: FROM_ONE }),
            _ => Ok(()),
        };
        match self {
            Self::Messages(n) => from_one("messages", *n),
            Self::Turns(n) => from_one("turns", *n),
            Self::Tokens(n) => from_one("tokens", *n),
            Self::Chars(n) => from_one("chars", *n),
            Self::Every(seconds) => from_one("every", *seconds),
            Self::Idle(seconds) => from_one("idle", *seconds),
            Self::Window(_) | Self::Economic | Self::Important(_) => Ok(()),
            Self::All(children) | Self::Any(children) => {
                children.iter().try_for_each(|child| child.check_values(depth + 1))
            }
        }
    }

    fn check_place(&self, place: Place) -> Result<(), TriggerError> {
        match (self, place) {
            (Self::Window(fraction), Place::Slot { room: None } | Place::Inline { room: None }) => {
                Err(TriggerError::WindowUnknown { fraction: *fraction })
            }
            (Self::Economic, Place::Slot { .. }) => Err(TriggerError::EconomicInSlot),
            (Self::All(children) | Self::Any(children), _) => {
                children.iter().try_for_each(|child| child.check_place(place))
            }
            _ => Ok(()),
        }
    }
}

/// Whole seconds from `start` to `now`; none where the clock went back.
fn elapsed(start: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.0.saturating_sub(start.0) / 1_000).unwrap_or(0)
}

impl FromStr for Trigger {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let trigger = Self::read(&Expr::parse(text)?)?;
        trigger.check_lawful()?;
        Ok(trigger)
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(n) => expr::write_call(f, "messages", [n]),
            Self::Turns(n) => expr::write_call(f, "turns", [n]),
            Self::Tokens(n) => expr::write_call(f, "tokens", [n]),
            Self::Chars(n) => expr::write_call(f, "chars", [n]),
            Self::Window(share) => expr::write_call(f, "window", [share]),
            Self::Every(seconds) => expr::write_call(f, "every", [seconds]),
            Self::Idle(seconds) => expr::write_call(f, "idle", [seconds]),
            Self::Economic => f.write_str("economic"),
            Self::Important(n) => expr::write_call(f, "important", [n]),
            Self::All(children) => expr::write_call(f, "all", children),
            Self::Any(children) => expr::write_call(f, "any", children),
        }
    }
}

impl Serialize for Trigger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Trigger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Trigger {
        text.parse().unwrap()
    }

    fn refusal(text: &str) -> String {
        text.parse::<Trigger>().unwrap_err().to_string()
    }

    fn reason(trigger: &str, facts: &Facts<'_>) -> String {
        match read(trigger).when(facts) {
            When::Now(reason) => reason.to_string(),
            other => panic!("{trigger}: {other:?}"),
        }
    }

    /// 20 messages in 5 turns, the first at second 1,000, the last at second 1,090.
    fn totals() -> Totals {
        Totals {
            messages: 20,
            turns: 5,
            tokens: 4_100,
            chars: 16_000,
            longest: 700,
            last_seq: 20,
            last_at: Timestamp(1_090_000),
            since: Some(Timestamp(1_000_000)),
            last_turn: 5,
        }
    }

    #[test]
    fn every_name_is_read_with_its_argument() {
        let text = "all(messages(1), turns(2), tokens(3), chars(4), window(0.5), every(6), idle(7), \
                    economic, important(8), any())";
        let trigger = Trigger::all([
            Trigger::Messages(1),
            Trigger::Turns(2),
            Trigger::Tokens(3),
            Trigger::Chars(4),
            Trigger::Window(Fraction::new(0.5).unwrap()),
            Trigger::Every(6),
            Trigger::Idle(7),
            Trigger::Economic,
            Trigger::Important(8),
            Trigger::any([]),
        ]);
        assert_eq!(read(text), trigger);
        assert_eq!(trigger.to_string(), text);
    }

    #[test]
    fn a_missing_argument_takes_its_default_where_there_is_one() {
        for bare in ["messages", "turns", "every", "important"] {
            assert_eq!(read(bare), read(&format!("{bare}()")));
        }
        assert_eq!(
            read("all(messages, turns, every, important)").to_string(),
            "all(messages(30), turns(100), every(300), important(10))"
        );
        assert_eq!(refusal("tokens"), "tokens: nothing given; it needs a whole number from 1");
        assert_eq!(refusal("chars()"), "chars: nothing given; it needs a whole number from 1");
        assert_eq!(refusal("idle"), "idle: nothing given; it needs a whole number from 1");
        assert!(refusal("window()").starts_with("window: nothing given; it needs a number more than 0"));
    }

    #[test]
    fn a_bad_value_is_refused_by_name_with_what_is_allowed() {
        for name in ["messages", "turns", "tokens", "chars", "every", "idle"] {
            let allowed = "given; allowed is a whole number from 1";
            for bad in ["0", "-1", "1.5", "NaN", "99999999999999999999"] {
                assert_eq!(refusal(&format!("any({name}({bad}))")), format!("{name}: {bad} {allowed}"));
            }
        }
        for bad in ["0", "1.5", "1.0000001", "-0.5", "0.0000001", "NaN", "inf", "1e999", "messages(3)"] {
            let error = refusal(&format!("window({bad})"));
            assert!(
                error
                    .ends_with("given; allowed is a number more than 0 and at most 1, kept to the millionth")
            );
            assert!(error.starts_with("window: "), "{error}");
        }
        assert_eq!(refusal("important(-1)"), "important: -1 given; allowed is a whole number");
        assert_eq!(refusal("all(messages(2), 3)"), "all: 3 given; allowed is triggers only");
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_there_are() {
        assert_eq!(
            refusal("any(message(20))"),
            "position 5: `message` is not known; allowed are messages, turns, tokens, chars, window, every, \
             idle, economic, important, all, any"
        );
        assert!(refusal("Messages(20)").contains("`Messages` is not known"));
    }

    #[test]
    fn too_many_arguments_are_refused() {
        assert_eq!(refusal("messages(1, 2)"), "messages: too many arguments, 2; at most 1 allowed");
        assert_eq!(refusal("window(1, 2, 3)"), "window: too many arguments, 3; at most 1 allowed");
        assert_eq!(refusal("economic(1)"), "economic: too many arguments, 1; at most 0 allowed");
    }

    #[test]
    fn what_would_print_too_long_to_be_read_back_is_refused() {
        let short_to_type = format!("any({})", vec!["every"; 600].join(","));
        assert!(short_to_type.len() < expr::MAX_BYTES);
        assert!(refusal(&short_to_type).contains("bytes when written in full; at most 4096 are allowed"));
    }

    #[test]
    fn a_trigger_made_by_hand_is_checked_like_a_read_one() {
        let place = Place::Inline { room: Some(1) };
        let zero = Trigger::any([Trigger::Messages(0)]);
        assert_eq!(
            zero.check(place).unwrap_err().to_string(),
            "messages: 0 given; allowed is a whole number from 1"
        );
        let deep = (0..1_000).fold(Trigger::Economic, |inner, _| Trigger::all([inner]));
        assert_eq!(deep.check(place), Err(FormError::TooDeep { limit: 32 }.into()));
        let broad = Trigger::any(vec![Trigger::Economic; 1_000]);
        assert!(matches!(broad.check(place), Err(TriggerError::Form(FormError::TooLong { .. }))));
    }

    #[test]
    fn serde_uses_the_readable_form() {
        let trigger: Trigger = serde_json::from_str(r#""any(messages, window(.75))""#).unwrap();
        assert_eq!(serde_json::to_string(&trigger).unwrap(), r#""any(messages(30), window(0.75))""#);
        let error = serde_json::from_str::<Trigger>(r#""messages(0)""#).unwrap_err().to_string();
        assert!(error.starts_with("messages: 0 given; allowed is a whole number from 1"));
        assert!(serde_json::from_str::<Trigger>("20").is_err());
    }

    #[test]
    fn a_fraction_is_a_number_to_serde_and_checked() {
        let fraction = |json: &str| serde_json::from_str::<Fraction>(json);
        assert_eq!(serde_json::to_string(&fraction("0.8").unwrap()).unwrap(), "0.8");
        assert_eq!(fraction("1").unwrap(), Fraction::ONE);
        assert!(fraction("0").is_err() && fraction("1.1").is_err() && fraction("-1").is_err());
    }

    #[test]
    fn a_share_is_exact_where_floating_point_would_not_be() {
        let share = |value: f64| Fraction::new(value).unwrap();
        // As floats, 0.07 * 100 is more than 7 and 0.29 * 100 less than 29.
        assert_eq!(share(0.07).of_rounded_up(100), 7);
        assert_eq!(share(0.29).of(100), 29);
        assert_eq!(Fraction::ONE.of(u64::MAX), u64::MAX);
        assert_eq!(Fraction::ONE.of_rounded_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_threshold_is_met_when_reached() {
        let totals = totals();
        let facts = Facts { room: Some(8_200), ..Facts::new(&totals, Timestamp(1_090_000)) };
        for (met, not_met) in [
            ("messages(20)", "messages(21)"),
            ("turns(5)", "turns(6)"),
            ("tokens(4100)", "tokens(4101)"),
            ("chars(16000)", "chars(16001)"),
            ("window(0.5)", "window(0.500001)"),
        ] {
            assert!(read(met).when(&facts).is_now(), "{met}");
            assert_eq!(read(not_met).when(&facts), When::Never, "{not_met}");
        }
    }

    #[test]
    fn important_wants_strictly_longer() {
        let totals = totals();
        let facts = Facts::new(&totals, Timestamp(0));
        assert_eq!(reason("important(699)", &facts), "important: 700 of more than 699");
        assert_eq!(read("important(700)").when(&facts), When::Never);

        let totals = Totals { longest: u64::MAX, ..totals };
        let facts = Facts::new(&totals, Timestamp(0));
        assert_eq!(Trigger::Important(u64::MAX).when(&facts), When::Never);
    }

    #[test]
    fn every_runs_from_the_last_firing_and_idle_from_the_last_message() {
        let totals = totals();
        let at = |seconds: i64| Facts::new(&totals, Timestamp(seconds * 1_000));
        assert_eq!(read("every(100)").when(&at(1_099)), When::At(Timestamp(1_100_000)));
        assert_eq!(reason("every(100)", &at(1_100)), "every: 100 of 100 s");
        assert_eq!(read("idle(100)").when(&at(1_100)), When::At(Timestamp(1_190_000)));
        assert_eq!(reason("idle(100)", &at(1_250)), "idle: 160 of 100 s");
    }

    #[test]
    fn a_clock_that_went_back_only_delays() {
        let totals = totals();
        let facts = Facts::new(&totals, Timestamp(0));
        assert_eq!(read("idle(100)").when(&facts), When::At(Timestamp(1_190_000)));
        assert_eq!(read("idle(100)").standing(&facts).to_string(), "idle 0 of 100 s");
    }

    #[test]
    fn the_end_of_time_is_no_trap() {
        for moment in [i64::MIN, 0, i64::MAX] {
            let totals = Totals { since: Some(Timestamp(moment)), last_at: Timestamp(moment), ..totals() };
            for now in [i64::MIN, 0, i64::MAX] {
                let facts = Facts::new(&totals, Timestamp(now));
                let trigger = Trigger::all([Trigger::Every(u64::MAX), Trigger::Idle(u64::MAX)]);
                let _ = (trigger.when(&facts), trigger.standing(&facts).to_string());
            }
        }
    }

    #[test]
    fn inline_the_whole_request_is_measured() {
        let totals = totals();
        let slot = Facts { room: Some(10_000), ..Facts::new(&totals, Timestamp(0)) };
        let inline = Facts { request: Some(9_000), economic: Some(9_000), ..slot };
        assert_eq!(read("any(tokens(9000), window(0.9), economic)").when(&slot), When::Never);
        assert_eq!(reason("tokens(9_000)", &inline), "tokens: 9,000 of 9,000");
        assert_eq!(reason("window(0.9)", &inline), "window: 9,000 of 9,000");
        assert_eq!(reason("economic", &inline), "economic: 9,000 of 9,000");
    }

    #[test]
    fn without_its_data_a_condition_is_never_met() {
        let totals = totals();
        let facts = Facts { request: Some(u64::MAX), ..Facts::new(&totals, Timestamp(0)) };
        assert_eq!(read("any(window(0.000001), economic)").when(&facts), When::Never);
        let priced = Facts { request: None, economic: Some(1), ..facts };
        assert_eq!(Trigger::Economic.when(&priced), When::Never);
        assert_eq!(Trigger::Economic.standing(&priced).to_string(), "economic 4,100 of a number not known");
    }

    #[test]
    fn nothing_is_due_when_nothing_new_was_counted() {
        let totals = Totals { messages: 0, ..totals() };
        let facts = Facts { request: Some(u64::MAX), ..Facts::new(&totals, Timestamp(i64::MAX)) };
        for trigger in ["all()", "any(all())", "idle(1)", "tokens(1)", "important(0)"] {
            assert_eq!(read(trigger).when(&facts), When::Never, "{trigger}");
        }
        assert!(read("turns(5)").standing(&facts).to_string().starts_with("no new message; turns 5 of 5"));
    }

    #[test]
    fn an_empty_all_is_true_and_an_empty_any_false() {
        let totals = totals();
        let facts = Facts::new(&totals, Timestamp(0));
        assert_eq!(reason("all()", &facts), "all(): there is nothing to wait for");
        assert_eq!(read("any()").when(&facts), When::Never);
        assert_eq!(read("any()").standing(&facts).to_string(), "no conditions");
    }

    #[test]
    fn any_is_due_with_its_earliest_and_all_with_its_latest() {
        let totals = totals();
        let facts = Facts::new(&totals, Timestamp(1_090_000));
        let when = |text: &str| read(text).when(&facts);
        assert_eq!(when("any(idle(60), idle(30), messages(99))"), When::At(Timestamp(1_120_000)));
        assert_eq!(when("all(idle(60), idle(30), messages(20))"), When::At(Timestamp(1_150_000)));
        assert_eq!(when("all(idle(60), messages(21))"), When::Never);
    }

    #[test]
    fn a_reason_names_what_fired_and_only_that() {
        let totals = totals();
        let facts = Facts::new(&totals, Timestamp(1_090_000));
        assert_eq!(reason("any(messages(21), tokens(4000), chars(1))", &facts), "tokens: 4,100 of 4,000");
        assert_eq!(
            reason("any(all(turns(1), turns(9)), all(messages(20), any(idle(9), turns(2))))", &facts),
            "messages: 20 of 20 and turns: 5 of 2"
        );
    }

    #[test]
    fn the_soft_threshold_is_four_fifths_of_the_hard_one_whatever_the_trigger() {
        let totals = Totals { messages: 17, turns: 2, ..totals() };
        let facts = Facts {
            request: Some(6_400),
            room: Some(10_000),
            economic: Some(8_000),
            ..Facts::new(&totals, Timestamp(1_100_000))
        };
        let soft = |text: &str| read(text).when_scaled(&facts, SOFT);
        for met in ["messages(21)", "tokens(8000)", "window(0.8)", "economic", "turns(2)", "every(125)"] {
            assert!(soft(met).is_now(), "{met}");
        }
        for not_met in ["messages(22)", "tokens(8001)", "window(0.8002)", "turns(3)"] {
            assert_eq!(soft(not_met), When::Never, "{not_met}");
        }
        assert_eq!(soft("idle(100)"), When::At(Timestamp(1_170_000)));
    }

    #[test]
    fn economic_is_refused_in_a_slot() {
        let trigger = read("any(messages(20), all(economic))");
        let slot = Place::Slot { room: Some(1_000) };
        let error = trigger.check(slot).unwrap_err().to_string();
        assert!(
            error.starts_with("economic: only an inline condensation has a request to price; use messages, ")
        );
        assert!(trigger.check(Place::Inline { room: None }).is_ok());
    }

    #[test]
    fn a_share_of_an_unknown_window_is_refused_wherever_it_stands() {
        let trigger = read("any(all(), any(), all(window(0.75)))");
        for place in [Place::Slot { room: None }, Place::Inline { room: None }] {
            assert!(matches!(trigger.check(place), Err(TriggerError::WindowUnknown { .. })));
        }
        assert_eq!(trigger.check(Place::Slot { room: Some(1) }), Ok(()));
    }

    #[test]
    fn a_standing_may_go_out_as_json() {
        let totals = totals();
        let standing = read("any(messages(30), economic)").standing(&Facts::new(&totals, Timestamp(0)));
        assert_eq!(
            serde_json::to_value(standing).unwrap(),
            serde_json::json!({ "nothing_new": false, "gauges": [
                { "condition": "messages", "have": 20, "need": 30 },
                { "condition": "economic", "have": 4_100, "need": null },
            ]})
        );
    }

    /// Numbers near those of `any_totals`, and the largest there are.
    fn threshold() -> impl Strategy<Value = u64> {
        prop_oneof![9 => 1..40_u64, 1 => Just(u64::MAX), 1 => 1..u64::MAX]
    }

    fn trigger() -> impl Strategy<Value = Trigger> {
        let leaf = prop_oneof![
            threshold().prop_map(Trigger::Messages),
            threshold().prop_map(Trigger::Turns),
            threshold().prop_map(Trigger::Tokens),
            threshold().prop_map(Trigger::Chars),
            (1..=1_000_000_u32).prop_map(|millionths| Trigger::Window(Fraction(millionths))),
            threshold().prop_map(Trigger::Every),
            threshold().prop_map(Trigger::Idle),
            Just(Trigger::Economic),
            (0..40_u64).prop_map(Trigger::Important),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            let children = prop::collection::vec(inner, 0..5);
            prop_oneof![children.clone().prop_map(Trigger::All), children.prop_map(Trigger::Any)]
        })
    }

    fn any_totals() -> impl Strategy<Value = Totals> {
        let small = 0..40_u64;
        let moment = -40_000..40_000_i64;
        (
            (0..40_u64, small.clone(), small.clone(), small.clone(), small),
            (moment.clone(), prop::option::of(moment)),
        )
            .prop_map(|((messages, turns, tokens, chars, longest), (last_at, since))| Totals {
                messages,
                turns,
                tokens,
                chars,
                longest,
                last_at: Timestamp(last_at),
                since: since.map(Timestamp),
                ..Totals::default()
            })
    }

    prop_compose! {
        /// Request, room and economic threshold, and the moment.
        fn surroundings()(
            now in -60_000..90_000_i64,
            request in prop::option::of(0..60_u64),
            room in prop::option::of(0..60_u64),
            economic in prop::option::of(1..60_u64),
        ) -> Facts<'static> {
            const NONE: &Totals = &Totals {
                messages: 0, turns: 0, tokens: 0, chars: 0, longest: 0, last_seq: 0,
                last_at: Timestamp(0), since: None, last_turn: 0,
            };
            Facts { totals: NONE, now: Timestamp(now), request, room, economic }
        }
    }

    /// Whether it is met at the moment of asking, as the definition says it, in numbers too wide
    /// to need care.
    fn naively_met(trigger: &Trigger, facts: &Facts<'_>) -> bool {
        let totals = facts.totals;
        let size = facts.request.unwrap_or(totals.tokens);
        let passed = |start: Timestamp, seconds: u64| {
            let wait = (i128::from(seconds) * 1_000).min(i128::from(i64::MAX));
            i128::from(facts.now.0) >= (i128::from(start.0) + wait).min(i128::from(i64::MAX))
        };
        match trigger {
            Trigger::Messages(n) => totals.messages >= *n,
            Trigger::Turns(n) => totals.turns >= *n,
            Trigger::Tokens(n) => size >= *n,
            Trigger::Chars(n) => totals.chars >= *n,
            Trigger::Window(share) => facts.room.is_some_and(|room| {
                let need = u128::from(room) * u128::from(share.0);
                // Of no room at all nothing can be left free.
                size >= 1 && u128::from(size) * 1_000_000 >= need
            }),
            Trigger::Every(seconds) => passed(totals.since.unwrap_or(totals.last_at), *seconds),
            Trigger::Idle(seconds) => passed(totals.last_at, *seconds),
            Trigger::Economic => matches!((facts.request, facts.economic), (Some(r), Some(e)) if r >= e),
            Trigger::Important(n) => totals.longest > *n,
            Trigger::All(children) => children.iter().all(|child| naively_met(child, facts)),
            Trigger::Any(children) => children.iter().any(|child| naively_met(child, facts)),
        }
    }

    /// An answer in order of time, its reason aside.
    fn order(when: &When) -> (u8, i64) {
        match when {
            When::Now(_) => (0, 0),
            When::At(moment) => (1, moment.0),
            When::Never => (2, 0),
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_as_the_same_trigger(trigger in trigger()) {
            let text = trigger.to_string();
            prop_assert_eq!(text.parse::<Trigger>(), Ok(trigger));
        }

        #[test]
        fn whatever_can_be_read_prints_to_the_same_trigger(
            text in "(any|all|messages|window|economic|idle)(\\([0-9_. (),a-z]{0,30}\\)?)?"
        ) {
            if let Ok(trigger) = text.parse::<Trigger>() {
                prop_assert_eq!(trigger.to_string().parse::<Trigger>(), Ok(trigger));
            }
        }

        #[test]
        fn any_text_is_read_or_refused_in_one_line(text in any::<String>()) {
            if let Err(error) = text.parse::<Trigger>() {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn every_millionth_reads_as_printed(millionths in 1..=1_000_000_u32) {
            let fraction = Fraction(millionths);
            prop_assert_eq!(Fraction::new(fraction.get()), Ok(fraction));
            prop_assert_eq!(fraction.to_string().parse::<f64>(), Ok(fraction.get()));
        }

        /// The answer holds at its moment and at no earlier one.
        #[test]
        fn the_answer_is_the_first_moment_at_which_it_is_naively_met(
            trigger in trigger(), totals in any_totals(), facts in surroundings(),
        ) {
            let facts = Facts { totals: &totals, ..facts };
            let met_at = |now: i64| naively_met(&trigger, &Facts { now: Timestamp(now), ..facts });
            match trigger.when(&facts) {
                _ if totals.is_empty() => prop_assert_eq!(trigger.when(&facts), When::Never),
                When::Now(_) => prop_assert!(met_at(facts.now.0)),
                When::At(moment) => {
                    prop_assert!(moment > facts.now);
                    prop_assert!(met_at(moment.0) && !met_at(moment.0 - 1) && !met_at(facts.now.0));
                }
                When::Never => prop_assert!(!met_at(facts.now.0) && !met_at(i64::MAX)),
            }
        }

        #[test]
        fn a_reason_holds_only_what_is_met(
            trigger in trigger(), totals in any_totals(), facts in surroundings(),
        ) {
            let facts = Facts { totals: &totals, ..facts };
            if let When::Now(reason) = trigger.when(&facts) {
                prop_assert!(reason.met.iter().all(Gauge::is_met));
                let gauges = trigger.standing(&facts).gauges;
                prop_assert!(reason.met.iter().all(|gauge| gauges.contains(gauge)));
            }
        }

        #[test]
        fn any_is_the_earliest_and_all_the_latest_of_two(
            a in trigger(), b in trigger(), totals in any_totals(), facts in surroundings(),
        ) {
            let facts = Facts { totals: &totals, ..facts };
            let when = |trigger: &Trigger| order(&trigger.when(&facts));
            let (first, second) = (when(&a), when(&b));
            let pair = [a.clone(), b.clone()];
            prop_assert_eq!(when(&Trigger::any(pair.clone())), first.min(second));
            prop_assert_eq!(when(&Trigger::all(pair)), first.max(second));
            // Alone, or beside what decides nothing, it is itself; and order is nothing.
            prop_assert_eq!(a.when(&facts), Trigger::any([Trigger::any([]), a.clone()]).when(&facts));
            prop_assert_eq!(a.when(&facts), Trigger::all([a.clone(), Trigger::all([])]).when(&facts));
            prop_assert_eq!(when(&Trigger::any([b.clone(), a.clone()])), first.min(second));
            prop_assert_eq!(when(&Trigger::all([b, a])), first.max(second));
        }

        #[test]
        fn the_soft_threshold_is_never_later_than_the_hard_one(
            trigger in trigger(), totals in any_totals(), facts in surroundings(), scale in 1..=1_000_000_u32,
        ) {
            let facts = Facts { totals: &totals, ..facts };
            let soft = trigger.when_scaled(&facts, Fraction(scale));
            prop_assert!(order(&soft) <= order(&trigger.when(&facts)));
        }

        #[test]
        fn one_more_message_never_undoes_what_is_met_but_idleness(
            trigger in trigger(), totals in any_totals(), facts in surroundings(),
        ) {
            let facts = Facts { totals: &totals, ..facts };
            let more = Totals {
                messages: totals.messages + 1, tokens: totals.tokens + 5, chars: totals.chars + 9,
                since: totals.since.or(Some(totals.last_at)), ..totals
            };
            if trigger.when(&facts).is_now() && !trigger.to_string().contains("idle") {
                let after = trigger.when(&Facts { totals: &more, ..facts });
                prop_assert!(after.is_now());
            }
        }
    }
}
