//! One process of a store: private, in a folder of this run, and gone with it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::proc;

/// How long whatever a store does at its start may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A command that can be started again.
pub(super) struct Process {
    words: Vec<String>,
    folder: PathBuf,
    /// How much longer than the disk each flush takes.
    flush_delay: Duration,
    child: Option<Child>,
}

impl Process {
    /// Starts it in a folder of its own.
    pub(super) fn start(words: Vec<String>, folder: PathBuf, flush_delay: Duration) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut process = Self { words, folder, flush_delay, child: None };
        process.start_again()?;
        Ok(process)
    }

    pub(super) fn start_again(&mut self) -> Result<()> {
        self.kill();
        // The kernel ends it with this process, however that ends.
        let mut words: Vec<String> = ["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned).into();
        if !self.flush_delay.is_zero() {
            // The same for every program, whether or not it reaches the kernel through a library. The tracer is the grandchild.
            let inject = format!("inject=fsync,fdatasync:delay_exit={}", self.flush_delay.as_micros());
            let trace = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"];
            words.extend(trace.map(str::to_owned));
            words.extend(["-e".to_owned(), "trace=fsync,fdatasync".to_owned(), "-e".to_owned(), inject]);
        }
        words.extend(self.words.iter().cloned());
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("cannot run {}", self.words[0]))?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The process that was started.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// It, and all that it has started.
    pub(super) fn family(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.pid().into_iter().collect();
        let mut at = 0;
        while let Some(pid) = found.get(at) {
            found.extend(proc::children(*pid));
            at += 1;
        }
        found
    }

    /// Kills it and all that it has started.
    pub(super) fn kill(&mut self) {
        for pid in self.family() {
            signal(pid, Signal::SIGKILL);
        }
        if let Some(mut child) = self.child.take() {
            // It was killed.
            let _ = child.wait();
        }
    }

    /// CPU time of all of it.
    pub(super) fn cpu(&self) -> Duration {
        self.pid().map_or(Duration::ZERO, proc::cpu_with_children)
    }

    /// The last lines of what it has said.
    pub(super) fn said(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        ensure!(ended.is_none(), "{} has ended:\n{}", self.words[0], self.said());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process of this run. One that has ended needs none.
pub(super) fn signal(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid as i32), signal);
}

/// Waits until something holds that other processes bring about.
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > end {
            bail!("waited {PATIENCE:?} in vain for {what}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Addresses on loopback that are free now, and are not among those that the kernel gives to clients.
pub(super) fn addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let ports = (0..count).map(|_| primacy_servers::Port::free()).collect::<Result<Vec<_>, _>>()?;
    Ok(ports.iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))).collect())
}

/// Whether somebody listens there.
pub(super) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Which of these processes listens on a port.
pub(super) fn listener(pids: &[u32], port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let wanted = format!(":{port:04X}");
    let inode = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(1)?.ends_with(&wanted) && *words.get(3)? == "0A").then(|| words.get(9).map(ToString::to_string))?
    })?;
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    let has = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target == socket)
    };
    pids.iter().copied().find(has)
}

/// Fails where a program is not installed.
pub(super) fn require(program: &str, package: &str) -> Result<()> {
    ensure!(
        primacy_servers::is_installed(program),
        "`{program}` is not installed: install the Debian package {package}"
    );
    Ok(())
}

/// Whether a folder's file is there, else which package brings it.
pub(super) fn require_file(file: &Path, package: &str) -> Result<()> {
    ensure!(file.is_file(), "{} is missing: install the Debian package {package}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener_socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener_socket.local_addr().expect("it is bound").port();
        assert_eq!(listener(&[1, std::process::id()], port), Some(std::process::id()));
        drop(listener_socket);
        assert_eq!(listener(&[std::process::id()], port), None);
    }
}
