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

/// Where a program looks for the agent unless something else is said: that of its user, if there is one. Whose the folder is that the
/// environment names counts: of another user's, as after `sudo -E`, anybody could be the agent.
pub(crate) fn agent_of_host() -> PathBuf {
    let own = |folder: &Path| folder.metadata().is_ok_and(|folder| folder.uid() == geteuid().as_raw());
    let socket = runtime_folder().filter(|folder| own(folder)).map(|folder| folder.join(SOCKET));
    socket.filter(|socket| socket.exists()).unwrap_or_else(of_system)
}

fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

fn of_system() -> PathBuf {
    Path::new("/run").join(SOCKET)
}
