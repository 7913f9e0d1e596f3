//! How a leader opens: whom it asks, which log it adopts, and how its own replica gets that.

use alloc::vec::Vec;

use super::super::ballot::{Position, ReplicaId};
use super::super::effect::Effect;
use super::super::flaws::Flaw;
use super::super::port::{Content, Entry, Payload, Request, Standing, Verdict};
use super::super::replica::Replica;
use super::followers::probe;
use super::{Leader, Phase};

impl Leader {
    /// A replica has promised itself to this ballot.
    pub(super) fn opened<B: Payload>(
        &mut self,
        from: ReplicaId,
        standing: Standing,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        let Some(follower) = self.followers.get_mut(&from) else { return };
        follower.is_open = true;
        if self.opening().is_some() {
            return self.start(from, &standing, replica);
        }
        // All that any of these logs names may be needed.
        for member in standing.config.iter().flat_map(|config| config.replicas()) {
            self.follow(member, out);
        }
        if let Some(follower) = self.followers.get_mut(&from) {
            follower.standing = Some(standing);
        }
        if self.phase == Phase::Opening {
            self.choose(replica, out);
        }
    }

    /// Adopts the greatest log of a set of answers that holds a quorum of the config in just that log, if there is one yet.
    ///
    /// Of all such sets the one with the greatest log: what is not committed is then kept, too, if it can be.
    pub(super) fn choose<B: Payload>(&mut self, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        // What its own replica has answered with may be gone: it has taken a part of another log since, if that was fetched.
        if let Some(own) = self.followers.get_mut(&self.own).and_then(|own| own.standing.as_mut()) {
            *own = replica.standing();
        }
        let last_of = |id: ReplicaId| {
            self.followers.get(&id).and_then(|follower| follower.standing.as_ref()).map(|standing| standing.last)
        };
        let told = self.followers.iter().filter_map(|(id, follower)| Some((follower.standing.as_ref()?, *id)));
        let mut told: Vec<_> = told.map(|(standing, id)| (standing.last, id, standing.config.as_ref())).collect();
        told.sort_unstable_by_key(|(last, id, _)| core::cmp::Reverse((*last, *id)));
        let has_quorum = |(end, _, config): &(Position, ReplicaId, Option<&super::Config>)| {
            let own = replica.config().filter(|_| self.planted.is(Flaw::StaleConfigOpens));
            own.or(*config).is_some_and(|config| config.is_quorum(|id| last_of(id).is_some_and(|last| last <= *end)))
        };
        let Some((end, source)) = told.into_iter().find(has_quorum).map(|(end, source, _)| (end, source)) else {
            return;
        };
        let own = Some(replica.log().last()).filter(|_| self.planted.is(Flaw::AdoptsOwnLog));
        let end = own.unwrap_or(end);
        if replica.holds(end) {
            return self.serve(end, replica, out);
        }
        let prev = replica.log().position_up_to(end.index);
        self.fetch(source, end, prev, 0, out);
    }

    pub(super) fn fetch<B: Payload>(
        &mut self,
        source: ReplicaId,
        end: Position,
        prev: Position,
        chunk: u32,
        out: &mut Vec<Effect<B>>,
    ) {
        self.phase = Phase::Fetching { source, end, prev };
        self.ask(source, Request::Fetch { ballot: self.ballot, prev, end, chunk }, out);
    }

    /// Where the logs of its own replica and of the source part is before what was asked for.
    pub(super) fn fetch_before<B: Payload>(
        &mut self,
        from: ReplicaId,
        last: Position,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        let Phase::Fetching { source, end, prev } = self.phase else { return };
        if source != from || last.index > prev.index {
            return;
        }
        let index = probe(replica.log(), last, replica.commit(), Some(prev.index));
        match replica.log().position_at(index) {
            Some(next) if next != prev => self.fetch(source, end, next, 0, out),
            _ => {}
        }
    }

    /// Entries of the log that it adopts: its own replica takes them as any other would.
    pub(super) fn take<B: Payload>(
        &mut self,
        from: ReplicaId,
        prev: Position,
        entries: Vec<Entry<B>>,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        let Phase::Fetching { source, prev: asked, .. } = self.phase else { return };
        if source != from || prev != asked || !replica.holds(prev) || entries.is_empty() {
            return;
        }
        let standing = self.followers.get(&from).and_then(|follower| follower.standing.as_ref());
        let commit = standing.map_or(0, |standing| standing.commit);
        self.ask(self.own, Request::Append { ballot: self.ballot, prev, entries, commit, time: self.time }, out);
    }

    /// Its own replica has some more of it on disk.
    pub(super) fn fetched<B: Payload>(&mut self, verdict: &Verdict<B>, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        let Phase::Fetching { source, end, prev } = self.phase else { return };
        match verdict {
            Verdict::Wants { chunk, .. } => self.fetch(source, end, prev, *chunk, out),
            Verdict::Matched(_) if replica.holds(end) => self.serve(end, replica, out),
            Verdict::Matched(matched) => {
                let next = replica.log().position_up_to(*matched);
                self.fetch(source, end, next, 0, out);
            }
            _ => {}
        }
    }

    /// Its own replica has the log that it has adopted: the opening entry follows.
    fn serve<B: Payload>(&mut self, end: Position, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        self.end = end;
        self.commit = replica.commit();
        self.time = replica.time();
        self.phase = Phase::Serving { opening: self.end.index + 1 };
        out.push(Effect::Serves { opening: self.end.index + 1 });
        self.append([Content::Opening].into(), out);
        let told: Vec<_> =
            self.followers.iter_mut().filter_map(|(id, follower)| Some((*id, follower.standing.take()?))).collect();
        for (id, standing) in told {
            self.start(id, &standing, replica);
        }
    }
}
