//! What the contests came to: a table for people, figures for programs, and plots beside the papers'.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;
use plotters::prelude::*;
use serde::Serialize;

use super::machines::Which;
use super::trial::{Rest, Trial, Trials};
use primacy_bench::Spread;
use primacy_bench::steps;

/// One contest among this many peers.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(super) contest: Which,
    pub(super) peers: u16,
    pub(super) network: &'static str,
    pub(super) lease_ms: u64,
    pub(super) undecided: usize,
    pub(super) unplanned: usize,
    pub(super) overlaps: usize,
    pub(super) rest: Option<Rest>,
    pub(super) trials: Vec<Trial>,
}

impl Figures {
    pub(super) fn of(contest: Which, peers: u16, network: &super::network::Network, trials: Trials) -> Self {
        let Trials { trials, undecided, unplanned, overlaps, rest } = trials;
        let lease_ms = u64::try_from(network.lease.as_millis()).unwrap_or(u64::MAX);
        Self { contest, peers, network: network.name, lease_ms, undecided, unplanned, overlaps, rest, trials }
    }

    pub(super) fn name(&self) -> String {
        self.contest.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn spread(&self, nanos: impl Fn(&Trial) -> Option<u64>) -> Spread {
        Spread::of(self.trials.iter().filter_map(nanos).map(Duration::from_nanos).collect())
    }

    /// In per cent of all elections.
    fn share(&self, is: impl Fn(&Trial) -> bool) -> f64 {
        self.trials.iter().filter(|trial| is(trial)).count() as f64 / self.trials.len().max(1) as f64 * 100.0
    }

    fn mean(&self, count: impl Fn(&Trial) -> usize) -> f64 {
        self.trials.iter().map(count).sum::<usize>() as f64 / self.trials.len().max(1) as f64
    }

    fn median(&self, count: impl Fn(&Trial) -> usize) -> usize {
        let mut counts: Vec<usize> = self.trials.iter().map(count).collect();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied().unwrap_or_default()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = if self.contest.is_granted() { "grant" } else { "its belief" };
        writeln!(f, "{}, {} peers, {}, lease {} ms", self.name(), self.peers, self.network, self.lease_ms)?;
        writeln!(f, "  suspicion to {leads:<10}  {}", self.spread(|trial| Some(trial.to_lead)))?;
        writeln!(f, "  suspicion to all knowing  {}", self.spread(|trial| Some(trial.to_all)))?;
        for manner in [super::group::Manner::Kill, super::group::Manner::Silence] {
            let lost =
                self.spread(|trial| (trial.manner == Some(manner)).then_some(trial.to_suspicion + trial.to_lead));
            writeln!(f, "  {:<7} to {leads:<10}    {lost}", format!("{manner:?}").to_lowercase())?;
        }
        writeln!(
            f,
            "  messages: {:.1} in the mean, {} in the median, and {:.1} for the grant; two or more candidates in {:.1} %, of one round in {:.1} %, two or more leaders in \
             {:.1} %; the first candidate within 100 ms in {:.0} %; undecided {}, unplanned {}, overlaps {}",
            self.mean(|trial| trial.contest_messages),
            self.median(|trial| trial.contest_messages),
            self.mean(|trial| trial.grant_messages),
            self.share(|trial| trial.candidates > 1),
            self.share(|trial| trial.is_split),
            self.share(|trial| trial.leaders > 1),
            self.share(|trial| trial.to_launch.is_some_and(|nanos| nanos <= 100_000_000)),
            self.undecided,
            self.unplanned,
            self.overlaps,
        )?;
        if let Some(Rest { seconds, leaders, renewals, beats, contest_messages, cpu_seconds }) = self.rest {
            let (each, peers) = (renewals.max(1) as f64, f64::from(self.peers));
            writeln!(
                f,
                "  at rest for {seconds:.1} s, with {leaders} new leaders: {renewals} renewals of {:.1} messages, {:.1} others a second; a peer uses {:.2} % of a core",
                beats as f64 / each,
                contest_messages as f64 / seconds,
                cpu_seconds / seconds / peers * 100.0,
            )?;
        }
        Ok(())
    }
}

/// What a paper says of itself: this many milliseconds, and the share of elections that were over by then.
const PAPERS: [(&str, &[(f64, f64)]); 2] = [
    ("paper: roulette, 64 ms at least, 90 % within 325 ms", &[(64.0, 0.0), (325.0, 0.9)]),
    ("paper: ring, 50 to 100 ms", &[(50.0, 0.5), (100.0, 0.5)]),
];

/// Writes the plots: for each network and number of peers the share of elections that were over after a time.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn plots(out: &Path, figures: &[Figures]) -> Result<()> {
    let mut groups: Vec<(&str, u16)> = figures.iter().map(|figures| (figures.network, figures.peers)).collect();
    groups.sort_unstable();
    groups.dedup();
    for (network, peers) in groups {
        let chosen: Vec<&Figures> =
            figures.iter().filter(|figures| (figures.network, figures.peers) == (network, peers)).collect();
        let file = out.join(format!("contests-{}-{peers}.svg", network.replace(' ', "-")));
        plot(&file, &format!("Suspicion to leader, {peers} peers, {network}"), &chosen)?;
    }
    Ok(())
}

fn plot(file: &Path, caption: &str, figures: &[&Figures]) -> Result<()> {
    let millis = |nanos: u64| nanos as f64 / 1e6;
    let all = || figures.iter().flat_map(|figures| &figures.trials).map(|trial| millis(trial.to_lead));
    let (least, most) = (all().fold(1.0, f64::min).max(0.01), all().fold(500.0, f64::max));
    let root = SVGBackend::new(file, (960, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d((least..most * 1.1).log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc("milliseconds").y_desc("share of elections").draw()?;
    for (index, figures) in figures.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let steps = steps(figures.trials.iter().map(|trial| millis(trial.to_lead)).collect());
        chart
            .draw_series(LineSeries::new(steps, colour.stroke_width(2)))?
            .label(figures.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    for (index, (told, points)) in PAPERS.into_iter().enumerate() {
        let grey = BLACK.mix(0.4 + 0.3 * index as f64);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), grey.stroke_width(1)).point_size(4))?
            .label(told)
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, grey));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
