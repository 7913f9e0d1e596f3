//! Peers of this run, in the place of a server.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// Three voters on this machine, each a process with a folder of its own. They end with this.
pub(crate) struct Peers {
    voters: Vec<Child>,
    addresses: Vec<SocketAddr>,
    list: String,
    _folder: TempDir,
}

impl Peers {
    /// Starts them, and waits until they vote together.
    pub(crate) fn start(primacy: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let names = ["a", "b", "c"];
        // Free until these are dropped, and nobody here asks for a port of a given number.
        let sockets: Vec<TcpListener> =
            names.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
        let addresses = sockets.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
        let mut list = String::new();
        for (name, address) in names.iter().zip(&addresses) {
            let comma = if list.is_empty() { "" } else { "," };
            write!(list, "{comma}{name}@{address}")?;
        }
        drop(sockets);
        let start = |name: &&str| {
            let own = folder.path().join(name);
            let mut command = Command::new(primacy);
            command.args(["peer", "--name", name, "--peers", &list, "--dir"]).arg(own);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().with_context(|| format!("cannot run {}", primacy.display()))
        };
        let voters = names.iter().map(start).collect::<Result<_>>()?;
        let peers = Self { voters, addresses, list, _folder: folder };
        let ready = Command::new(primacy).args(["list", "--wait", "20s", "--store", &peers.url()]).output()?;
        if !ready.status.success() {
            bail!("the peers do not come together: {}", String::from_utf8_lossy(&ready.stderr));
        }
        Ok(peers)
    }

    pub(crate) fn url(&self) -> String {
        format!("peers://{}", self.list)
    }

    /// Where they listen.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.voters.iter().map(Child::id).collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for voter in &mut self.voters {
            // One that has ended already needs neither.
            let _ = voter.kill();
            let _ = voter.wait();
        }
    }
}
