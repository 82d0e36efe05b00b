//! The readable form `name(argument, ...)` in which triggers, keeps and strategies are written.
//!
//! Settings are typed by people and arrive from strangers, so reading is total: any text gives an
//! expression or an error that says where and what was expected. Depth and length are bounded, so
//! no text can exhaust the stack either. What the names mean is known only to
//! [`crate::trigger`], [`crate::keep`] and [`crate::strategy`].

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::Visitor;

/// The longest text that is read, and the longest that may be printed.
pub(crate) const MAX_BYTES: usize = 4 << 10;

/// How many names may stand inside each other.
pub(crate) const MAX_DEPTH: usize = 32;

/// Why a written form, such as `any(messages(20), idle(60))`, was refused.
///
/// Positions count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// More text than is read, or than its full form may take.
    #[error("the expression: {bytes} bytes when written in full; at most {limit} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Names inside names inside names.
    #[error("the expression: nested too deep; at most {limit} levels are allowed")]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// Text that cannot be read.
    #[error("position {at}: expected {expected}, found {found}")]
    Unexpected {
        /// Where.
        at: usize,
        /// What could have stood there.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// A name nobody knows.
    #[error("position {at}: `{given}` is not known; allowed are {allowed}")]
    UnknownName {
        /// Where.
        at: usize,
        /// What was written.
        given: String,
        /// Every name that is known.
        allowed: &'static str,
    },
    /// A value outside what is allowed.
    #[error("{field}: {given} given; allowed is {allowed}")]
    Value {
        /// Whose value.
        field: &'static str,
        /// What was given.
        given: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A value that has no default and was not given.
    #[error("{field}: nothing given; it needs {allowed}")]
    Missing {
        /// Whose value.
        field: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// More arguments than there are places for.
    #[error("{field}: too many arguments, {given}; at most {allowed} allowed")]
    TooMany {
        /// Whose arguments.
        field: &'static str,
        /// How many were given.
        given: usize,
        /// How many there may be.
        allowed: usize,
    },
}

/// A name and its arguments. `name` and `name()` are the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Expr<'a> {
    pub(crate) name: &'a str,
    /// Where the name begins, from 1.
    at: usize,
    pub(crate) args: Vec<Arg<'a>>,
}

/// An argument. A number is kept as it was written: only its reader knows which numbers it wants,
/// and a refusal repeats what was typed.
#[derive(Debug, PartialEq)]
pub(crate) enum Arg<'a> {
    Number(&'a str),
    Expr(Expr<'a>),
}

impl fmt::Display for Arg<'_> {
    /// What an error shows: short, whatever was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) => f.write_str(&clipped(text)),
            Self::Expr(expr) if expr.args.is_empty() => f.write_str(&clipped(expr.name)),
            Self::Expr(expr) => write!(f, "{}(...)", clipped(expr.name)),
        }
    }
}

impl<'a> Expr<'a> {
    /// Reads one expression that takes up all of `text`.
    pub(crate) fn parse(text: &'a str) -> Result<Self, FormError> {
        check_length(text.len())?;
        let mut reader = Reader { text, rest: text };
        let expr = reader.expr(1)?;
        reader.space();
        if reader.rest.is_empty() { Ok(expr) } else { Err(reader.unexpected("the end")) }
    }

    /// Refuses the name itself.
    pub(crate) fn unknown(&self, allowed: &'static str) -> FormError {
        FormError::UnknownName { at: self.at, given: clipped(self.name), allowed }
    }

    /// Refuses any argument.
    pub(crate) fn nothing(&self, field: &'static str) -> Result<(), FormError> {
        match self.args.len() {
            0 => Ok(()),
            given => Err(FormError::TooMany { field, given, allowed: 0 }),
        }
    }

    /// The only argument, a whole number; `default` where there is none.
    pub(crate) fn whole(
        &self,
        field: &'static str,
        default: Option<u64>,
        allowed: &'static str,
    ) -> Result<u64, FormError> {
        let Some(arg) = self.only(field)? else {
            return default.ok_or(FormError::Missing { field, allowed });
        };
        let refused = |allowed| FormError::Value { field, given: arg.to_string(), allowed };
        match arg {
            Arg::Number(text) => {
                let digits = text.replace('_', "");
                // `parse` would also take a leading plus.
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(refused(allowed));
                }
                digits.parse().map_err(|_| refused("a number of at most 19 digits"))
            }
            Arg::Expr(_) => Err(refused(allowed)),
        }
    }

    /// The only argument, if there is one.
    pub(crate) fn only(&self, field: &'static str) -> Result<Option<&Arg<'a>>, FormError> {
        match self.args.as_slice() {
            [] => Ok(None),
            [arg] => Ok(Some(arg)),
            more => Err(FormError::TooMany { field, given: more.len(), allowed: 1 }),
        }
    }
}

/// Prints what [`Expr::parse`] reads.
pub(crate) fn write_call<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    args: impl IntoIterator<Item = T>,
) -> fmt::Result {
    write!(f, "{name}(")?;
    for (i, arg) in args.into_iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}{arg}")?;
    }
    f.write_str(")")
}

/// Refuses what would be too long to be read back. Defaults and spaces make the full form longer
/// than what was typed, so the typed text alone does not tell.
pub(crate) fn check_printed(form: &impl fmt::Display) -> Result<(), FormError> {
    check_length(form.to_string().len())
}

fn check_length(bytes: usize) -> Result<(), FormError> {
    if bytes > MAX_BYTES { Err(FormError::TooLong { bytes, limit: MAX_BYTES }) } else { Ok(()) }
}

/// An error is one readable line, however long the text it refuses.
fn clipped(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Everything accepted is ASCII, so up to the first error a byte is a character.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn expr(&mut self, depth: usize) -> Result<Expr<'a>, FormError> {
        if depth > MAX_DEPTH {
            return Err(FormError::TooDeep { limit: MAX_DEPTH });
        }
        self.space();
        let at = self.at();
        if !self.rest.starts_with(starts_name) {
            return Err(self.unexpected("a name"));
        }
        let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        let mut args = Vec::new();
        if self.eat('(') && !self.eat(')') {
            loop {
                args.push(self.arg(depth)?);
                if self.eat(')') {
                    break;
                }
                if !self.eat(',') {
                    return Err(self.unexpected("`,` or `)`"));
                }
            }
        }
        Ok(Expr { name, at, args })
    }

    fn arg(&mut self, depth: usize) -> Result<Arg<'a>, FormError> {
        self.space();
        if self.rest.starts_with(starts_name) {
            return self.expr(depth + 1).map(Arg::Expr);
        }
        // Taken generously, judged later: `-1` and `1e3x` are better refused as values.
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-')) {
            let number = self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-'));
            return Ok(Arg::Number(number));
        }
        Err(self.unexpected("a name or a number"))
    }

    fn space(&mut self) {
        self.take(|c| c.is_ascii_whitespace());
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.space();
        let Some(rest) = self.rest.strip_prefix(wanted) else { return false };
        self.rest = rest;
        true
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn at(&self) -> usize {
        self.text.len().saturating_sub(self.rest.len()).saturating_add(1)
    }

    fn unexpected(&self, expected: &'static str) -> FormError {
        let found = self.rest.chars().next().map_or("the end".to_owned(), |c| format!("{c:?}"));
        FormError::Unexpected { at: self.at(), expected, found }
    }
}

fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Reads a form from the text it is written as. Refusals say what it should have been, and show one.
pub(crate) fn deserialize<'de, T, D>(
    deserializer: D,
    what: &'static str,
    example: &'static str,
) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    struct Form<T> {
        what: &'static str,
        example: &'static str,
        form: PhantomData<T>,
    }
    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Form<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a {} such as {:?}", self.what, self.example)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(|error| E::custom(format_args!("{}: {error}", self.what)))
        }
    }
    deserializer.deserialize_str(Form { what, example, form: PhantomData })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trigger::Fraction;

    fn refusal(text: &str) -> String {
        Expr::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn whitespace_may_stand_anywhere_between_words() {
        let spaced = Expr::parse(" any (\n\tmessages ( 20 ) , idle( 1_000 ) )\r\n").unwrap();
        let [Arg::Expr(messages), Arg::Expr(idle)] = spaced.args.as_slice() else { panic!("two arguments") };
        assert_eq!((spaced.name, messages.name, idle.name), ("any", "messages", "idle"));
        assert_eq!(messages.args, [Arg::Number("20")]);
        assert_eq!(idle.whole("idle", None, ""), Ok(1_000));
    }

    #[test]
    fn a_name_may_go_without_parentheses() {
        assert_eq!(Expr::parse("economic"), Expr::parse("economic()"));
        assert_eq!(Expr::parse("economic"), Expr::parse("economic ( )"));
    }

    #[test]
    fn an_error_says_where_and_what_was_expected() {
        assert_eq!(refusal(""), "position 1: expected a name, found the end");
        assert_eq!(refusal("20"), "position 1: expected a name, found '2'");
        assert_eq!(refusal("any(messages(20)"), "position 17: expected `,` or `)`, found the end");
        assert_eq!(refusal("any(,)"), "position 5: expected a name or a number, found ','");
        assert_eq!(refusal("any(a,)"), "position 7: expected a name or a number, found ')'");
        assert_eq!(refusal("window(75%)"), "position 10: expected `,` or `)`, found '%'");
        assert_eq!(refusal("tokens(170 000)"), "position 12: expected `,` or `)`, found '0'");
        assert_eq!(refusal("a b"), "position 3: expected the end, found 'b'");
        assert_eq!(refusal("a(\u{e9})"), "position 3: expected a name or a number, found '\u{e9}'");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}x{}", "x(".repeat(depth - 1), ")".repeat(depth - 1));
        assert!(Expr::parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(Expr::parse(&nested(MAX_DEPTH + 1)), Err(FormError::TooDeep { limit: MAX_DEPTH }));
        assert_eq!(Expr::parse(&"x(".repeat(2_000)), Err(FormError::TooDeep { limit: MAX_DEPTH }));
    }

    #[test]
    fn length_is_bounded() {
        assert!(Expr::parse(&"x".repeat(MAX_BYTES)).is_ok());
        assert_eq!(
            Expr::parse(&"x".repeat(MAX_BYTES + 1)),
            Err(FormError::TooLong { bytes: MAX_BYTES + 1, limit: MAX_BYTES })
        );
    }

    #[test]
    fn a_whole_number_is_digits_and_underscores_only() {
        let whole = |number: &str| Expr::parse(&format!("n({number})")).unwrap().whole("n", None, "digits");
        assert_eq!(whole("170_000"), Ok(170_000));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["-1", "+1", "1.0", "1e3", "18446744073709551616", "x", "x(1)"] {
            assert!(matches!(whole(bad), Err(FormError::Value { .. })), "{bad}");
        }
        assert_eq!(whole("-1").unwrap_err().to_string(), "n: -1 given; allowed is digits");
    }

    #[test]
    fn a_refusal_stays_short() {
        let long = format!("n({})", "9".repeat(4_000));
        let error = Expr::parse(&long).unwrap().whole("n", None, "less").unwrap_err();
        assert!(error.to_string().len() < 120);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Expr::parse(&text);
        }

        #[test]
        fn any_text_of_the_right_letters_is_read_or_refused(text in r"[a-c(),0-9_.\- \n]{0,60}") {
            if let Ok(expr) = Expr::parse(&text) {
                let _ = (expr.whole("x", None, ""), Fraction::read(&expr, "x"), expr.nothing("x"));
            }
        }
    }
}
