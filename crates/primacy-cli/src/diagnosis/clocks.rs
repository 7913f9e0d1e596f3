//! What can be said of this machine's clocks, on which every lease is measured.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use primacy::store::{Finding, Severity};

use crate::output::span::span;

/// Shorter than this, the readings themselves are too coarse to tell the rate.
pub(super) const SPAN_LEAST: Duration = Duration::from_millis(250);

/// The clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Goes on during suspend; time daemons slew it.
    boot: Duration,
    /// Stops in suspend; slewed likewise.
    monotonic: Duration,
    /// As the hardware ticks.
    raw: Duration,
}

impl Reading {
    /// Now, if the machine has the clocks.
    pub(super) fn take() -> Option<Self> {
        let read = |clock| clock_gettime(clock).ok().map(Duration::from);
        Some(Self {
            boot: read(ClockId::CLOCK_BOOTTIME)?,
            monotonic: read(ClockId::CLOCK_MONOTONIC)?,
            raw: read(ClockId::CLOCK_MONOTONIC_RAW)?,
        })
    }
}

/// What two readings tell, where a clock's rate may be wrong by `bound_ppm`.
pub(super) fn findings(from: Option<Reading>, to: Option<Reading>, bound_ppm: u32) -> Vec<Finding> {
    let (Some(from), Some(to)) = (from, to) else {
        let message = "the boot clock cannot be read: no leadership can be timed on this machine".to_owned();
        return vec![Finding { severity: Severity::Danger, code: "clock", message }];
    };
    let mut findings = vec![rate(from, to, bound_ppm)];
    let asleep = to.boot.saturating_sub(to.monotonic);
    if asleep >= Duration::from_secs(1) {
        findings.push(Finding {
            severity: Severity::Fine,
            code: "suspend",
            message: format!(
                "this machine was suspended for {} since it started; a leader that is suspended gives up its leadership",
                span(asleep)
            ),
        });
    }
    findings
}

fn rate(from: Reading, to: Reading, bound_ppm: u32) -> Finding {
    let finding = |severity, message| Finding { severity, code: "clock", message };
    let Some(boot) = to.boot.checked_sub(from.boot) else {
        return finding(
            Severity::Danger,
            "the boot clock went backwards: no lease can be trusted on this machine".to_owned(),
        );
    };
    let hardware = to.raw.saturating_sub(from.raw).as_secs_f64();
    if hardware < SPAN_LEAST.as_secs_f64() / 2.0 {
        return finding(Severity::Warning, "the clock's rate could not be measured".to_owned());
    }
    let ppm = ((boot.as_secs_f64() / hardware - 1.0) * 1e6).abs();
    let bound = f64::from(bound_ppm);
    let said = format!("runs within {ppm:.0} ppm of the hardware's rate, and {bound_ppm} ppm are allowed for");
    if ppm > bound {
        finding(Severity::Danger, format!("{said}: two may lead at once; stop what slews this clock"))
    } else if ppm > bound / 4.0 {
        finding(Severity::Warning, format!("{said}: a time daemon slews it by much"))
    } else {
        finding(Severity::Fine, said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot_us: u64, monotonic_us: u64, raw_us: u64) -> Option<Reading> {
        let [boot, monotonic, raw] = [boot_us, monotonic_us, raw_us].map(Duration::from_micros);
        Some(Reading { boot, monotonic, raw })
    }

    fn severity(to_boot_us: u64) -> Severity {
        let findings = findings(reading(0, 0, 0), reading(to_boot_us, to_boot_us, 1_000_000), 20_000);
        assert_eq!(findings[0].code, "clock");
        findings[0].severity
    }

    #[test]
    fn the_rate_is_judged_by_the_bound() {
        assert_eq!(severity(1_000_100), Severity::Fine);
        assert_eq!(severity(1_006_000), Severity::Warning);
        assert_eq!(severity(1_030_000), Severity::Danger);
        assert_eq!(severity(970_000), Severity::Danger);
    }

    #[test]
    fn broken_clocks_are_a_danger() {
        assert_eq!(findings(None, None, 20_000)[0].severity, Severity::Danger);
        let backwards = findings(reading(5_000_000, 0, 0), reading(1, 1, 1_000_000), 20_000);
        assert_eq!(backwards[0].severity, Severity::Danger);
    }

    #[test]
    fn suspend_is_mentioned() {
        let findings = findings(reading(0, 0, 0), reading(11_000_000, 1_000_000, 11_000_000), 20_000);
        assert!(findings.iter().any(|finding| finding.code == "suspend" && finding.message.contains("10s")));
    }

    #[test]
    fn this_machine_has_the_clocks() {
        assert!(Reading::take().is_some());
    }
}
