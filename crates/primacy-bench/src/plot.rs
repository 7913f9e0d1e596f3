//! Plots: the share of failovers that were over after a time.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use plotters::prelude::*;

use crate::failover::{Event, Failover};
use crate::place::Kind;

/// One plot per store and event, one line per number of candidates.
pub(crate) fn failover(out: &Path, results: &[Failover]) -> Result<()> {
    for &store in Kind::value_variants() {
        for event in Event::ALL {
            let chosen: Vec<_> = results.iter().filter(|one| one.event == event && one.store == store).collect();
            if !chosen.is_empty() {
                let name = format!("failover-{store}-{}.svg", event.name()).to_lowercase().replace(' ', "-");
                let file = out.join(name);
                distribution(&file, store, event, &chosen)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
    }
    Ok(())
}

fn distribution(file: &Path, store: Kind, event: Event, results: &[&Failover]) -> Result<()> {
    let millis = |nanos: u64| nanos as f64 / 1e6;
    let most = results.iter().flat_map(|result| &result.gaps.gaps_nanos).copied().max().map_or(1.0, millis);
    let manner = results.first().map_or(String::new(), |result| result.manner.to_string());
    let root = SVGBackend::new(file, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("Failover after {}, {manner}, {store}", event.name()), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..most * 1.05, 0.0..1.0)?;
    chart.configure_mesh().x_desc("milliseconds without a leader").y_desc("share of failovers").draw()?;
    for (index, result) in results.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let steps = steps(result.gaps.gaps_nanos.iter().copied().map(millis).collect());
        chart
            .draw_series(LineSeries::new(steps, colour.stroke_width(2)))?
            .label(format!("{} candidates", result.candidates))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// Which share of these was over after which time, as a line of steps.
pub fn steps(mut times: Vec<f64>) -> Vec<(f64, f64)> {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let step = |(rank, time): (usize, &f64)| [(*time, rank as f64 / count), (*time, (rank + 1) as f64 / count)];
    times.iter().enumerate().flat_map(step).collect()
}
