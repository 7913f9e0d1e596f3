//! What came out: a line for people, figures for programs.

use std::fmt;
use std::time::Duration;

use primacy_core::Timing;
use serde::Serialize;

use super::trial::{Loss, Part, Trial};
use crate::spread::Spread;

/// One part with one timing.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    hosts: u8,
    lease_ms: f64,
    renew_ms: f64,
    grace_ms: f64,
    part: Part,
    /// How many tasks wanted a core in the last minute of it.
    load: f64,
    #[serde(flatten)]
    trial: Trial,
}

impl Figures {
    pub(super) fn of(hosts: u8, timing: &Timing, part: Part, trial: Trial) -> Self {
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        let [lease_ms, renew_ms, grace_ms] = [timing.lease(), timing.renew_every(), timing.grace()].map(millis);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        Self { hosts, lease_ms, renew_ms, grace_ms, part, load, trial }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lease_ms, renew_ms, grace_ms, trial, .. } = self;
        let part = match self.part {
            Part::Lost => "host lost",
            Part::Deaf => "host deaf",
            Part::Mute => "host mute",
            Part::Loss => "frames lost",
        };
        let timing = format!("lease {lease_ms} ms, renewed each {renew_ms:.0} ms, grace {grace_ms:.0} ms");
        write!(f, "{} hosts, {timing:<55} {part:<12}", self.hosts)?;
        match &trial.loss {
            Some(Loss { per_mille, seconds, passed, lost }) => {
                write!(f, "{} % of {} for {seconds:.0} s", *per_mille as f64 / 10.0, passed + lost)?;
            }
            None => {
                let spread = |nanos: &[u64]| Spread::of(nanos.iter().copied().map(Duration::from_nanos).collect());
                write!(f, "\n  to the grant    {}", spread(&trial.grants_nanos))?;
                write!(f, "\n  to the program  {}", spread(&trial.programs_nanos))?;
            }
        }
        write!(f, "\n  unplanned grants {}, to others {}; load {}", trial.unplanned, trial.changes, self.load)
    }
}
