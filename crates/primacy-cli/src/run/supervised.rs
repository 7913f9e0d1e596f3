//! A runner that an agent has started. It holds a lock, by which the agent and its successors know that it or its warden lives.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::status_file::BOOT_ID;

/// Which process a runner is: its number may come to mean another one, and with when it began it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessMark {
    /// Its number.
    pub(crate) pid: i32,
    /// When it began, as the kernel says: in clock ticks since the machine was started.
    pub(crate) began: u64,
    /// Where that is so: on which machine since its last start, and in which PID namespace.
    pub(crate) place: String,
}

impl ProcessMark {
    /// The process that has this number now.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may have anything in it; behind it the state is the third field, and the start the 22nd.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
        let began = fields.split(' ').nth(19).and_then(|field| field.parse().ok());
        let began = began.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))?;
        Ok(Self { pid: pid.as_raw(), began, place: Self::here()? })
    }

    /// Where this process is.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn here() -> io::Result<String> {
        let boot = std::fs::read_to_string(BOOT_ID)?;
        Ok(format!("{} {}", boot.trim(), std::fs::read_link("/proc/self/ns/pid")?.display()))
    }
}

/// Begins `primacy __supervised FILES run …`: `primacy run`, whose standard input is the lock, which is returned. FILES is how many
/// files the program may have open unless it asks for more; the agent may have more.
///
/// # Errors
/// If this was not started by an agent.
pub(crate) fn begin(args: &mut impl Iterator<Item = OsString>) -> Result<OwnedFd, ExitCode> {
    let files = args.next();
    let lock = take_lock().map_err(|error| {
        let _ = writeln!(io::stderr(), "primacy: a runner cannot be had: {error}");
        ExitCode::from(2)
    })?;
    if let Some(current) = files.and_then(|files| files.to_str()?.parse().ok()) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // A program that has more than it expects is better than none.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum });
    }
    Ok(lock)
}

/// Takes the lock from standard input, puts nothing in its place, and notes in it which process has it.
fn take_lock() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    let lock = stdin.as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut file = File::from(lock.try_clone()?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("this command is primacy's own; use `primacy run`"));
    }
    let mut line = serde_json::to_vec(&ProcessMark::of(Pid::this())?)?;
    line.push(b'\n');
    // Behind what the agent has written, by the offset that is theirs together.
    file.write_all(&line)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_marked_by_its_number_and_its_beginning() {
        let own = ProcessMark::of(Pid::this()).expect("it lives");
        assert_eq!((own.pid, Some(&own)), (Pid::this().as_raw(), ProcessMark::of(Pid::this()).ok().as_ref()));
        let first = ProcessMark::of(Pid::from_raw(1)).expect("it lives");
        assert!(first.began < own.began, "{first:?} {own:?}");
        assert!(ProcessMark::of(Pid::from_raw(i32::MAX)).is_err());
    }
}
