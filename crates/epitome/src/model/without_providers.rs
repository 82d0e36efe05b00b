//! Replaces the module `remote` if network models are not compiled in, that is, without the cargo feature `providers`.

use std::sync::Arc;

use super::{Local, Model};
use crate::settings::{ModelSettings, Provider, SettingsError};

/// Returns the model that the settings describe. Only the built-in summarizer is available; every other provider is an
/// error.
pub(crate) fn of_settings(name: &str, settings: &ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    match settings.provider {
        Provider::Local => Ok(Arc::new(Local)),
        other => {
            let problem =
                format!("{} needs the cargo feature `providers` of the crate epitome", other.name());
            Err(SettingsError::new(format!("models.{name}.provider"), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_was_not_compiled_in_is_refused_by_the_feature_it_needs() {
        let settings =
            crate::Settings::parse(r#"{"models": {"m": {"provider": "openai", "model": "gpt-5-mini"}}}"#);
        let settings = settings.unwrap();
        let error = of_settings("m", &settings.models["m"]).err().unwrap();
        let expected = "models.m.provider: openai needs the cargo feature `providers` of the crate epitome";
        assert_eq!(error.to_string(), expected);
    }
}
