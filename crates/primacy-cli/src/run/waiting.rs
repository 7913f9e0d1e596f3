//! For how long a candidate waits: when it gives up, and what it says then.

use primacy::{GroupStatus, Status, Trouble};
use tokio::sync::watch;

use super::Patience;
use super::through_agent::AgentTrouble;
use crate::output::span::span;

pub(super) async fn wait_for(patience: Option<Patience>) {
    match patience {
        Some(Patience::For(limit)) => tokio::time::sleep(limit).await,
        Some(Patience::Try) | None => std::future::pending().await,
    }
}

/// Why to wait no longer, if it is time to. With `Try`, what has been found; a free lease is asked for.
pub(super) fn in_vain(status: &Status, patience: Option<Patience>, patient: bool, in_time: bool) -> Option<String> {
    use primacy::store::Why::{self, Asking, NotLooked, Unreachable};
    let state = |why: &Why| match why {
        // With a short limit it has not been answered yet.
        Asking => "it was about to ask for the free lease".to_owned(),
        why => format!("this candidate {why}"),
    };
    let Status::Waiting { why, .. } = status else { return None };
    match patience? {
        Patience::For(limit) if !in_time && *why != NotLooked => {
            Some(format!(" after {}: {}", span(limit).replace(".0ms", "ms"), state(why)))
        }
        Patience::Try if patient && matches!(why, NotLooked | Unreachable | Asking) => None,
        Patience::Try if *why != NotLooked => Some(format!(": {}, and was told not to wait", state(why))),
        _ => None,
    }
}

/// Waits until the membership changes, if there is one.
pub(super) async fn changed(membership: &mut Option<watch::Receiver<GroupStatus>>) {
    if let Some(membership) = membership
        && membership.changed().await.is_ok()
    {
        return;
    }
    // One whose group has ended does not change any more.
    std::future::pending().await
}

/// Waits until it is known anew whether the agent is of use, if there is one.
pub(super) async fn trouble_changed(troubles: &mut Option<watch::Receiver<Option<AgentTrouble>>>) {
    if let Some(troubles) = troubles
        && troubles.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Trouble with a store that has never answered.
pub(super) fn first_trouble(status: &Status) -> Option<Trouble> {
    match status {
        Status::Waiting { trouble: Some(trouble), .. } if !trouble.ever_reached => Some(trouble.clone()),
        _ => None,
    }
}

/// Whether the store has answered at least once.
pub(super) fn has_looked(status: &Status) -> bool {
    !matches!(status, Status::Waiting { why: primacy::store::Why::NotLooked, .. }) && first_trouble(status).is_none()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use primacy::store::Why;

    use super::*;

    #[test]
    fn why_it_waits_no_longer_reads_well() {
        let after = |why| {
            let limit = Patience::For(Duration::from_millis(1));
            in_vain(&Status::Waiting { why, leader: None, standing: None, trouble: None }, Some(limit), true, false)
        };
        assert_eq!(after(Why::Asking).as_deref(), Some(" after 1ms: it was about to ask for the free lease"));
        assert_eq!(
            after(Why::Paused).as_deref(),
            Some(" after 1ms: this candidate waits because the election is paused")
        );
        assert_eq!(after(Why::NotLooked), None);
    }
}
