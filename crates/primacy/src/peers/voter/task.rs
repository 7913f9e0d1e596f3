//! The one task that changes what a voter has promised, and flushes it before any answer leaves.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::quorum::{Answer, ConfigRequest, ELECTIONS_MAX, Refusal, VoterId};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{debug, error, info, warn};

use super::command::{ReplySender, VoterCommand};
use super::file::{FileError, VoterFile};
use super::file_data::VoterFileData;
use super::hosted_elections::HostedElections;
use super::process::ProcessIdentity;
use super::settings::PeerError;
use super::watchers::Watchers;
use crate::Instant;
use crate::clock::{self, Reading, VoterClock};
use crate::peers::config::Cluster;
use crate::peers::wire::{self, Body, ConfigReplyFrame, NAMES_MOST, Names, Page, ProbeReply, RefusalFrame, Terms};

/// How many commands are carried out before one flush.
const BATCH: usize = 256;

/// How many recent flush durations are kept.
const FLUSHES: usize = 20;

/// Later than its end a promise is looked at by this, so that it has ended.
const MARGIN: Duration = Duration::from_micros(100);

/// For how long at most a voter that has started waits to know that no other process answers at its address.
const ALONE_MOST: Duration = Duration::from_millis(500);

/// A clock that cannot be read is tried again after this.
const CLOCK_AGAIN: Duration = Duration::from_millis(100);

/// For how long the answers of a voter that votes no more can still leave.
const LINGER: Duration = Duration::from_secs(1);

/// What leaves when all that it rests on is on disk.
#[expect(clippy::large_enum_variant, reason = "nearly all are answers")]
pub(super) enum DeferredReply {
    /// An answer, by its number, for a connection.
    Answer(ReplySender, u64, Body),
    /// Word that something of this process has been done.
    Done(oneshot::Sender<()>),
}

/// The task that changes what a voter has promised, and writes it to disk before any answer leaves.
pub(super) struct VoterTask {
    elections: HostedElections<DeferredReply>,
    watchers: Watchers,
    known: watch::Sender<Option<Cluster>>,
    /// Rung when somebody says that there are later voters than it knows.
    behind: Arc<Notify>,
    /// How long the last flushes took, in nanoseconds.
    flushes: VecDeque<u64>,
    process: Arc<ProcessIdentity>,
    /// It was told that no more elections are kept.
    is_full: bool,
    /// The clock has been read once.
    has_begun: bool,
    /// It cannot be read at present.
    is_timeless: bool,
}

/// Carries out commands until nobody is left who could send any.
///
/// # Errors
/// If the voter's file cannot be written: it then says nothing more. If others vote in its place by now.
pub(super) async fn keep(
    mut file: VoterFile,
    voter: VoterId,
    elections: HostedElections<DeferredReply>,
    mut inbox: mpsc::Receiver<VoterCommand>,
    known: watch::Sender<Option<Cluster>>,
    (process, alone): (Arc<ProcessIdentity>, oneshot::Receiver<()>),
    behind: Arc<Notify>,
) -> Result<(), PeerError> {
    let mut task = VoterTask::new(elections, known, process);
    task.behind = behind;
    // A disk that does not work is known at once, and how long it takes.
    let data = task.elections.rewrite();
    file = task.flush(file, data).await?;
    // A copy of another's folder ends before it has answered, if its own address can be reached. Nothing is concluded if not.
    let _ = tokio::time::timeout(ALONE_MOST, alone).await;
    let mut commands = Vec::with_capacity(BATCH);
    let mut clock = VoterClock::new();
    loop {
        let next_end = match task.is_timeless {
            false => task.elections.next_end().map(|end| end.since(clock::now()) + MARGIN),
            true => Some(CLOCK_AGAIN),
        };
        tokio::select! {
            count = inbox.recv_many(&mut commands, BATCH) => {
                if count == 0 {
                    return Ok(());
                }
            }
            () = tokio::time::sleep(next_end.unwrap_or_default()), if next_end.is_some() => {}
        }
        match task.note_time(clock.read()) {
            Some(now) => {
                commands.drain(..).for_each(|command| task.take(command, now));
                task.elections.expire(now);
            }
            None => commands.drain(..).for_each(|command| task.put_off(&command)),
        }
        if let Some(data) = task.elections.begin_write() {
            file = task.flush(file, data).await?;
        }
        task.tell();
        task.elections.write_history();
        if task.elections.cluster().is_some_and(|cluster| !cluster.has(voter)) {
            tokio::time::sleep(LINGER).await;
            return Err(PeerError::Removed { voter });
        }
    }
}

impl VoterTask {
    pub(super) fn new(
        elections: HostedElections<DeferredReply>,
        known: watch::Sender<Option<Cluster>>,
        process: Arc<ProcessIdentity>,
    ) -> Self {
        let watchers = Watchers::default();
        let (flushes, is_full, has_begun, is_timeless) = (VecDeque::new(), false, false, false);
        let behind = Arc::default();
        Self { elections, watchers, known, behind, flushes, process, is_full, has_begun, is_timeless }
    }

    async fn flush(&mut self, mut file: VoterFile, data: VoterFileData) -> Result<VoterFile, FileError> {
        let (begin, generation) = (clock::now(), data.generation);
        let written = tokio::task::spawn_blocking(move || file.save(&data).map(|()| file)).await;
        let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let took = clock::now().since(begin);
        debug!(?took, "flushed");
        self.flushes.push_back(wire::ns(took));
        if self.flushes.len() > FLUSHES {
            self.flushes.pop_front();
        }
        self.process.wrote(generation);
        let file = written.inspect_err(|error| error!(%error, "this voter answers nothing more"))?;
        self.elections.written();
        Ok(file)
    }

    /// The time at which commands are carried out that have arrived before; `None` while it is not known. All that follows from time is
    /// decided by it, so that the clock has been checked (rule R4).
    pub(super) fn note_time(&mut self, reading: Reading) -> Option<Instant> {
        let (now, is_steady) = match reading {
            Reading::Steady(now) => (now, true),
            Reading::Stepped(now) => (now, false),
            Reading::Unreadable => {
                if !mem::replace(&mut self.is_timeless, true) {
                    error!("the clock cannot be read: this voter answers nothing until it can");
                }
                return None;
            }
        };
        if !is_steady {
            // The first reading of a process is a step too.
            if mem::replace(&mut self.has_begun, true) {
                warn!("the machine was suspended, or its clock failed: this voter is bound as after a restart");
            }
            self.elections.bind_anew(now);
        }
        self.is_timeless = false;
        Some(now)
    }

    /// Does nothing of it, and says so.
    fn put_off(&self, command: &VoterCommand) {
        let why = "its clock cannot be read".to_owned();
        if let VoterCommand::Ask { number, out, .. } | VoterCommand::Config { number, out, .. } = command {
            out.post(*number, Body::Refused(RefusalFrame { why, is_passing: true, is_denied: false }));
        }
    }

    fn answer(&mut self, out: ReplySender, number: u64, body: Body) {
        self.elections.hold(DeferredReply::Answer(out, number, body));
    }

    pub(super) fn take(&mut self, command: VoterCommand, now: Instant) {
        match command {
            VoterCommand::Ask { number, query, out } => {
                let answer = match self.elections.answer(*query, now) {
                    Ok(told) => {
                        let Answer { accepted, view } = &told.answer;
                        debug!(accepted, term = %view.term, "answered");
                        Some(Body::Answer((&told).into()))
                    }
                    Err(Refusal::OtherVoters) => self.elections.cluster().map(|cluster| Body::Moved(cluster.into())),
                    Err(Refusal::Full) => {
                        if !mem::replace(&mut self.is_full, true) {
                            warn!(
                                "claims of new elections are refused: there are {ELECTIONS_MAX}, and no more are kept"
                            );
                        }
                        let why = format!("there are {ELECTIONS_MAX} elections, and no voter keeps more");
                        Some(Body::Refused(RefusalFrame { why, is_passing: true, is_denied: false }))
                    }
                };
                if let Some(answer) = answer {
                    self.answer(out, number, answer);
                }
            }
            VoterCommand::Watch { election, out } => {
                // A listener looks once when it begins, and so misses nothing.
                self.answer(out.clone(), 0, Body::Hint(election.as_str().to_owned()));
                if !self.watchers.add(election, out) {
                    debug!("more is watched than hints are sent for");
                }
            }
            VoterCommand::Gone { id } => self.watchers.remove(id),
            VoterCommand::Leave { number, election, id, out } => {
                self.elections.leave(&election, id);
                self.answer(out, number, Body::Left(true));
            }
            VoterCommand::List { number, after, out } => {
                let names = self
                    .elections
                    .names(after.as_ref())
                    .take(NAMES_MOST)
                    .map(|name| name.as_str().to_owned())
                    .collect();
                self.answer(out, number, Body::Listed(Names { names }));
            }
            VoterCommand::Recall { number, election, limit, out } => {
                let terms = self.elections.past(&election, limit).iter().map(Into::into).collect();
                self.answer(out, number, Body::Recalled(Terms { terms }));
            }
            VoterCommand::Probe { number, out } => {
                let product = concat!("primacy peer ", env!("CARGO_PKG_VERSION")).to_owned();
                let flushes_ns = self.flushes.iter().copied().collect();
                self.answer(out, number, Body::Probed(ProbeReply { product, flushes_ns }));
            }
            VoterCommand::Config { number, page, out } => {
                let Page { ask, after } = *page;
                let answer = self.elections.answer_config(ask, now);
                self.answer(out, number, Body::ConfigReply(ConfigReplyFrame::of(&answer, after.as_ref())));
            }
            VoterCommand::Behind { number, voters, out } => {
                let own = self.elections.cluster().map_or(0, Cluster::number);
                if voters > own {
                    self.behind.notify_one();
                }
                self.answer(out, number, Body::Behind(own));
            }
            VoterCommand::Testify { number, after, out } => {
                let said = self.elections.evidence(after);
                self.answer(out, number, Body::Testified((&said).into()));
            }
            VoterCommand::Learn { said, done } => {
                self.elections.catch_up(said, now);
                self.elections.hold(DeferredReply::Done(done));
            }
            VoterCommand::Found { cluster, done } => {
                self.elections.answer_config(ConfigRequest::Adopt(cluster), now);
                self.elections.hold(DeferredReply::Done(done));
            }
        }
    }

    /// What is to be written after the commands so far. Their answers are thrown away, each of which must fit into this many bytes.
    #[cfg(test)]
    pub(super) fn done(&mut self, most: usize) -> Option<VoterFileData> {
        self.elections.expire(clock::now());
        let data = self.elections.begin_write();
        self.elections.written();
        for reply in self.elections.release().0 {
            if let DeferredReply::Answer(_, number, body) = reply {
                let frame = wire::Frame { number, body: Some(body) };
                assert!(prost::Message::encoded_len(&frame) <= most);
            }
        }
        data
    }

    /// What was done is on disk: now others may hear of it.
    fn tell(&mut self) {
        if let Some(cluster) = self.elections.cluster().filter(|cluster| self.known.borrow().as_ref() != Some(cluster))
        {
            let names = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
            let voters = names(&mut cluster.names());
            match cluster.incoming() {
                Some(new) => {
                    info!(%voters, new = %names(&mut new.keys().map(String::as_str)), "the voters are exchanged")
                }
                None if cluster.number() == 0 => info!(%voters, "the voters have been brought together"),
                None => info!(%voters, "the voters have been exchanged"),
            }
            self.known.send_replace(Some(cluster.clone()));
            // Those that only listen would not hear of it otherwise.
            for out in self.watchers.all() {
                out.post(0, Body::Moved(cluster.into()));
            }
        }
        let (replies, news) = self.elections.release();
        for reply in replies {
            match reply {
                DeferredReply::Answer(out, number, body) => drop(out.post(number, body)),
                // The asker may be gone.
                DeferredReply::Done(done) => drop(done.send(())),
            }
        }
        for election in news {
            for out in self.watchers.of(&election) {
                out.post(0, Body::Hint(election.as_str().to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
