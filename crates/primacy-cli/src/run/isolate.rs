//! `run --isolate`: the program in a PID namespace of its own, which the kernel empties when its init process dies.
//!
//! Four processes stand in a chain: the warden, a *gate* that makes the namespace and stays outside, the namespace's
//! *init*, and the program. The kernel kills the gate with the warden, the init with the gate, and everything in the
//! namespace with the init, whatever it has forked, whose rights it has gained and which session it has begun. So no
//! process of primacy needs to be alive for that. The init is reaped only after the namespace is empty: its end proves
//! what the warden otherwise has to find out.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::process_tree::End;
use super::program::{CANNOT_EXECUTE, Rights};
use super::{EXEC, GATE, INIT, handover, process_tree};

/// The exit code of a process of the chain that could not do its work, or whose parent has died.
const KILLED: u8 = 128 + 9;

/// Whether this user may isolate programs here; otherwise what stands in the way.
pub(super) fn check() -> Result<(), String> {
    let output = Command::new("/proc/self/exe")
        .arg0("primacy")
        .args([GATE, &Pid::this().to_string(), Rights::Fixed.word(), "/proc/self/exe", "--version"])
        .stdin(Stdio::null())
        .output();
    let why = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(why)
}

/// `primacy __gate PARENT RIGHTS CMD ARG…`: makes the namespace, and stays until its init has ended.
pub(crate) fn gate(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok()).map(Pid::from_raw);
    // What comes by the process group is the init's to pass on.
    let blocked = SigSet::all().thread_block();
    let made = namespaces();
    // Becoming another user, also in a namespace, ends an earlier request.
    if blocked.is_err() || set_pdeathsig(Signal::SIGKILL).is_err() || parent != Some(Pid::parent()) {
        return ExitCode::from(KILLED);
    }
    match made.and_then(|()| stand_by(args)) {
        Ok(end) => end_as(end),
        Err(error) => fail(&error.to_string()),
    }
}

/// Ends this process as the program has ended, so that its parent can tell a signal from an exit code.
fn end_as(end: End) -> ExitCode {
    if let End::Signal(signal) = end
        && let Ok(signal) = Signal::try_from(signal)
        // It is no crash of this process.
        && set_dumpable(false).is_ok()
        && SigSet::empty().thread_set_mask().is_ok()
    {
        // Rust's handler of SIGSEGV and SIGBUS lets only the second one through.
        let _ = raise(signal).and_then(|()| raise(signal));
    }
    // This process ignores some signals, SIGPIPE for one.
    ExitCode::from(end.exit_code())
}

fn fail(why: &str) -> ExitCode {
    // Standard error may be closed; the exit code tells as well.
    let _ = writeln!(io::stderr(), "primacy: {why}");
    ExitCode::from(CANNOT_EXECUTE)
}

/// Namespaces for the children of this process: of processes and of mounts, and where that needs rights that this user
/// has not, of users.
fn namespaces() -> io::Result<()> {
    let own = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (user, group) = (geteuid(), getegid());
    match unshare(own) {
        Ok(()) => return Ok(()),
        Err(Errno::EPERM) => {}
        Err(error) => return Err(refused("a PID namespace", error)),
    }
    unshare(own | CloneFlags::CLONE_NEWUSER).map_err(|error| refused("a user namespace", error))?;
    // This user keeps its number, and nobody else has one.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // For the init, which mounts /proc and gives it up.
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::SYS_ADMIN, ..sets })?;
    Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

fn refused(what: &str, error: Errno) -> io::Error {
    io::Error::other(format!(
        "the kernel gives this user no {what} ({error}): see the limits user.max_user_namespaces and \
         user.max_pid_namespaces, kernel.apparmor_restrict_unprivileged_userns, and a container's seccomp profile",
        what = what.trim_start_matches("a "),
    ))
}

/// How the program has ended.
fn stand_by(command: impl Iterator<Item = OsString>) -> io::Result<End> {
    // Its end tells the init that this process is gone, should the kernel's signal have come too early. The init tells by it
    // which signal has ended the program: the first process of a namespace cannot end by a signal from inside.
    let (mut socket, other) = UnixStream::pair()?;
    let mut init = Command::new("/proc/self/exe")
        .arg0("primacy")
        .arg(INIT)
        .args(command)
        .stdin(Stdio::from(OwnedFd::from(other)))
        .spawn()?;
    handover::send(&socket, b"\n", io::stdin().as_fd(), None)?;
    let status = init.wait()?;
    // What it has said is there by now.
    socket.set_nonblocking(true)?;
    let mut signal = [0];
    match (socket.read(&mut signal), status.code()) {
        (Ok(1), _) => Ok(End::Signal(i32::from(signal[0]))),
        (_, Some(code)) => Ok(End::Code(code)),
        (_, None) => Ok(End::Signal(status.signal().unwrap_or_default())),
    }
}

/// `primacy __init RIGHTS CMD ARG…`: the first process of the namespace. Starts the program, passes signals on to it,
/// reaps, and ends as the program does; the kernel ends all that is left.
pub(crate) fn init(args: impl Iterator<Item = OsString>) -> ExitCode {
    if set_pdeathsig(Signal::SIGKILL).is_err() {
        return ExitCode::from(KILLED);
    }
    run(args).unwrap_or_else(|error| fail(&error.to_string()))
}

fn unmounted(error: Errno) -> io::Error {
    let advice = match error {
        Errno::EPERM | Errno::EACCES => {
            ": where parts of /proc are covered, as in most containers, or AppArmor forbids it, an ordinary user may mount none. Start \
             the container with an open /proc (docker: --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked) and \
             without that profile, run primacy as root with CAP_SYS_ADMIN, or leave --isolate out"
        }
        _ => "",
    };
    io::Error::other(format!("/proc cannot be mounted for the program ({error}){advice}"))
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let mut gate = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (_, stdin, _) = handover::receive(&gate)?;
    let none: Option<&str> = None;
    // Of all mounts only this one is apart: what the program mounts elsewhere is seen by everybody, as ever.
    mount(none, "/proc", none, MsFlags::MS_PRIVATE, none)
        .and_then(|()| {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("proc"), "/proc", Some("proc"), flags, none)
        })
        .map_err(unmounted)?;
    clear_ambient_capability_set()?;
    let signals = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let rights = args.next().unwrap_or_default();
    let program = Command::new("/proc/self/exe")
        .arg0("primacy")
        .args([EXEC.into(), Pid::this().to_string().into(), rights])
        .args(args)
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    let program = Pid::from_raw(i32::try_from(program.id()).map_err(io::Error::other)?);
    loop {
        let mut watched =
            [PollFd::new(gate.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if watched[0].any().unwrap_or(true) {
            // It says nothing more: it is gone.
            return Ok(ExitCode::from(KILLED));
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            match i32::try_from(signal.ssi_signo).map(Signal::try_from) {
                Ok(Ok(Signal::SIGCHLD)) => {}
                // From inside the namespace, where the program has signalled its first process. Nobody does for it what it
                // asks of another.
                Ok(Ok(_)) if signal.ssi_pid != 0 => {}
                // A program that is gone needs none.
                Ok(Ok(signal)) => drop(killpg(program, signal)),
                _ => {}
            }
        }
        for child in process_tree::children()? {
            if let Some(end) = process_tree::reap(child)
                && child == program
            {
                if let End::Signal(signal) = end {
                    // If it cannot be told, the exit code tells.
                    let _ = u8::try_from(signal).map(|signal| gate.write_all(&[signal]));
                }
                return Ok(ExitCode::from(end.exit_code()));
            }
        }
    }
}
