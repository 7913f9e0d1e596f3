//! `/metrics`: what the candidate has counted, how it stands, and what the store tells of the election, in OpenMetrics.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use nix::time::{ClockId, clock_gettime};
use primacy::metrics::{CallEnd, CallKind, CandidateMetrics, Histogram};
use primacy::store::{LeaderSupport, Snapshot};
use primacy::{GroupStatus, Token, clock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::process::{Resource, getrlimit};

use super::answers::refused;
use crate::reach::ElectionView;
use crate::standing::{CandidateSource, Standing};

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The answer. Without a view of the election, what the store tells is left out.
pub(super) fn answer(candidate: &CandidateSource, view: Option<&ElectionView>) -> Response {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::new(candidate, view)));
    let mut told = String::new();
    match text::encode(&mut told, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], told).into_response(),
        Err(fmt::Error) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}

/// All that is told at one moment.
#[derive(Debug)]
struct Scrape {
    election: String,
    candidate: String,
    standing: Standing,
    has_trouble: bool,
    counted: Arc<CandidateMetrics>,
    group: Option<GroupStatus>,
    view: Option<(Option<Snapshot>, Option<LeaderSupport>)>,
    started: SystemTime,
}

/// Labels of a metric.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Scrape {
    fn new(candidate: &CandidateSource, view: Option<&ElectionView>) -> Self {
        Self {
            election: candidate.election().as_str().to_owned(),
            candidate: candidate.label().as_str().to_owned(),
            standing: candidate.standing(),
            has_trouble: candidate.trouble().is_some(),
            counted: candidate.counted(),
            group: candidate.group(),
            view: view.map(|view| (view.snapshot(), view.support().cloned())),
            started: candidate.started(),
        }
    }

    fn of_election(&self) -> Labels<'_> {
        vec![("election", &self.election)]
    }

    fn of_candidate(&self) -> Labels<'_> {
        vec![("election", &self.election), ("candidate", &self.candidate)]
    }

    fn encode_candidate(&self, families: &mut Families<'_>) -> fmt::Result {
        let own = self.of_candidate();
        let (leads, token, remaining) = match &self.standing {
            Standing::Leads { token, stop_at } => (true, *token, stop_at.since(clock::now())),
            _ => (false, Token::NONE, Duration::ZERO),
        };
        families.flag("primacy_candidate_is_leader", "Whether this candidate leads.", &own, leads)?;
        let about = "The fencing token with which it leads; 0 while it does not.";
        families.gauge("primacy_candidate_token", about, None, &own, token.get() as f64)?;
        let about = "How long until its work is told to stop, unless the lease is renewed; 0 while it does not lead.";
        families.span("primacy_candidate_remaining", about, &own, remaining)?;
        let about = "Whether it reaches its store, or a majority of the voters.";
        families.flag("primacy_candidate_store_reached", about, &own, !self.has_trouble)?;
        let about = "Leaderships that it has begun.";
        families.count("primacy_candidate_leaderships", about, [(own.clone(), self.counted.leaderships())])?;
        let ended = self.counted.ended();
        let by_reason = ended.iter().map(|(reason, count)| (with(&own, &[("reason", reason)]), *count));
        families.count(
            "primacy_candidate_leaderships_ended",
            "Its leaderships that have ended, by reason.",
            by_reason,
        )?;
        let calls = CallKind::ALL.iter().flat_map(|kind| CallEnd::ALL.iter().map(move |end| (*kind, *end)));
        let by_kind = calls.map(|(kind, end)| {
            (with(&own, &[("call", kind.word()), ("end", end.word())]), self.counted.calls(kind, end))
        });
        families.count("primacy_candidate_calls", "Its calls to the store, by how they ended.", by_kind)?;
        let about = "How long renewals of its lease took that were answered.";
        families.histogram("primacy_candidate_renewal", about, &own, self.counted.renewals())?;
        let Some(group) = &self.group else { return Ok(()) };
        let about = "How often this process was evicted although it lived.";
        families.count("primacy_candidate_evictions", about, [(own.clone(), group.evictions)])?;
        match &group.view.vars {
            Some(vars) => families.span("primacy_election_round", "The round time.", &self.of_election(), vars.round),
            None => Ok(()),
        }
    }

    fn encode_election(&self, families: &mut Families<'_>) -> fmt::Result {
        let own = self.of_election();
        let about = "Whether the store has answered what is told of the election here.";
        families.flag("primacy_election_answered", about, &own, self.view.is_some())?;
        let Some((snapshot, support)) = &self.view else { return Ok(()) };
        let remaining = snapshot.as_ref().and_then(Snapshot::remaining);
        families.flag("primacy_election_is_led", "Whether anybody leads.", &own, remaining.is_some())?;
        let about = "How long the leader's lease lasts, unless it is renewed; 0 without a leader.";
        families.span("primacy_election_lease_remaining", about, &own, remaining.unwrap_or_default())?;
        if let Some(snapshot) = snapshot {
            let token = snapshot.record.version.token.get() as f64;
            families.gauge("primacy_election_token", "The last token that was granted.", None, &own, token)?;
            let about = "How long the leader's lease is, or the last one's was.";
            families.span("primacy_election_lease", about, &own, snapshot.record.lease)?;
            let about = "Whether an operator has paused the election.";
            families.flag("primacy_election_is_paused", about, &own, snapshot.record.paused)?;
            let about = "Candidates that wait for the leadership.";
            families.gauge("primacy_election_candidates", about, None, &own, snapshot.candidates.len() as f64)?;
        }
        let Some(support) = support else { return Ok(()) };
        let voters = support.voters.len() as f64;
        families.gauge("primacy_election_voters", "The voters.", None, &own, voters)?;
        let answering = support.voters.iter().filter(|voter| voter.answers).count() as f64;
        families.gauge("primacy_election_voters_reachable", "Voters that answer.", None, &own, answering)?;
        let about = "Voters that support the leader.";
        families.gauge("primacy_election_voters_supporting", about, None, &own, support.count() as f64)?;
        let about = "How many of the voters that support the leader may be lost before it cannot renew its lease.";
        families.gauge("primacy_election_voters_spare", about, None, &own, support.spare as f64)
    }

    /// What Prometheus expects of every process. What the system does not tell is left out.
    fn encode_process(&self, families: &mut Families<'_>) -> fmt::Result {
        let none = Labels::new();
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        families.gauge("primacy_build_info", "The version of primacy.", None, &version, 1.0)?;
        if let Ok(used) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID) {
            let used = Duration::from(used).as_secs_f64();
            families.seconds_used("process_cpu", "CPU time of this process.", used)?;
        }
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        families.span("process_start_time", "When this process began to serve, since 1970.", &none, since)?;
        if let Some(bytes) = resident_bytes() {
            let about = "Memory of this process that is resident.";
            families.gauge("process_resident_memory", about, Some(&Unit::Bytes), &none, bytes as f64)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            families.gauge("process_open_fds", "Files that are open.", None, &none, open.count() as f64)?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            families.gauge("process_max_fds", "Files that may be open.", None, &none, most as f64)?;
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.encode_candidate(&mut families)?;
        self.encode_election(&mut families)?;
        self.encode_process(&mut families)
    }
}

fn with<'a>(labels: &Labels<'a>, more: &[(&'static str, &'a str)]) -> Labels<'a> {
    labels.iter().chain(more).copied().collect()
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Writes metrics, each with its description.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge(&mut self, name: &str, about: &str, unit: Option<&Unit>, labels: &Labels<'_>, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        let mut family = self.0.encode_descriptor(name, about, unit, gauge.metric_type())?;
        gauge.encode(family.encode_family(labels)?)
    }

    fn flag(&mut self, name: &str, about: &str, labels: &Labels<'_>, holds: bool) -> fmt::Result {
        self.gauge(name, about, None, labels, f64::from(u8::from(holds)))
    }

    fn span(&mut self, name: &str, about: &str, labels: &Labels<'_>, span: Duration) -> fmt::Result {
        self.gauge(name, about, Some(&Unit::Seconds), labels, span.as_secs_f64())
    }

    fn count<'a>(
        &mut self,
        name: &str,
        about: &str,
        counts: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
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

    fn histogram(&mut self, name: &str, about: &str, labels: &Labels<'_>, histogram: &Histogram) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, about, Some(&Unit::Seconds), MetricType::Histogram)?;
        let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        let buckets: Vec<(f64, u64)> = histogram.buckets().map(|(most, count)| (bound(most), count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = histogram.sum().as_secs_f64();
        family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}
