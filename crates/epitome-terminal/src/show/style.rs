//! Colours, where they are wanted.

/// When there are colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless the environment says `NO_COLOR`
    #[default]
    Auto,
    /// Also where it is piped
    Always,
    /// Nowhere
    Never,
}

/// Paints words, or leaves them as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    painted: bool,
}

impl Style {
    /// As asked for, on something that is a terminal or not.
    pub fn new(color: Color, terminal: bool, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let plain = || {
            env("NO_COLOR").is_some_and(|set| !set.is_empty())
                || env("TERM").is_some_and(|term| term == "dumb")
        };
        let painted = match color {
            Color::Auto => terminal && !plain(),
            Color::Always => true,
            Color::Never => false,
        };
        Self { painted }
    }

    /// Whether anything is painted at all.
    pub fn is_painted(self) -> bool {
        self.painted
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.painted && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Names, and what matters most.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What only goes with it.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// What is wrong.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What is well.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What should be looked at, and what was found.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Who speaks.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_told_otherwise() {
        let none = |_: &str| None;
        let no_color = |name: &str| (name == "NO_COLOR").then(|| "1".to_owned());
        let empty = |name: &str| (name == "NO_COLOR").then(String::new);
        let dumb = |name: &str| (name == "TERM").then(|| "dumb".to_owned());
        let painted = |color, terminal, env: &dyn Fn(&str) -> Option<String>| {
            Style::new(color, terminal, env).is_painted()
        };
        assert!(painted(Color::Auto, true, &none) && painted(Color::Auto, true, &empty));
        assert!(!painted(Color::Auto, false, &none) && !painted(Color::Auto, true, &no_color));
        assert!(!painted(Color::Auto, true, &dumb) && !painted(Color::Never, true, &none));
        assert!(painted(Color::Always, false, &no_color));
    }
}
