//! Replicas, the messages between them, and all that may happen next.

use std::hash::Hash as _;
use std::sync::Arc;

use primacy_core::log::{Ballot, Content, Effect, Flaw, GroupTime, Message, Position, Reading, Request, Verdict};

use super::alike::{Alike, rename};
use super::ids::{Numbers, ballot, index_of, replica_id};
use super::ledger::{Ledger, Wrong, is_ahead, share_all_before};
use super::post::Post;
use super::setup::{Beginning, Budget, Setup};
use super::shown::{COMPACTED, CUT, FETCHED, HANDED_OVER, INSTALLED, KEPT_OUT, LOST, READ, TOOK_OVER};
use crate::search::Shared;
use crate::search::{self, Prints};

/// A message that was sent. It stays, whether or not it arrives: so it may come late, never, and more than once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) from: u8,
    pub(super) to: u8,
    /// Of the message, with the replicas of one kind named alike.
    pub(super) print: u128,
    pub(super) message: Arc<Message<Numbers>>,
    /// It does nothing where it goes, as both processes are now.
    pub(super) is_idle: bool,
    /// It is not known yet whether it does anything.
    pub(super) is_new: bool,
}

/// What has become of a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    Free,
    /// Granted to this process, which has not opened it.
    Granted(u8),
    /// Opened by this process, which lives.
    Opened(u8),
    Spent,
}

/// A read that waits, with what it must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    pub(super) post: u8,
    pub(super) by: Ballot,
    pub(super) floor: u64,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) posts: Vec<Shared<Post>>,
    pub(super) alike: Shared<Alike>,
    pub(super) packets: Vec<Packet>,
    pub(super) slots: Vec<Slot>,
    /// The ballot whose grant is believed in.
    pub(super) believed: Option<u8>,
    pub(super) reads: Vec<Option<Read>>,
    pub(super) budget: Budget,
    pub(super) ledger: Shared<Ledger>,
    pub(super) wrong: Wrong,
    /// What the last step has shown.
    pub(super) just: Vec<&'static str>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next ballot is granted to this process; who believed before does not any more.
    Grant(u8),
    /// This process opens that ballot.
    Open(u8, u8),
    /// A leader ends.
    End(u8),
    /// A leader appends a write.
    Write(u8),
    /// A leader asks all whether its ballot is still the highest.
    Beat(u8),
    /// A read comes to a leader.
    Read(u8),
    /// A leader believes in its lease at this moment.
    Check(u8),
    /// A leader begins to change the replicas, to the ones of this change.
    Reconfigure(u8, u8),
    /// A leader begins to hand over to that replica.
    HandOver(u8, u8),
    /// A leader hears nothing of the replica that it fetches from.
    Silence(u8, u8),
    /// A leader asks that replica anew.
    Reconnect(u8, u8),
    /// A replica takes a snapshot.
    Compact(u8),
    /// A message arrives; it may do so again.
    Deliver(u8, u8, Arc<Message<Numbers>>),
    /// All that a replica has written is on disk.
    Flush(u8),
    /// A process restarts, and this many of the writes that were under way are on disk.
    Restart(u8, usize),
}

const NO_TIME: GroupTime = GroupTime::from_millis(0);

impl World {
    pub(super) fn saw(&mut self, what: &'static str) {
        if !self.just.contains(&what) {
            self.just.push(what);
        }
    }

    /// Has that process's part in the log do something, and everything that follows from it at once.
    pub(super) fn act<T>(
        &mut self,
        post: u8,
        setup: &Setup,
        does: impl FnOnce(&mut Post, &mut Vec<Effect<Numbers>>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let index = usize::from(post);
        let before = self.posts[index].clone();
        let done = does(&mut self.posts[index], &mut out);
        self.carry_out(post, &mut out);
        self.posts[index].apply(&mut out);
        self.posts[index].node.forget_repeats();
        self.carry_out(post, &mut out);
        if !self.may_wait(post, setup) && !self.posts[index].node.unwritten().is_empty() {
            self.act(post, setup, Post::flush);
        }
        if before != self.posts[index] {
            self.posts[index].prints.clear();
        }
        self.judge(post, &before, setup);
        done
    }

    /// Whether it matters when this process's disk has what was written. What a leader fetches or appends reaches others before it is on its
    /// own disk.
    fn may_wait(&self, post: u8, setup: &Setup) -> bool {
        setup.has_flushes() || self.leads(post)
    }

    fn carry_out(&mut self, post: u8, effects: &mut Vec<Effect<Numbers>>) {
        for effect in std::mem::take(effects) {
            match effect {
                Effect::Send { to, message } => self.send(post, index_of(to), message),
                Effect::SendChunk(order) => {
                    let to = index_of(order.to);
                    let data = self.posts[usize::from(post)].chunk(post, order.chunk, order.snapshot.chunks);
                    self.send(post, to, order.message(data));
                }
                Effect::Restore(_) => {
                    self.saw(INSTALLED);
                    self.posts[usize::from(post)].restore();
                }
                Effect::Read(number) => self.answer(post, number as usize),
                Effect::HandedOver(_) => {
                    self.saw(HANDED_OVER);
                    let last = self.posts[usize::from(post)].node.replica().log().last();
                    self.ledger.handed_over = Some(last);
                }
                Effect::Serves { .. } | Effect::Ended(_) => {}
            }
        }
    }

    fn send(&mut self, from: u8, to: u8, message: Message<Numbers>) {
        if let Message::Answer(answer) = &message
            && !matches!(answer.verdict, Verdict::Outbid(_) | Verdict::Leap)
        {
            let post = &mut self.posts[usize::from(from)];
            post.told = post.told.max(answer.ballot);
        }
        if matches!(&message, Message::Request(Request::Fetch { .. })) {
            self.saw(FETCHED);
        }
        let mut print = Prints::new(rename(&self.alike.kinds));
        message.hash(&mut print);
        let packet =
            Packet { from, to, print: print.print(), message: Arc::new(message), is_idle: false, is_new: true };
        let key = |packet: &Packet| (packet.from, packet.to, packet.print);
        if let Err(at) = self.packets.binary_search_by_key(&key(&packet), key) {
            self.packets.insert(at, packet);
        }
    }

    fn answer(&mut self, post: u8, number: usize) {
        self.saw(READ);
        let applied = self.posts[usize::from(post)].node.replica().applied();
        if let Some(read) = self.reads[number].take() {
            self.wrong.is_stale |= applied < read.floor;
            self.ledger.shown = self.ledger.shown.max(applied);
        }
    }

    /// Asks of what has just changed whether all is as it must be.
    fn judge(&mut self, post: u8, before: &Post, setup: &Setup) {
        let index = usize::from(post);
        let own = self.posts[index].clone();
        let (log, old) = (own.node.replica().log(), before.node.replica().log());
        let parts = |at: u64| old.position_at(at).is_some_and(|old| log.position_at(at).is_none_or(|new| new != old));
        if (log.start().index + 1..=old.last().index).any(parts) {
            self.saw(CUT);
        }
        self.wrong.has_diverged |= own.node.diverged().is_some();
        self.wrong.breaks_promise |= !setup.symptoms && own.told > log.promised();
        let ledger = &mut *self.ledger;
        let kept_out = ledger.note(&own.node, &mut self.wrong);
        self.wrong.is_no_prefix |= !ledger.leads_to(own.state, own.node.replica().applied());
        let appends =
            |end: Position| log.entries().last().is_some_and(|entry| entry.ballot == end.ballot) && log.last() > end;
        self.wrong.writes_on |= ledger.handed_over.is_some_and(appends);
        if kept_out {
            self.saw(KEPT_OUT);
        }
        if setup.symptoms {
            return;
        }
        self.wrong.is_ahead |= is_ahead(log);
        let mut logs = self.posts.iter().map(|post| post.node.replica().log());
        self.wrong.parts |= !logs.all(|other| share_all_before(log, other));
        self.wrong.miscounts |= self.posts.iter().any(|other| own.miscounts(other) || other.miscounts(&own));
    }

    /// In which states nothing follows any more.
    pub(super) fn is_wrong(&self) -> bool {
        self.wrong != Wrong::default()
    }

    fn deliver(&mut self, from: u8, to: u8, message: &Message<Numbers>, setup: &Setup) {
        self.act(to, setup, |post, out| post.node.receive(replica_id(from), message.clone(), out));
    }

    fn open(&mut self, post: u8, number: u8, setup: &Setup) -> Option<()> {
        self.act(post, setup, |post, out| post.node.open(ballot(number), out)).ok()?;
        self.slots[usize::from(number)] = Slot::Opened(post);
        let last = self.posts[usize::from(post)].node.replica().log().last();
        if self.ledger.handed_over == Some(last) {
            self.saw(TOOK_OVER);
        }
        Some(())
    }

    fn restart(&mut self, post: u8, kept: usize, setup: &Setup) {
        let index = usize::from(post);
        if self.posts[index].node.unwritten().len() > kept {
            self.saw(LOST);
        }
        self.posts[index].restart(kept, setup);
        let promised = self.posts[index].promised_on_disk();
        for (slot, number) in self.slots.iter_mut().zip(0..) {
            *slot = match slot {
                // Where it has its identity again, its ballots are still its own.
                Slot::Granted(owner) | Slot::Opened(owner)
                    if *owner == post && setup.flaw == Some(Flaw::OpensTwice) =>
                {
                    continue;
                }
                // Nobody has heard of it.
                Slot::Opened(owner) if *owner == post && setup.flaw.is_none() && ballot(number) > promised => {
                    Slot::Free
                }
                Slot::Granted(owner) | Slot::Opened(owner) if *owner == post => Slot::Spent,
                _ => continue,
            };
        }
        self.believed = self.believed.filter(|number| self.slots[usize::from(*number)] != Slot::Spent);
        for read in &mut self.reads {
            *read = read.filter(|read| read.post != post);
        }
        self.act(post, setup, |_, _| ());
    }

    /// Whether this process's leader has opened and is not over.
    fn leads(&self, post: u8) -> bool {
        self.posts[usize::from(post)].node.leads().is_some()
    }

    fn serves_by_now(&self, post: u8) -> bool {
        self.posts[usize::from(post)].node.opening().is_some()
    }

    /// The world after the first leader has opened, and has appended this many writes that all but the last know of.
    fn lead(mut self, writes: Option<u8>, setup: &Setup) -> Self {
        let last = setup.replicas - 1;
        self.slots[0] = Slot::Granted(0);
        if setup.reading == Some(Reading::Lease) {
            self.believed = Some(0);
        }
        self.open(0, 0, setup);
        for number in 0..=writes.unwrap_or_default() {
            if number > 0 {
                self.act(0, setup, |post, out| post.node.propose(vec![Numbers::one(number)], NO_TIME, out)).ok();
            }
            self.settle(writes.map(|_| last), setup);
        }
        self.act(0, setup, |post, out| post.node.beat(NO_TIME, out));
        self.settle(writes.map(|_| last), setup);
        self.packets.clear();
        self.ledger.count = writes.unwrap_or_default();
        self.just.clear();
        self
    }

    /// The world after the first change: the second replica has heard nothing of it, and the last one, which goes, not of its end.
    fn change(mut self, setup: &Setup) -> Self {
        let incoming = setup.changes[0].iter().copied().map(replica_id).collect();
        self.act(0, setup, |post, out| post.node.reconfigure(incoming, out)).ok();
        let goes = setup.replicas - 1;
        let is_end = |packet: &Packet| match &*packet.message {
            Message::Request(Request::Append { entries, .. }) => {
                entries.iter().any(|entry| matches!(&entry.content, Content::Config(config) if !config.is_joint()))
            }
            _ => false,
        };
        self.settle_if(|packet| packet.to != 1 && packet.from != 1 && !(packet.to == goes && is_end(packet)), setup);
        self.packets.clear();
        self.just.clear();
        self
    }

    /// The world after that many writes by the first leader that nobody else has heard of, an opening entry of the second replica, and one
    /// of the first again that each were heard by nobody either. The last replica has promised itself to all of them.
    fn part(mut self, writes: u8, setup: &Setup) -> Self {
        for number in 1..=writes {
            self.act(0, setup, |post, out| post.node.propose(vec![Numbers::one(number)], NO_TIME, out)).ok();
        }
        self.ledger.count = writes;
        let is_append = |packet: &Packet| matches!(&*packet.message, Message::Request(Request::Append { .. }));
        for (opens, number, deaf) in [(1, 1, 0), (0, 2, 1)] {
            self.act(0, setup, Post::flush);
            self.packets.clear();
            self.open(opens, number, setup);
            self.settle_if(|packet| packet.to != deaf && packet.from != deaf && !is_append(packet), setup);
        }
        self.packets.clear();
        self.just.clear();
        self
    }

    /// Delivers all, but to `deaf` nothing beside the ballot.
    fn settle(&mut self, deaf: Option<u8>, setup: &Setup) {
        let is_heard = |packet: &Packet| {
            let is_open = matches!(&*packet.message, Message::Request(Request::Open { .. }));
            is_open || (Some(packet.to) != deaf && Some(packet.from) != deaf)
        };
        self.settle_if(is_heard, setup);
    }

    /// Delivers what is heard, until nothing is.
    fn settle_if(&mut self, is_heard: impl Fn(&Packet) -> bool, setup: &Setup) {
        loop {
            for post in 0..setup.posts() {
                self.act(post, setup, Post::flush);
            }
            let heard: Vec<_> = std::mem::take(&mut self.packets).into_iter().filter(&is_heard).collect();
            if heard.is_empty() {
                return;
            }
            for packet in heard {
                self.deliver(packet.from, packet.to, &packet.message, setup);
            }
        }
    }

    pub(super) fn start(setup: &Setup) -> Self {
        let world = Self {
            posts: (0..setup.posts()).map(|index| Shared::new(Post::new(index, setup))).collect(),
            alike: Shared::new(Alike::new(setup)),
            packets: Vec::new(),
            slots: vec![Slot::Free; usize::from(setup.ballots)],
            believed: None,
            reads: Vec::new(),
            budget: setup.budget,
            ledger: Shared::new(Ledger::default()),
            wrong: Wrong::default(),
            just: Vec::new(),
        };
        let mut world = match setup.begins {
            Beginning::Blank => world,
            Beginning::Led => world.lead(None, setup),
            Beginning::Written(writes) => world.lead(Some(writes), setup),
            Beginning::Changed => world.lead(None, setup).change(setup),
            Beginning::Parted(writes) => world.lead(None, setup).part(writes, setup),
        };
        world.tidy(setup);
        world
    }

    fn tidy(&mut self, setup: &Setup) {
        if setup.merged {
            self.forget(setup);
        }
    }
}

impl search::World for World {
    type Setup = Setup;
    type Step = Step;

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.is_wrong() {
            return;
        }
        let budget = &self.budget;
        let posts = 0..setup.posts();
        let of_leases = setup.reading == Some(Reading::Lease);
        let next = self.slots.iter().position(|slot| *slot == Slot::Free).map(|next| next as u8);
        for post in posts.clone() {
            for (number, slot) in (0..).zip(&self.slots) {
                match slot {
                    Slot::Free if !of_leases => steps.push(Step::Open(post, number)),
                    Slot::Granted(owner) | Slot::Opened(owner) if *owner == post => {
                        steps.push(Step::Open(post, number));
                    }
                    _ => {}
                }
            }
            if of_leases && next.is_some() {
                steps.push(Step::Grant(post));
            }
            if budget.snapshots > 0 {
                steps.push(Step::Compact(post));
            }
            let node = &self.posts[usize::from(post)].node;
            if !node.unwritten().is_empty() {
                steps.push(Step::Flush(post));
            }
            if budget.restarts > 0 {
                steps.extend((0..=node.unwritten().len()).map(|kept| Step::Restart(post, kept)));
            }
            if !self.leads(post) {
                continue;
            }
            if setup.ends {
                steps.push(Step::End(post));
            }
            if budget.silences > 0 {
                steps.extend(posts.clone().filter(|of| *of != post).map(|of| Step::Silence(post, of)));
            }
            if budget.reconnects > 0 {
                steps.extend(posts.clone().filter(|to| *to != post).map(|to| Step::Reconnect(post, to)));
            }
            if budget.reads > 0 {
                steps.push(Step::Read(post));
            }
            let owns =
                |number: u8| [Slot::Granted(post), Slot::Opened(post)].contains(&self.slots[usize::from(number)]);
            let reads = self.reads.iter().flatten().any(|read| read.post == post);
            if of_leases && reads && self.believed.is_some_and(owns) {
                steps.push(Step::Check(post));
            }
            if budget.beats > 0 {
                steps.push(Step::Beat(post));
            }
            if !self.serves_by_now(post) {
                continue;
            }
            if budget.writes > 0 {
                steps.push(Step::Write(post));
            }
            if budget.changes > 0 {
                steps.extend((0..setup.changes.len()).map(|change| Step::Reconfigure(post, change as u8)));
            }
            if budget.handovers > 0 {
                steps.extend(posts.clone().filter(|to| *to != post).map(|to| Step::HandOver(post, to)));
            }
        }
        let busy = self.packets.iter().filter(|packet| !packet.is_idle);
        steps.extend(busy.map(|packet| Step::Deliver(packet.from, packet.to, Arc::clone(&packet.message))));
    }

    fn after(&self, step: Step, setup: &Setup) -> Option<Self> {
        let mut world = self.clone();
        world.just.clear();
        match step {
            Step::Grant(post) => {
                let next = world.slots.iter().position(|slot| *slot == Slot::Free)?;
                world.slots[next] = Slot::Granted(post);
                world.believed = Some(next as u8);
            }
            Step::Open(post, number) => world.open(post, number, setup)?,
            Step::End(post) => world.act(post, setup, |post, out| post.node.end(out)),
            Step::Write(post) => {
                let number = world.ledger.count + 1;
                let write = vec![Numbers::one(number)];
                world.act(post, setup, |post, out| post.node.propose(write, NO_TIME, out)).ok()?;
                (world.ledger.count, world.budget.writes) = (number, world.budget.writes - 1);
            }
            Step::Beat(post) => {
                world.budget.beats -= 1;
                world.act(post, setup, |post, out| post.node.beat(NO_TIME, out));
            }
            Step::Read(post) => {
                world.budget.reads -= 1;
                let number = world.reads.len() as u64;
                let by = world.posts[usize::from(post)].node.leads()?;
                world.reads.push(Some(Read { post, by, floor: world.ledger.shown }));
                let how = setup.reading.unwrap_or(Reading::Quorum);
                world.act(post, setup, |post, out| post.node.read(number, how, out));
            }
            Step::Check(post) => {
                let believed = world.believed.map(|number| ballot(number).token);
                world.act(post, setup, |post, out| post.node.check(believed, out));
            }
            Step::Reconfigure(post, change) => {
                world.budget.changes -= 1;
                let incoming = setup.changes[usize::from(change)].iter().copied().map(replica_id).collect();
                world.act(post, setup, |post, out| post.node.reconfigure(incoming, out)).ok()?;
            }
            Step::HandOver(post, to) => {
                world.budget.handovers -= 1;
                world.act(post, setup, |post, out| post.node.hand_over(replica_id(to), out)).ok()?;
            }
            Step::Silence(post, of) => {
                world.budget.silences -= 1;
                world.act(post, setup, |post, out| post.node.lost(replica_id(of), out));
            }
            Step::Reconnect(post, to) => {
                world.budget.reconnects -= 1;
                world.act(post, setup, |post, out| post.node.reconnected(replica_id(to), out));
            }
            Step::Compact(post) => {
                world.budget.snapshots -= 1;
                world.posts[usize::from(post)].compact()?;
                world.saw(COMPACTED);
                world.act(post, setup, |post, out| {
                    if !setup.has_flushes() {
                        post.flush(out);
                    }
                });
            }
            Step::Deliver(from, to, message) => world.deliver(from, to, &message, setup),
            Step::Flush(post) => world.act(post, setup, Post::flush),
            Step::Restart(post, kept) => {
                world.budget.restarts -= 1;
                world.restart(post, kept, setup);
            }
        }
        world.tidy(setup);
        Some(world)
    }

    fn fingerprint(&self) -> u128 {
        self.least_print()
    }
}
