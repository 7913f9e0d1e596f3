//! The warden of a node: a small process that outlives the node, and gives its leaderships back when the kernel says that it is dead.
//!
//! It believes only the kernel: a pidfd of the node. A node that is stopped is not dead, and its leases run out.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use primacy::store::{self, Holder, Version};
use primacy::{CandidateId, DeadLeaderRelease, ElectionName, Label, Token};
use serde::{Deserialize, Serialize};

/// The first word of the command line that starts it.
pub(crate) const WORD: &str = "__kv-warden";

/// What a node tells its warden: one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The first words. The store's URL is told here and not in the arguments, where other users could read it.
    Hello { store: String, patience_ms: u64 },
    /// The node was granted an election.
    Granted { election: String, id: String, label: String, token: u64, beat: u64 },
    /// That is over.
    Ended { election: String },
    /// The node ends, and holds nothing any more.
    Farewell,
}

/// A node's end of the line to its warden.
pub(super) struct Warden {
    _process: Child,
    socket: UnixStream,
}

impl Warden {
    /// Starts it, in a process group of its own: what the terminal sends is the node's to handle.
    pub(super) fn start(store: &str, patience: Duration) -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0("primacy")
            .arg(WORD)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        // A warden that does not read must not stop the node.
        socket.set_nonblocking(true)?;
        let warden = Self { _process: process, socket };
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        warden.tell(&Told::Hello { store: store.to_owned(), patience_ms });
        Ok(warden)
    }

    pub(super) fn granted(&self, election: &ElectionName, holder: &Holder, version: Version) {
        self.tell(&Told::Granted {
            election: election.as_str().to_owned(),
            id: holder.id.to_string(),
            label: holder.label.as_str().to_owned(),
            token: version.token.get(),
            beat: version.beat,
        });
    }

    pub(super) fn ended(&self, election: &ElectionName) {
        self.tell(&Told::Ended { election: election.as_str().to_owned() });
    }

    pub(super) fn farewell(&self) {
        self.tell(&Told::Farewell);
    }

    fn tell(&self, told: &Told) {
        let Ok(mut line) = serde_json::to_vec(told) else { return };
        line.push(b'\n');
        if let Err(error) = (&self.socket).write_all(&line) {
            tracing::debug!(%error, "the warden does not listen: when this node is killed, its leases run out");
        }
    }
}

/// `primacy __kv-warden`: standard input is the socket to the node.
pub(crate) fn main() -> ExitCode {
    if SigSet::all().thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    match watch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "primacy: the warden of a node failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch() -> io::Result<()> {
    let parent = Pid::parent();
    let pid = rustix::process::Pid::from_raw(parent.as_raw()).ok_or_else(|| io::Error::other("no parent"))?;
    let node = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    if Pid::parent() != parent {
        return Err(io::Error::other("the node died before it was watched"));
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(socket).lines();
    let (mut hello, mut held) = (None, BTreeMap::new());
    // The socket ends with the node, or a moment before.
    while let Some(Ok(line)) = lines.next() {
        match serde_json::from_str(&line) {
            Ok(Told::Hello { store, patience_ms }) => {
                hello = Some((store::from_url(&store).map_err(io::Error::other)?, Duration::from_millis(patience_ms)));
            }
            Ok(Told::Granted { election, id, label, token, beat }) => {
                held.insert(election, (id, label, token, beat));
            }
            Ok(Told::Ended { election }) => drop(held.remove(&election)),
            Ok(Told::Farewell) => return Ok(()),
            Err(_) => return Err(io::Error::other("this command is primacy's own; use `primacy kv`")),
        }
    }
    let Some((store, patience)) = hello.filter(|_| !held.is_empty()) else { return Ok(()) };
    let wait = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    if poll(&mut [PollFd::new(node.as_fd(), PollFlags::POLLIN)], wait)? == 0 {
        return Ok(()); // it lives, and its leases run out by themselves
    }
    let release = |(election, (id, label, token, beat)): (String, (String, String, u64, u64))| {
        let (id, label) = (id.parse::<CandidateId>().ok()?, Label::new(label).ok()?);
        Some(DeadLeaderRelease {
            store: store.clone(),
            election: ElectionName::new(election).ok()?,
            holder: Holder { id, label, data: String::new() },
            version: Version { token: Token::new(token)?, beat },
        })
    };
    let releases: Vec<_> = held.into_iter().filter_map(release).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(DeadLeaderRelease::execute_all(releases, patience));
    Ok(())
}
