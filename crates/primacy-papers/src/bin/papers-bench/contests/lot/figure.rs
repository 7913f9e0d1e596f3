//! Both experiments of the roulette paper as plots, beside what its text says.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use plotters::prelude::*;
use primacy_papers::roulette::Odds;
use primacy_papers::roulette::{PublishedSettings, Variant};

use super::{Figures, PEERS};

/// Section 2.4: milliseconds, and the share that had launched by then.
const LAUNCHED: [(f64, f64); 3] = [(100.0, 0.8), (100.0, 0.22), (100.0, 0.08)];
/// Section 2.5: the least time, that of 90 %, and the most.
const ELECTED: [(f64, f64); 3] = [(64.0, 0.0), (325.0, 0.9), (851.0, 1.0)];

/// More points are not seen.
const POINTS: u32 = 200;

struct Line {
    label: String,
    points: Vec<(f64, f64)>,
    is_reckoned: bool,
}

/// What share of these is over by each of the shown times.
fn measured(label: String, nanos: &[u64], most_ms: f64) -> Line {
    let share =
        |ms: f64| nanos.iter().filter(|nanos| **nanos as f64 <= ms * 1e6).count() as f64 / nanos.len().max(1) as f64;
    Line { label, points: sampled(share, most_ms), is_reckoned: false }
}

fn sampled(share: impl Fn(f64) -> f64, most_ms: f64) -> Vec<(f64, f64)> {
    (0..=POINTS).map(|step| f64::from(step) * most_ms / f64::from(POINTS)).map(|ms| (ms, share(ms))).collect()
}

fn reckoned(odds: &Odds, peers: u16, most_ms: f64) -> Line {
    let share = |ms: f64| odds.first_within(peers, Duration::from_secs_f64(ms / 1e3));
    Line { label: format!("reckoned, first of {peers}"), points: sampled(share, most_ms), is_reckoned: true }
}

/// Writes both.
///
/// # Errors
/// When one cannot be written.
pub(super) fn draw(out: &Path, figures: &Figures) -> Result<()> {
    let pace = PublishedSettings::new(Variant::AtMajority).pace;
    let mut launches = Vec::new();
    for one in &figures.launches {
        let label = format!("{} above {}", one.draws, f64::from(one.threshold_ppm) / 1e6);
        launches.push(measured(label, &one.launched, 1_000.0));
        launches.push(reckoned(&Odds::new(one.draws, one.threshold_ppm, pace), 1, 1_000.0));
    }
    plot(&out.join("roulette-launch.svg"), "One peer alone launches", &launches, &LAUNCHED)?;
    let mut elections: Vec<Line> = figures
        .elections
        .iter()
        .map(|one| measured(format!("{}, {}", one.variant, one.reading.about), &one.led, 900.0))
        .collect();
    elections.push(reckoned(&Odds::new(3, 850_000, pace), PEERS, 900.0));
    plot(&out.join("roulette-elections.svg"), "Five peers elect a leader", &elections, &ELECTED)
}

fn plot(file: &Path, caption: &str, lines: &[Line], paper: &[(f64, f64)]) -> Result<()> {
    let most = lines.iter().filter_map(|line| line.points.last()).map(|(ms, _)| *ms).fold(1.0, f64::max);
    let root = SVGBackend::new(file, (960, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..most, 0.0..1.02)?;
    chart.configure_mesh().x_desc("milliseconds").y_desc("share").draw()?;
    for (index, line) in lines.iter().filter(|line| !line.is_reckoned).enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(line.label.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    for (index, line) in lines.iter().filter(|line| line.is_reckoned).enumerate() {
        let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), BLACK.stroke_width(1)))?;
        if index == 0 {
            drawn
                .label(line.label.clone())
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.stroke_width(1)));
        }
    }
    chart
        .draw_series(paper.iter().map(|point| Circle::new(*point, 5, BLACK.filled())))?
        .label("paper")
        .legend(|(x, y)| Circle::new((x + 9, y), 5, BLACK.filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
