//! Which replicas keep a log, and when enough of them have something.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use super::ballot::ReplicaId;

/// Why replicas cannot be changed like that. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// They change already.
    #[error("the replicas are changing already; that change must be finished first")]
    Changing,
    /// Nobody keeps the log.
    #[error("a log needs replicas, three or more to survive the loss of one")]
    Empty,
    /// More than one comes, or more than one goes.
    #[error("one replica may come and one may go in one change")]
    Several,
}

/// The replicas of a log; while they change, the old and the new ones, and a quorum is a majority of each.
///
/// Configs have no order of their own: which of two is in force is decided by the logs that hold them, and by nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config(Arc<Sets>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sets {
    replicas: BTreeSet<ReplicaId>,
    incoming: Option<BTreeSet<ReplicaId>>,
}

impl Config {
    /// These replicas.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(replicas: BTreeSet<ReplicaId>) -> Result<Self, ConfigError> {
        Self::read(replicas, None)
    }

    /// What was written down or sent of one.
    ///
    /// # Errors
    /// If nobody keeps the log, before the change or after it.
    pub fn read(replicas: BTreeSet<ReplicaId>, incoming: Option<BTreeSet<ReplicaId>>) -> Result<Self, ConfigError> {
        if replicas.is_empty() || incoming.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(ConfigError::Empty);
        }
        Ok(Self(Arc::new(Sets { replicas, incoming })))
    }

    /// The same while they change to these.
    ///
    /// # Errors
    /// If they change already, if there are none, or if more than one comes or goes.
    pub fn joint(&self, incoming: BTreeSet<ReplicaId>) -> Result<Self, ConfigError> {
        if self.is_joint() {
            return Err(ConfigError::Changing);
        }
        let (old, new) = (&self.0.replicas, &incoming);
        if new.difference(old).count() > 1 || old.difference(new).count() > 1 {
            return Err(ConfigError::Several);
        }
        Self::read(self.0.replicas.clone(), Some(incoming))
    }

    /// The new replicas alone, if they change: how their change ends.
    #[must_use]
    pub fn settled(&self) -> Option<Self> {
        let replicas = self.0.incoming.clone()?;
        Some(Self(Arc::new(Sets { replicas, incoming: None })))
    }

    /// Whether they change.
    pub fn is_joint(&self) -> bool {
        self.0.incoming.is_some()
    }

    /// Those who keep the log, or did before the change.
    pub fn old(&self) -> &BTreeSet<ReplicaId> {
        &self.0.replicas
    }

    /// Those who keep it after the change, while there is one.
    pub fn incoming(&self) -> Option<&BTreeSet<ReplicaId>> {
        self.0.incoming.as_ref()
    }

    /// All of them, the old and the new ones.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        let new = self.0.incoming.iter().flatten().filter(|replica| !self.0.replicas.contains(replica));
        self.0.replicas.iter().chain(new).copied()
    }

    /// Whether it is one of them.
    pub fn has(&self, replica: ReplicaId) -> bool {
        self.replicas().any(|own| own == replica)
    }

    /// Whether those of whom `agrees` is true are a quorum.
    pub fn is_quorum(&self, agrees: impl Fn(ReplicaId) -> bool) -> bool {
        let is_majority = |replicas: &BTreeSet<ReplicaId>| {
            replicas.iter().filter(|replica| agrees(**replica)).count() * 2 > replicas.len()
        };
        is_majority(&self.0.replicas) && self.0.incoming.as_ref().is_none_or(is_majority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: &[u128]) -> BTreeSet<ReplicaId> {
        replicas.iter().copied().map(ReplicaId::from_bits).collect()
    }

    fn agree(config: &Config, who: &[u128]) -> bool {
        config.is_quorum(|replica| who.contains(&replica.to_bits()))
    }

    #[test]
    fn more_than_half_are_a_quorum_and_of_both_sets_while_they_change() {
        let stable = Config::new(set(&[1, 2, 3])).expect("there are some");
        assert!(agree(&stable, &[1, 3]) && !agree(&stable, &[1]));
        let joint = stable.joint(set(&[1, 2, 4])).expect("one comes, one goes");
        assert!(agree(&joint, &[1, 2]), "a majority of each");
        assert!(agree(&joint, &[1, 3, 4]), "two of each");
        assert!(!agree(&joint, &[1, 3]), "one of the new");
        assert!(!agree(&joint, &[1, 4]), "one of the old");
        assert_eq!(joint.replicas().count(), 4);
        assert_eq!(joint.settled(), Config::new(set(&[1, 2, 4])).ok());
    }

    #[test]
    fn one_may_come_and_one_may_go_in_one_change() {
        let stable = Config::new(set(&[1, 2, 3])).expect("there are some");
        assert_eq!(stable.joint(set(&[1, 4, 5])), Err(ConfigError::Several));
        assert_eq!(stable.joint(set(&[1])), Err(ConfigError::Several));
        assert_eq!(stable.joint(set(&[])), Err(ConfigError::Several));
        let joint = stable.joint(set(&[1, 2])).expect("one goes");
        assert_eq!(joint.joint(set(&[1])), Err(ConfigError::Changing));
        assert_eq!(Config::new(set(&[])), Err(ConfigError::Empty));
    }
}
