//! Neighbours that may reach a store and have no rights in it, and use it as hard as they can.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use primacy::{Election, ElectionName};
use tokio::runtime::{Builder, Runtime};

use super::Server;
use crate::clock::Moment;
use crate::rng::Rng;

/// What candidates of a run stand for.
const ELECTION: &str = "default";
/// The pause after each burst, so that a flood of one neighbour leaves processors to the others.
const BETWEEN_BURSTS: Duration = Duration::from_millis(5);
/// How many hints there are in a burst: four thousand in a second.
const BURST: i64 = 20;
/// The role of the neighbour.
const STRANGER: &str = "chaos_stranger";
/// How many connections the neighbour has open at once.
const CONNECTIONS: usize = 200;
/// The longest that anything but the flood itself may take.
const PATIENCE: Duration = Duration::from_secs(2);

impl Server {
    /// A role that may connect, and has no rights on any table, notifies on the election's channel.
    pub(crate) fn flood_hints(&self, span: Duration) -> Result<()> {
        let end = Moment::now() + span;
        self.sql(&format!(
            "DO $$ BEGIN CREATE ROLE {STRANGER} LOGIN PASSWORD 'x'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        ))?;
        let url = self.url(&self.doors()).replacen("//primacy:", &format!("//{STRANGER}:"), 1);
        let mut config: tokio_postgres::Config = url.parse()?;
        config.password("x").connect_timeout(PATIENCE);
        let (runtime, mut bursts) = (runtime()?, 0);
        while Moment::now() < end {
            // Other faults may end its session.
            let _ = runtime
                .block_on(async { tokio::time::timeout(end.since(Moment::now()), notify(&config, &mut bursts)).await });
            thread::park_timeout(BETWEEN_BURSTS);
        }
        if bursts == 0 {
            bail!("no hint was sent");
        }
        Ok(())
    }
}

async fn notify(config: &tokio_postgres::Config, bursts: &mut usize) -> Result<()> {
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    // The channel is that of primacy's statements. What is the same is notified once in each transaction.
    let statement = client
        .prepare(
            "SELECT pg_notify('primacy_' || left(encode(sha256(convert_to($1::text, 'UTF8')), 'hex'), 32), n::text) \
             FROM generate_series($2::bigint, $3::bigint) AS n",
        )
        .await?;
    loop {
        let first = *bursts as i64 * BURST;
        client.execute(&statement, &[&ELECTION, &first, &(first + BURST)]).await?;
        *bursts += 1;
        if driver.is_finished() {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_BURSTS).await;
    }
}

/// Touches the hint file of the election in a store's file, and puts other things in its place.
pub(crate) fn flood_hint_file(url: &str, span: Duration) -> Result<()> {
    let end = Moment::now() + span;
    let folder = format!("{}.hints", url.trim_start_matches("sqlite:"));
    let file = Path::new(&folder).join(ELECTION);
    let (mut round, mut touches) = (0_usize, 0);
    while Moment::now() < end {
        for _ in 0..BURST {
            touches += 1;
            if let Ok(opened) = fs::OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(&file) {
                let _ = opened.set_modified(UNIX_EPOCH + Duration::from_millis(touches));
            }
        }
        if round.is_multiple_of(4) {
            remove(&file);
            // A leader may have made its own again just now.
            let _ = match round / 4 % 4 {
                0 => mkfifo(&file, Mode::S_IRWXU).map_err(Into::into),
                1 => fs::create_dir(&file),
                2 => symlink("/dev/zero", &file),
                _ => fs::write(&file, "9223372036854775807\n"),
            };
        }
        round += 1;
        thread::park_timeout(BETWEEN_BURSTS);
    }
    remove(&file);
    if round == 0 {
        bail!("no hint was sent");
    }
    Ok(())
}

fn remove(file: &Path) {
    let _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
}

/// Looks at elections that nobody has ever claimed, and opens connections of which some say nonsense, some break off, and the
/// others say nothing.
pub(crate) fn flood_voters(url: &str, voters: &[SocketAddrV4], span: Duration, draw: usize) -> Result<()> {
    let end = Moment::now() + span;
    let mut rng = Rng::new(draw as u64);
    let own = rng.fork();
    thread::scope(|scope| {
        let names = scope.spawn(move || look(url, end, own));
        let mut open = VecDeque::new();
        while Moment::now() < end {
            let voter = SocketAddr::V4(voters[rng.index(voters.len())]);
            match TcpStream::connect_timeout(&voter, PATIENCE) {
                Ok(mut connection) => {
                    if rng.percent(40) {
                        let said: Vec<u8> = (0..rng.index(64)).map(|_| rng.below(256) as u8).collect();
                        let _ = connection.write_all(&said);
                    }
                    if !rng.percent(30) {
                        open.push_back(connection);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::AddrNotAvailable) => {
                    thread::park_timeout(BETWEEN_BURSTS);
                }
                // It may be about to be started again.
                Err(_) => {}
            }
            if open.len() > CONNECTIONS {
                open.pop_front();
            }
            thread::park_timeout(BETWEEN_BURSTS / 10);
        }
        match names.join() {
            Ok(Ok(0)) => bail!("no election was looked at"),
            Ok(looks) => looks.map(drop),
            Err(_) => bail!("a flood has panicked"),
        }
    })
}

/// How many names were looked at.
fn look(url: &str, end: Moment, mut rng: Rng) -> Result<usize> {
    let store = Election::open(url, ELECTION)?.store().clone();
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut looks = 0;
        while Moment::now() < end {
            let Ok(mut admin) = store.admin().await else { continue };
            while Moment::now() < end {
                let name = ElectionName::new(format!("flood-{:x}", rng.bits()))?;
                match tokio::time::timeout(PATIENCE, admin.snapshot(&name)).await {
                    Ok(Ok(_)) => looks += 1,
                    _ => break,
                }
            }
        }
        Ok(looks)
    })
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
