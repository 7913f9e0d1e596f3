//! What a voter is asked to do, and where its answers go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use primacy_core::quorum::{ConfigEvidence, VoterId};
use tokio::sync::{Notify, mpsc, oneshot};

use super::hosted_elections::ElectionQuery;
use crate::peers::config::Cluster;
use crate::peers::wire::{Body, Page};
use crate::{CandidateId, ElectionName};

/// Answers of one connection that wait to be sent: their number, and their bytes. A client that reads none of them is cut off.
pub(super) const ANSWERS_MOST: usize = 16_384;
const ANSWER_BYTES_MOST: usize = 4 << 20;

/// Sends the answers of one connection.
#[derive(Clone, Debug)]
pub(super) struct ReplySender {
    /// Of the connection, among those of this process.
    pub(super) id: u64,
    answers: mpsc::Sender<(u64, Body)>,
    /// The bytes of those that wait to be sent.
    bytes: Arc<AtomicUsize>,
    /// Rung when the connection is to end.
    pub(super) end: Arc<Notify>,
}

/// The answers of one connection, as they are sent.
pub(super) struct ReplyReceiver {
    pub(super) inbox: mpsc::Receiver<(u64, Body)>,
    bytes: Arc<AtomicUsize>,
}

impl ReplyReceiver {
    /// The next one, or `None` when there will be none.
    pub(super) async fn next(&mut self) -> Option<(u64, Body)> {
        let answer = self.inbox.recv().await?;
        Some(self.taken(answer))
    }

    /// The next one, if there is one already.
    pub(super) fn next_ready(&mut self) -> Option<(u64, Body)> {
        let answer = self.inbox.try_recv().ok()?;
        Some(self.taken(answer))
    }

    fn taken(&self, (number, body): (u64, Body)) -> (u64, Body) {
        self.bytes.fetch_sub(body.encoded_len(), Ordering::Relaxed);
        (number, body)
    }
}

impl ReplySender {
    /// For a new connection.
    pub(super) fn new() -> (Self, ReplyReceiver) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (answers, inbox) = mpsc::channel(ANSWERS_MOST);
        let (id, bytes) = (LAST.fetch_add(1, Ordering::Relaxed), Arc::<AtomicUsize>::default());
        (Self { id, answers, bytes: Arc::clone(&bytes), end: Arc::default() }, ReplyReceiver { inbox, bytes })
    }

    /// Nobody waits for somebody who does not read its answers: its connection ends, so that it knows that it has missed some.
    /// `false` if it has ended, or will.
    pub(super) fn post(&self, number: u64, body: Body) -> bool {
        let length = body.encoded_len();
        let has_room = self.bytes.fetch_add(length, Ordering::Relaxed) + length <= ANSWER_BYTES_MOST;
        let posted = has_room && self.answers.try_send((number, body)).is_ok();
        if !posted {
            self.end.notify_one();
        }
        posted
    }
}

/// What a voter's task is asked to do.
pub(super) enum VoterCommand {
    Ask {
        number: u64,
        query: Box<ElectionQuery>,
        out: ReplySender,
    },
    Watch {
        election: ElectionName,
        out: ReplySender,
    },
    /// A connection has ended.
    Gone {
        id: u64,
    },
    Leave {
        number: u64,
        election: ElectionName,
        id: CandidateId,
        out: ReplySender,
    },
    List {
        number: u64,
        /// Those behind this one are wanted.
        after: Option<ElectionName>,
        out: ReplySender,
    },
    Recall {
        number: u64,
        election: ElectionName,
        limit: u32,
        out: ReplySender,
    },
    Probe {
        number: u64,
        out: ReplySender,
    },
    Config {
        number: u64,
        page: Box<Page>,
        out: ReplySender,
    },
    /// There are voters with this number, it says.
    Behind {
        number: u64,
        voters: u64,
        out: ReplySender,
    },
    Testify {
        number: u64,
        after: u64,
        out: ReplySender,
    },
    /// What other voters have said of the steps after its own. Told when what they prove is on disk.
    Learn {
        said: BTreeMap<VoterId, ConfigEvidence<Cluster>>,
        done: oneshot::Sender<()>,
    },
    /// These are the voters. Told when that is on disk.
    Found {
        cluster: Cluster,
        done: oneshot::Sender<()>,
    },
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::peers::wire::{NAMES_MOST, Names};

    #[test]
    fn a_client_that_reads_no_answers_is_cut_off_before_they_take_much_room() {
        let names = vec!["x".repeat(128); NAMES_MOST];
        let list = || Body::Listed(Names { names: names.clone() });
        let (out, _answers) = ReplySender::new();
        let posted = (0..ANSWERS_MOST).take_while(|_| out.post(1, list())).count();
        assert!(posted > 1 && posted * list().encoded_len() <= ANSWER_BYTES_MOST, "{posted}");
        let (out, mut answers) = ReplySender::new();
        for _ in 0..1_000 {
            assert!(out.post(1, list()), "a client that reads its answers gets them all");
            assert!(answers.next().now_or_never().flatten().is_some());
        }
    }
}
