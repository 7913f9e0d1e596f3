//! A node with a planted bug, by the library: the shipped command knows none.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use primacy::peers::{PeerAddress, PeerSettings};
use primacy::store;
use primacy::{Timing, TimingSettings};
use primacy_core::log::Reading;
use primacy_kv::group::{AnyFlaw, PlantedFlaw};
use primacy_kv::server::clients::{Password, Settings};
use primacy_kv::server::node::{Event, NodeSettings, run_flawed};
use tokio::runtime::{Builder, LocalOptions};

use crate::timeline::say;

/// Which bug a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flaw {
    /// Who does not lead answers reads from its own table
    FollowerAnswersReads,
    /// A write is answered when it is appended
    AnswersBeforeApplied,
    /// A write that is sent again gets another number
    RepeatsForwarded,
}

/// What such a node is asked to be, in the words of `primacy kv`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FlawedNode {
    #[arg(long, value_enum)]
    flaw: Flaw,
    #[arg(long)]
    name: String,
    #[arg(long, value_delimiter = ',')]
    peers: Vec<PeerAddress>,
    #[arg(long)]
    lease: String,
    #[arg(long)]
    plaintext: bool,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    groups: u16,
    #[arg(long)]
    snapshot_every: String,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    password_file: Option<PathBuf>,
}

/// Runs until it is killed. It has no warden.
pub(crate) fn main(node: &FlawedNode) -> Result<()> {
    let millis = node.lease.strip_suffix("ms").context("the lease is in milliseconds")?.parse()?;
    let own = node.peers.iter().position(|peer| peer.name() == node.name).context("it is one of the peers")?;
    let places: Vec<String> = node.peers.iter().map(ToString::to_string).collect();
    let listen = places[own].split_once('@').context("a peer has a place")?.1.parse()?;
    let mut clients = Settings::new(node.listen);
    if let Some(file) = &node.password_file {
        clients.password = Password::new(std::fs::read(file)?);
    }
    let settings = NodeSettings {
        folder: node.dir.clone(),
        voter: PeerSettings::new(node.name.clone(), listen, node.peers.clone(), node.dir.join("voter")),
        store: store::from_url(&format!("peers://{}?plaintext=yes", places.join(",")))?,
        groups: node.groups,
        timing: Timing::new(TimingSettings::new(Duration::from_millis(millis)))?,
        reads: Reading::Lease,
        memory_max: None,
        snapshot_every: Some(node.snapshot_every.trim_end_matches("MiB").parse::<usize>()? << 20),
        clients,
    };
    let flaw = AnyFlaw::Group(match node.flaw {
        Flaw::FollowerAnswersReads => PlantedFlaw::FollowerAnswersReads,
        Flaw::AnswersBeforeApplied => PlantedFlaw::AnswersBeforeApplied,
        Flaw::RepeatsForwarded => PlantedFlaw::RepeatsForwarded,
    });
    let told = |event: &Event| match event {
        Event::Ready => say(r#"{"event":"ready"}"#),
        event => say(&format!("{event:?}")),
    };
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(run_flawed(settings, flaw, told, std::future::pending()))?;
    Ok(())
}
