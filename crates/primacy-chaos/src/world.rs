//! A network and mounts of a run's own, where this user may have them: nothing on the machine changes, and whatever a run
//! leaves there is gone with its last process, however it ends.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Says that a process is in a world of its own: that of the process with this number, which is the same one.
const MARK: &str = "PRIMACY_CHAOS_WORLD";

/// What has to work there: to lay a wire is all that a run does.
const PROBE: &str = "ip link set lo up && ip link add wire0 type veth peer name wire1 && ip link delete wire0";

/// Goes on as the same process in a world of its own; says why that is not possible if it is not.
pub(crate) fn enter() -> Result<()> {
    let own = std::process::id().to_string();
    if std::env::var(MARK).is_ok_and(|world| world == own) {
        return up();
    }
    let mut again = unshare()?;
    again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(MARK, own);
    Err(again.exec().into())
}

/// The words before a command that run it in a new world, if that is possible.
pub(crate) fn unshare() -> Result<Command> {
    let words = || {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]);
        if !nix::unistd::geteuid().is_root() {
            // Still the same user, whom servers and files belong to, with rights in this world alone.
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command.arg("--");
        command
    };
    let probe = words().args(["sh", "-c", PROBE]).stdin(Stdio::null()).output().context("no unshare")?;
    if !probe.status.success() {
        bail!("{}", String::from_utf8_lossy(&probe.stderr).trim());
    }
    Ok(words())
}

/// Whether programs can have PID namespaces here: as root, or with a user namespace.
pub(crate) fn can_isolate() -> bool {
    let mut probe = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        probe.arg("--user");
    }
    let done = probe.args(["--pid", "--mount", "--fork", "--", "true"]).stdin(Stdio::null()).output();
    done.is_ok_and(|output| output.status.success())
}

/// Whether this process is in a world of its own.
pub(crate) fn is_own() -> bool {
    std::env::var(MARK).is_ok_and(|world| world == std::process::id().to_string())
}

/// In a new network not even this host can be reached.
fn up() -> Result<()> {
    let output = Command::new("ip").args(["link", "set", "lo", "up"]).output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
