//! A model under the name that settings choose it by, and who writes a summary.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Error;
use crate::model::{Local, Model};
use crate::price::Price;
use crate::settings::Settings;
use crate::table;

/// Who writes a summary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The models of the settings, built on the last summary that they wrote themselves.
    Models,
    /// `local` in their place, built on whatever stands.
    StandIn,
}

/// Refuses the name of a model that there is none of, by the setting it was found in.
pub(crate) fn unknown_model<'a>(key: &str, name: &str, known: impl Iterator<Item = &'a String>) -> Error {
    let known: BTreeSet<&str> = known.map(String::as_str).chain([Local::NAME]).collect();
    let known = Vec::from_iter(known).join(", ");
    Error::Invalid(format!("{key}: `{name}` is unknown; known here: {known}"))
}

/// A model as the settings know it.
#[derive(Clone)]
pub(crate) struct Writer {
    /// By which name it is chosen.
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
}

impl Writer {
    pub(crate) fn new(name: &str, model: &Arc<dyn Model>) -> Self {
        Self { name: name.to_owned(), model: Arc::clone(model) }
    }

    /// The summarizer that is built in.
    pub(crate) fn local() -> Self {
        Self { name: Local::NAME.to_owned(), model: Arc::new(Local) }
    }

    /// `local`, whatever it is called.
    pub(crate) fn is_local(&self) -> bool {
        self.model.is_built_in()
    }

    /// What it costs, where that is known: as set, by the name it is chosen by or by its own, else as the shipped table
    /// says. Whoever serves it at an address of one's own has prices of their own.
    pub(crate) fn price(&self, settings: &Settings) -> Option<Price> {
        let set = |name: &str| settings.prices.get(name).copied();
        if self.is_local() {
            return set(&self.name).or(Some(Price::FREE));
        }
        let known = || match settings.models.contains_key(&self.name) {
            true => settings.price(&self.name),
            false => table::find(self.model.name())?.price,
        };
        set(&self.name).or_else(|| set(self.model.name())).or_else(known)
    }
}
