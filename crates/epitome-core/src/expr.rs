//! Parses the form `name(argument, ...)` in which triggers, keeps and strategies are written.
//!
//! People type settings, and untrusted clients send them. Therefore every text results either in an expression or in an
//! error. The error contains the position and the expected input. Depth and length are limited, so that no text can
//! exhaust the stack. [`crate::trigger`], [`crate::keep`] and [`crate::strategy`] define the meaning of the names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::Visitor;

use crate::suggest::did_you_mean;

/// Maximum length of an expression in bytes. It applies to the typed text and to the printed form.
pub(crate) const MAX_BYTES: usize = 4 << 10;

/// Maximum nesting depth of an expression.
pub(crate) const MAX_DEPTH: usize = 32;

/// The reason why a text form, such as `any(messages(20), idle(60))`, was rejected. The caller must correct the
/// setting.
///
/// Positions in the error message count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormError(pub(crate) String);

impl FormError {
    /// Creates the error for a value that is not allowed.
    pub(crate) fn value(field: &str, value: impl fmt::Display, allowed: &str) -> Self {
        Self(format!("{field}: {value} is not allowed; expected {allowed}"))
    }

    /// Creates the error for a missing value that has no default.
    pub(crate) fn missing(field: &str, allowed: &str) -> Self {
        Self(format!("{field}: a value is missing; expected {allowed}"))
    }

    pub(crate) fn too_deep() -> Self {
        Self(format!("the expression: nested too deeply; at most {MAX_DEPTH} levels are allowed"))
    }

    /// Creates the error for a share of the model's window if the window is unknown.
    pub(crate) fn no_window(fraction: impl fmt::Display) -> Self {
        Self(format!("window({fraction}): the model's window is unknown; set `window` for that model"))
    }
}

/// A name and its arguments. `name` and `name()` are the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Expr<'a> {
    pub(crate) name: &'a str,
    /// Position of the name in the text, from 1.
    at: usize,
    pub(crate) args: Vec<Arg<'a>>,
}

/// An argument. A number is stored as the typed text for two reasons: its allowed range depends on the name, and an
/// error message repeats the typed text.
#[derive(Debug, PartialEq)]
pub(crate) enum Arg<'a> {
    Number(&'a str),
    Expr(Expr<'a>),
}

impl fmt::Display for Arg<'_> {
    /// Formats the argument for an error message, shortened if it is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) => f.write_str(&clipped(text)),
            Self::Expr(expr) if expr.args.is_empty() => f.write_str(&clipped(expr.name)),
            Self::Expr(expr) => write!(f, "{}(...)", clipped(expr.name)),
        }
    }
}

impl<'a> Expr<'a> {
    /// Parses `text`, which must be exactly one expression.
    pub(crate) fn parse(text: &'a str) -> Result<Self, FormError> {
        check_length(text.len())?;
        let mut reader = Reader { text, rest: text };
        let expr = reader.expr(1)?;
        reader.space();
        if reader.rest.is_empty() { Ok(expr) } else { Err(reader.unexpected("the end")) }
    }

    /// Returns the error for an unknown name. It suggests the most similar of the `allowed` names.
    pub(crate) fn unknown(&self, allowed: &str) -> FormError {
        let (name, similar) = (clipped(self.name), did_you_mean(self.name, allowed.split(", ")));
        FormError(format!("position {}: `{name}` is unknown; {similar}expected one of {allowed}", self.at))
    }

    /// Checks that there are at most `allowed` arguments.
    pub(crate) fn at_most(&self, allowed: usize) -> Result<(), FormError> {
        let (name, args) = (self.name, self.args.len());
        if args > allowed {
            return Err(FormError(format!("{name}: too many arguments ({args}); the maximum is {allowed}")));
        }
        Ok(())
    }

    /// Returns the only argument, which must be a whole number of at least `least`. If there is no argument, returns
    /// `default`.
    pub(crate) fn whole(&self, default: Option<u64>, (least, allowed): Whole) -> Result<u64, FormError> {
        let Some(arg) = self.only()? else {
            return default.ok_or_else(|| FormError::missing(self.name, allowed));
        };
        let refused = |allowed| FormError::value(self.name, arg, allowed);
        let Arg::Number(text) = arg else { return Err(refused(allowed)) };
        let digits = text.replace('_', "");
        // `parse` would also accept a leading plus sign.
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refused(allowed));
        }
        let number: u64 = digits.parse().map_err(|_| refused("a number of at most 19 digits"))?;
        if number < least { Err(refused(allowed)) } else { Ok(number) }
    }

    /// Returns the only argument, or `None` if there is no argument.
    pub(crate) fn only(&self) -> Result<Option<&Arg<'a>>, FormError> {
        self.at_most(1)?;
        Ok(self.args.first())
    }
}

/// The smallest allowed number, and a description of the allowed numbers.
pub(crate) type Whole = (u64, &'static str);

/// Prints the form that [`Expr::parse`] reads.
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

fn check_length(bytes: usize) -> Result<(), FormError> {
    if bytes > MAX_BYTES {
        return Err(FormError(format!(
            "the expression: {bytes} bytes when written in full; at most {MAX_BYTES} are allowed"
        )));
    }
    Ok(())
}

/// Shortens a text for an error message, so that the error stays one readable line.
fn clipped(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Parser state. All accepted text is ASCII. Up to the first error, a byte position is therefore also a character
/// position.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn expr(&mut self, depth: usize) -> Result<Expr<'a>, FormError> {
        if depth > MAX_DEPTH {
            return Err(FormError::too_deep());
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
        // Reads any text that starts like a number. The number is checked later, so that the error for `-1` or `1e3x`
        // shows the whole value.
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-')) {
            let number = self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-'));
            return Ok(Arg::Number(number));
        }
        Err(self.unexpected("a name or a number"))
    }

    fn space(&mut self) {
        self.take(|c| c.is_ascii_whitespace());
    }

    fn eat(&mut self, expected: char) -> bool {
        self.space();
        let Some(rest) = self.rest.strip_prefix(expected) else { return false };
        self.rest = rest;
        true
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn at(&self) -> usize {
        self.text.len().saturating_sub(self.rest.len()).saturating_add(1)
    }

    fn unexpected(&self, expected: &str) -> FormError {
        let found = self.rest.chars().next().map_or("the end".to_owned(), |c| format!("{c:?}"));
        FormError(format!("position {}: expected {expected}, found {found}", self.at()))
    }
}

fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// A type that is written as `name(argument, ...)`.
pub(crate) trait TextForm: fmt::Display + Sized {
    /// Name of the type, for error messages.
    const WHAT: &'static str;
    const EXAMPLE: &'static str;

    fn read(expr: &Expr<'_>) -> Result<Self, FormError>;
}

/// Parses a value from its text form. Rejects a text whose printed form is too long to be parsed again. The printed
/// form can be longer than the typed text, because it contains defaults and spaces.
pub(crate) fn parse<T: TextForm>(text: &str) -> Result<T, FormError> {
    let form = T::read(&Expr::parse(text)?)?;
    check_length(form.to_string().len())?;
    Ok(form)
}

/// Deserializes a type from its text form. An error contains the name of the type and an example.
pub(crate) struct Text<T>(pub(crate) PhantomData<T>);

impl<T: TextForm> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} such as {:?}", T::WHAT, T::EXAMPLE)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        parse(text).map_err(|error| E::custom(format_args!("{}: {error}", T::WHAT)))
    }
}

/// Implements [`FromStr`](std::str::FromStr) and serde for a type by its text form.
macro_rules! by_text {
    ($form:ty) => {
        impl std::str::FromStr for $form {
            type Err = $crate::expr::FormError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::expr::parse(text)
            }
        }

        impl serde::Serialize for $form {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $form {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::expr::Text(std::marker::PhantomData))
            }
        }
    };
}
pub(crate) use by_text;

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
        assert_eq!(idle.whole(None, (0, "")), Ok(1_000));
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
        assert_eq!(Expr::parse(&nested(MAX_DEPTH + 1)), Err(FormError::too_deep()));
        assert_eq!(Expr::parse(&"x(".repeat(2_000)), Err(FormError::too_deep()));
    }

    #[test]
    fn length_is_bounded() {
        assert!(Expr::parse(&"x".repeat(MAX_BYTES)).is_ok());
        assert_eq!(
            Expr::parse(&"x".repeat(MAX_BYTES + 1)),
            Err(FormError(
                "the expression: 4097 bytes when written in full; at most 4096 are allowed".to_owned()
            ))
        );
    }

    #[test]
    fn a_whole_number_is_digits_and_underscores_only() {
        let whole = |number: &str| Expr::parse(&format!("n({number})")).unwrap().whole(None, (0, "digits"));
        assert_eq!(whole("170_000"), Ok(170_000));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["-1", "+1", "1.0", "1e3", "18446744073709551616", "x", "x(1)"] {
            assert!(whole(bad).unwrap_err().0.contains(" is not allowed; expected "), "{bad}");
        }
        assert_eq!(whole("-1").unwrap_err().to_string(), "n: -1 is not allowed; expected digits");
    }

    #[test]
    fn a_refusal_stays_short() {
        let long = format!("n({})", "9".repeat(4_000));
        let error = Expr::parse(&long).unwrap().whole(None, (0, "less")).unwrap_err();
        assert!(error.to_string().len() < 130);
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Expr::parse(&text);
        }

        #[test]
        fn any_text_of_the_right_letters_is_read_or_refused(text in r"[a-c(),0-9_.\- \n]{0,60}") {
            if let Ok(expr) = Expr::parse(&text) {
                let _ = (expr.whole(None, (0, "")), Fraction::read(&expr), expr.at_most(0));
            }
        }
    }
}
