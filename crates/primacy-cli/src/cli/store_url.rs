//! Where the election's record is kept when nobody says: a file in the state directory.

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

/// The default store's folder: systemd's state directory, else XDG's, else the one of the home directory, else the
/// system's.
pub(crate) fn default_folder() -> PathBuf {
    folder_from(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

/// Creates the default store's folder, for this user alone. Only who campaigns does that; an observer leaves nothing
/// behind.
pub(crate) fn create_default_folder() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(default_folder())
}

/// The default store as a URL, or the path that cannot be written as one.
pub(crate) fn default_url() -> Result<String, PathBuf> {
    let path = default_folder().join("primacy.db");
    match path.to_str() {
        Some(text) => Ok(format!("sqlite:{text}")),
        None => Err(path),
    }
}

/// Where the voter with this name keeps its file unless told otherwise.
pub(crate) fn voter_folder(name: &str) -> PathBuf {
    default_folder().join(format!("peer-{name}"))
}

/// The folder of a node of the key-value store, unless another one is named.
#[cfg(feature = "kv")]
pub(crate) fn node_folder(name: &str) -> PathBuf {
    default_folder().join(format!("kv-{name}"))
}

fn folder_from(var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(listed) = var("STATE_DIRECTORY") {
        // systemd separates several with a colon; paths with one are not possible there.
        if let Some(first) = listed.to_string_lossy().split(':').find(|path| path.starts_with('/')) {
            return PathBuf::from(first);
        }
    }
    let absolute = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return state.join("primacy");
    }
    match absolute("HOME").filter(|home| home.parent().is_some()) {
        Some(home) => home.join(".local/state/primacy"),
        None => PathBuf::from("/var/lib/primacy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(vars: &[(&str, &str)]) -> PathBuf {
        folder_from(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_most_specific_place_is_taken() {
        let home = ("HOME", "/home/ann");
        assert_eq!(folder(&[home]), PathBuf::from("/home/ann/.local/state/primacy"));
        assert_eq!(folder(&[home, ("XDG_STATE_HOME", "/x")]), PathBuf::from("/x/primacy"));
        assert_eq!(folder(&[home, ("XDG_STATE_HOME", "relative")]), PathBuf::from("/home/ann/.local/state/primacy"));
        let systemd = ("STATE_DIRECTORY", "/var/lib/billing:/var/lib/other");
        assert_eq!(folder(&[home, ("XDG_STATE_HOME", "/x"), systemd]), PathBuf::from("/var/lib/billing"));
    }

    #[test]
    fn a_process_without_a_home_uses_the_systems_place() {
        assert_eq!(folder(&[]), PathBuf::from("/var/lib/primacy"));
        assert_eq!(folder(&[("HOME", "/")]), PathBuf::from("/var/lib/primacy"));
    }
}
