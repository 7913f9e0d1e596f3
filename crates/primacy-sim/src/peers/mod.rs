//! Elections among peers: the production voters and quorum clients beside the candidates, on disks that fail and over a
//! network that loses, delays and is cut.
//!
//! A voter's process is that of the product ([`VoterHost`](primacy_core::quorum::VoterHost)). Who carries frames is written anew here,
//! after `crates/primacy/src/peers`: one connection for each asker and voter, made again when it breaks. What is simulated and what is
//! checked: `docs/design/simulation.md`.

mod across;
mod chooser;
mod client;
mod config;
mod drive;
mod operators;
mod pool;
mod promises;
mod reconfiguration;
mod routes;
mod strikes;
mod voter;
mod wire;

use primacy_core::quorum::VoterSet;

use crate::voters::client::ClientEvent;
use crate::voters::voter_node::{Disk, VoterNode};
use crate::voters::wire::Cuts;
use crate::voters::{PeersEvent, voter_id};
use crate::world::World;

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
        self.peers.voter_nodes =
            setting.ppm.iter().zip(0..).map(|(ppm, v)| VoterNode::new(*ppm, voter_id(v))).collect();
        let (voters, first) = (self.voter_set(), setting.first());
        for voter_node in self.peers.voter_nodes.iter_mut().take(first) {
            voter_node.synced = Disk::of(voters.clone());
            voter_node.kept = voter_node.synced.clone();
        }
        self.begin_reconfiguration();
        for voter in 0..self.peers.voter_nodes.len() {
            let soon = self.engine.rng.below(crate::nanos(self.scenario.longest) / 8);
            self.after_peers(soon, PeersEvent::Start { voter });
        }
        self.plan_strike();
        self.plan_score();
    }

    /// Something that will happen has come.
    pub(crate) fn happen_peers(&mut self, event: PeersEvent) {
        match event {
            PeersEvent::Start { voter } => self.start_voter(voter),
            PeersEvent::Resume { voter } => self.resume_voter(voter),
            PeersEvent::Flushed { voter, life } => self.flushed(voter, life),
            PeersEvent::Ends { voter, life } => self.promise_ends(voter, life),
            PeersEvent::Dialed { connection, by } => self.dialed(connection, by),
            PeersEvent::Arrive { connection, at_voter } => self.arrive_frames(connection, at_voter),
            PeersEvent::Resend { connection, at_voter } => self.resend(connection, at_voter),
            PeersEvent::Stray { connection, at_voter, frame } => self.arrive_stray(connection, at_voter, *frame),
            PeersEvent::Tick { client, place, at } => self.hear(client, ClientEvent::Tick { place, at }),
            PeersEvent::Due { client, at } => self.hear(client, ClientEvent::Due { at }),
            PeersEvent::GiveUp { client, calls } => self.give_up(client, calls),
            PeersEvent::Retry { client } => self.retry_order_task(client),
            PeersEvent::Inquire { voter, life } => self.inquire(voter, life),
            PeersEvent::Leaves { voter, life } => self.leaves(voter, life),
            PeersEvent::Reconfigure => self.reconfigure(),
            PeersEvent::GoOn { client, tag } => self.go_on(client, tag),
            PeersEvent::Drop { client } => self.drop_drive(client),
            PeersEvent::Strike => self.strike_peers(),
            PeersEvent::Score => self.score(),
            PeersEvent::Healed => self.healed(),
        }
    }

    pub(crate) fn after_peers(&mut self, wait: u64, event: PeersEvent) {
        self.after(wait, crate::world::Happening::Peers(event));
    }

    /// Those who vote at first.
    fn voter_set(&self) -> VoterSet {
        let first = self.scenario.peers.as_ref().map_or(0, |setting| setting.first());
        let voters = (0..first).map(voter_id).collect();
        VoterSet::new(voters).expect("every world of peers has voters")
    }
}
