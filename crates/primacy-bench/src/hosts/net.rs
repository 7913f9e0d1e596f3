//! Hosts on one machine: network namespaces, joined by a switch of this process that loses frames and cuts hosts off.
//!
//! Each host has one wire, a veth; the switch reads and writes whole frames at its other end. So the kernel's TCP talks to itself
//! and retransmits what is lost, and nobody needs a firewall, a kernel module or rights outside of this run's own network.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, socket};

use crate::entropy::Entropy;
use crate::proc;

/// Says that a process is in a network of its own: that of the process with this number, which is the same one.
const MARK: &str = "PRIMACY_BENCH_NETWORK";
/// What a host calls its end of the wire.
const ITS_END: &str = "eth0";
/// The hardware address of every host: with one for all, nobody has to ask whose it is.
const EVERYBODY: &str = "02:00:00:00:00:01";
/// The network that all hosts are in; its last number is a host's own.
const NETWORK: [u8; 3] = [10, 77, 0];
/// What losses are counted in.
const MILLE: u64 = 1_000;

/// Goes on as the same process in a network of its own, in which names and addresses are free. Whatever is there is gone with
/// its last process, however that ends.
pub(super) fn enter() -> Result<()> {
    let own = std::process::id().to_string();
    if std::env::var(MARK).is_ok_and(|network| network == own) {
        return Ok(());
    }
    let mut again = unshare(&["--net"]);
    again.arg("--").arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(MARK, own);
    Err(again.exec()).context("no unshare")
}

/// The words before others that make namespaces.
pub(super) fn unshare(which: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(which);
    if !nix::unistd::geteuid().is_root() {
        // Still the same user, whom files belong to, with rights in this network alone.
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command
}

/// A host: processes and a network of its own. All that runs there ends with this, and with this process, however that ends.
#[derive(Debug)]
pub(super) struct Host {
    /// Its first process ends when nobody holds its standard input, and takes all others with it.
    holder: Child,
    init: String,
}

impl Host {
    fn begin() -> Result<Self> {
        let mut hold = unshare(&["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]);
        hold.args(["--", "sh", "-c", "ip link set lo up && echo && exec cat"]);
        let mut holder = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no unshare")?;
        let mut ready = holder.stdout.take().context("it is piped")?;
        ready.read_exact(&mut [0]).context("no namespaces: this needs root, or user namespaces")?;
        let init = proc::children(holder.id()).first().context("a host without a process")?.to_string();
        Ok(Self { holder, init })
    }

    /// A command that runs a program there.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--net", "--pid", "--mount", "--"]).arg(program).stdin(Stdio::null());
        command
    }

    /// Whether no TCP connection there waits for anything: for an answer to what was sent, or to be made.
    pub(super) fn is_calm(&self) -> Result<bool> {
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.init))?;
        Ok(table.lines().skip(1).all(|line| {
            // Its number, both addresses, state, queues, timer, and how often the oldest was sent again.
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, state, _, _, again, ..] = words[..] else { return false };
            // Those that are closing wait for a peer that may never hear of it, and nobody waits for them.
            !matches!(state, "02" | "03") && (state != "01" || again == "00000000")
        }))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// What a host can be cut off from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// It hears nothing.
    pub(super) deaf: bool,
    /// It is not heard.
    pub(super) mute: bool,
}

#[derive(Debug)]
struct Port {
    wire: File,
    deaf: AtomicBool,
    mute: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    ports: Vec<Port>,
    /// How many frames of a thousand are lost.
    loss: AtomicU64,
    passed: AtomicU64,
    lost: AtomicU64,
}

/// Hosts and the switch between them. Hosts are numbered from 0.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) hosts: Vec<Host>,
    shared: Arc<Shared>,
}

impl Net {
    /// Lays it. This process must be in a network of its own.
    pub(super) fn lay(count: u8, seed: u64) -> Result<Self> {
        let hosts: Vec<Host> = (0..count).map(|_| Host::begin()).collect::<Result<_>>()?;
        let ports = hosts.iter().enumerate().map(|(n, host)| wire(n, host)).collect::<Result<_>>()?;
        let [loss, passed, lost] = [0, 0, 0].map(AtomicU64::new);
        let shared = Arc::new(Shared { ports, loss, passed, lost });
        for n in 0..hosts.len() {
            let (shared, entropy) = (Arc::clone(&shared), Entropy(seed ^ ((n as u64 + 1) << 48)));
            // Ends when the wire is gone.
            thread::spawn(move || shared.forward(n, entropy));
        }
        Ok(Self { hosts, shared })
    }

    /// From now on this host is cut off so, or is not.
    pub(super) fn cut(&self, host: usize, cut: Cut) {
        self.shared.ports[host].deaf.store(cut.deaf, SeqCst);
        self.shared.ports[host].mute.store(cut.mute, SeqCst);
    }

    /// From now on this many frames of a thousand are lost.
    pub(super) fn lose(&self, per_mille: u64) {
        self.shared.loss.store(per_mille, SeqCst);
    }

    /// How many frames were passed on so far, and how many were lost by chance.
    pub(super) fn frames(&self) -> [u64; 2] {
        [&self.shared.passed, &self.shared.lost].map(|count| count.load(SeqCst))
    }
}

/// How TCP here chooses its pace.
pub(super) fn congestion_control() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default().trim().to_owned()
}

/// Where other hosts find this one.
pub(super) fn address(host: usize) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, host as u8 + 1)
}

impl Shared {
    /// Passes on what this host sends, until its wire is gone.
    fn forward(&self, from: usize, mut entropy: Entropy) {
        let mut buffer = [0; 1 << 16];
        let own = &self.ports[from];
        loop {
            let Ok(length) = (&own.wire).read(&mut buffer) else { return };
            let frame = &mut buffer[..length];
            let Some(to) = destination(frame).and_then(|n| self.ports.get(n)) else { continue };
            if own.mute.load(SeqCst) || to.deaf.load(SeqCst) {
                continue;
            }
            if entropy.next() % MILLE < self.loss.load(SeqCst) {
                self.lost.fetch_add(1, SeqCst);
                continue;
            }
            complete(frame);
            // What a wire does not take is lost, as on any other.
            if (&to.wire).write(frame).is_ok() {
                self.passed.fetch_add(1, SeqCst);
            }
        }
    }
}

/// Lays the wire of a host, and takes this end of it.
fn wire(n: usize, host: &Host) -> Result<Port> {
    // The kernel takes wires away some time after their hosts: a number is used once.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let ours = format!("host{}", NEXT.fetch_add(1, SeqCst));
    let words = format!(
        // A frame that the sender's network card would cut into many is none that a switch sees.
        "ip link add {ours} gso_max_segs 1 type veth peer name {ITS_END} gso_max_segs 1 netns {0}
         ip link set {ours} addrgenmode none up
         nsenter --target {0} --net ip link set {ITS_END} address {EVERYBODY} arp off addrgenmode none
         nsenter --target {0} --net ip address add {1}/24 dev {ITS_END}
         nsenter --target {0} --net ip link set {ITS_END} up",
        host.init,
        address(n),
    );
    let output = Command::new("sh").args(["-ec", &words]).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("no wire to a host: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let here = getifaddrs()?.find(|one| one.interface_name == ours).and_then(|one| one.address);
    let here = here.as_ref().and_then(|address| address.as_link_addr()).context("a wire without an end")?;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    bind(socket.as_raw_fd(), here)?;
    Ok(Port { wire: File::from(socket), deaf: AtomicBool::new(false), mute: AtomicBool::new(false) })
}

/// In a frame: where what the hardware needs ends, and the packet begins.
const PACKET: usize = 14;

/// The host that a frame is for.
fn destination(frame: &[u8]) -> Option<usize> {
    let packet = frame.get(PACKET..)?;
    let is_ours = frame[12..PACKET] == [8, 0] && packet.get(16..19)? == NETWORK;
    if is_ours { usize::from(*packet.get(19)?).checked_sub(1) } else { None }
}

/// Fills in the checksum of a TCP segment, which the kernel leaves to the network card: a wire of this kind has none.
fn complete(frame: &mut [u8]) {
    let packet = &mut frame[PACKET..];
    let Some([first, _, high, low]) = packet.first_chunk().copied() else { return };
    let (start, end) = (usize::from(first & 15) * 4, usize::from(u16::from_be_bytes([high, low])));
    // A short packet is followed by padding.
    if end > packet.len() || end < start + 20 || packet[9] != 6 {
        return;
    }
    let addresses = sum(&packet[12..20]);
    let segment = &mut packet[start..end];
    segment[16..18].fill(0);
    let mut total = addresses + 6 + segment.len() as u64 + sum(segment);
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    segment[16..18].copy_from_slice(&(!(total as u16)).to_be_bytes());
}

fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    bytes.chunks(2).map(word).sum()
}
