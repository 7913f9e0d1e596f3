//! A host of its own for a candidate: a network namespace with one wire to the run's, on which packets can be lost.
//!
//! A proxy ends connections itself, so the side behind it hears at least the kernel of this side. On a wire that is cut
//! nobody hears anything: no reset, no refusal, connections that one end believes in and the other has given up.
//!
//! Packets are lost by their sender's belief in a wrong hardware address: they leave as any others and are dropped by who
//! gets them. So each way is cut alone, no sender notices, and no firewall is needed.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result, bail};

/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:01";
/// What a candidate calls its end.
const ITS_END: &str = "eth0";

/// A namespace and the wire to it. Both are gone when the last process in it is.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Holds the namespace while no candidate is in it; ends with this process, which holds its standard input.
    holder: Child,
    /// Numbers are used once by each process, whose wires share a namespace.
    number: u16,
}

impl Wire {
    /// Lays one. The caller's own network must be a run's, in which names and addresses are free.
    pub(crate) fn lay() -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let mut hold = Command::new("unshare");
        hold.args(["--net", "--", "sh", "-c", "ip link set lo up && echo && exec cat"]);
        let mut holder = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no unshare")?;
        let mut ready = holder.stdout.take().context("it is piped")?;
        ready.read_exact(&mut [0]).context("no network namespace")?;
        let wire = Self { holder, number };
        let (ours, pid) = (wire.our_end(), wire.holder.id().to_string());
        ip(&["link", "add", &ours, "type", "veth", "peer", "name", ITS_END, "netns", &pid])?;
        ip(&["address", "add", &format!("{}/24", wire.our_address()), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        wire.ip_there(&["address", "add", &format!("{}/24", wire.its_address()), "dev", ITS_END])?;
        wire.ip_there(&["link", "set", ITS_END, "up"])?;
        Ok(wire)
    }

    fn our_end(&self) -> String {
        format!("wire{}", self.number)
    }

    /// Where it finds us.
    pub(crate) fn our_address(&self) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, high, low, 1)
    }

    /// Where others find it.
    pub(crate) fn its_address(&self) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, high, low, 2)
    }

    /// A command that runs a program there, as the process that is started.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--");
        command
    }

    /// From now on hosts that [reach others](Self::reach_others) do so through the caller's.
    pub(crate) fn forward() -> Result<()> {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("packets cannot be forwarded here")
    }

    /// What is sent there to other hosts goes through the caller's.
    pub(crate) fn reach_others(&self) -> Result<()> {
        self.ip_there(&["route", "add", "default", "via", &self.our_address().to_string()])
    }

    fn ip_there(&self, words: &[&str]) -> Result<()> {
        done(self.command().arg("ip").args(words))
    }

    /// From now on nothing arrives there.
    pub(crate) fn cut_in(&self) -> Result<()> {
        ip(&["neighbour", "replace", &self.its_address().to_string(), "lladdr", NOBODY, "dev", &self.our_end()])
    }

    /// From now on nothing that is sent there arrives here.
    pub(crate) fn cut_out(&self) -> Result<()> {
        self.ip_there(&["neighbour", "replace", &self.our_address().to_string(), "lladdr", NOBODY, "dev", ITS_END])
    }

    /// Everything arrives again.
    pub(crate) fn heal(&self) {
        // Which of them was cut is no matter: there may be nothing to forget.
        let _ = ip(&["neighbour", "flush", "dev", &self.our_end(), "nud", "permanent"]);
        let _ = self.ip_there(&["neighbour", "flush", "dev", ITS_END, "nud", "permanent"]);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn ip(words: &[&str]) -> Result<()> {
    done(Command::new("ip").args(words))
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{SocketAddr, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::world;

    /// Says to the test that it is in a network of its own.
    const INSIDE: &str = "PRIMACY_CHAOS_TEST_INSIDE";

    #[test]
    fn packets_are_lost_one_way_and_arrive_again() {
        if std::env::var_os(INSIDE).is_none() {
            let Ok(mut again) = world::unshare() else { return };
            let own = std::env::current_exe().expect("it runs");
            again.arg(own).args(["--exact", "site::wire::tests::packets_are_lost_one_way_and_arrive_again"]);
            let output = again.env(INSIDE, "1").output().expect("it is there");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let wire = Wire::lay().expect("this network is our own");
        let socket = UdpSocket::bind((wire.our_address(), 0)).expect("a port is free");
        let port = socket.local_addr().expect("it is bound").port();
        let mut teller = wire.command();
        let tell = format!("while :; do echo > /dev/udp/{}/{port}; done 2>/dev/null", wire.our_address());
        let mut teller = teller.args(["bash", "-c", &tell]).spawn().expect("it is there");
        // Nobody listens there, which only who hears a packet can answer.
        let hears = || {
            let there = SocketAddr::from((wire.its_address(), 9));
            let error = TcpStream::connect_timeout(&there, Duration::from_millis(300)).expect_err("nobody listens");
            assert!(matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut), "{error}");
            error.kind() == ErrorKind::ConnectionRefused
        };
        let is_heard = |patience: u64| {
            // What has arrived already tells nothing.
            socket.set_nonblocking(true).expect("it is open");
            while socket.recv(&mut [0; 8]).is_ok() {}
            socket.set_nonblocking(false).expect("it is open");
            socket.set_read_timeout(Some(Duration::from_millis(patience))).expect("it is open");
            socket.recv(&mut [0; 8]).is_ok()
        };
        assert!(is_heard(10_000) && hears());
        wire.cut_in().expect("the wire is there");
        assert!(is_heard(10_000) && !hears());
        wire.heal();
        assert!(is_heard(10_000) && hears());
        wire.cut_out().expect("the wire is there");
        assert!(!is_heard(300) && !hears());
        wire.heal();
        assert!(is_heard(10_000) && hears());
        teller.kill().expect("it runs");
        teller.wait().expect("it was started");
    }
}
