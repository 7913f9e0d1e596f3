//! Starts whichever system is measured.

use anyhow::{Context as _, Result};

use super::cluster::{Cluster, Setup, System};
use super::{etcd, nodes, redis, zookeeper};

/// Starts it, and waits until its servers work together.
pub(super) fn start(setup: &Setup<'_>) -> Result<Cluster> {
    let folder = tempfile::tempdir()?;
    let mut cluster = match setup.system {
        System::Primacy => nodes::start(setup, folder)?,
        System::Redis => redis::start(setup, 0, folder)?,
        System::RedisWait => redis::start(setup, 2, folder)?,
        System::Etcd | System::EtcdFast => etcd::start(setup, folder)?,
        System::ZooKeeper => zookeeper::start(setup, folder)?,
    };
    cluster.await_leader().with_context(|| format!("{} does not start", setup.system))?;
    Ok(cluster)
}
