//! Plots: writes and reads a second, with how they differ from run to run, and how soon clients write again after a loss.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use super::cluster::System;
use super::codec::Request;
use super::results::{At, Blow, Losses, Results};
use crate::steps;

const SYSTEMS: [System; 5] = [System::Primacy, System::Etcd, System::ZooKeeper, System::RedisWait, System::Redis];

/// Bars of a store: for each work its least, median and most requests a second.
type Bars = (System, Vec<Option<[f64; 3]>>);

/// Writes all plots of what there is.
///
/// # Errors
/// When one cannot be written.
pub(super) fn draw(folder: &Path, results: &Results) -> Result<()> {
    let writes = [
        ("1 client", Request::Set, 1, At::Leader, 0),
        ("50 clients", Request::Set, 50, At::Leader, 0),
        ("200 clients", Request::Set, 200, At::Leader, 0),
    ];
    let slow = writes.map(|(label, request, clients, at, _)| (label, request, clients, at, 2_000));
    let reads =
        [("at the leader", Request::Get, 50, At::Leader, 0), ("at a follower", Request::Get, 50, At::Follower, 0)];
    bars(&folder.join("kv-writes.svg"), "Writes of 1 kB a second", results, &writes)?;
    bars(&folder.join("kv-writes-slow.svg"), "Writes of 1 kB a second, each flush 2 ms longer", results, &slow)?;
    bars(&folder.join("kv-reads.svg"), "Linearizable reads of 1 kB a second, 50 clients", results, &reads)?;
    for (blow, name) in [(Blow::Kill, "kill"), (Blow::Freeze, "freeze")] {
        let chosen: Vec<&Losses> = results.losses.iter().filter(|losses| losses.blow == blow).collect();
        if !chosen.is_empty() {
            recoveries(&folder.join(format!("kv-{name}.svg")), blow, &chosen)?;
        }
    }
    Ok(())
}

fn bars(file: &Path, caption: &str, results: &Results, works: &[(&str, Request, usize, At, u64)]) -> Result<()> {
    let range = |system: System, work: &(&str, Request, usize, At, u64)| {
        let (_, request, clients, at, delay) = *work;
        let figure = results.figure(system, request, clients, at, delay)?;
        let rates = || figure.runs.iter().map(|run| run.per_second);
        Some([rates().fold(f64::MAX, f64::min), figure.median(|run| run.per_second), rates().fold(0.0, f64::max)])
    };
    let all = SYSTEMS.map(|system| (system, works.iter().map(|work| range(system, work)).collect()));
    let shown: Vec<Bars> = all.into_iter().filter(|(_, values): &Bars| values.iter().any(Option::is_some)).collect();
    if shown.is_empty() {
        return Ok(());
    }
    let most = shown.iter().flat_map(|(_, values)| values.iter().flatten()).map(|range| range[2]).fold(0.0, f64::max);
    let root = SVGBackend::new(file, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..works.len() as f64, 0.0..most * 1.45)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT);
    mesh.y_label_formatter(&|rate| format!("{rate:.0}")).draw()?;
    let width = 0.8 / shown.len() as f64;
    for (nth, (system, values)) in shown.iter().enumerate() {
        let colour = Palette99::pick(nth).to_rgba();
        let places = values
            .iter()
            .enumerate()
            .filter_map(|(work, range)| Some((work as f64 + 0.1 + nth as f64 * width, (*range)?)));
        let places: Vec<(f64, [f64; 3])> = places.collect();
        chart
            .draw_series(
                places
                    .iter()
                    .map(|(x, [_, half, _])| Rectangle::new([(*x, 0.0), (x + width * 0.9, *half)], colour.filled())),
            )?
            .label(system.to_string())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        chart.draw_series(places.iter().map(|(x, [least, _, most])| {
            let middle = x + width * 0.45;
            PathElement::new([(middle, *least), (middle, *most)], BLACK)
        }))?;
    }
    for (nth, (label, ..)) in works.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(nth as f64 + 0.5, 0.0));
        let style = ("sans-serif", 14).into_font().into_text_style(&root);
        let style = style.pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Top,
        ));
        root.draw(&Text::new((*label).to_owned(), (x, y + 8), style))?;
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// The share of losses after which a client wrote again within a time, on a logarithmic scale.
fn recoveries(file: &Path, blow: Blow, all: &[&Losses]) -> Result<()> {
    let times = || all.iter().flat_map(|losses| losses.each.iter().map(|one| one.one_ms));
    let [least, most] = [times().fold(f64::MAX, f64::min), times().fold(1.0, f64::max)];
    let caption = match blow {
        Blow::Kill => "From kill -9 of the leader to the first write of another node's client",
        Blow::Freeze => "From the freezing of the leader's host to the first write of another node's client",
    };
    let root = SVGBackend::new(file, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d((least * 0.8..most * 1.2).log_scale(), 0.0..1.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("milliseconds").y_desc("share of losses").light_line_style(TRANSPARENT);
    mesh.x_label_formatter(&|millis| format!("{millis:.0}")).draw()?;
    for (nth, losses) in all.iter().enumerate() {
        let colour = Palette99::pick(nth).to_rgba();
        let label = match losses.system {
            System::Primacy => format!("{}, lease {} ms, n = {}", losses.system, losses.lease_ms, losses.each.len()),
            system => format!("{system}, n = {}", losses.each.len()),
        };
        chart
            .draw_series(LineSeries::new(
                steps(losses.each.iter().map(|one| one.one_ms).collect()),
                colour.stroke_width(2),
            ))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::LowerRight).background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
