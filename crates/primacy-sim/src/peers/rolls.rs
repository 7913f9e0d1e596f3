//! A voter's part in who votes, beside its host: whom it asks after a start, and whom it tells, as `crates/primacy/src/peers/peer/` does.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::Instant;
#[cfg(feature = "canaries")]
use primacy_core::quorum::Flaw;
use primacy_core::quorum::{Configuration as _, Membership, Role, RollAnswer, RollAsk, Testimony, VoterHost, VoterId};

use super::client::Who;
use super::voter::{Booth, Disk};
use super::wire::{Frame, Told};
use super::{What, index_of};
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::world::World;

/// So long what a voter has answered can still leave when it votes no more.
const LINGER: u64 = 1_000_000_000;

type Host = VoterHost<Membership, (), (u64, Frame)>;

/// A planted bug of a voter that was away.
#[derive(Clone, Copy)]
enum RollFlaw {
    AdoptsAnything,
    BelievesOne,
}

/// What a voter's process knows where voters are exchanged, beside its [`VoterHost`](primacy_core::quorum::VoterHost).
#[derive(Debug)]
pub(super) struct Post {
    /// What is told to whoever connects.
    published: Option<Membership>,
    /// It was taken out, and says nothing more.
    pub(super) is_out: bool,
    /// Who has been heard of the voters since it started.
    heard: BTreeSet<VoterId>,
    /// Somebody has said that there are later voters than it knows.
    is_behind: bool,
}

fn number_of(configuration: Option<&Membership>) -> Option<u64> {
    configuration.map(Membership::number)
}

impl Post {
    pub(super) const fn new(published: Option<Membership>) -> Self {
        Self { published, is_out: false, heard: BTreeSet::new(), is_behind: false }
    }

    /// What it tells of the voters to whoever connects.
    pub(super) const fn published(&self) -> Option<&Membership> {
        self.published.as_ref()
    }
}

impl Booth {
    /// The number of the voters that its disk has, whatever happens.
    pub(super) fn number(&self) -> Option<u64> {
        number_of(self.synced.configuration.as_ref())
    }

    pub(super) fn number_on_disk(&self) -> String {
        self.number().map_or_else(String::new, |number| format!(" by {number}"))
    }

    /// All voters that it may have heard of, or taken for the next.
    pub(super) fn proposals(&self) -> impl Iterator<Item = &Membership> {
        let disks = [self.synced.taken.as_ref(), self.kept.taken.as_ref()].into_iter().flatten();
        let process = self.life.as_ref().and_then(|life| life.host.roll().next().1);
        disks.chain(process).map(|(_, taken)| taken)
    }
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
    pub(super) fn tell_voters(&self, v: usize) -> Told {
        let voters = self.peers.booths[v].life.as_ref().and_then(|life| life.host.configuration());
        voters.map_or(Told::Refused, |voters| Told::Moved(voters.clone()))
    }

    /// What it answers to something about who votes.
    pub(super) fn answer_roll(&mut self, v: usize, ask: RollAsk<Membership>, own: Instant) -> Option<Told> {
        let id = self.peers.booths[v].id;
        let asked = if self.trace.keeps() { describe(&ask) } else { String::new() };
        let host = &self.peers.booths[v].life.as_ref()?.host;
        if let RollAsk::Adopt(voters) = &ask
            && host.configuration().is_none()
            && (voters.number() == 0 || !voters.voters().any(|voter| voter == id))
        {
            return Some(Told::Refused);
        }
        let answer = self.change_voters(v, |host| host.answer_roll(ask, own))?;
        self.trace.hash(&(self.now, v, &answer));
        self.log(None, || format!("  v{v}: {asked}: {answer:?}"));
        self.check_promises();
        Some(Told::Rolled(answer))
    }

    /// Does something with who votes, for all that a voter knows, and takes note of what it knows after that.
    fn change_voters<T>(&mut self, v: usize, does: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let life = self.peers.booths[v].life.as_mut()?;
        let was = number_of(life.host.configuration());
        let done = does(&mut life.host);
        let (adopted, started) = (life.host.configuration().cloned(), life.number);
        if let Some(voters) = adopted.filter(|voters| was != Some(voters.number())) {
            self.know_voters(&voters);
            let changed_at = self.peers.exchange.as_ref().and_then(|exchange| exchange.changed_at(voters.number()));
            if was.is_some() && changed_at.is_some_and(|at| at < started) {
                self.saw(Sometimes::LearnedLate);
            }
        }
        Some(done)
    }

    /// Whether a voter does what somebody with this role asks of it.
    pub(super) fn may_ask(&self, by: Role, ask: &RollAsk<Membership>) -> bool {
        by >= ask.least_role() || self.plants_roll(RollFlaw::AdoptsAnything)
    }

    /// Somebody says that there are later voters.
    pub(super) fn is_told_behind(&mut self, v: usize) {
        let post = self.peers.booths[v].life.as_mut().and_then(|life| life.post.as_mut());
        if let Some(post) = post.filter(|post| !post.is_behind) {
            post.is_behind = true;
            post.heard.clear();
            self.plan_inquiry(v);
        }
    }

    #[cfg(feature = "canaries")]
    fn plants_roll(&self, flaw: RollFlaw) -> bool {
        let flaw = match flaw {
            RollFlaw::AdoptsAnything => Flaw::AdoptsAnything,
            RollFlaw::BelievesOne => Flaw::BelievesOne,
        };
        self.scenario.planted == Some(Planted::Quorum(flaw))
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    const fn plants_roll(&self, _: RollFlaw) -> bool {
        false
    }

    /// Voters that nobody has chosen, as a liar would have them after these.
    pub(super) fn forged(&self, voters: &Membership) -> Option<Membership> {
        let one = voters.old().first().copied()?;
        // No operator takes all of these out at once.
        (voters.old().len() > 2).then(|| voters.clone().joint([one].into()).ok()).flatten()
    }

    /// What another voter's disk says of the steps after this one.
    fn testimony(&mut self, of: usize, own: &Membership) -> Testimony<Membership> {
        let testimony = self.peers.booths[of].synced.testimony(own.number());
        // The key of the first voter is in the wrong hands at times.
        let forged = self.forged(own).filter(|_| of == 0 && self.rng.chance(200_000));
        forged.map_or(testimony, |forged| Testimony { adopted: vec![forged], taken: None })
    }

    /// What it has adopted is on disk: candidates that are connected are told, and whoever was taken out ends.
    pub(super) fn publish_voters(&mut self, v: usize) {
        let booth = &mut self.peers.booths[v];
        let (id, life) = (booth.id, booth.life.as_mut());
        let Some(life) = life else { return };
        let number = life.number;
        let Some(post) = life.post.as_mut().filter(|post| post.published.as_ref() != life.host.configuration()) else {
            return;
        };
        post.published = life.host.configuration().cloned();
        let Some(voters) = post.published.clone() else { return };
        post.is_out = !voters.voters().any(|voter| voter == id);
        let is_out = post.is_out;
        let watches = |client: u64| {
            self.peers.clients.get(client).is_some_and(|client| matches!(client.who, Who::Candidate { .. }))
        };
        let of_it = self.peers.connections.iter().filter(|(_, other)| other.life == Some(number) && other.voter == v);
        let of_it = of_it.filter(|(_, other)| watches(other.client));
        let of_it: Vec<u64> = of_it.map(|(connection, _)| connection).collect();
        let of_it = if self.admits_old() { Vec::new() } else { of_it };
        for connection in of_it {
            let told = Box::new(Told::Moved(voters.clone()));
            self.send_frame(connection, false, Frame::Told { number: 0, told });
        }
        if is_out {
            self.log(None, || format!("v{v} was taken out by {}", voters.number()));
            self.after_peers(LINGER, What::Leaves { voter: v, life: number });
        }
    }

    /// It has told everybody who was there, and ends.
    pub(super) fn leaves(&mut self, v: usize, number: u64) {
        if self.peers.booths[v].life.as_ref().is_some_and(|life| life.number == number) {
            self.kill_voter(v);
        }
    }

    /// A voter that was taken out does not start again: its folder is removed, and another one starts there.
    pub(super) fn clear_folder(&mut self, v: usize) {
        let booth = &mut self.peers.booths[v];
        let id = booth.id;
        let voters = booth.kept.configuration.as_ref();
        if voters.is_none_or(|voters| voters.voters().any(|voter| voter == id)) {
            return;
        }
        booth.id = VoterId::from_bits(id.to_bits() + (1 << 32));
        booth.kept = Disk::default();
        booth.synced = booth.kept.clone();
        self.log(None, || format!("v{v} is another voter from now on"));
    }

    /// A voter that starts asks the others who votes by now; one that has never voted waits to be taken in.
    pub(super) fn plan_inquiry(&mut self, v: usize) {
        let lease = crate::nanos(self.scenario.longest);
        let Some(life) = &self.peers.booths[v].life else { return };
        let number = life.number;
        if life.post.is_some() {
            let wait = self.rng.spread(1_000_000, lease.max(200_000_000));
            self.after_peers(wait, What::Inquire { voter: v, life: number });
        }
    }

    pub(super) fn inquire(&mut self, v: usize, number: u64) {
        let (now, runs) = (self.now, self.peers.booths[v].runs(self.now));
        let Some(life) = self.peers.booths[v].life.as_ref().filter(|life| life.number == number) else { return };
        let Some(post) = life.post.as_ref().filter(|post| !post.is_out) else { return };
        let (own, known) = (life.clock.read(now), life.host.configuration());
        if !runs || life.host.is_writing() {
            return self.plan_inquiry(v);
        }
        let asked: Vec<VoterId> = match known {
            Some(known) if known.is_quorum(|voter| post.heard.contains(&voter)) => return,
            Some(known) => known.voters().filter(|voter| *voter != self.peers.booths[v].id).collect(),
            None => self.peers.exchange.iter().flat_map(|exchange| exchange.named().voters()).collect(),
        };
        let (id, known) = (self.peers.booths[v].id, known.cloned());
        let (mut heard, mut later, mut said) = (vec![id], None, BTreeMap::new());
        for voter in asked {
            let other = index_of(voter);
            let cuts = &self.peers.cuts;
            let is_cut = cuts.open_at(v, other, now).or(cuts.open_at(other, v, now)).is_some();
            let booth = self.peers.booths.get(other).filter(|booth| !is_cut && booth.runs(now) && other != v);
            let Some(post) = booth.and_then(|booth| booth.life.as_ref()?.post.as_ref()) else { continue };
            let Some(own) = &known else {
                later = post.published.clone().or(later);
                continue;
            };
            if booth.is_some_and(|booth| booth.id == voter) {
                let testimony = self.testimony(other, own);
                if testimony.adopted.is_empty() {
                    heard.push(voter);
                }
                said.insert(voter, testimony);
            }
        }
        if let Some(post) = self.peers.booths[v].life.as_mut().and_then(|life| life.post.as_mut()) {
            post.heard.extend(heard);
            post.is_behind = false;
        }
        if let Some(known) = known {
            let believes_one = self.plants_roll(RollFlaw::BelievesOne);
            let one = said.values().flat_map(|said| &said.adopted).find(|next| known.leads_to(next)).cloned();
            let caught_up = self.change_voters(v, |host| match one {
                Some(one) if believes_one => host.answer_roll(RollAsk::Adopt(one), own) == RollAnswer::Done,
                _ => host.catch_up(said, own),
            });
            if caught_up == Some(true) {
                self.log(None, || format!("  v{v} has caught up"));
                self.check_promises();
            }
        } else if let Some(later) = later {
            self.answer_roll(v, RollAsk::Adopt(later), own);
        }
        self.write_or_tell(v);
        self.plan_inquiry(v);
    }
}

fn describe(ask: &RollAsk<Membership>) -> String {
    match ask {
        RollAsk::Prepare { number, ballot } => format!("prepare {}.{:x} after {number}", ballot.count, ballot.by >> 96),
        RollAsk::Take { number, ballot, proposal } => {
            format!("take {}.{:x} after {number}: {}", ballot.count, ballot.by >> 96, places(proposal))
        }
        RollAsk::Adopt(voters) => format!("adopt {}", places(voters)),
        RollAsk::Report { number } => format!("report to {number}"),
        RollAsk::Inherit { number, elections } => {
            let terms: Vec<String> = elections.values().map(|kept| kept.term.to_string()).collect();
            format!("inherit for {number}: {}", terms.join(", "))
        }
    }
}

/// Who votes, for people.
pub(super) fn places(voters: &Membership) -> String {
    let all = |voters: &BTreeSet<VoterId>| {
        let place = |voter: &VoterId| match voter.to_bits() >> 32 {
            0 => format!("v{}", index_of(*voter)),
            life => format!("v{}'{life}", index_of(*voter)),
        };
        voters.iter().map(place).collect::<Vec<_>>().join(" ")
    };
    let incoming = voters.incoming().map_or_else(String::new, |new| format!(" and {}", all(new)));
    format!("{} ({}{incoming})", voters.number(), all(voters.old()))
}
