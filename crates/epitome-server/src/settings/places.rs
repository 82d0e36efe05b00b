//! The program's surroundings: its environment and the user's folders, as values.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Whose manners folders follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Os {
    /// `~/.config`, `~/.local/share`, unless XDG's variables say otherwise.
    Unix,
    /// `~/Library/Application Support`.
    Mac,
    /// `%APPDATA%`, `%LOCALAPPDATA%`.
    Windows,
}

/// What the program finds around it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The folder it was started in.
    pub(crate) here: PathBuf,
    /// Whose manners folders follow.
    pub(crate) os: Os,
}

impl World {
    /// Where this process runs.
    pub(crate) fn of_process() -> Self {
        let os = match std::env::consts::OS {
            "macos" => Os::Mac,
            "windows" => Os::Windows,
            _ => Os::Unix,
        };
        // Where the folder is gone, names are looked up from it all the same, and fail there.
        Self { env: std::env::vars_os().collect(), here: std::env::current_dir().unwrap_or_default(), os }
    }

    /// A variable; what is empty is as good as not set.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        let found = self.env.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// The same, where it is text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.var(name).and_then(OsStr::to_str).map(str::to_owned)
    }

    /// The user's own folder.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let name = if self.os == Os::Windows { "USERPROFILE" } else { "HOME" };
        self.var(name).map(PathBuf::from)
    }

    /// Where the user keeps settings of ours.
    pub(crate) fn config_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config", "APPDATA")
    }

    /// Where the user's programs keep what is theirs.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")
    }

    fn folder(&self, xdg: &str, under_home: &str, windows: &str) -> Option<PathBuf> {
        let base = match self.os {
            // A relative one is to be passed over, says XDG.
            Os::Unix => match self.var(xdg).map(PathBuf::from).filter(|path| path.is_absolute()) {
                Some(path) => path,
                None => self.home()?.join(under_home),
            },
            Os::Mac => self.home()?.join("Library/Application Support"),
            Os::Windows => PathBuf::from(self.var(windows)?),
        };
        Some(base.join("epitome"))
    }

    /// A path as it is meant: `~/` is the user's folder, and what is relative starts from `base`.
    pub(crate) fn meant(&self, path: &str, base: &Path) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(os: Os, env: &[(&str, &str)]) -> World {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        World { env, here: PathBuf::from("/here"), os }
    }

    #[test]
    fn each_system_has_its_places() {
        let home = [("HOME", "/home/ann")];
        let plain = world(Os::Unix, &home);
        assert_eq!(plain.config_folder(), Some("/home/ann/.config/epitome".into()));
        assert_eq!(plain.data_folder(), Some("/home/ann/.local/share/epitome".into()));
        let set =
            world(Os::Unix, &[("HOME", "/home/ann"), ("XDG_DATA_HOME", "/data"), ("XDG_CONFIG_HOME", "c")]);
        assert_eq!(set.data_folder(), Some("/data/epitome".into()));
        assert_eq!(
            set.config_folder(),
            Some("/home/ann/.config/epitome".into()),
            "a relative one is passed over"
        );
        let mac = world(Os::Mac, &home);
        assert_eq!(mac.data_folder(), Some("/home/ann/Library/Application Support/epitome".into()));
        let windows = world(Os::Windows, &[("APPDATA", "/r"), ("LOCALAPPDATA", "/l")]);
        assert_eq!(
            (windows.config_folder(), windows.data_folder()),
            (Some("/r/epitome".into()), Some("/l/epitome".into()))
        );
        assert_eq!(world(Os::Unix, &[("HOME", "")]).data_folder(), None);
    }

    #[test]
    fn paths_mean_what_people_mean() {
        let plain = world(Os::Unix, &[("HOME", "/home/ann")]);
        let meant = |path| plain.meant(path, Path::new("/etc"));
        assert_eq!(meant("~/a.db"), Path::new("/home/ann/a.db"));
        assert_eq!((meant("a.db"), meant("/a.db")), ("/etc/a.db".into(), "/a.db".into()));
    }
}
