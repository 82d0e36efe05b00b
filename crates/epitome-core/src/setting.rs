//! Why a setting was refused.

use crate::expr::FormError;

/// Why a setting was refused: a policy, a slot, a request for a context, a template, or a name. It means: mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SettingError {
    /// Which of its fields.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl SettingError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }

    pub(crate) fn of(field: &'static str) -> impl Fn(FormError) -> Self {
        move |error| Self::new(field, error.0)
    }
}

/// Lets serde read a value from its text, as [`FromStr`](std::str::FromStr) does.
macro_rules! from_text {
    ($form:ty) => {
        impl TryFrom<String> for $form {
            type Error = $crate::setting::SettingError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    };
}
pub(crate) use from_text;
