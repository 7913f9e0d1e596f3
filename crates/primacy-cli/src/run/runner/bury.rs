//! The runner of a program whose warden is gone or hangs: it ends by itself what is left.

use std::time::Duration;

use primacy::{Instant, clock};
use tracing::error;

use super::super::IMMUNE;
use super::super::process_tree::{self, Attempt, Pauses, ProcessTree};
use super::super::signals;
use super::super::wire;
use super::Runner;

impl Runner {
    /// The warden is gone or hangs: does its work. Kills the program and all that it started, and waits until they are
    /// dead, but not longer than until `by`. Says how the warden ended, what was killed, and
    /// whether all of it is dead.
    pub(super) async fn bury(&mut self, by: Option<Instant>) -> (String, ProcessTree, bool) {
        // What the score's command has started must not be taken for what the program has.
        drop(self.ranks.take());
        let how = self.warden.end_warden().await;
        let tree = self.warden.bereaved();
        let mut pauses = Pauses::new();
        let mut tell_at = clock::now();
        let mut late_at = Some(clock::now() + wire::UNDYING_AFTER);
        let mut has_resigned = false;
        loop {
            let Attempt::Left { immune } = tree.kill() else { return (how, tree, true) };
            let is_late = late_at.take_if(|at| clock::now() >= *at).is_some();
            if is_late {
                error!("{}", wire::UNDYING);
            }
            if !immune.is_empty() && clock::now() >= tell_at {
                tell_at = clock::now() + Duration::from_secs(60);
                let processes: Vec<String> = immune.iter().copied().map(process_tree::describe).collect();
                error!("{}", wire::immune(&processes));
            }
            if !immune.is_empty() || late_at.is_none() {
                if self.ending.is_some() && by.is_none() {
                    leave_it_alive();
                }
                // Nobody else could lead for as long as this lives.
                if !std::mem::replace(&mut has_resigned, true) {
                    self.campaign.resign();
                }
            }
            if by.is_some_and(|by| clock::now() >= by) {
                return (how, tree, false);
            }
            tokio::select! {
                () = tokio::time::sleep(pauses.next()) => {}
                signal = self.signals.next() => if signals::ends(signal) {
                    self.ending = Some(signal);
                },
            }
        }
    }
}

/// Ends the runner although some of the program lives. The lease is not given back: nothing may be dropped. A warden that
/// is there waits for their end, and releases then.
#[expect(clippy::disallowed_methods, reason = "no destructor may run: it would release the lease")]
pub(super) fn leave_it_alive() -> ! {
    error!("ends although some of the program goes on; the lease is not given back, and runs out by itself");
    std::process::exit(i32::from(IMMUNE))
}
