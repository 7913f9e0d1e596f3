//! The paper's other line: Curator's leader latch on three ZooKeeper servers, with its settings.
//!
//! Needs Debian's `libzookeeper-java`, `libcurator-recipes-java`, `libslf4j-java` and a JDK of 17 or later.

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use primacy_bench::Spread;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// The lowest that the paper could set: two ticks of two seconds.
const TICK_MS: u32 = 2_000;
const SESSION_MS: u32 = 2 * TICK_MS;

const LATCH: &str = include_str!("Latch.java");
const JARS: &str = "/usr/share/java";
const CLASSES: [&str; 8] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-nop",
    "guava",
];

/// How long nobody led after each silent loss of the leader, among this many clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Latched {
    pub(super) candidates: usize,
    pub(super) gaps_ms: Vec<u64>,
}

impl Latched {
    pub(super) fn gaps(&self) -> Spread {
        Spread::of(self.gaps_ms.iter().copied().map(Duration::from_millis).collect())
    }
}

impl fmt::Display for Latched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper, session {SESSION_MS} ms, {:>5} clients: nobody led for {}", self.candidates, self.gaps())
    }
}

/// Starts three servers, and loses the leader among this many clients this many times.
///
/// # Errors
/// When Java or a library is missing, or the servers or clients do not do what is asked.
pub(super) fn measure(candidates: usize, losses: u32) -> Result<Latched> {
    let servers = Servers::start()?;
    let source = servers.folder.path().join("Latch.java");
    fs::write(&source, LATCH)?;
    let mut client = java("3g")
        .arg(&source)
        .arg(servers.list())
        .args([candidates.to_string(), SESSION_MS.to_string(), losses.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run java")?;
    let told = client.stdout.take().context("a pipe")?;
    let gaps_ms = BufReader::new(told)
        .lines()
        .map(|line| line?.parse().context("not a number of milliseconds"))
        .collect::<Result<Vec<u64>>>();
    let status = client.wait()?;
    let gaps_ms = gaps_ms?;
    ensure!(status.success() && gaps_ms.len() == losses as usize, "the clients ended with {status}");
    Ok(Latched { candidates, gaps_ms })
}

fn java(memory: &str) -> Command {
    let classes = CLASSES.map(|name| format!("{JARS}/{name}.jar")).join(":");
    let mut command = Command::new("java");
    command.args(["-Xss256k", &format!("-Xmx{memory}"), "-cp", &classes]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

/// Three servers on this machine. They end with this.
struct Servers {
    servers: Vec<Child>,
    ports: Vec<u16>,
    folder: TempDir,
}

impl Servers {
    fn start() -> Result<Self> {
        for name in CLASSES {
            let jar = Path::new(JARS).join(format!("{name}.jar"));
            ensure!(
                jar.is_file(),
                "{} is missing: install libzookeeper-java and libcurator-recipes-java",
                jar.display()
            );
        }
        let folder = tempfile::tempdir()?;
        // For clients, for followers and for elections. Free until these are dropped.
        let sockets: Vec<TcpListener> =
            (0..9).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
        let ports = sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect::<Result<Vec<u16>>>()?;
        drop(sockets);
        let ensemble: String =
            (0..3).map(|n| format!("server.{}=127.0.0.1:{}:{}\n", n + 1, ports[3 + n], ports[6 + n])).collect();
        let mut all = Self { servers: Vec::new(), ports: ports[..3].to_vec(), folder };
        for (n, port) in ports[..3].iter().enumerate() {
            let own = all.folder.path().join(n.to_string());
            fs::create_dir_all(&own)?;
            fs::write(own.join("myid"), (n + 1).to_string())?;
            let config = own.join("zoo.cfg");
            fs::write(
                &config,
                format!(
                    "tickTime={TICK_MS}\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
                     maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{ensemble}",
                    own.display(),
                ),
            )?;
            let mut server = java("512m");
            server.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
            let log = fs::File::create(own.join("log"))?;
            server.stdout(log.try_clone()?).stderr(log);
            all.servers.push(server.spawn().context("cannot run java")?);
        }
        all.await_leader()?;
        Ok(all)
    }

    fn list(&self) -> String {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Waits until one leads and two follow.
    fn await_leader(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let modes: Vec<String> = self.ports.iter().filter_map(|port| mode(*port).ok().flatten()).collect();
            let count = |mode: &str| modes.iter().filter(|other| *other == mode).count();
            if count("leader") == 1 && count("follower") == 2 {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the servers do not come together");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What a server says of itself.
fn mode(port: u16) -> Result<Option<String>> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.write_all(b"srvr")?;
    let mut told = String::new();
    socket.read_to_string(&mut told)?;
    Ok(told.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned)))
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One that has ended already needs neither.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
