//! Finding the program before anything is promised to it, and becoming it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{AccessFlags, Pid, access};
use serde::{Deserialize, Serialize};

/// The exit code for a program that cannot be executed.
pub(super) const CANNOT_EXECUTE: u8 = 126;
/// The exit code for a program that does not exist.
const NOT_FOUND: u8 = 127;

/// Why a program cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// What to say.
    pub(crate) message: String,
    /// What shells exit with.
    pub(super) code: u8,
}

/// Checks that the program exists and may be executed, as `execvp` would look for it, so that a typing error is told
/// at once and not when this candidate leads in the middle of the night.
pub(super) fn check(name: &OsStr) -> Result<(), Unusable> {
    check_in(name, env::var_os("PATH"), Path::new(""))
}

/// The same with this `PATH`, from this folder.
pub(crate) fn check_in(name: &OsStr, path: Option<OsString>, folder: &Path) -> Result<(), Unusable> {
    let shown = primacy::internal::escape(&name.to_string_lossy());
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![folder.join(name)]
    } else {
        let path = path.unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
        env::split_paths(&path).map(|listed| folder.join(listed).join(name)).collect()
    };
    if candidates.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    if candidates.iter().any(|path| path.exists()) && !name.is_empty() {
        return Err(Unusable { message: format!("{shown}: cannot be executed"), code: CANNOT_EXECUTE });
    }
    Err(Unusable { message: format!("{shown}: command not found"), code: NOT_FOUND })
}

fn is_executable(path: &Path) -> bool {
    const FORMAT: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let regular = path.metadata().is_ok_and(|metadata| metadata.mode() & FORMAT == REGULAR);
    regular && access(path, AccessFlags::X_OK).is_ok()
}

/// `primacy __exec PARENT RIGHTS CMD ARG…`: becomes the program, after asking the kernel to kill it if its parent dies.
///
/// The request survives becoming another program, so no code need run between fork and exec. The parent is compared
/// after the request, for the case that it died just before.
pub(crate) fn become_program(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok()).map(Pid::from_raw);
    let rights = args.next().and_then(|word| Rights::read(&word));
    let (Some(rights), Some(program)) = (rights, args.next()) else { return ExitCode::from(2) };
    if nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_err() || parent != Some(Pid::parent()) {
        return ExitCode::from(128 + 9);
    }
    // A program that gained the rights of another user could not be killed any more by who started it.
    if rights == Rights::Fixed && nix::sys::prctl::set_no_new_privs().is_err() {
        return ExitCode::from(CANNOT_EXECUTE);
    }
    // The warden blocks all signals to read them in order; a program that inherited that would be deaf to its end.
    if SigSet::empty().thread_set_mask().is_err() {
        return ExitCode::from(CANNOT_EXECUTE);
    }
    let error = Command::new(&program).args(args).exec();
    let shown = primacy::internal::escape(&program.to_string_lossy());
    // Standard error may be closed; the exit code tells as well.
    let _ = writeln!(io::stderr(), "primacy: {shown}: {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE })
}

/// Whether a program may gain rights that its starter has not, by a setuid file or file capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rights {
    /// It never gains any: `no_new_privs`.
    Fixed,
    /// It may.
    Gainable,
}

impl Rights {
    /// Of a program that this process starts: where it may end the processes of every user, nothing needs to be fixed.
    pub(super) fn of_program(allow: bool) -> Self {
        if allow || super::process_tree::may_kill_all() { Self::Gainable } else { Self::Fixed }
    }

    /// On the hidden command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Gainable => "gainable",
        }
    }

    fn read(word: &OsStr) -> Option<Self> {
        [Self::Fixed, Self::Gainable].into_iter().find(|rights| rights.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_like_a_shell_finds_them() {
        assert_eq!(check(OsStr::new("sh")), Ok(()));
        assert_eq!(check(OsStr::new("/bin/sh")), Ok(()));
        assert_eq!(check(OsStr::new("no-such-program-here")).map_err(|error| error.code), Err(NOT_FOUND));
        assert_eq!(check(OsStr::new("/no/such/program")).map_err(|error| error.code), Err(NOT_FOUND));
        assert_eq!(check(OsStr::new("")).map_err(|error| error.code), Err(NOT_FOUND));
        assert_eq!(check(OsStr::new("/etc")).map_err(|error| error.code), Err(CANNOT_EXECUTE));
        assert_eq!(check(OsStr::new("/etc/passwd")).map_err(|error| error.code), Err(CANNOT_EXECUTE));
    }
}
