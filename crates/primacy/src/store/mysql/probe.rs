//! What `primacy doctor` is told of a server: what it guarantees (R12), and how long a durable change takes.

use std::time::Duration;

use super::super::{Probe, StoreError};
use super::line::Line;
use super::packet::Packet;
use super::place::Place;
use super::rows;
use crate::clock;

const RENEWALS: usize = 30;

pub(super) async fn run(line: &mut Line, _place: &Place) -> Result<Probe, StoreError> {
    let renewals = renewals(line).await?;
    Ok(Probe { product: line.server.version.clone(), renewals, findings: Vec::new() })
}

async fn renewals(line: &mut Line) -> Result<Vec<Duration>, StoreError> {
    let key = rows::probe_row(rand::random());
    line.run(&Packet::single(format!("INSERT INTO primacy_probe (id, beat) VALUES ({key}, 0)"))).await?;
    let mut taken = Vec::with_capacity(RENEWALS);
    for _ in 0..RENEWALS {
        let start = clock::now();
        line.run(&Packet::single(format!("UPDATE primacy_probe SET beat = beat + 1 WHERE id = {key}"))).await?;
        taken.push(clock::now().since(start));
    }
    line.run(&Packet::single(format!("DELETE FROM primacy_probe WHERE id = {key}"))).await?;
    taken.sort_unstable();
    Ok(taken)
}
