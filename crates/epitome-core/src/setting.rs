//! Defines the error for invalid settings.

use crate::expr::FormError;

/// Reason why a setting is invalid. The setting may be a policy, a slot, a context request, a template or a name. The
/// caller must fix the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SettingError {
    /// The invalid field.
    pub field: &'static str,
    /// Description of the problem, and of the expected value.
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

/// Implements `TryFrom<String>` for a type that implements [`FromStr`](std::str::FromStr). Serde can then read the type
/// from its text form.
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
