//! Defines the error for invalid settings.

use crate::expr::FormError;

/// Reason why a setting is invalid: a policy, a slot, a context request, a template or a name. The caller
/// must fix the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SettingError {
    /// The invalid field.
    pub field: &'static str,
    /// What is wrong with the field, and what is expected.
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

/// Implements `TryFrom<String>` for a type with [`FromStr`](std::str::FromStr), so that serde can read the
/// type from its text.
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
