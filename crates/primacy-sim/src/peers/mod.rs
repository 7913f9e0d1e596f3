//! Elections among peers: the production voters and clerks beside the candidates, on disks that fail and over a network that
//! loses, delays and is cut.
//!
//! A voter's process is that of the product ([`VoterHost`](primacy_core::quorum::VoterHost)). Who carries frames is written anew here,
//! after `crates/primacy/src/peers`: one connection for each asker and voter, made again when it breaks. What is simulated and what is
//! checked: `docs/design/simulation.md`.

mod across;
mod chooser;
mod client;
mod drive;
mod exchange;
mod operators;
mod pool;
mod promises;
mod rolls;
mod setting;
mod strikes;
mod tcp;
mod voter;
mod wire;

use primacy_core::Instant;
use primacy_core::quorum::{Membership, VoterId};

use crate::slots::Slots;
use crate::world::World;
use client::Client;
use exchange::Exchange;
use promises::Ledger;
use voter::{Booth, Disk};
use wire::{Connection, Cuts, Frame};

pub use chooser::Chooser;
pub(crate) use operators::Meant;
pub(crate) use setting::Setting;

/// What there is beside the candidates.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    booths: Vec<Booth>,
    clients: Slots<Client>,
    connections: Slots<Connection>,
    cuts: Cuts,
    ledger: Ledger,
    /// Where voters are exchanged.
    exchange: Option<Box<Exchange>>,
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
    /// An asker may have to ask again, or waits no longer for those that are not needed.
    Due { client: u64, at: Instant },
    /// An asker other than a candidate gives up.
    GiveUp { client: u64, calls: u64 },
    /// An operator tries again.
    Retry { client: u64 },
    /// A voter that has started asks the others whether there are later voters.
    Inquire { voter: usize, life: u64 },
    /// A voter that was taken out ends.
    Leaves { voter: usize, life: u64 },
    /// Operators are about to exchange voters.
    Exchange,
    /// Whoever exchanges voters goes on after it has waited.
    GoOn { client: u64, tag: u64 },
    /// Whoever exchanges voters is killed.
    Drop { client: u64 },
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

/// The place of a voter: whoever had it before had another identity.
fn index_of(voter: VoterId) -> usize {
    usize::try_from(voter.to_bits() & u128::from(u32::MAX)).unwrap_or(usize::MAX).wrapping_sub(1)
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
        self.peers.booths = setting.ppm.iter().zip(0..).map(|(ppm, v)| Booth::new(*ppm, voter_id(v))).collect();
        let (voters, first) = (self.membership(), setting.first());
        for booth in self.peers.booths.iter_mut().take(first) {
            booth.synced = Disk::of(voters.clone());
            booth.kept = booth.synced.clone();
        }
        self.begin_exchange();
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
            What::Due { client, at } => self.hear(client, client::Heard::Due { at }),
            What::GiveUp { client, calls } => self.give_up(client, calls),
            What::Retry { client } => self.retry_errand(client),
            What::Inquire { voter, life } => self.inquire(voter, life),
            What::Leaves { voter, life } => self.leaves(voter, life),
            What::Exchange => self.exchange_voters(),
            What::GoOn { client, tag } => self.go_on(client, tag),
            What::Drop { client } => self.drop_drive(client),
            What::Strike => self.strike_peers(),
            What::Score => self.score(),
            What::Healed => self.healed(),
        }
    }

    pub(crate) fn after_peers(&mut self, wait: u64, what: What) {
        self.after(wait, crate::world::Happening::Peers(what));
    }

    /// Those who vote at first.
    fn membership(&self) -> Membership {
        let first = self.scenario.peers.as_ref().map_or(0, |setting| setting.first());
        let voters = (0..first).map(voter_id).collect();
        Membership::new(voters).expect("every world of peers has voters")
    }
}
