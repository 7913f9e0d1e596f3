//! Commands about all keys: each group is asked, and the answers are put together.

use std::rc::Rc;

use super::hub::Hub;
use super::line::Reservation;
use super::requests::{Part, all};
use crate::command::{KeyspaceCommand, ScanFilter};
use crate::request::{ClientRequest, Query};
use crate::resp::Reply;
use crate::slot::Slot;

/// How many bits of a cursor say where in a slot to go on. Those above are the slot.
const CURSOR_SLOT_SHIFT: u32 = 48;

impl Hub {
    /// Begins a command about all keys.
    pub(super) fn keyspace(self: &Rc<Self>, place: Reservation, command: KeyspaceCommand) {
        match command {
            KeyspaceCommand::Size => self.gather(self.every(|| ClientRequest::Read(Query::Count)), move |parts| {
                place.answer(all(parts).map_or_else(|error| error, |counts| Reply::Integer(sum(&counts))));
            }),
            KeyspaceCommand::Keys(filter) => {
                self.gather(self.every(|| ClientRequest::Read(Query::Keys(filter.clone()))), move |parts| {
                    place.answer(all(parts).map_or_else(|error| error, joined));
                });
            }
            KeyspaceCommand::Scan { cursor, count, filter } => self.scan(place, cursor, count, filter),
            KeyspaceCommand::RandomKey => {
                let hub = Rc::clone(self);
                self.gather(self.every(|| ClientRequest::Read(Query::Count)), move |parts| {
                    let groups = parts.iter().map(|part| part.group).collect();
                    match all(parts) {
                        Ok(counts) => hub.random_key(place, groups, &counts),
                        Err(error) => place.answer(error),
                    }
                });
            }
        }
    }

    /// The same request to each group.
    pub(super) fn every(&self, request: impl Fn() -> ClientRequest) -> Vec<(u16, ClientRequest)> {
        (0..self.backend.groups()).map(|group| (group, request())).collect()
    }

    fn scan(&self, place: Reservation, cursor: u64, count: usize, filter: ScanFilter) {
        let slot = u16::try_from(cursor >> CURSOR_SLOT_SHIFT).ok().and_then(Slot::new);
        let Some(slot) = slot else {
            // Behind the last slot is nothing, as in Redis with a cursor that it never gave.
            return place.answer(Reply::Array(vec![Reply::bulk(*b"0"), Reply::Array(Vec::new())]));
        };
        let request = ClientRequest::Read(Query::Scan { cursor, count, filter });
        self.gather(vec![(self.backend.group_of(slot), request)], move |mut parts| {
            place.answer(parts.pop().map_or(Reply::Null, |part| part.reply().unwrap_or_else(|error| error)));
        });
    }

    /// Chooses a group by how many keys each has, and asks it for one. If its keys have all gone meanwhile, the others are asked.
    fn random_key(self: &Rc<Self>, place: Reservation, groups: Vec<u16>, counts: &[Reply]) {
        let total = u64::try_from(sum(counts)).unwrap_or(0);
        let Some(mut left) = rand::random::<u64>().checked_rem(total) else { return place.answer(Reply::Null) };
        let counts = counts.iter().map(|count| u64::try_from(number(count)).unwrap_or(0));
        let (mut groups, counts): (Vec<u16>, Vec<u64>) =
            groups.into_iter().zip(counts).filter(|(_, count)| *count > 0).unzip();
        let chosen = counts.iter().position(|count| {
            let is_here = left < *count;
            left = left.saturating_sub(*count);
            is_here
        });
        groups.rotate_left(chosen.unwrap_or(0));
        self.some_key(place, groups);
    }

    fn some_key(self: &Rc<Self>, place: Reservation, mut groups: Vec<u16>) {
        if groups.is_empty() {
            return place.answer(Reply::Null);
        }
        let group = groups.remove(0);
        let hub = Rc::clone(self);
        let request = ClientRequest::Read(Query::Random(rand::random()));
        self.gather(vec![(group, request)], move |mut parts| match parts.pop().map(Part::reply) {
            Some(Ok(Reply::Null)) | None => hub.some_key(place, groups),
            Some(Ok(key) | Err(key)) => place.answer(key),
        });
    }
}

fn number(reply: &Reply) -> i64 {
    if let Reply::Integer(number) = reply { *number } else { 0 }
}

fn sum(replies: &[Reply]) -> i64 {
    replies.iter().map(number).fold(0, i64::saturating_add)
}

/// The elements of all lists. What is no list stands for all: an error.
fn joined(lists: Vec<Reply>) -> Reply {
    let mut all = Vec::new();
    for list in lists {
        match list {
            Reply::Array(elements) => all.extend(elements),
            other => return other,
        }
    }
    Reply::Array(all)
}
