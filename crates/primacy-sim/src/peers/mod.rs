//! Elections among peers: the production voters and clerks beside the candidates, on disks that fail and over a network that
//! loses, delays and is cut.
//!
//! Who carries frames is written anew here, after `crates/primacy/src/peers`: one connection for each asker and voter, made
//! again when it breaks; one task for each voter that flushes before it answers. What is simulated and what is checked:
//! `docs/design/simulation.md`.

mod chooser;
mod client;
mod operators;
mod promises;
mod setting;
mod strikes;
mod tcp;
mod voter;
mod wire;

use std::collections::BTreeMap;

use primacy_core::quorum::{Membership, Round, VoterId};

use crate::world::World;
use client::Client;
use promises::Ledger;
use voter::Booth;
use wire::{Connection, Cuts, Frame};

pub use chooser::Chooser;
pub(crate) use operators::Meant;
pub(crate) use setting::Setting;

/// What there is beside the candidates.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    booths: Vec<Booth>,
    clients: BTreeMap<u64, Client>,
    connections: BTreeMap<u64, Connection>,
    cuts: Cuts,
    ledger: Ledger,
}

/// Something that will happen among peers.
#[derive(Debug)]
pub(crate) enum What {
    /// A voter's process is started, if there is none.
    Start { voter: usize },
    /// A stopped voter may go on.
    Resume { voter: usize },
    /// What was to be flushed is on disk, or is not.
    Flushed { voter: usize, life: u64 },
    /// A voter's promise may have ended.
    Ends { voter: usize, life: u64 },
    /// A connection is made, or has failed by then.
    Dialed { connection: u64, by: u64 },
    /// Frames reach an end of a connection.
    Arrive { connection: u64, at_voter: bool },
    /// One frame does, that keeps no order.
    Stray { connection: u64, at_voter: bool, frame: Box<Frame> },
    /// A sender looks whether something must be sent again.
    Resend { connection: u64, at_voter: bool },
    /// An asker waits no longer for an answer over a connection.
    Silent { client: u64, connection: u64 },
    /// An asker makes a connection anew.
    Redial { client: u64, connection: u64 },
    /// An asker waits no longer for those that are not needed.
    Curious { client: u64, round: Round },
    /// An asker's questions may be overdue.
    Overdue { client: u64 },
    /// An asker other than a candidate gives up.
    GiveUp { client: u64, calls: u64 },
    /// An operator tries again.
    Retry { client: u64 },
    /// The adversary strikes.
    Strike,
    /// Somebody's score changes.
    Score,
    /// Faults have ended.
    Healed,
}

fn voter_id(voter: usize) -> VoterId {
    VoterId::from_bits(voter as u128 + 1)
}

fn index_of(voter: VoterId) -> usize {
    usize::try_from(voter.to_bits()).unwrap_or(usize::MAX).wrapping_sub(1)
}

impl World {
    /// Whether the lease is granted by voters here, and not by a store.
    pub(crate) fn has_peers(&self) -> bool {
        self.scenario.peers.is_some()
    }

    /// The voters are set up, and begin to be struck.
    pub(crate) fn begin_peers(&mut self) {
        let Some(setting) = &self.scenario.peers else { return };
        let hosts = setting.voters + self.nodes.len() + 1;
        self.peers.cuts = Cuts::among(hosts);
        self.peers.booths = setting.ppm.iter().map(|ppm| Booth::new(*ppm)).collect();
        for voter in 0..self.peers.booths.len() {
            let soon = self.rng.below(crate::nanos(self.scenario.longest) / 8);
            self.after_peers(soon, What::Start { voter });
        }
        self.plan_strike();
        self.plan_score();
    }

    /// Something that will happen has come.
    pub(crate) fn happen_peers(&mut self, what: What) {
        match what {
            What::Start { voter } => self.start_voter(voter),
            What::Resume { voter } => self.resume_voter(voter),
            What::Flushed { voter, life } => self.flushed(voter, life),
            What::Ends { voter, life } => self.promise_ends(voter, life),
            What::Dialed { connection, by } => self.dialed(connection, by),
            What::Arrive { connection, at_voter } => self.arrive_frames(connection, at_voter),
            What::Resend { connection, at_voter } => self.resend(connection, at_voter),
            What::Stray { connection, at_voter, frame } => self.arrive_stray(connection, at_voter, *frame),
            What::Silent { client, connection } => self.hear(client, client::Heard::Silence { connection }),
            What::Redial { client, connection } => self.hear(client, client::Heard::Redial { connection }),
            What::Curious { client, round } => self.hear(client, client::Heard::Enough { round }),
            What::Overdue { client } => self.hear(client, client::Heard::Overdue),
            What::GiveUp { client, calls } => self.give_up(client, calls),
            What::Retry { client } => self.retry_errand(client),
            What::Strike => self.strike_peers(),
            What::Score => self.score(),
            What::Healed => self.healed(),
        }
    }

    pub(crate) fn after_peers(&mut self, wait: u64, what: What) {
        self.after(wait, crate::world::Happening::Peers(what));
    }

    fn membership(&self) -> Membership {
        let voters = (0..self.peers.booths.len()).map(voter_id).collect();
        Membership::new(voters).expect("every world of peers has voters")
    }
}
