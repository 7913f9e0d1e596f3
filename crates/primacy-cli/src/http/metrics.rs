//! `/metrics`: what the candidate has counted, how it stands, and what the store tells of the election, in OpenMetrics.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use nix::time::{ClockId, clock_gettime};
use primacy::metrics::{CallEnd, CallKind, CandidateMetrics, Histogram};
use primacy::store::{LeaderSupport, Snapshot};
use primacy::{ElectionName, GroupStatus, Label, clock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::process::{Resource, getrlimit};

use super::answers::refused;
use crate::standing::{CandidateSource, Candidates, ProcessKind, ProgramPhase, ProgramState, Standing};

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The answer: about these candidates, and about their elections what the store has said of them.
pub(super) fn answer(candidates: &Candidates, said: Option<&BTreeMap<ElectionName, Said>>) -> Response {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::new(candidates, said)));
    let mut told = String::new();
    match text::encode(&mut told, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], told).into_response(),
        Err(fmt::Error) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}

/// What the store says of an election: the election as it would look now, and which voters support its leader.
pub(super) type Said = (Option<Snapshot>, Option<LeaderSupport>);

/// All that is told at one moment.
#[derive(Debug)]
struct Scrape {
    candidates: Vec<CandidateScrape>,
    /// What the store has said of each election, if it has answered.
    elections: BTreeMap<ElectionName, Option<Said>>,
    /// What an agent has started itself.
    programs: Vec<ProgramState>,
    started: SystemTime,
}

/// What is told of one candidate.
#[derive(Debug)]
struct CandidateScrape {
    election: ElectionName,
    label: Label,
    standing: Standing,
    has_trouble: bool,
    counted: Arc<CandidateMetrics>,
    group: Option<GroupStatus>,
}

/// Labels of a metric.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl CandidateScrape {
    fn of(candidate: &CandidateSource) -> Self {
        Self {
            election: candidate.election().clone(),
            label: candidate.label().clone(),
            standing: candidate.standing(),
            has_trouble: candidate.trouble().is_some(),
            counted: candidate.counted(),
            group: candidate.group(),
        }
    }

    fn labels(&self) -> Labels<'_> {
        vec![("election", self.election.as_str()), ("candidate", self.label.as_str())]
    }

    const fn leads(&self) -> bool {
        matches!(self.standing, Standing::Leads { .. })
    }

    fn token(&self) -> f64 {
        match self.standing {
            Standing::Leads { token, .. } => token.get() as f64,
            _ => 0.0,
        }
    }

    fn remaining(&self) -> Duration {
        self.standing.parts().stop_at.map(|at| at.since(clock::now())).unwrap_or_default()
    }
}

impl Scrape {
    fn new(candidates: &Candidates, said: Option<&BTreeMap<ElectionName, Said>>) -> Self {
        let all = candidates.all();
        // Of several with one name in one election the first counts, or one that leads: a metric has one value.
        let mut told: BTreeMap<(ElectionName, Label), CandidateScrape> = BTreeMap::new();
        for candidate in all.iter().map(|candidate| CandidateScrape::of(candidate)) {
            let key = (candidate.election.clone(), candidate.label.clone());
            match told.entry(key) {
                Entry::Vacant(vacant) => drop(vacant.insert(candidate)),
                Entry::Occupied(mut known) if candidate.leads() => drop(known.insert(candidate)),
                Entry::Occupied(_) => {}
            }
        }
        let elections: BTreeSet<_> = match said {
            Some(said) if candidates.kind() == ProcessKind::Voter => said.keys().cloned().collect(),
            _ => candidates.elections(),
        };
        let of_election = |election: ElectionName| {
            // One that has come since was not asked about.
            let said = said.and_then(|said| said.get(&election).cloned());
            (election, said)
        };
        Self {
            candidates: told.into_values().collect(),
            elections: elections.into_iter().map(of_election).collect(),
            programs: candidates.programs().all(),
            started: candidates.started(),
        }
    }

    fn each<'a, T>(
        &'a self,
        told: impl Fn(&'a CandidateScrape) -> T + 'a,
    ) -> impl Iterator<Item = (Labels<'a>, T)> + 'a {
        self.candidates.iter().map(move |candidate| (candidate.labels(), told(candidate)))
    }

    fn encode_candidates(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.candidates.is_empty() {
            return Ok(());
        }
        let leads = self.each(CandidateScrape::leads);
        families.flag("primacy_candidate_is_leader", "Whether this candidate leads.", leads)?;
        let about = "The fencing token with which it leads; 0 while it does not.";
        families.gauge("primacy_candidate_token", about, None, self.each(CandidateScrape::token))?;
        let about = "How long until its work is told to stop, unless the lease is renewed; 0 while it does not lead.";
        families.span("primacy_candidate_remaining", about, self.each(CandidateScrape::remaining))?;
        let about = "Whether it reaches its store, or a majority of the voters.";
        families.flag("primacy_candidate_store_reached", about, self.each(|candidate| !candidate.has_trouble))?;
        let about = "Leaderships that it has begun.";
        let begun = self.each(|candidate| candidate.counted.leaderships());
        families.count("primacy_candidate_leaderships", about, begun)?;
        let ended: Vec<_> = self.candidates.iter().map(|candidate| (candidate, candidate.counted.ended())).collect();
        let by_reason = ended.iter().flat_map(|(candidate, ended)| {
            ended.iter().map(|(reason, count)| (with(candidate.labels(), &[("reason", *reason)]), *count))
        });
        families.count(
            "primacy_candidate_leaderships_ended",
            "Its leaderships that have ended, by reason.",
            by_reason,
        )?;
        let by_kind = self.candidates.iter().flat_map(|candidate| {
            let calls = CallKind::ALL.iter().flat_map(|kind| CallEnd::ALL.iter().map(move |end| (*kind, *end)));
            calls.map(|(kind, end)| {
                let labels = with(candidate.labels(), &[("call", kind.word()), ("end", end.word())]);
                (labels, candidate.counted.calls(kind, end))
            })
        });
        families.count("primacy_candidate_calls", "Its calls to the store, by how they ended.", by_kind)?;
        let about = "How long renewals of its lease took that were answered.";
        let renewals = self.each(|candidate| candidate.counted.renewals());
        families.histogram("primacy_candidate_renewal", about, renewals)?;
        let groups = || self.candidates.iter().filter_map(|one| Some((one, one.group.as_ref()?)));
        if groups().next().is_none() {
            return Ok(());
        }
        let about = "How often this process was evicted although it lived.";
        let evictions = groups().map(|(candidate, group)| (candidate.labels(), group.evictions));
        families.count("primacy_candidate_evictions", about, evictions)?;
        let rounds = groups().filter_map(|(candidate, group)| {
            let vars = group.view.vars.as_ref()?;
            Some((vec![("election", candidate.election.as_str())], vars.round))
        });
        families.span("primacy_election_round", "The round time.", rounds)
    }

    fn encode_elections(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.elections.is_empty() {
            return Ok(());
        }
        fn of(election: &ElectionName) -> Labels<'_> {
            vec![("election", election.as_str())]
        }
        let about = "Whether the store has answered what is told of the election here.";
        let answered = self.elections.iter().map(|(election, said)| (of(election), said.is_some()));
        families.flag("primacy_election_answered", about, answered)?;
        let said = || self.elections.iter().filter_map(|(election, said)| Some((of(election), said.as_ref()?)));
        let remaining = |said: &Said| said.0.as_ref().and_then(Snapshot::remaining);
        let led = said().map(|(labels, said)| (labels, remaining(said).is_some()));
        families.flag("primacy_election_is_led", "Whether anybody leads.", led)?;
        let about = "How long the leader's lease lasts, unless it is renewed; 0 without a leader.";
        let left = said().map(|(labels, said)| (labels, remaining(said).unwrap_or_default()));
        families.span("primacy_election_lease_remaining", about, left)?;
        let seen = || said().filter_map(|(labels, (snapshot, _))| Some((labels, snapshot.as_ref()?)));
        if seen().next().is_some() {
            let token = seen().map(|(labels, seen)| (labels, seen.record.version.token.get() as f64));
            families.gauge("primacy_election_token", "The last token that was granted.", None, token)?;
            let about = "How long the leader's lease is, or the last one's was.";
            families.span("primacy_election_lease", about, seen().map(|(labels, seen)| (labels, seen.record.lease)))?;
            let about = "Whether an operator has paused the election.";
            families.flag(
                "primacy_election_is_paused",
                about,
                seen().map(|(labels, seen)| (labels, seen.record.paused)),
            )?;
            let about = "Candidates that wait for the leadership.";
            let waiting = seen().map(|(labels, seen)| (labels, seen.candidates.len() as f64));
            families.gauge("primacy_election_candidates", about, None, waiting)?;
        }
        let supported = || said().filter_map(|(labels, (_, support))| Some((labels, support.as_ref()?)));
        if supported().next().is_none() {
            return Ok(());
        }
        let mut voters = |name: &str, about: &str, count: fn(&LeaderSupport) -> usize| {
            families.gauge(name, about, None, supported().map(|(labels, support)| (labels, count(support) as f64)))
        };
        voters("primacy_election_voters", "The voters.", |support| support.voters.len())?;
        voters("primacy_election_voters_reachable", "Voters that answer.", |support| {
            support.voters.iter().filter(|voter| voter.answers).count()
        })?;
        voters("primacy_election_voters_supporting", "Voters that support the leader.", |support| support.count())?;
        let about = "How many of the voters that support the leader may be lost before it cannot renew its lease.";
        voters("primacy_election_voters_spare", about, |support| support.spare)
    }

    fn encode_programs(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.programs.is_empty() {
            return Ok(());
        }
        fn labels(one: &ProgramState) -> Labels<'_> {
            vec![("program", one.name.as_str()), ("election", one.election.as_str())]
        }
        let each = || self.programs.iter().map(|one| (labels(one), one));
        let about = "Whether a program that the agent starts is up: it leads, or waits.";
        let is_up = each().map(|(labels, one)| (labels, one.state == ProgramPhase::Running));
        families.flag("primacy_program_is_up", about, is_up)?;
        let about = "How often it was started again.";
        families.count("primacy_program_restarts", about, each().map(|(labels, one)| (labels, one.restarts)))
    }

    /// What Prometheus expects of every process. What the system does not tell is left out.
    fn encode_process(&self, families: &mut Families<'_>) -> fmt::Result {
        let one = |value: f64| iter::once((Labels::new(), value));
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        families.gauge("primacy_build_info", "The version of primacy.", None, iter::once((version, 1.0)))?;
        if let Ok(used) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID) {
            let used = Duration::from(used).as_secs_f64();
            families.seconds_used("process_cpu", "CPU time of this process.", used)?;
        }
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = iter::once((Labels::new(), since));
        families.span("process_start_time", "When this process began to serve, since 1970.", since)?;
        if let Some(bytes) = resident_bytes() {
            let about = "Memory of this process that is resident.";
            families.gauge("process_resident_memory", about, Some(&Unit::Bytes), one(bytes as f64))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            families.gauge("process_open_fds", "Files that are open.", None, one(open.count() as f64))?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            families.gauge("process_max_fds", "Files that may be open.", None, one(most as f64))?;
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.encode_candidates(&mut families)?;
        self.encode_elections(&mut families)?;
        self.encode_programs(&mut families)?;
        self.encode_process(&mut families)
    }
}

fn with<'a>(mut labels: Labels<'a>, more: &[(&'static str, &'a str)]) -> Labels<'a> {
    labels.extend(more);
    labels
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Writes metrics, each with its description.
struct Families<'a>(DescriptorEncoder<'a>);

/// Values with their labels.
trait Values<'a, T>: IntoIterator<Item = (Labels<'a>, T)> {}

impl<'a, T, I: IntoIterator<Item = (Labels<'a>, T)>> Values<'a, T> for I {}

impl Families<'_> {
    fn gauge<'a>(&mut self, name: &str, about: &str, unit: Option<&Unit>, values: impl Values<'a, f64>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, about, unit, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn flag<'a>(&mut self, name: &str, about: &str, values: impl Values<'a, bool>) -> fmt::Result {
        let numbers = values.into_iter().map(|(labels, holds)| (labels, f64::from(u8::from(holds))));
        self.gauge(name, about, None, numbers)
    }

    fn span<'a>(&mut self, name: &str, about: &str, values: impl Values<'a, Duration>) -> fmt::Result {
        let seconds = values.into_iter().map(|(labels, span)| (labels, span.as_secs_f64()));
        self.gauge(name, about, Some(&Unit::Seconds), seconds)
    }

    fn count<'a>(&mut self, name: &str, about: &str, counts: impl Values<'a, u64>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, about, None, MetricType::Counter)?;
        for (labels, count) in counts {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn seconds_used(&mut self, name: &str, about: &str, seconds: f64) -> fmt::Result {
        let counter = ConstCounter::new(seconds);
        let family = self.0.encode_descriptor(name, about, Some(&Unit::Seconds), counter.metric_type())?;
        counter.encode(family)
    }

    fn histogram<'a>(&mut self, name: &str, about: &str, values: impl Values<'a, &'a Histogram>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, about, Some(&Unit::Seconds), MetricType::Histogram)?;
        let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        for (labels, histogram) in values {
            let buckets: Vec<(f64, u64)> = histogram.buckets().map(|(most, count)| (bound(most), count)).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = histogram.sum().as_secs_f64();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
