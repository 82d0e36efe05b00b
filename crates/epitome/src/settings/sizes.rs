//! Sizes that whoever runs the engine answers for, with its memory: workspaces and sessions may lower them, not raise them.

use super::{Patch, Settings, SettingsError};

impl Settings {
    /// Refuses a patch that asks for larger things than these settings allow.
    pub(crate) fn check_sizes(&self, patch: &Patch) -> Result<(), SettingsError> {
        let wanted = self.with(patch)?.sizes();
        let over = wanted.into_iter().zip(self.sizes()).find(|((_, given), (_, most))| given > most);
        match over {
            None => Ok(()),
            Some(((key, given), (_, most))) => Err(SettingsError::Wrong {
                key: key.to_owned(),
                problem: format!("{given} given; at most {most}, as the engine's settings say"),
            }),
        }
    }

    /// These, with nothing larger than others allow, which may have been lowered since these were set.
    #[must_use]
    pub(crate) fn no_larger_than(mut self, others: &Self) -> Self {
        let limits = &mut self.limits;
        let own = [
            &mut self.context.max_tokens,
            &mut limits.message,
            &mut limits.batch,
            &mut limits.body,
            &mut limits.metadata,
        ];
        for (size, (_, most)) in own.into_iter().zip(others.sizes()) {
            *size = most.min(*size);
        }
        self
    }

    fn sizes(&self) -> [(&'static str, u64); 5] {
        [
            ("context.max_tokens", self.context.max_tokens),
            ("limits.message", self.limits.message),
            ("limits.batch", self.limits.batch),
            ("limits.body", self.limits.body),
            ("limits.metadata", self.limits.metadata),
        ]
    }
}
