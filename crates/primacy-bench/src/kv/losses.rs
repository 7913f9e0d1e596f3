//! The leader is lost, again and again, while clients of the other servers write.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::cluster::{Setup, System};
use super::probe::{Probe, Recovery};
use super::process::{listener, signal};
use super::results::{Blow, Losses, Results, percentile};
use super::start::start;
use super::throughput::value;
use crate::Entropy;

/// Before each loss the clients write for at least so long.
const CALM: Duration = Duration::from_millis(200);
/// How many leases a node that was started again is left alone.
const SETTLED_LEASES: f64 = 1.2;

/// Loses the leader this many times.
pub(super) fn measure(setup: &Setup<'_>, blow: Blow, times: usize, bytes: usize, results: &mut Results) -> Result<()> {
    let mut cluster = start(setup)?;
    if results.setups.iter().all(|(system, _)| *system != setup.system) {
        results.set_up(setup.system, cluster.store.settings());
    }
    let keys = keys(setup);
    let value = value(bytes);
    cluster.fill(&keys, &value)?;
    let mut losses = Losses { system: setup.system, blow, lease_ms: setup.lease.as_millis() as u64, each: Vec::new() };
    let mut entropy = Entropy(3);
    let mut tries = 0;
    while losses.each.len() < times {
        tries += 1;
        ensure!(tries <= times * 2 + 3, "the leader does not stay where it is");
        let leader = cluster.await_leader()?;
        let servers = cluster.others(leader);
        let probe = Probe { dialect: cluster.dialect(), servers: &servers, keys: &keys, value: &value };
        // At any moment between two renewals.
        let calm = CALM + entropy.between((Duration::ZERO, setup.lease.min(Duration::from_secs(1))));
        let family = cluster.processes[leader].family();
        let port = cluster.servers[leader].port();
        let serving = listener(&family, port).context("nobody listens there")?;
        let struck = probe.run(calm, || {
            // It may have moved meanwhile, of itself.
            if !cluster.store.leads(cluster.servers[leader]) {
                return false;
            }
            match blow {
                Blow::Kill => signal(serving, Signal::SIGKILL),
                Blow::Freeze => family.iter().for_each(|pid| signal(*pid, Signal::SIGSTOP)),
            }
            true
        })?;
        let Some(recovery) = struck else { continue };
        losses.each.push(recovery);
        // A frozen host does not come back: a new one does.
        cluster.processes[leader].start_again()?;
        if setup.system == System::Primacy {
            // A voter that has restarted promises nothing until what it may have promised before has ended.
            cluster.await_leader()?;
            thread::sleep(setup.lease.mul_f64(SETTLED_LEASES));
        }
    }
    println!("{}", line(&losses));
    let same =
        |other: &Losses| (other.system, other.blow, other.lease_ms) == (losses.system, losses.blow, losses.lease_ms);
    results.losses.retain(|other| !same(other));
    results.losses.push(losses);
    results.save()
}

/// One key in each group of primacy; of the others it is not known that they have parts.
fn keys(setup: &Setup<'_>) -> Vec<String> {
    let groups = if setup.system == System::Primacy { setup.groups } else { 1 };
    (0..groups).map(|group| keys_of_group(group, groups).next().unwrap_or_default()).collect()
}

/// Keys in the middle of a group's slots.
pub(super) fn keys_of_group(group: u16, groups: u16) -> impl Iterator<Item = String> {
    let slots = f64::from(SLOTS) / f64::from(groups);
    let [from, to] = [0.25, 0.75].map(|share| (f64::from(group) + share) * slots);
    (0..).map(|n| format!("key:{n:08}")).filter(move |key| (from..to).contains(&f64::from(slot(key.as_bytes()))))
}

const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM, by which Redis finds a key's slot.
fn slot(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
}

fn line(losses: &Losses) -> String {
    let spread = |of: fn(&Recovery) -> f64| {
        let [half, most, max] = [50, 99, 100].map(|percent| percentile(losses.each.iter().map(of), percent));
        format!("{half:.1} / {most:.1} / {max:.1}")
    };
    let sum = |of: fn(&Recovery) -> u64| losses.each.iter().map(of).sum::<u64>();
    let said: Vec<&String> = losses.each.iter().filter_map(|one| one.said.as_ref()).take(1).collect();
    format!(
        "{:<24} {:?}, lease {} ms, n = {}: a key of its written after {} ms (median / 99 % / max), one of each group after {}; refused {}, \
         unknown {}, cut off {} {said:?}; a write before {:.2} ms; load {}",
        losses.system,
        losses.blow,
        losses.lease_ms,
        losses.each.len(),
        spread(|one| one.one_ms),
        spread(|one| one.all_ms),
        sum(|one| one.refused),
        sum(|one| one.unknown),
        sum(|one| one.cut_off),
        percentile(losses.each.iter().map(|one| one.before_ms), 50),
        super::load_average(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!((slot(b"foo"), slot(b"123456789")), (12182, 0x31c3));
    }

    #[test]
    fn keys_of_a_group_are_in_its_slots() {
        assert!(keys_of_group(15, 16).take(5).all(|key| slot(key.as_bytes()) >= 15 * 1024));
    }
}
