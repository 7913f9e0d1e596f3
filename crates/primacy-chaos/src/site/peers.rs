//! Three voters in the place of a server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::flood::flood_voters;
use crate::process::MARK;

/// What they are called.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// A majority of these.
const MOST: usize = 2;
/// Between two looks at whether a voter listens, and how many there are.
const GLANCE: Duration = Duration::from_millis(20);
const GLANCES: usize = 500;

/// The voters. They end with this.
#[derive(Debug)]
pub(crate) struct Peers {
    primacy: PathBuf,
    folder: PathBuf,
    ports: Vec<u16>,
    running: Mutex<Vec<Option<Child>>>,
}

impl Peers {
    /// Starts them, and waits until they vote together.
    pub(crate) fn start(primacy: &Path, folder: &Path) -> Result<Self> {
        // Free until these are dropped, and nobody here asks for a port of a given number.
        let sockets: Vec<TcpListener> =
            NAMES.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
        let ports = sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect::<Result<_>>()?;
        drop(sockets);
        let running = Mutex::new(NAMES.iter().map(|_| None).collect());
        let peers = Self { primacy: primacy.to_owned(), folder: folder.to_owned(), ports, running };
        for n in 0..NAMES.len() {
            peers.begin(n)?;
        }
        let ready =
            Command::new(primacy).args(["list", "--wait", "20s", "--store", &peers.url(&peers.own())]).output()?;
        if !ready.status.success() {
            bail!("the peers do not come together: {}", String::from_utf8_lossy(&ready.stderr));
        }
        Ok(peers)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.ports.clone()
    }

    /// Where they are.
    pub(crate) fn own(&self) -> Vec<SocketAddrV4> {
        self.ports.iter().map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port)).collect()
    }

    /// The URL by which they are found at these addresses, which are in their order.
    pub(crate) fn url(&self, addresses: &[SocketAddrV4]) -> String {
        let peer = |(name, address): (&&str, &SocketAddrV4)| format!("{name}@{address}");
        let list: Vec<String> = NAMES.iter().zip(addresses).map(peer).collect();
        format!("peers://{}?plaintext=yes", list.join(","))
    }

    /// One voter, or most of them, are stopped and go on later.
    pub(crate) fn freeze(&self, span: Duration, draw: usize, most: bool) -> Result<()> {
        let chosen = chosen(draw, most);
        self.signal(&chosen, Signal::SIGSTOP)?;
        thread::park_timeout(span);
        self.signal(&chosen, Signal::SIGCONT)
    }

    /// One voter, or most of them, are killed, and come back later.
    pub(crate) fn kill(&self, span: Duration, draw: usize, most: bool) -> Result<()> {
        let chosen = chosen(draw, most);
        chosen.iter().try_for_each(|n| self.end(*n, Signal::SIGKILL))?;
        thread::park_timeout(span);
        chosen.iter().try_for_each(|n| self.begin(*n))
    }

    /// All are restarted, one after the other.
    pub(crate) fn restart(&self, draw: usize) -> Result<()> {
        for n in 0..NAMES.len() {
            let n = (n + draw % NAMES.len()) % NAMES.len();
            self.end(n, Signal::SIGTERM)?;
            self.begin(n)?;
        }
        Ok(())
    }

    /// A port for a copy of a voter, free until somebody listens there.
    pub(crate) fn free_port() -> Result<u16> {
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
    }

    /// A copy of a voter's folder is used by a second process, which listens at this port. It must end by itself.
    pub(crate) fn copy(&self, n: usize, port: u16) -> Result<()> {
        let name = NAMES[n % NAMES.len()];
        let copy = tempfile::Builder::new().prefix("copy-").tempdir_in(&self.folder)?;
        for entry in fs::read_dir(self.folder.join(format!("peer-{name}")))?.flatten() {
            // Its socket is not.
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
            }
        }
        let log = self.log(&format!("{name}-copy"))?;
        let listen = format!("127.0.0.1:{port}");
        let mut child =
            self.voter(name, copy.path()).args(["--listen", &listen]).stdout(log.try_clone()?).stderr(log).spawn()?;
        for _ in 0..GLANCES {
            if let Some(status) = child.try_wait()? {
                if status.success() {
                    bail!("the copy of peer {name} ended with {status}");
                }
                return Ok(());
            }
            thread::park_timeout(GLANCE);
        }
        child.kill()?;
        child.wait()?;
        bail!("the copy of peer {name} went on beside it for {:?}", GLANCE * GLANCES as u32)
    }

    /// Asks all of them for new elections, and opens connections to them, without end.
    pub(crate) fn flood(&self, span: Duration, draw: usize) -> Result<()> {
        let own = self.own();
        flood_voters(&self.url(&own), &own, span, draw)
    }

    fn log(&self, name: &str) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.folder.join(format!("peer-{name}.log")))?)
    }

    /// The command of a voter that keeps its file in this folder.
    fn voter(&self, name: &str, folder: &Path) -> Command {
        let list = self.url(&self.own());
        let list = list.trim_start_matches("peers://").split('?').next().unwrap_or_default();
        let mut command = Command::new(&self.primacy);
        command.args(["peer", "-v", "--name", name, "--peers", list, "--dir"]).arg(folder);
        command.stdin(Stdio::null()).env(MARK, &self.folder);
        command
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Child>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one, and waits until it listens.
    fn begin(&self, n: usize) -> Result<()> {
        let name = NAMES[n];
        let log = self.log(name)?;
        let mut command = self.voter(name, &self.folder.join(format!("peer-{name}")));
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("a peer cannot be started")?;
        self.lock()[n] = Some(child);
        for _ in 0..GLANCES {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[n])).is_ok() {
                return Ok(());
            }
            if let Some(child) = &mut self.lock()[n]
                && let Some(status) = child.try_wait()?
            {
                bail!("peer {name} has ended: {status}");
            }
            thread::park_timeout(GLANCE);
        }
        bail!("peer {name} does not listen")
    }

    fn end(&self, n: usize, signal: Signal) -> Result<()> {
        let Some(mut child) = self.lock()[n].take() else { return Ok(()) };
        send(&child, signal)?;
        child.wait()?;
        Ok(())
    }

    fn signal(&self, chosen: &[usize], signal: Signal) -> Result<()> {
        let running = self.lock();
        chosen.iter().filter_map(|n| running[*n].as_ref()).try_for_each(|child| send(child, signal))
    }
}

/// The voters that a fault strikes.
fn chosen(draw: usize, most: bool) -> Vec<usize> {
    let count = if most { MOST } else { 1 };
    (0..count).map(|n| (n + draw % NAMES.len()) % NAMES.len()).collect()
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
}

impl Drop for Peers {
    fn drop(&mut self) {
        for n in 0..NAMES.len() {
            // One that has ended already needs none.
            let _ = self.end(n, Signal::SIGKILL);
        }
    }
}
