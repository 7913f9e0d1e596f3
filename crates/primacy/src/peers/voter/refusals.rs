//! Which refused connections the log tells of: a client that is refused may try again at once, from anywhere, and under any name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Instant;

/// A refusal that was told of is told again after this at the earliest.
const MINUTE: Duration = Duration::from_secs(60);

/// Lines of one host in a minute.
const OF_ONE_MOST: usize = 10;

/// Lines in a minute.
const MOST: usize = 50;

/// The refusals of one minute.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    since: Option<Instant>,
    /// Who was refused, and why, as the log has it.
    told: BTreeSet<(String, String)>,
    /// Lines by host.
    hosts: BTreeMap<String, usize>,
    /// Refusals that the log does not tell of, other than those that it has told of in the same words.
    left_out: u64,
}

impl Refusals {
    /// Somebody is refused. Returns whether the log tells of it; and once a minute has passed how many it has not told of,
    /// if there are any.
    pub(super) fn note(&mut self, host: String, why: String, now: Instant) -> (bool, Option<u64>) {
        let is_over = self.since.is_none_or(|since| now.since(since) >= MINUTE);
        let before = if is_over { std::mem::take(self).left_out } else { 0 };
        self.since.get_or_insert(now);
        let refusal = (host, why);
        if self.told.contains(&refusal) {
            return (false, None);
        }
        let of_host = self.hosts.get(&refusal.0).copied().unwrap_or_default();
        let is_told = self.told.len() < MOST && of_host < OF_ONE_MOST;
        if is_told {
            self.hosts.insert(refusal.0.clone(), of_host + 1);
            self.told.insert(refusal);
        } else {
            self.left_out += 1;
        }
        (is_told, Some(before).filter(|before| *before > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_of_each_kind_once_a_minute_and_of_few_whatever_strangers_say() {
        let mut refusals = Refusals::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut note = |host: &str, why: &str, seconds| refusals.note(host.to_owned(), why.to_owned(), at(seconds));
        assert_eq!(note("h", "plain text", 1), (true, None));
        assert_eq!(note("h", "plain text", 2), (false, None));
        assert_eq!(note("h", "another version", 2), (true, None), "another reason is news");
        assert_eq!(note("other", "plain text", 2), (true, None), "and so is another host");
        let names = (0..96_000).filter(|n| note("h", &format!("'{n}' is a stranger"), 3).0).count();
        assert_eq!(names, OF_ONE_MOST - 2, "one host says whatever it likes");
        let hosts = (0..96_000).filter(|n| note(&n.to_string(), "plain text", 4).0).count();
        assert_eq!(hosts, MOST - OF_ONE_MOST - 1, "many hosts");
        let left_out = 2 * 96_000 - names - hosts;
        assert_eq!(note("h", "plain text", 61), (true, Some(u64::try_from(left_out).expect("few"))));
        assert_eq!(note("h", "plain text", 62), (false, None));
    }
}
