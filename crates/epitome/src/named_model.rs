//! A model with its name in the settings, and the choice between the configured models and the fallback.

use std::sync::Arc;

use crate::model::{Local, Model};
use crate::price::Price;
use crate::settings::Settings;
use crate::table;

/// Which models write a summary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelChoice {
    /// The models that the settings name. They build on the last summary that such a model wrote.
    Configured,
    /// `local` as the fallback. It builds on the current summary, no matter which model wrote the current summary.
    Fallback,
}

/// A model and its name in the settings.
#[derive(Clone)]
pub(crate) struct NamedModel {
    /// The model's name in the settings.
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
}

impl NamedModel {
    pub(crate) fn new(name: &str, model: &Arc<dyn Model>) -> Self {
        Self { name: name.to_owned(), model: Arc::clone(model) }
    }

    /// Returns the built-in extractive summarizer.
    pub(crate) fn local() -> Self {
        Self { name: Local::NAME.to_owned(), model: Arc::new(Local) }
    }

    /// Returns whether the model is the built-in extractive summarizer, under any name.
    pub(crate) fn is_local(&self) -> bool {
        self.model.is_built_in()
    }

    /// Returns the model's price; `None` if it is unknown. The setting `prices` takes precedence: it is searched for
    /// the model's name in the settings, and then for the provider's name of the model. Otherwise the price comes from
    /// the shipped table. For a model with a base URL of its own, the shipped table is not used, because that server
    /// has other prices.
    pub(crate) fn price(&self, settings: &Settings) -> Option<Price> {
        let set = |name: &str| settings.prices.get(name).copied();
        if self.is_local() {
            return set(&self.name).or(Some(Price::FREE));
        }
        let listed = || match settings.models.contains_key(&self.name) {
            true => settings.price(&self.name),
            false => table::find(self.model.name())?.price,
        };
        set(&self.name).or_else(|| set(self.model.name())).or_else(listed)
    }
}
