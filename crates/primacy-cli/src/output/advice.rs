//! What `primacy doctor` concludes from what it measured, and how it says so.

use std::time::Duration;

use primacy::select::Metric;
use primacy::store::{Finding, LatencyReport, Probe, Severity, VoterLatency};
use primacy::{Timing, TimingSettings};

use super::schema;
use super::span::{bound, span};
use super::style::{Palette, Tone};
use super::table::{Cell, table};
use crate::foreign_text::shorten;

/// A call should fit this many times into its time-out, so that a slow moment is not taken for a lost store.
const HEADROOM: u32 = 10;

/// Below this, a busy machine's scheduler alone makes renewals late.
const TIMEOUT_LEAST: Duration = Duration::from_millis(100);

/// Leases that people choose.
const LEASES: [u64; 10] = [1, 2, 3, 5, 10, 15, 20, 30, 60, 120];

/// How long renewals took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Latency {
    /// Of renewals sorted by how long they took; none if there were none.
    pub(crate) fn of(sorted: &[Duration]) -> Option<Self> {
        // The nearest rank: the smallest that at least this share of all does not exceed.
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { p50: rank(50)?, p99: rank(99)?, max: sorted.last().copied()? })
    }
}

/// Everything that the doctor found.
#[derive(Clone, Debug)]
pub(crate) struct Diagnosis {
    store: String,
    product: String,
    count: usize,
    latency: Option<Latency>,
    /// How long it took to open a candidate's connection and to look once, at most.
    opening: Option<Duration>,
    findings: Vec<Finding>,
    report: Option<LatencyReport>,
    timing: Timing,
    recommended: Option<Timing>,
}

impl Diagnosis {
    /// The conclusion from a probe of the store and how long it took to open a candidate's connection, findings from
    /// elsewhere, and the timing that is meant to be used. `grace` is what the work needs to stop, if that is known.
    pub(crate) fn new(
        store: String,
        (probe, opening): (Probe, Option<Duration>),
        others: Vec<Finding>,
        timing: Timing,
        grace: impl Fn(Duration) -> Duration,
    ) -> Self {
        let mut renewals = probe.renewals;
        renewals.sort_unstable();
        let latency = Latency::of(&renewals);
        let mut findings = probe.findings;
        findings.extend(others);
        findings.push(judge(&timing, latency));
        findings.extend(latency.zip(opening).map(|(latency, opening)| judge_opening(&timing, latency, opening)));
        Self {
            store,
            product: probe.product,
            count: renewals.len(),
            latency,
            opening,
            findings,
            report: probe.latencies,
            timing,
            recommended: latency.and_then(|latency| recommend(latency, opening, grace)),
        }
    }

    /// The worst of all findings.
    pub(crate) fn verdict(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
    }

    fn p99(&self) -> Duration {
        self.latency.map_or(Duration::ZERO, |latency| latency.p99)
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = vec![
            format!(
                "With a lease of {} the store may be away for {} at the worst moment without costing the leadership.",
                span(self.timing.lease()),
                span(self.timing.ride_through())
            ),
            format!(
                "When a leader's whole host is lost, another leads within {}, or {} while the next in line has not heard \
                 that it is; when only its process dies, at once.",
                bound(self.timing.failover_bound(0, self.p99())),
                bound(self.timing.bound_from_afar(self.p99()))
            ),
        ];
        if let Some(opening) = self.opening {
            let lost = match self.timing.outlasts_reconnection(opening, self.p99()) {
                true => "keeps its lease",
                false => "loses its lease",
            };
            advice.push(format!(
                "Where nobody holds the lease, a candidate that starts here leads within {}; a leader that loses its \
                 connection {lost}.",
                bound(self.timing.opening_bound(opening, self.p99()))
            ));
        }
        match (&self.recommended, self.latency) {
            (Some(best), Some(latency)) => advice.push(format!(
                "The shortest lease that this store carries well is {} with a grace of {}: {HEADROOM} times the p99 of {} \
                 fits into its call time-out of {}, and it rides through {}.",
                span(best.lease()),
                span(best.grace()),
                span(latency.p99),
                span(best.call_timeout()),
                span(best.ride_through())
            )),
            (None, Some(latency)) => advice.push(format!(
                "No lease up to 2m fits a store whose renewals take {} (p99): make the store faster first.",
                span(latency.p99)
            )),
            (_, None) => advice.push("Renewals could not be measured, so there is no advice on timing.".to_owned()),
        }
        advice
    }

    /// For people.
    pub(crate) fn text(&self, palette: Palette) -> String {
        let key = |text: &str| Cell::new(text, Tone::Faint);
        let timing = &self.timing;
        let mut rows = vec![
            vec![key("store"), Cell::plain(self.store.clone())],
            vec![key("product"), Cell::plain(shorten(&self.product, 120))],
        ];
        if let Some(Latency { p50, p99, max }) = self.latency {
            let took = format!("p50 {}, p99 {}, longest {} of {}", span(p50), span(p99), span(max), self.count);
            rows.push(vec![key("renewals"), Cell::plain(took)]);
        }
        if let Some(opening) = self.opening {
            let took = format!("a connection and a first look take {} at most", span(opening));
            rows.push(vec![key("opening"), Cell::plain(took)]);
        }
        let chosen = format!(
            "lease {}, grace {}: renews every {}, a call may take {}",
            span(timing.lease()),
            span(timing.grace()),
            span(timing.renew_every()),
            span(timing.call_timeout())
        );
        rows.push(vec![key("timing"), Cell::plain(chosen)]);
        let found: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                let (word, tone) = severity(finding.severity);
                vec![Cell::new(word, tone), Cell::plain(finding.code), Cell::plain(shorten(&finding.message, 400))]
            })
            .collect();
        let voter_latencies = self.report.as_ref().map(|report| voter_latencies(report, palette)).unwrap_or_default();
        format!(
            "{}\n{}\n{voter_latencies}{}\n",
            table(&rows, 0, palette),
            table(&found, 0, palette),
            self.advice().join("\n")
        )
    }

    /// For programs.
    pub(crate) fn json(&self) -> schema::Doctor {
        schema::Doctor {
            schema: schema::SCHEMA,
            store: self.store.clone(),
            verdict: severity(self.verdict()).0,
            product: self.product.clone(),
            renewals: schema::Latency {
                count: self.count,
                p50_ms: self.latency.map(|latency| schema::Millis(latency.p50)),
                p99_ms: self.latency.map(|latency| schema::Millis(latency.p99)),
                max_ms: self.latency.map(|latency| schema::Millis(latency.max)),
            },
            opening: self.opening.map(|opening| schema::Opening {
                longest_ms: schema::Millis(opening),
                timeout_ms: schema::Millis(self.timing.opening_timeout()),
                leads_within_ms: schema::Millis(self.timing.opening_bound(opening, self.p99())),
            }),
            findings: self
                .findings
                .iter()
                .map(|finding| schema::FindingEntry {
                    severity: severity(finding.severity).0,
                    code: finding.code,
                    message: finding.message.clone(),
                })
                .collect(),
            voters: self.report.as_ref().map(|report| report.voters.iter().map(voter_latency).collect()),
            placed: self.report.as_ref().map(|report| schema::Placement {
                consensus_ms: figure(report, Metric::ConsensusLatency).map(schema::Millis),
                latency_ms: figure(report, Metric::MeanLatency).map(schema::Millis),
                worst_case_ms: figure(report, Metric::WorstLatency).map(schema::Millis),
            }),
            timing: schema::Timing::of(&self.timing, self.p99()),
            recommended: self.recommended.as_ref().map(|timing| schema::Timing::of(timing, self.p99())),
            advice: self.advice(),
        }
    }
}

/// What an oracle makes of the ways from here.
fn figure(report: &LatencyReport, metric: Metric) -> Option<Duration> {
    let scores = report.scores(&[metric])?;
    // Microseconds with their sign turned, in thousandths.
    scores.as_slice().first().map(|score| Duration::from_nanos(score.thousandths().unsigned_abs()))
}

fn voter_latency(place: &VoterLatency) -> schema::VoterLatency {
    schema::VoterLatency {
        name: place.name.clone(),
        address: place.address.clone(),
        round_trip_ms: place.round_trip.map(schema::Millis),
        requests: place.requests.map(|requests| requests.thousandths() as f64 / 1e3),
    }
}

/// How far away each voter is, and how well a candidate would be placed here.
fn voter_latencies(report: &LatencyReport, palette: Palette) -> String {
    let row = |place: &VoterLatency| {
        let (trip, tone) = match place.round_trip {
            Some(trip) => (span(trip), Tone::Plain),
            None => ("does not answer".to_owned(), Tone::Notice),
        };
        let requests = place.requests.map(|requests| format!("{requests} requests")).unwrap_or_default();
        let (name, address) = (Cell::plain(place.name.clone()), Cell::plain(place.address.clone()));
        vec![Cell::plain("voter"), name, address, Cell::new(trip, tone), Cell::plain(requests)]
    };
    let rows: Vec<_> = report.voters.iter().map(row).collect();
    let told = [Metric::ConsensusLatency, Metric::MeanLatency, Metric::WorstLatency]
        .into_iter()
        .filter_map(|metric| Some(format!("{metric} {}", span(figure(report, metric)?))));
    let told: Vec<String> = told.collect();
    match &*told {
        [] => format!("{}\n", table(&rows, 0, palette)),
        told => format!("{}A candidate here has the figures: {}.\n\n", table(&rows, 0, palette), told.join(", ")),
    }
}

const fn severity(severity: Severity) -> (&'static str, Tone) {
    match severity {
        Severity::Fine => ("fine", Tone::Good),
        Severity::Warning => ("warning", Tone::Notice),
        Severity::Danger => ("danger", Tone::Bad),
    }
}

/// Whether the timing that is meant to be used suits the store.
fn judge(timing: &Timing, latency: Option<Latency>) -> Finding {
    let finding = |severity, message| Finding { severity, code: "timing", message };
    let Some(latency) = latency else {
        return finding(Severity::Warning, "the store's latency could not be measured".to_owned());
    };
    let timeout = timing.call_timeout();
    let fits = format!("a renewal took {} (p99), and may take {}", span(latency.p99), span(timeout));
    if latency.max >= timeout || latency.p99 * 4 > timeout {
        finding(Severity::Warning, format!("{fits}: leaders may lose the lease needlessly; choose a longer one"))
    } else {
        finding(Severity::Fine, fits)
    }
}

/// Whether the way to the store carries the timing that is meant to be used.
fn judge_opening(timing: &Timing, latency: Latency, opening: Duration) -> Finding {
    let finding = |severity, message| Finding { severity, code: "opening", message };
    let took = format!(
        "opening a connection took {}, and is given up after {}",
        span(opening),
        span(timing.opening_timeout())
    );
    if timing.carries(opening, latency.p99) {
        finding(Severity::Fine, took)
    } else {
        let why = "the way to the store is too slow for this lease: a candidate may take long to lead, or never do; \
                   choose a longer one";
        finding(Severity::Warning, format!("{took}: {why}"))
    }
}

/// The shortest usual lease under which a store this slow costs nobody the leadership, a lost connection included.
fn recommend(latency: Latency, opening: Option<Duration>, grace: impl Fn(Duration) -> Duration) -> Option<Timing> {
    let needed = (latency.p99 * HEADROOM).max(latency.max * 2).max(TIMEOUT_LEAST);
    LEASES.into_iter().map(Duration::from_secs).find_map(|lease| {
        let timing = Timing::new(TimingSettings { grace: grace(lease), ..TimingSettings::new(lease) }).ok()?;
        let opens = opening.is_none_or(|opening| {
            timing.carries(opening, latency.p99) && timing.outlasts_reconnection(opening, latency.p99)
        });
        (opens && timing.call_timeout() >= needed && timing.ride_through() >= needed).then_some(timing)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn millis(all: &[u64]) -> Vec<Duration> {
        all.iter().copied().map(Duration::from_millis).collect()
    }

    pub(crate) fn probed(renewals: Vec<Duration>) -> Diagnosis {
        opened(renewals, None)
    }

    fn opened(renewals: Vec<Duration>, opening: Option<Duration>) -> Diagnosis {
        let probe = Probe {
            product: "SQLite 3.50.4".to_owned(),
            renewals,
            findings: vec![
                Finding { severity: Severity::Fine, code: "durability", message: "synchronous = FULL".to_owned() },
                Finding {
                    severity: Severity::Warning,
                    code: "filesystem",
                    message: "on tmpfs: gone after a restart".to_owned(),
                },
            ],
            latencies: None,
        };
        let timing = Timing::new(TimingSettings {
            grace: Duration::from_secs(5),
            ..TimingSettings::new(Duration::from_secs(10))
        });
        let grace = |lease| TimingSettings::for_program(lease).grace;
        Diagnosis::new("sqlite:x".to_owned(), (probe, opening), Vec::new(), timing.expect("the default"), grace)
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(Latency::of(&[]), None);
        let one = Latency::of(&millis(&[7])).expect("one");
        assert_eq!((one.p50, one.p99, one.max), (one.max, one.max, Duration::from_millis(7)));
        let hundred = Latency::of(&millis(&(1..=100).collect::<Vec<_>>())).expect("some");
        assert_eq!((hundred.p50, hundred.p99), (Duration::from_millis(50), Duration::from_millis(99)));
    }

    #[test]
    fn a_fast_store_is_told_how_short_its_lease_may_be() {
        expect![[r#"
            store     sqlite:x
            product   SQLite 3.50.4
            renewals  p50 1.0ms, p99 3.0ms, longest 3.0ms of 4
            timing    lease 10s, grace 5s: renews every 2.1s, a call may take 2.1s

            fine     durability  synchronous = FULL
            warning  filesystem  on tmpfs: gone after a restart
            fine     timing      a renewal took 3.0ms (p99), and may take 2.1s

            With a lease of 10s the store may be away for 1.9s at the worst moment without costing the leadership.
            When a leader's whole host is lost, another leads within 10.7s, or 17.4s while the next in line has not heard that it is; when only its process dies, at once.
            The shortest lease that this store carries well is 1s with a grace of 500ms: 10 times the p99 of 3.0ms fits into its call time-out of 212ms, and it rides through 191ms.
        "#]].assert_eq(&probed(millis(&[1, 2, 1, 3])).text(Palette::new(false)));
    }

    #[test]
    fn how_far_away_the_voters_are_is_shown_with_what_follows() {
        let place = |name: &str, trip: Option<u64>, requests: &str| VoterLatency {
            name: name.to_owned(),
            address: format!("{name}.example:7400"),
            round_trip: trip.map(Duration::from_micros),
            requests: requests.parse().ok(),
        };
        let voters = vec![place("a", Some(80), "-"), place("b", Some(20_750), "1.5"), place("c", None, "-")];
        let report = LatencyReport { voters };
        expect![[r#"
            voter  a  a.example:7400  0.0ms
            voter  b  b.example:7400  20ms             1.5 requests
            voter  c  c.example:7400  does not answer
            A candidate here has the figures: consensus 20ms, latency 41ms, worst-case 41ms.

        "#]]
        .assert_eq(&voter_latencies(&report, Palette::new(false)));
        let mut peers = probed(Vec::new());
        peers.report = Some(report);
        let json = serde_json::to_value(peers.json()).expect("it can be written");
        assert_eq!(json["voters"][1]["round_trip_ms"], 20.75);
        assert_eq!((&json["voters"][1]["requests"], &json["voters"][2]["round_trip_ms"]), (&1.5.into(), &().into()));
        assert_eq!((&json["placed"]["latency_ms"], &json["placed"]["consensus_ms"]), (&41.5.into(), &20.75.into()));
        assert_eq!(probed(Vec::new()).json().voters.map(|voters| voters.len()), None);
    }

    #[test]
    fn the_worst_finding_is_the_verdict() {
        assert_eq!(probed(millis(&[1])).verdict(), Severity::Warning);
        let mut fine = probed(millis(&[1]));
        fine.findings.remove(1);
        assert_eq!(fine.verdict(), Severity::Fine);
    }

    #[test]
    fn a_long_way_is_told_which_lease_it_carries() {
        let judged = |trip: u64, lease: u64| {
            let opening = Duration::from_millis(trip * 8);
            let mut all = opened(millis(&[trip, trip]), Some(opening));
            all.timing = Timing::new(TimingSettings::for_program(Duration::from_secs(lease))).expect("valid");
            let severity = judge_opening(&all.timing, all.latency.expect("measured"), opening).severity;
            (severity, all.recommended.map(|timing| timing.lease().as_secs()))
        };
        assert_eq!(judged(30, 1), (Severity::Fine, Some(2)));
        assert_eq!(judged(400, 10), (Severity::Fine, Some(20)));
        assert_eq!(judged(400, 1).0, Severity::Warning);
        let advice = opened(millis(&[400]), Some(Duration::from_millis(3_200))).text(Palette::new(false));
        for told in [
            "opening   a connection and a first look take 3.2s at most",
            "fine     opening     opening a connection took 3.2s, and is given up after 10s",
            "a candidate that starts here leads within 8.6s; a leader that loses its connection loses its lease",
        ] {
            assert!(advice.contains(told), "{advice}");
        }
        let json = serde_json::to_value(opened(millis(&[1]), Some(Duration::from_millis(4))).json()).expect("written");
        assert_eq!((&json["opening"]["longest_ms"], &json["opening"]["timeout_ms"]), (&4.into(), &10_000.into()));
    }

    #[test]
    fn a_slow_store_needs_a_longer_lease_or_has_none() {
        let lease = |latency| probed(millis(&[latency])).recommended.map(|timing| timing.lease());
        let fast = lease(1).expect("a fast store carries every lease");
        let slow = lease(300).expect("a slow one carries a long lease");
        assert!(fast < slow, "{fast:?} {slow:?}");
        assert_eq!(lease(60_000), None);
        assert_eq!(lease(u64::from(u32::MAX)), None);
        assert!(
            probed(millis(&[2_500])).findings.iter().any(|f| f.code == "timing" && f.severity == Severity::Warning)
        );
        assert!(probed(Vec::new()).advice().iter().any(|line| line.contains("could not be measured")));
    }
}
