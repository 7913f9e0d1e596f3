//! Which of two primaries of one database is the later one, as far as this process has seen both.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::super::StoreError;
use super::connection::Connection;
use super::errors::{Fault, Stake};
use super::statements;

/// The newest timeline that was seen of each cluster. A promotion begins a timeline, so a primary with an older one has
/// been replaced. Clusters that were initialised apart, such as before and after a major upgrade, have no order.
#[derive(Debug, Default)]
pub(super) struct Timelines(Mutex<BTreeMap<i64, i64>>);

impl Timelines {
    /// Refuses a primary that was replaced by one that was seen before.
    pub(super) async fn check(&self, connection: &mut Connection) -> Result<(), StoreError> {
        let read = connection.run(statements::LINEAGE, &[], Stake::Reading).await.and_then(|rows| {
            let row = rows.first().ok_or(Fault::Damaged("the answer about the timeline"))?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        });
        let (cluster, timeline) = match read {
            Ok(read) => read,
            // An administrator may withhold which cluster this is; nothing can be compared then.
            Err(fault) if fault.code() == Some("42501") => return Ok(()),
            Err(fault) => return Err(fault.meaning(connection.shown(), Stake::Reading)),
        };
        self.admit(cluster, timeline).map_err(|newest| {
            StoreError::Unusable(format!(
                "{}: an old primary runs beside the new one (its timeline is {timeline}, and one of timeline {newest} was \
                 seen); stop it, or make it a standby. If it is meant to be the primary again, start this process anew",
                connection.shown()
            ))
        })
    }

    /// Or the newest one.
    fn admit(&self, cluster: i64, timeline: i64) -> Result<(), i64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = seen.entry(cluster).or_insert(timeline);
        *newest = timeline.max(*newest);
        if timeline < *newest { Err(*newest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_cluster_only_the_newest_is_admitted() {
        let timelines = Timelines::default();
        assert_eq!(timelines.admit(7, 1), Ok(()));
        assert_eq!(timelines.admit(7, 3), Ok(()), "promoted twice");
        assert_eq!(timelines.admit(7, 3), Ok(()));
        assert_eq!(timelines.admit(7, 2), Err(3));
        assert_eq!(timelines.admit(-7, 1), Ok(()), "a major upgrade begins at the first again");
        assert_eq!(timelines.admit(7, 1), Err(3), "another cluster changes nothing");
    }
}
