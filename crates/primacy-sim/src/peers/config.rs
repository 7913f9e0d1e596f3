//! A voter's part in who votes, beside its host: whom it asks after a start, and whom it tells, as `crates/primacy/src/peers/voter/` does.

use std::collections::BTreeMap;

use primacy_core::Instant;
#[cfg(feature = "canaries")]
use primacy_core::quorum::Flaw;
use primacy_core::quorum::{
    ConfigEvidence, ConfigReply, ConfigRequest, Configuration as _, Inquiry, Role, VoterHost, VoterId, VoterSet,
};

#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::voters::client::ClientKind;
use crate::voters::config_state::{number_of, places};
use crate::voters::voter_node::Disk;
use crate::voters::wire::{ConfigMessage, Frame};
use crate::voters::{PeersEvent, index_of};
use crate::world::World;

/// For how long the answers of a voter that votes no more can still leave.
const LINGER: u64 = 1_000_000_000;

type Host = VoterHost<VoterSet, (), (u64, Frame)>;

/// A planted bug of a voter that was away.
#[derive(Clone, Copy)]
enum ConfigFlaw {
    AdoptsAnything,
    BelievesOne,
}

impl World {
    /// Whether voters answer also those who count with the voters before them, who then need not hear of later ones.
    #[cfg(feature = "canaries")]
    fn admits_old(&self) -> bool {
        self.scenario.planted == Some(Planted::Quorum(Flaw::AdmitsOld))
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    const fn admits_old(&self) -> bool {
        false
    }

    /// Why it does not answer.
    pub(super) fn tell_voters(&self, v: usize) -> ConfigMessage {
        let voters = self.peers.voter_nodes[v].life.as_ref().and_then(|life| life.host.configuration());
        voters.map_or(ConfigMessage::Refused, |voters| ConfigMessage::Moved(voters.clone()))
    }

    /// What it answers to something about who votes.
    pub(super) fn answer_config(
        &mut self,
        v: usize,
        ask: ConfigRequest<VoterSet>,
        own: Instant,
    ) -> Option<ConfigMessage> {
        let id = self.peers.voter_nodes[v].id;
        let asked = if self.engine.trace.keeps() { describe(&ask) } else { String::new() };
        let host = &self.peers.voter_nodes[v].life.as_ref()?.host;
        if let ConfigRequest::Adopt(voters) = &ask
            && host.configuration().is_none()
            && (voters.number() == 0 || !voters.voters().any(|voter| voter == id))
        {
            return Some(ConfigMessage::Refused);
        }
        let answer = self.change_voters(v, |host| host.answer_config(ask, own))?;
        self.engine.trace.hash(&(self.engine.now, v, &answer));
        self.log(None, || format!("  v{v}: {asked}: {answer:?}"));
        self.check_promises();
        Some(ConfigMessage::ConfigReply(answer))
    }

    /// Does something with who votes, for all that a voter knows, and takes note of what it knows after that.
    fn change_voters<T>(&mut self, v: usize, does: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let life = self.peers.voter_nodes[v].life.as_mut()?;
        let was = number_of(life.host.configuration());
        let done = does(&mut life.host);
        let (adopted, started) = (life.host.configuration().cloned(), life.number);
        if let Some(voters) = adopted.filter(|voters| was != Some(voters.number())) {
            self.know_voters(&voters);
            let changed_at = self
                .peers
                .reconfiguration
                .as_ref()
                .and_then(|reconfiguration| reconfiguration.changed_at(voters.number()));
            if was.is_some() && changed_at.is_some_and(|at| at < started) {
                self.saw(Sometimes::LearnedLate);
            }
        }
        Some(done)
    }

    /// Whether a voter does what somebody with this role asks of it.
    pub(super) fn may_ask(&self, by: Role, ask: &ConfigRequest<VoterSet>) -> bool {
        by >= ask.least_role() || self.plants_config(ConfigFlaw::AdoptsAnything)
    }

    /// Somebody says that there are later voters.
    pub(super) fn is_told_behind(&mut self, v: usize) {
        let config = self.peers.voter_nodes[v].life.as_mut().and_then(|life| life.config.as_mut());
        if let Some(config) = config {
            config.inquiry.told();
            self.plan_inquiry(v);
        }
    }

    #[cfg(feature = "canaries")]
    fn plants_config(&self, flaw: ConfigFlaw) -> bool {
        let flaw = match flaw {
            ConfigFlaw::AdoptsAnything => Flaw::AdoptsAnything,
            ConfigFlaw::BelievesOne => Flaw::BelievesOne,
        };
        self.scenario.planted == Some(Planted::Quorum(flaw))
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    const fn plants_config(&self, _: ConfigFlaw) -> bool {
        false
    }

    /// Voters that nobody has chosen, as a liar would have them after these.
    pub(super) fn forged(&self, voters: &VoterSet) -> Option<VoterSet> {
        let one = voters.old().first().copied()?;
        // No operator takes all of these out at once.
        (voters.old().len() > 2).then(|| voters.clone().joint([one].into()).ok()).flatten()
    }

    /// What another voter's disk says of the steps after this one.
    fn evidence(&mut self, of: usize, own: &VoterSet) -> ConfigEvidence<VoterSet> {
        let evidence = self.peers.voter_nodes[of].synced.evidence(own.number());
        // The key of the first voter is in the wrong hands at times.
        let forged = self.forged(own).filter(|_| of == 0 && self.engine.rng.chance(200_000));
        forged.map_or(evidence, |forged| ConfigEvidence { adopted: vec![forged], taken: None })
    }

    /// What it has adopted is on disk: candidates that are connected are told, and a voter that was taken out ends.
    pub(super) fn publish_voters(&mut self, v: usize) {
        let voter_node = &mut self.peers.voter_nodes[v];
        let (id, life) = (voter_node.id, voter_node.life.as_mut());
        let Some(life) = life else { return };
        let number = life.number;
        let Some(config) = life.config.as_mut().filter(|config| config.published.as_ref() != life.host.configuration())
        else {
            return;
        };
        config.published = life.host.configuration().cloned();
        let Some(voters) = config.published.clone() else { return };
        config.is_out = !voters.voters().any(|voter| voter == id);
        let is_out = config.is_out;
        let watches = |client: u64| {
            self.peers.clients.get(client).is_some_and(|client| matches!(client.who, ClientKind::Candidate { .. }))
        };
        let of_it = self.peers.connections.iter().filter(|(_, other)| other.life == Some(number) && other.voter == v);
        let of_it = of_it.filter(|(_, other)| watches(other.client));
        let of_it: Vec<u64> = of_it.map(|(connection, _)| connection).collect();
        let of_it = if self.admits_old() { Vec::new() } else { of_it };
        for connection in of_it {
            let told = Box::new(ConfigMessage::Moved(voters.clone()));
            self.send_frame(connection, false, Frame::Config { number: 0, told });
        }
        if is_out {
            self.log(None, || format!("v{v} was taken out by {}", voters.number()));
            self.after_peers(LINGER, PeersEvent::Leaves { voter: v, life: number });
        }
    }

    /// It has told everybody who was there, and ends.
    pub(super) fn leaves(&mut self, v: usize, number: u64) {
        if self.peers.voter_nodes[v].life.as_ref().is_some_and(|life| life.number == number) {
            self.kill_voter(v);
        }
    }

    /// A voter that was taken out does not start again: its folder is removed, and another one starts there.
    pub(super) fn clear_folder(&mut self, v: usize) {
        let voter_node = &mut self.peers.voter_nodes[v];
        let id = voter_node.id;
        let voters = voter_node.kept.configuration.as_ref();
        if voters.is_none_or(|voters| voters.voters().any(|voter| voter == id)) {
            return;
        }
        voter_node.id = VoterId::from_bits(id.to_bits() + (1 << 32));
        voter_node.kept = Disk::default();
        voter_node.synced = voter_node.kept.clone();
        self.log(None, || format!("v{v} is another voter from now on"));
    }

    /// A voter that starts asks the others who votes by now; one that has never voted waits to be taken in.
    pub(super) fn plan_inquiry(&mut self, v: usize) {
        let (now, lease) = (self.engine.now, crate::nanos(self.scenario.longest));
        let Some(life) = &mut self.peers.voter_nodes[v].life else { return };
        let (number, own) = (life.number, life.clock.read(now));
        let Some(config) = life.config.as_mut().filter(|config| !config.is_planned) else { return };
        let next = match life.host.configuration() {
            Some(known) => config.inquiry.next(known),
            None => Some(own),
        };
        let Some(next) = next else { return };
        config.is_planned = true;
        let wait = life.clock.real_at(next).saturating_sub(now);
        // To ask takes time, and some voters are slow.
        let more = self.engine.rng.spread(1_000_000, lease.max(200_000_000));
        self.after_peers(wait + more, PeersEvent::Inquire { voter: v, life: number });
    }

    pub(super) fn inquire(&mut self, v: usize, number: u64) {
        let (now, id, runs) =
            (self.engine.now, self.peers.voter_nodes[v].id, self.peers.voter_nodes[v].runs(self.engine.now));
        let Some(life) = self.peers.voter_nodes[v].life.as_mut().filter(|life| life.number == number) else { return };
        let Some(config) = life.config.as_mut().filter(|config| !config.is_out) else { return };
        config.is_planned = false;
        let (own, known) = (life.clock.read(now), life.host.configuration());
        if !runs || life.host.is_writing() || known.is_some_and(|known| config.inquiry.next(known) > Some(own)) {
            return self.plan_inquiry(v);
        }
        let asked: Vec<VoterId> = match known {
            Some(known) if config.inquiry.next(known).is_none() => return,
            Some(known) => {
                config.inquiry.begin(known);
                known.voters().filter(|voter| *voter != id).collect()
            }
            None => {
                self.peers.reconfiguration.iter().flat_map(|reconfiguration| reconfiguration.named().voters()).collect()
            }
        };
        let known = known.cloned();
        let (mut later, mut said) = (None, BTreeMap::new());
        for voter in asked {
            let other = index_of(voter);
            let cuts = &self.peers.cuts;
            let is_cut = cuts.open_at(v, other, now).or(cuts.open_at(other, v, now)).is_some();
            let voter_node =
                self.peers.voter_nodes.get(other).filter(|voter_node| !is_cut && voter_node.runs(now) && other != v);
            let Some(config) = voter_node.and_then(|voter_node| voter_node.life.as_ref()?.config.as_ref()) else {
                continue;
            };
            let Some(own) = &known else {
                later = config.published.clone().or(later);
                continue;
            };
            if voter_node.is_some_and(|voter_node| voter_node.id == voter) {
                said.insert(voter, self.evidence(other, own));
            }
        }
        if let Some(known) = known {
            self.inquiry_does(v, |inquiry| inquiry.heard(&said));
            let believes_one = self.plants_config(ConfigFlaw::BelievesOne);
            let one = said.values().flat_map(|said| &said.adopted).find(|next| known.leads_to(next)).cloned();
            let caught_up = self.change_voters(v, |host| match one {
                Some(one) if believes_one => host.answer_config(ConfigRequest::Adopt(one), own) == ConfigReply::Done,
                _ => host.catch_up(said, own),
            });
            self.inquiry_does(v, |inquiry| inquiry.over(&known, caught_up == Some(true), own));
            if caught_up == Some(true) {
                self.log(None, || format!("  v{v} has caught up"));
                self.check_promises();
            }
        } else if let Some(later) = later {
            self.answer_config(v, ConfigRequest::Adopt(later), own);
        }
        self.write_or_tell(v);
        self.plan_inquiry(v);
    }
}

impl World {
    fn inquiry_does<T>(&mut self, v: usize, does: impl FnOnce(&mut Inquiry) -> T) -> Option<T> {
        let config = self.peers.voter_nodes[v].life.as_mut()?.config.as_mut()?;
        Some(does(&mut config.inquiry))
    }
}

fn describe(ask: &ConfigRequest<VoterSet>) -> String {
    match ask {
        ConfigRequest::Prepare { number, ballot } => {
            format!("prepare {}.{:x} after {number}", ballot.count, ballot.by >> 96)
        }
        ConfigRequest::Take { number, ballot, proposal } => {
            format!("take {}.{:x} after {number}: {}", ballot.count, ballot.by >> 96, places(proposal))
        }
        ConfigRequest::Adopt(voters) => format!("adopt {}", places(voters)),
        ConfigRequest::Report { number } => format!("report to {number}"),
        ConfigRequest::Inherit { number, elections } => {
            let terms: Vec<String> = elections.values().map(|kept| kept.term.to_string()).collect();
            format!("inherit for {number}: {}", terms.join(", "))
        }
    }
}
