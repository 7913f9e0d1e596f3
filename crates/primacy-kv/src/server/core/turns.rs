//! Turns: what follows from all that has come, what is written, and what is sent.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use primacy::{Instant, clock};
use primacy_core::log::{ChunkOrder, Write};
use tracing::{error, info, warn};

use super::{AppendResult, Core, NodeError, Notice, State};
use crate::group::{Effect, Message, Turn};
use crate::payload::LogBytes;
use crate::request::Answered;
use crate::server::backend::Done;
use crate::server::links::Outbox;
use crate::server::snapshots::{self, SnapshotFileError, Told};
use crate::snapshots::given;
use crate::wal::GroupId;

/// How large the chunks of snapshots are, about.
const CHUNK: usize = 1 << 20;
/// How exact the runtime's timer is.
const TIMER_STEP: Duration = Duration::from_millis(1);
/// How long a group takes no snapshot after one could not be written.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(10);

impl Core {
    /// Takes turns. Never ends.
    pub(in crate::server) async fn run(self: Rc<Self>) {
        let mut effects = Vec::new();
        let sleep = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(sleep);
        let mut is_set = false;
        loop {
            let due = self.state.borrow().deadlines.first().map(|(at, _)| *at);
            if let Some(at) = due {
                // The runtime's timer stops in suspend; a minute later all is looked at again.
                let due = runtime_now() + at.since(clock::now()).min(Duration::from_secs(60));
                // Setting it wakes the runtime, so it stays if it is early enough.
                if !is_set || due + TIMER_STEP < sleep.deadline() {
                    sleep.as_mut().reset(due);
                    is_set = true;
                }
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.notices.wake.notified() => {}
                () = &mut sleep, if is_set => is_set = false,
            }
            // All that are ready bring their inputs first.
            tokio::task::yield_now().await;
            self.turn(&mut effects);
        }
    }

    fn turn(self: &Rc<Self>, effects: &mut Vec<Effect>) {
        let (mut answers, mut writes) = (Vec::new(), Vec::new());
        let mut state = self.state.borrow_mut();
        // Before the other clock is read: if the process stands still between them, a key outlives its moment, and does not go early.
        let time_of_day = time_of_day();
        let now = clock::now();
        for notice in self.notices.take() {
            self.notice(&mut state, notice, now);
        }
        while let Some((at, group)) = state.deadlines.first().copied()
            && at <= now
        {
            state.deadlines.pop_first();
            state.replicas[usize::from(group)].deadline = None;
            state.touch(group);
        }
        let is_disk_full = state.is_disk_full;
        for number in mem::take(&mut state.touched) {
            let memory_left = self.memory_max.map_or(usize::MAX, |max| max.saturating_sub(state.memory));
            let replica = &mut state.replicas[usize::from(number)];
            replica.is_touched = false;
            let believed = replica.leadership.as_ref().filter(|leadership| leadership.is_current());
            let believed = believed.map(|leadership| leadership.token());
            replica.group.turn(Turn { now, time_of_day, believed, memory_left, is_disk_full }, effects);
            for effect in effects.drain(..) {
                self.follow(&mut state, number, effect, &mut answers);
            }
            self.take_writes(&mut state, number, now, &mut writes);
            if state.replicas[usize::from(number)].group.wants_snapshot() {
                state.snapshots.is_due(number);
            }
            let replica = &mut state.replicas[usize::from(number)];
            let (before, bytes) = (mem::replace(&mut replica.bytes, replica.group.bytes()), replica.group.bytes());
            let (old, new) = (replica.deadline, replica.group.deadline());
            replica.deadline = new;
            state.memory = (state.memory + bytes).saturating_sub(before);
            if old != new {
                old.map(|at| state.deadlines.remove(&(at, number)));
                new.map(|at| state.deadlines.insert((at, number)));
            }
        }
        self.write(&state, &writes);
        take_snapshot(&mut state, now);
        drop(state);
        self.wires.outboxes.iter().flatten().for_each(Outbox::flush);
        for (done, answer) in answers {
            done(answer);
        }
        if self.review_from.get().is_some_and(|from| from <= now) {
            self.review_from.set(None);
            self.review.notify_one();
        }
    }

    /// What a thread has told.
    fn notice(&self, state: &mut State, notice: Notice, now: Instant) {
        match notice {
            Notice::Appended(appended) => {
                for AppendResult { group, done } in appended {
                    if let Err(error) = done {
                        return self.fail(NodeError::Log(error));
                    }
                    let replica = &mut state.replicas[usize::from(group)];
                    replica.writes_since = None;
                    if let (Some(index), Some(disk)) = (replica.given.take(), &state.disk) {
                        disk.snapshots.retire(GroupId(u32::from(group) + 1), index);
                    }
                    replica.group.written(now);
                    state.touch(group);
                }
            }
            Notice::Snapshot(Told::Chunk { group, index }) => {
                let number = (group.0 - 1) as u16;
                next_chunk(state, number, index);
            }
            Notice::Snapshot(Told::Written { group, index, chunks }) => {
                let number = (group.0 - 1) as u16;
                state.snapshots.ended(number, index);
                info!(group = number, index, chunks, "a snapshot is written");
                state.replicas[usize::from(number)].group.snapshot_written(index, chunks);
                state.touch(number);
            }
            Notice::Snapshot(Told::NotWritten { group, index, error }) => {
                let number = (group.0 - 1) as u16;
                state.snapshots.failed(number, index, now + SNAPSHOT_PAUSE);
                state.replicas[usize::from(number)].group.cancel_snapshot();
                match error {
                    SnapshotFileError::Full { .. } => warn!(group = number, %error, "no snapshot"),
                    _ => error!(group = number, %error, "no snapshot"),
                }
            }
            Notice::Snapshot(Told::Failed { error }) => self.fail(NodeError::Snapshot(error)),
        }
    }

    /// Does what a group wants.
    fn follow(self: &Rc<Self>, state: &mut State, group: u16, effect: Effect, answers: &mut Vec<(Done, Answered)>) {
        match effect {
            Effect::Send { to, message } => {
                if let Some(peer) = state.ids.get(&to) {
                    let kind = usize::from(message.is_bulk());
                    let outbox = &self.wires.outboxes[*peer][kind];
                    match &message {
                        Message::Answers(answers) => {
                            outbox.put_in_turn(group, answers.size(), move |out| message.encode(out));
                        }
                        _ => outbox.put(Some(group), |out| message.encode(out)),
                    }
                }
            }
            Effect::SendChunk(order) => self.send_chunk(state, group, order),
            Effect::Answer { tag, answer } => {
                if let Some((group, done)) = state.requests.remove(&tag) {
                    let replica = &mut state.replicas[usize::from(group)];
                    replica.waiting -= 1;
                    replica.wakers.drain(..).for_each(Waker::wake);
                    answers.push((done, answer));
                }
            }
            Effect::Serves(ballot) => info!(group, token = ballot.token.get(), "leads"),
            Effect::Resign { ballot, reason } => {
                let replica = &mut state.replicas[usize::from(group)];
                if replica.leadership.as_ref().is_some_and(|leadership| leadership.token() == ballot.token) {
                    replica.leadership = None;
                    replica.resigned.why.set(Some(reason));
                    replica.resigned.changed.notify_one();
                }
            }
            Effect::Broken(broken) => {
                self.fail(NodeError::Broken { group, why: broken.to_string(), name: self.name.clone() });
            }
        }
    }

    fn send_chunk(self: &Rc<Self>, state: &State, group: u16, order: ChunkOrder) {
        let Some(disk) = &state.disk else { return };
        let Some(peer) = state.ids.get(&order.to).copied() else { return };
        let (core, folder) = (Rc::clone(self), disk.folder.clone());
        tokio::task::spawn_local(async move {
            let Ok(may_read) = Arc::clone(&core.wires.chunks[peer]).acquire_owned().await else { return };
            let (index, number) = (order.snapshot.position.index, order.chunk);
            let id = GroupId(u32::from(group) + 1);
            let read = tokio::task::spawn_blocking(move || folder.chunk(id, index, number)).await;
            match read {
                Ok(Ok(data)) => {
                    let size = data.len();
                    let is_there = core.state.borrow().ids.get(&order.to) == Some(&peer);
                    let message = Message::Log(order.message(LogBytes::from(data)));
                    if is_there {
                        let outbox = &core.wires.outboxes[peer][1];
                        outbox.put_in_turn(group, size, move |out| {
                            message.encode(out);
                            drop(may_read);
                        });
                        outbox.flush();
                    }
                }
                Ok(Err(error)) => {
                    let is_current = core.with(group, |replica| {
                        replica.group.status().snapshot.is_some_and(|position| position.index == index)
                    });
                    if is_current == Some(true) {
                        core.fail(NodeError::Snapshot(error.to_string()));
                    } else {
                        core.with(group, |replica| replica.group.chunk_gone(order.to, clock::now()));
                    }
                }
                Err(_) => {}
            }
        });
    }

    /// Takes what a group has changed. What has to be in a snapshot's file first goes to the thread for these.
    fn take_writes(&self, state: &mut State, group: u16, now: Instant, out: &mut Vec<(GroupId, Vec<Write<LogBytes>>)>) {
        let Some(disk) = &state.disk else { return };
        let replica = &mut state.replicas[usize::from(group)];
        let Some(writes) = replica.group.take_writes() else { return };
        (replica.writes_since, replica.given) = (Some(now), given(&writes));
        let id = GroupId(u32::from(group) + 1);
        if !snapshots::concerns(&writes) {
            return out.push((id, writes));
        }
        let notices = Arc::clone(&self.notices);
        let done = move |done| notices.put(Notice::Appended(vec![AppendResult { group, done }]));
        disk.snapshots.write(id, writes, done);
    }

    /// Has that written which groups have changed, with one flush for all of them.
    fn write(&self, state: &State, writes: &[(GroupId, Vec<Write<LogBytes>>)]) {
        let Some(disk) = state.disk.as_ref().filter(|_| !writes.is_empty()) else { return };
        let groups: Vec<u16> = writes.iter().map(|(id, _)| (id.0 - 1) as u16).collect();
        let notices = Arc::clone(&self.notices);
        let done = move |done: Vec<_>| {
            let appended = groups.into_iter().zip(done);
            let appended = appended.map(|(group, done)| AppendResult { group, done });
            notices.put(Notice::Appended(appended.collect()));
        };
        if let Err(error) = disk.wal.append_all(writes, done) {
            self.fail(NodeError::Log(error));
        }
    }
}

/// Begins the next snapshot, if one is to be taken.
fn take_snapshot(state: &mut State, now: Instant) {
    if let Some((number, index)) = state.snapshots.begin(now, &mut state.replicas) {
        next_chunk(state, number, index);
    }
}

fn next_chunk(state: &mut State, number: u16, index: u64) {
    let Some(disk) = &state.disk else { return };
    let (id, group) = (GroupId(u32::from(number) + 1), &mut state.replicas[usize::from(number)].group);
    if !group.is_taking_snapshot(index) {
        disk.snapshots.give_up(id, index);
        return state.snapshots.ended(number, index);
    }
    match group.snapshot_chunk(CHUNK) {
        Some(data) => disk.snapshots.chunk(id, index, data),
        None => disk.snapshots.finish(id, index),
    }
}

#[expect(clippy::disallowed_methods, reason = "the runtime's timer goes by this clock")]
fn runtime_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "it is what EXAT and PXAT are about; nothing rests on it")]
fn time_of_day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
