//! Groups without a log: a table each, and what a test wants to happen to their answers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use primacy_kv::entry::{Batch, Change, GroupTime, Request};
use primacy_kv::request::{Answered, ClientRequest, Failure, Query};
use primacy_kv::resp::Reply;
use primacy_kv::server::backend::{Backend, Done, GroupFacts, NodeFacts};
use primacy_kv::slot::Slot;
use primacy_kv::table::{Answer, Outcome, Table};
use tokio::sync::Notify;

use crate::random_commands::Numbers;

/// When requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Before `submit` returns.
    AtOnce,
    /// All that have come, in the next turn of the loop: as a node does. Groups are taken in an order of chance.
    InTurns,
    /// In an order of chance between groups, one at a time, and now and then none.
    Mixed,
    /// When the test says so.
    Held,
}

/// What happens instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and nothing was done.
    Fails(Failure),
    /// It is done, but the answer is another one.
    IsDoneAndFails(Failure),
    /// It is forgotten.
    IsDropped,
}

pub(crate) struct Group {
    pub(crate) table: Table,
    queue: VecDeque<(ClientRequest, Done)>,
    faults: VecDeque<Fault>,
    /// How many requests may wait before no more are taken.
    room: usize,
    wakers: Vec<Waker>,
}

pub(crate) struct Groups {
    groups: Vec<RefCell<Group>>,
    pub(crate) pace: Cell<Pace>,
    pub(crate) time: Cell<u64>,
    pub(crate) time_of_day: Cell<i64>,
    numbers: RefCell<Numbers>,
    news: Notify,
    /// They are not there yet.
    pub(crate) is_loading: Cell<bool>,
    are_loaded: Notify,
    /// The largest number of requests that have waited in one group.
    pub(crate) most: Cell<usize>,
    /// Whether reads and writes ever waited in one group at the same time.
    pub(crate) has_mixed: Cell<bool>,
}

impl Groups {
    pub(crate) fn new(count: u16, seed: u64) -> Rc<Self> {
        let groups = (0..count).map(|group| {
            RefCell::new(Group {
                table: Table::new(Slot::of_group(group, count), [1; 16]),
                queue: VecDeque::new(),
                faults: VecDeque::new(),
                room: usize::MAX,
                wakers: Vec::new(),
            })
        });
        Rc::new(Self {
            groups: groups.collect(),
            pace: Cell::new(Pace::InTurns),
            time: Cell::new(1_000),
            time_of_day: Cell::new(1_700_000_000_000),
            numbers: RefCell::new(Numbers(seed)),
            news: Notify::new(),
            is_loading: Cell::new(false),
            are_loaded: Notify::new(),
            most: Cell::new(0),
            has_mixed: Cell::new(false),
        })
    }

    pub(crate) fn group(&self, group: u16) -> std::cell::RefMut<'_, Group> {
        self.groups[usize::from(group)].borrow_mut()
    }

    /// The next requests of the group of a key will go so.
    pub(crate) fn faults(&self, key: &str, faults: impl IntoIterator<Item = Fault>) {
        let group = self.group_of(Slot::of(key.as_bytes()));
        self.group(group).faults.extend(faults);
    }

    pub(crate) fn set_room(&self, group: u16, room: usize) {
        let mut group = self.group(group);
        group.room = room;
        group.wakers.drain(..).for_each(Waker::wake);
    }

    /// They are there from now on.
    pub(crate) fn loaded(&self) {
        self.is_loading.set(false);
        self.are_loaded.notify_one();
    }

    /// Waits until they are there.
    pub(crate) async fn ready(self: Rc<Self>) {
        while self.is_loading.get() {
            self.are_loaded.notified().await;
        }
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.groups.iter().map(|group| group.borrow().queue.len()).sum()
    }

    /// Answers the first request that waits in a group.
    pub(crate) fn step(&self, group: u16) {
        let Some((request, done)) = self.group(group).queue.pop_front() else { return };
        let answered = {
            let mut group = self.group(group);
            group.wakers.drain(..).for_each(Waker::wake);
            match group.faults.pop_front() {
                None => Some(Ok(self.answer(&mut group.table, request))),
                Some(Fault::Fails(failure)) => Some(Err(failure)),
                Some(Fault::IsDropped) => None,
                Some(Fault::IsDoneAndFails(failure)) => {
                    self.answer(&mut group.table, request);
                    Some(Err(failure))
                }
            }
        };
        if let Some(answered) = answered {
            done(answered as Answered);
        }
    }

    /// Answers requests as the pace says, for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.news.notified().await;
            while self.waiting() > 0 && self.pace.get() != Pace::Held {
                match self.pace.get() {
                    Pace::Mixed => {
                        let group = self.any_group();
                        self.step(group);
                        if self.numbers.borrow_mut().is_one_in(3) {
                            tokio::task::yield_now().await;
                        }
                    }
                    _ => {
                        let first = self.any_group();
                        for group in (0..self.groups()).map(|group| (first + group) % self.groups()) {
                            let waiting = self.group(group).queue.len();
                            (0..waiting).for_each(|_| self.step(group));
                        }
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// From now on requests are answered otherwise, those that wait among them.
    pub(crate) fn go(&self, pace: Pace) {
        self.pace.set(pace);
        self.news.notify_one();
    }

    fn any_group(&self) -> u16 {
        u16::try_from(self.numbers.borrow_mut().next() % u64::from(self.groups())).unwrap()
    }

    fn log(&self, table: &mut Table, change: Change) -> Reply {
        let requests = vec![Request { forwarded: None, change }];
        let (time, time_of_day) = (GroupTime(self.time.get()), self.time_of_day.get());
        let batch = Batch { time, time_of_day, requests, ..Batch::default() };
        match table.apply(table.applied() + 1, batch).unwrap().pop() {
            Some(Outcome::Done(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, table: &mut Table, request: ClientRequest) -> Reply {
        let now = GroupTime(self.time.get());
        match request {
            ClientRequest::Write(change) => self.log(table, change),
            ClientRequest::Read(Query::Operation(operation)) => loop {
                match table.read(&operation, now) {
                    Answer::Reply(reply) => return reply,
                    Answer::Expired(keys) => self.log(table, Change::RemoveExpired(keys)),
                };
            },
            ClientRequest::Read(Query::Versions(keys)) => loop {
                match table.versions(&keys, now) {
                    Ok(versions) => {
                        let versions = versions.into_iter().map(|(_, version)| i64::try_from(version).unwrap());
                        return Reply::Array(versions.map(Reply::Integer).collect());
                    }
                    Err(expired) => self.log(table, Change::RemoveExpired(expired)),
                };
            },
            ClientRequest::Read(Query::Scan { cursor, count, filter }) => {
                let (next, keys) = table.scan(cursor, count, &filter);
                let keys = keys.into_iter().map(Reply::bulk).collect();
                Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(keys)])
            }
            ClientRequest::Read(Query::Keys(filter)) => {
                Reply::Array(table.keys(&filter).into_iter().map(Reply::bulk).collect())
            }
            ClientRequest::Read(Query::Count) => Reply::count(table.len()),
            ClientRequest::Read(Query::Random(number)) => Reply::maybe(table.random_key(number)),
        }
    }
}

impl Backend for Groups {
    fn groups(&self) -> u16 {
        if self.is_loading.get() { 0 } else { u16::try_from(self.groups.len()).unwrap() }
    }

    fn group_of(&self, slot: Slot) -> u16 {
        slot.group(self.groups())
    }

    fn submit(&self, group: u16, request: ClientRequest, done: Done) {
        {
            let mut group = self.group(group);
            group.queue.push_back((request, done));
            self.most.set(self.most.get().max(group.queue.len()));
            let writes = group.queue.iter().filter(|(request, _)| request.is_write()).count();
            self.has_mixed.set(self.has_mixed.get() || (writes > 0 && writes < group.queue.len()));
        }
        match self.pace.get() {
            Pace::AtOnce => self.step(group),
            Pace::Held => {}
            _ => self.news.notify_one(),
        }
    }

    fn poll_ready(&self, group: u16, context: &mut Context<'_>) -> Poll<()> {
        let mut group = self.group(group);
        if group.queue.len() < group.room {
            return Poll::Ready(());
        }
        group.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn copies(&self, _: u16) -> u16 {
        1
    }

    fn facts(&self) -> NodeFacts {
        let groups = self.groups.iter().enumerate().map(|(number, group)| GroupFacts {
            leader: Some("a".into()),
            is_led_here: number % 2 == 0,
            applied: group.borrow().table.applied(),
            keys: group.borrow().table.len() as u64,
        });
        NodeFacts {
            name: "a".into(),
            id: "00ff".into(),
            connected_nodes: 2,
            memory_bytes: self.groups.iter().map(|group| group.borrow().table.bytes() as u64).sum(),
            memory_max: Some(1 << 30),
            groups: groups.collect(),
        }
    }
}
