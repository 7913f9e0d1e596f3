//! Figure 2 of the paper on registers, drawn from what was measured, beside what its text tells of its own.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum as _;
use plotters::prelude::*;

use super::cost::{Cost, Form};
use super::zookeeper::Latched;
use primacy_bench::{Kind, Spread};

/// A line: what it is of, and for each number of processes the least, the mean and the most seconds.
struct Line {
    label: String,
    points: Vec<(f64, [f64; 3])>,
}

/// Niazi et al., DAIS 2015, section 6, on NDB: around five seconds to elect a new leader, and rounds of two, up to 200
/// processes; with ZooKeeper six seconds up to 400. What it gives beyond is in its figure only, without numbers.
const PAPER: [(&str, f64, f64, Option<f64>); 2] =
    [("paper, on NDB", 200.0, 5.0, Some(2.0)), ("paper, with ZooKeeper", 400.0, 6.0, None)];
/// The smallest number of which it tells.
const PAPER_FROM: f64 = 5.0;

/// Writes both plots: by the number of processes, how long nobody leads after the leader is lost without a word, and how long
/// a round lasts.
///
/// # Errors
/// When one cannot be written.
pub(super) fn draw(folder: &Path, costs: &[Cost], zookeeper: &[Latched]) -> Result<()> {
    let range = |gaps_ms: &[u64], gaps: &Spread| {
        let mean = gaps_ms.iter().sum::<u64>() as f64 / gaps_ms.len() as f64 / 1e3;
        [gaps.percentile(0).as_secs_f64(), mean, gaps.percentile(100).as_secs_f64()]
    };
    let failover = |cost: &Cost| Some(range(&cost.gaps_ms, &cost.gaps()?));
    let latched = Line {
        label: "ZooKeeper, here".to_owned(),
        points: zookeeper.iter().map(|one| (one.candidates as f64, range(&one.gaps_ms, &one.gaps()))).collect(),
    };
    let round = |cost: &Cost| Some([cost.round_ms as f64 / 1e3; 3]);
    let told = |value: fn(&(f64, Option<f64>)) -> Option<f64>| {
        PAPER.into_iter().filter_map(move |(label, to, elected, round)| {
            let seconds = [value(&(elected, round))?; 3];
            Some(Line { label: label.to_owned(), points: vec![(PAPER_FROM, seconds), (to, seconds)] })
        })
    };
    let elected = told(|(elected, _)| Some(*elected)).chain(measured(costs, failover));
    let elected: Vec<_> = elected.chain((!zookeeper.is_empty()).then_some(latched)).collect();
    by_number(&folder.join("registers-failover.svg"), "Time to elect a new leader: mean, least and most", &elected)?;
    let rounds: Vec<_> = told(|(_, round)| *round).chain(measured(costs, round)).collect();
    by_number(&folder.join("registers-round.svg"), "Round time", &rounds)
}

/// A line for each store and form, with one candidate in each process.
fn measured(costs: &[Cost], value: impl Fn(&Cost) -> Option<[f64; 3]>) -> impl Iterator<Item = Line> {
    let stores = Kind::value_variants().iter();
    let lines = stores.flat_map(|&store| [Form::Published, Form::Primacy].map(|form| (store, form)));
    lines.filter_map(move |(store, form)| {
        let chosen = costs.iter().filter(|cost| cost.store == store && cost.form == form && cost.each() == 1);
        let points: Vec<_> = chosen.filter_map(|cost| Some((cost.processes as f64, value(cost)?))).collect();
        (!points.is_empty()).then(|| Line { label: format!("{form}, {store}"), points })
    })
}

fn by_number(file: &Path, caption: &str, lines: &[Line]) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|(_, [_, _, most])| *most).fold(1.0, f64::max);
    let processes = points().map(|(processes, _)| *processes).fold(1.0, f64::max);
    let root = SVGBackend::new(file, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    // Room above for the legend.
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..processes * 1.05, 0.0..most * 1.7)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("processes").y_desc("seconds").light_line_style(TRANSPARENT);
    mesh.x_label_formatter(&|processes| format!("{processes:.0}")).draw()?;
    for (index, Line { label, points }) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        // The later ones are thinner, so that those below are seen where they are the same.
        let width = u32::try_from(lines.len() - index)? * 2;
        let means = points.iter().map(|(processes, [_, mean, _])| (*processes, *mean));
        chart
            .draw_series(LineSeries::new(means, colour.filled().stroke_width(width)).point_size(width / 2 + 2))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(4)));
        let ranges = points.iter().filter(|(_, [least, _, most])| least < most);
        chart.draw_series(ranges.map(|(processes, [least, _, most])| {
            PathElement::new([(*processes, *least), (*processes, *most)], colour.stroke_width(1))
        }))?;
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
