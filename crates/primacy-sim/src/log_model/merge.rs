//! States that are the same for all that follows, taken for one.
//!
//! *What is forgotten*: requests of a ballot below what their replica has promised on its disk, since nothing but "outbid" is answered, and
//! that answer: a leader that ends by it does no more than one whose messages do not arrive; answers to a leader that is over; answers that
//! change nothing at their leader; requests that change nothing at their replica, and are answered with nothing new, if nobody will forget
//! any more what they have brought; by whom a ballot was opened; what a read must see whose leader is over.
//!
//! *What is flushed at once*: all that the replica of a process writes that does not lead. An answer waits for the flush, so a process that restarts before it
//! has not been heard to have done anything: as if the request had not arrived. What a leader has fetched or appended others may have,
//! although its own replica loses it, so there each flush is a step.
//!
//! *What is alike*: the replicas of one [kind](Setup::kinds). Replicas compare identities but for being equal in one place only, where of
//! two equal logs the source is chosen. A state is hashed in parts: each replica's process, what it knows of each other, and what is
//! under way between the two. All of it is put together in each order of those that are alike, and the least counts.

use std::hash::{Hash, Hasher};

use primacy_core::log::{Answer, Flaw, Message, Request, Verdict};

use super::alike::rename;
use super::ids::{ballot, replica_id};
use super::post::Post;
use super::setup::{Budget, Setup};
use super::world::{Packet, Slot, World};
use crate::search::Prints;

impl World {
    /// Forgets what makes no difference.
    pub(super) fn forget(&mut self, setup: &Setup) {
        if setup.flaw != Some(Flaw::OpensTwice) && setup.reading.is_none() {
            let posts = &self.posts;
            let is_heard = |owner: u8, number: u8| posts[usize::from(owner)].promised_on_disk() >= ballot(number);
            for (slot, number) in self.slots.iter_mut().zip(0..) {
                if matches!(slot, Slot::Opened(owner) if is_heard(*owner, number)) {
                    *slot = Slot::Spent;
                }
            }
        }
        if setup.reading.is_none() {
            self.ledger.shown = 0;
        }
        let posts = &self.posts;
        for read in &mut self.reads {
            *read = read.filter(|read| posts[usize::from(read.post)].node.leads() == Some(read.by));
        }
        self.packets.retain(|packet| {
            let (own, target) = (&posts[usize::from(packet.from)], &posts[usize::from(packet.to)]);
            match &*packet.message {
                Message::Request(request) => {
                    let is_fetch = matches!(request, Request::Fetch { .. });
                    let forgets = match setup.flaw {
                        Some(Flaw::ForgetsPromise) => true,
                        Some(Flaw::FetchesBeyond) => is_fetch,
                        _ => false,
                    };
                    // Only a leader that lives has a use for what it fetches.
                    let waits = !is_fetch || own.node.leads() == Some(request.ballot());
                    waits && (forgets || request.ballot() >= target.promised_on_disk())
                }
                Message::Answer(Answer { ballot, verdict: Verdict::Outbid(promised) }) if promised > ballot => false,
                Message::Answer(answer) => target.node.leads() == Some(answer.ballot),
            }
        });
        self.note_prints();
        let is_changed: Vec<bool> = self.posts.iter_mut().map(|post| post.changed().is_some()).collect();
        let is_changed = |packet: &Packet| {
            packet.is_new || is_changed[usize::from(packet.from)] || is_changed[usize::from(packet.to)]
        };
        let is_idle = self.packets.iter();
        let is_idle = is_idle.map(|packet| if is_changed(packet) { self.is_idle(packet) } else { packet.is_idle });
        let is_idle: Vec<bool> = is_idle.collect();
        for (packet, is_idle) in self.packets.iter_mut().zip(is_idle) {
            (packet.is_idle, packet.is_new) = (is_idle, false);
        }
        // A restart forgets what a request has brought, and so does a leader that gives up its source. An answer has none to forget: its
        // leader is gone with it, or is answered again.
        let Budget { restarts, reconnects, silences, .. } = self.budget;
        let may_return = restarts + reconnects + silences > 0;
        self.packets.retain(|packet| {
            let is_request = matches!(&*packet.message, Message::Request(_));
            !packet.is_idle || (is_request && may_return)
        });
    }

    /// Whether nothing follows if this message arrives: nothing changes, and what is answered is under way already, or would do nothing. An
    /// answer to a beat changes with what has come since, so beats are none.
    fn is_idle(&self, packet: &Packet) -> bool {
        if matches!(&*packet.message, Message::Request(Request::Beat { .. })) {
            return false;
        }
        let is_there = |echo: &Packet| {
            self.packets.iter().any(|other| (other.from, other.to, other.print) == (echo.from, echo.to, echo.print))
        };
        let is_known = |echo: &Packet| {
            let is_answer = matches!(&*echo.message, Message::Answer(_));
            is_there(echo) || (is_answer && self.echoes(echo, |echoes| echoes.is_some_and(|all| all.is_empty())))
        };
        let echoes = self.echoes(packet, |echoes| echoes.cloned());
        echoes.is_some_and(|echoes| echoes.iter().all(is_known))
    }
    /// The same for worlds of which all that can follow is the same but for the names of replicas.
    pub(super) fn least_print(&self) -> u128 {
        let count = self.posts.len();
        let mut between = vec![0_u128; count * count];
        for packet in &self.packets {
            let sum = &mut between[usize::from(packet.from) * count + usize::from(packet.to)];
            *sum = sum.wrapping_add(packet.print);
        }
        self.alike.orders.iter().map(|order| self.print_in(order, &between)).min().unwrap_or_default()
    }

    fn print_in(&self, order: &[usize], between: &[u128]) -> u128 {
        let count = self.posts.len();
        let place = |post: u8| order.iter().position(|own| *own == usize::from(post)).map(|at| at as u8);
        let mut print = Prints::new(|name| name);
        for one in order {
            let prints = &self.posts[*one].prints;
            print.write_u128(prints[0]);
            for other in order {
                print.write_u128(prints[1 + other]);
                print.write_u128(between[one * count + other]);
            }
        }
        for slot in &self.slots {
            match slot {
                Slot::Free => 0_u8.hash(&mut print),
                Slot::Granted(post) => (1_u8, place(*post)).hash(&mut print),
                Slot::Opened(post) => (2_u8, place(*post)).hash(&mut print),
                Slot::Spent => 3_u8.hash(&mut print),
            }
        }
        self.reads.iter().for_each(|read| read.map(|read| (place(read.post), read.floor)).hash(&mut print));
        (self.believed, self.budget, self.wrong, &*self.ledger).hash(&mut print);
        print.print()
    }
}

impl World {
    fn note_prints(&mut self) {
        for index in 0..self.posts.len() {
            if self.posts[index].prints.is_empty() {
                let kinds = self.alike.kinds.clone();
                self.posts[index].print(&kinds);
            }
        }
    }
}

impl Post {
    /// Notes fingerprints of its parts: itself, and what it knows of each replica.
    fn print(&mut self, kinds: &[u8]) {
        let mut own = Prints::new(rename(kinds));
        self.hash_beside(&mut own);
        let mut prints = vec![own.print()];
        for other in (0..).map(replica_id).take(kinds.len()) {
            let mut print = Prints::new(rename(kinds));
            self.node.hash_of(other, &mut print);
            prints.push(print.print());
        }
        self.prints = prints;
    }
}
