//! Where the socket of an agent is.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

const SOCKET: &str = "primacy/agent.sock";

/// Where an agent listens unless something else is said: in this user's runtime directory, or in that of the system.
pub(crate) fn default_socket(is_root: bool) -> PathBuf {
    let folder = runtime_folder().filter(|_| !is_root);
    folder.map_or_else(of_system, |folder| folder.join(SOCKET))
}

/// Where a program looks for the agent unless something else is said: that of its user, if there is one. Whose the folders are counts,
/// and who may write to them: of another user's, as after `sudo -E`, or in one for all, as `/tmp`, anybody could be the agent.
pub(crate) fn agent_of_host() -> PathBuf {
    runtime_folder().and_then(|folder| agent_in(&folder)).unwrap_or_else(of_system)
}

fn agent_in(folder: &Path) -> Option<PathBuf> {
    let socket = folder.join(SOCKET);
    let is_safe = is_own(folder) && socket.parent().is_some_and(is_own);
    Some(socket).filter(|socket| is_safe && socket.exists())
}

/// Whether a folder is this user's, and no other may write to it.
fn is_own(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|folder| folder.uid() == geteuid().as_raw() && folder.mode() & 0o022 == 0)
}

fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

fn of_system() -> PathBuf {
    Path::new("/run").join(SOCKET)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_agent_counts_only_where_no_other_user_could_have_put_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = folder.path().join("primacy");
        fs::create_dir(&own).expect("it is ours");
        fs::write(folder.path().join(SOCKET), "").expect("it is ours");
        let found = |of_folder, of_own| {
            for (path, mode) in [(folder.path(), of_folder), (&own, of_own)] {
                fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
            }
            agent_in(folder.path())
        };
        assert_eq!(found(0o755, 0o755), Some(folder.path().join(SOCKET)));
        // Also where only the owner may remove what others have put there, as in /tmp.
        for open in [0o1777, 0o775, 0o757] {
            assert_eq!(found(open, 0o755), None, "{open:o}");
            assert_eq!(found(0o755, open), None, "{open:o}");
        }
        assert_eq!(agent_in(Path::new("/nowhere")), None);
    }
}
