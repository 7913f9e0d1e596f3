//! The one task that changes what a voter has promised, and flushes it before any answer leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::quorum::Answer;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info};

use super::super::ballot::{Ballots, Question};
use super::super::cluster::Cluster;
use super::super::file::{FileError, VoterFile};
use super::super::kept::Kept;
use super::super::wire::{self, Body, Names, Probed, Terms};
use super::PeerError;
use crate::{CandidateId, ElectionName, clock};

/// Where the answers of one connection go.
pub(super) type Out = mpsc::Sender<(u64, Body)>;

/// Something to do for somebody.
pub(super) enum Work {
    Ask {
        number: u64,
        question: Box<Question>,
        out: Out,
    },
    Watch {
        election: ElectionName,
        out: Out,
    },
    Leave {
        number: u64,
        election: ElectionName,
        id: CandidateId,
        out: Out,
    },
    List {
        number: u64,
        out: Out,
    },
    Recall {
        number: u64,
        election: ElectionName,
        limit: u32,
        out: Out,
    },
    Probe {
        number: u64,
        out: Out,
    },
    /// These are the voters. Told when that is on disk.
    Found {
        cluster: Cluster,
        done: oneshot::Sender<()>,
    },
}

/// Works that are answered after one flush.
const BATCH: usize = 256;

/// How many flushes a probe measures.
const FLUSHES: usize = 20;

struct Tally {
    ballots: Ballots,
    watchers: BTreeMap<ElectionName, Vec<Out>>,
    known: watch::Sender<Option<Cluster>>,
    /// What leaves after the next flush.
    answers: Vec<(Out, u64, Body)>,
    founded: Option<(Cluster, oneshot::Sender<()>)>,
    probes: Vec<(Out, u64)>,
}

/// Takes works until nobody is left who could bring any.
///
/// # Errors
/// If the voter's file cannot be written: it then says nothing more.
pub(super) async fn keep(
    mut file: VoterFile,
    ballots: Ballots,
    mut inbox: mpsc::Receiver<Work>,
    known: watch::Sender<Option<Cluster>>,
) -> Result<(), PeerError> {
    let mut tally =
        Tally { ballots, watchers: BTreeMap::new(), known, answers: Vec::new(), founded: None, probes: Vec::new() };
    let mut works = Vec::with_capacity(BATCH);
    loop {
        let next_end = tally.ballots.next_end().map(|end| end.since(clock::now()) + Duration::from_micros(100));
        tokio::select! {
            count = inbox.recv_many(&mut works, BATCH) => {
                if count == 0 {
                    return Ok(());
                }
            }
            () = tokio::time::sleep(next_end.unwrap_or_default()), if next_end.is_some() => {}
        }
        works.drain(..).for_each(|work| tally.take(work));
        tally.ballots.expire(clock::now());
        if let Some(kept) = tally.ballots.unflushed() {
            file = flushed(file, kept).await?;
        }
        for (out, number) in std::mem::take(&mut tally.probes) {
            let kept = tally.ballots.kept().clone();
            let (same, flushes_ns) = measured(file, kept).await?;
            file = same;
            let product = concat!("primacy peer ", env!("CARGO_PKG_VERSION")).to_owned();
            tally.answers.push((out, number, Body::Probed(Probed { product, flushes_ns })));
        }
        tally.tell();
        tally.ballots.write_history();
    }
}

async fn flushed(mut file: VoterFile, kept: Kept) -> Result<VoterFile, FileError> {
    let written = tokio::task::spawn_blocking(move || file.save(&kept).map(|()| file)).await;
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).inspect_err(|error| {
        error!(%error, "this voter answers nothing more");
    })
}

/// Writes the same again, some times.
async fn measured(mut file: VoterFile, kept: Kept) -> Result<(VoterFile, Vec<u64>), FileError> {
    let mut spans = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let begin = clock::now();
        file = flushed(file, kept.clone()).await?;
        spans.push(u64::try_from(clock::now().since(begin).as_nanos()).unwrap_or(u64::MAX));
    }
    Ok((file, spans))
}

impl Tally {
    fn take(&mut self, work: Work) {
        match work {
            Work::Ask { number, question, out } => {
                let told = self.ballots.answer(*question, clock::now());
                let Answer { accepted, view } = &told.answer;
                debug!(accepted, term = %view.term, "answered");
                self.answers.push((out, number, Body::Answer((&told).into())));
            }
            Work::Watch { election, out } => {
                // Whoever begins to listen looks once, and so misses nothing.
                self.answers.push((out.clone(), 0, Body::Hint(election.as_str().to_owned())));
                let watchers = self.watchers.entry(election).or_default();
                watchers.retain(|out| !out.is_closed());
                watchers.push(out);
            }
            Work::Leave { number, election, id, out } => {
                self.ballots.leave(&election, id);
                self.answers.push((out, number, Body::Left(true)));
            }
            Work::List { number, out } => {
                let names = self.ballots.names().map(|name| name.as_str().to_owned()).collect();
                self.answers.push((out, number, Body::Listed(Names { names })));
            }
            Work::Recall { number, election, limit, out } => {
                let terms = self.ballots.past(&election, limit).iter().map(Into::into).collect();
                self.answers.push((out, number, Body::Recalled(Terms { terms })));
            }
            Work::Probe { number, out } => self.probes.push((out, number)),
            Work::Found { cluster, done } => {
                if self.known.borrow().is_none() && self.founded.is_none() {
                    self.ballots.set_cluster(wire::Cluster::from(&cluster).encode_to_vec());
                    self.founded = Some((cluster, done));
                }
            }
        }
    }

    /// What was done is on disk: now others may hear of it.
    fn tell(&mut self) {
        if let Some((cluster, done)) = self.founded.take() {
            info!(voters = %cluster.names().collect::<Vec<_>>().join(", "), "the voters have been brought together");
            self.known.send_replace(Some(cluster));
            // Whoever has asked may be gone.
            let _ = done.send(());
        }
        for (out, number, body) in self.answers.drain(..) {
            post(&out, number, body);
        }
        for election in self.ballots.stirred() {
            if let Some(watchers) = self.watchers.get_mut(&election) {
                watchers.retain(|out| post(out, 0, Body::Hint(election.as_str().to_owned())));
            }
        }
    }
}

/// Somebody who does not read its answers loses them, and by that its connection: nobody waits for it.
fn post(out: &Out, number: u64, body: Body) -> bool {
    out.try_send((number, body)).is_ok()
}
