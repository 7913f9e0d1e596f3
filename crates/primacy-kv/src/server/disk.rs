//! What a node has on its disk, opened in order: the write-ahead log, the snapshots that it names, and the groups made of both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::channel;

use primacy::clock;
use primacy_core::log::{Config, DurableLog, ReplicaId};

use super::founding::Founding;
use super::port::NodeError;
use super::snapshots::SnapshotFolder;
use crate::group::{self, Group};
use crate::payload::LogBytes;
use crate::slot::Slot;
use crate::table::Table;
use crate::wal::{self, GroupId, Wal};

/// What was opened.
pub(super) struct Opened {
    pub(super) wal: Wal,
    pub(super) folder: SnapshotFolder,
    pub(super) groups: Vec<Group>,
}

/// How many bytes may wait for the log's writer: each group has one write under way at a time, so this is never reached.
const QUEUE: usize = 1 << 32;

/// Opens it, and begins the replicas of a new node. It blocks.
///
/// # Errors
/// If something is missing or damaged, or the disk fails.
pub(super) fn open(
    folder: &Path,
    founding: &Founding,
    settings: group::Settings,
    has_begun: bool,
) -> Result<Opened, NodeError> {
    let own = settings.own;
    let mut wal_settings = wal::Settings::new(own.to_bits()).queue_of(QUEUE);
    if !has_begun {
        wal_settings = wal_settings.creating();
    }
    let opened = Wal::open::<LogBytes>(&folder.join("wal"), wal_settings)?;
    let snapshots = SnapshotFolder::open(folder.join("snapshots"))?;
    let mut known: BTreeMap<GroupId, _> =
        opened.replicas.into_iter().map(|replica| (replica.group, replica.log)).collect();
    if let Some(tail) = opened.report.tail {
        tracing::info!(bytes = tail.bytes, "a torn tail of the log is cut off: nobody has been told of it");
    }
    snapshots.keep_only(|group, index| {
        let log: Option<&DurableLog<LogBytes>> = known.get(&group);
        log.and_then(DurableLog::snapshot).is_some_and(|snapshot| snapshot.position.index == index)
    })?;
    let (begun, done) = channel();
    let mut new = BTreeSet::new();
    for number in 0..founding.groups {
        let group = GroupId(u32::from(number) + 1);
        if known.contains_key(&group) {
            continue;
        }
        if has_begun {
            return Err(NodeError::ReplicaMissing { group: number, folder: folder.to_path_buf() });
        }
        let config = founding.has(own).then(|| first_config(founding)).transpose()?;
        if config.is_some() {
            let mut table = Table::new(Slot::of_group(number, founding.groups), founding.seed);
            snapshots.write_whole(group, &mut table)?;
        }
        known.insert(group, config.clone().map_or_else(DurableLog::blank, DurableLog::founding));
        let begun = begun.clone();
        opened.wal.begin(group, own, config, move |done| _ = begun.send(done))?;
        new.insert(group);
    }
    for _ in &new {
        done.recv().unwrap_or(Err(wal::AppendError::Closed))?;
    }
    let first_snapshot = settings.snapshot_every.bytes(0);
    let mut groups = Vec::new();
    for number in 0..founding.groups {
        let group = GroupId(u32::from(number) + 1);
        let Some(log) = known.remove(&group) else { continue };
        let table = log.snapshot().map(|snapshot| snapshots.load(group, snapshot)).transpose()?;
        let snapshot_sooner = if new.contains(&group) { sooner(first_snapshot, number, founding.groups) } else { 0 };
        let made = Group::new(group::Settings { snapshot_sooner, ..settings }, log, table, clock::now());
        groups.push(made.map_err(|error| NodeError::Broken {
            group: number,
            why: error.to_string(),
            name: String::new(),
        })?);
    }
    Ok(Opened { wal: opened.wal, folder: snapshots, groups })
}

/// By how many bytes sooner than others a new group takes its first snapshot. Groups in which as much is written take theirs one after the
/// other then, and segments of the log are free as others are needed. If all came at once, a log as long as all of them would be free at
/// once, and its files removed and made anew each time.
fn sooner(every: usize, number: u16, groups: u16) -> usize {
    every / usize::from(groups) * usize::from(number)
}

fn first_config(founding: &Founding) -> Result<Config, NodeError> {
    let members: BTreeSet<ReplicaId> = founding.members.iter().map(|(_, id)| *id).collect();
    Config::new(members).map_err(|error| NodeError::Snapshot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_groups_take_their_snapshots_in_equal_steps_and_none_before_anything_is_written() {
        let every = 64 << 20;
        let sooner: Vec<usize> = (0..16).map(|number| sooner(every, number, 16)).collect();
        assert!(sooner.windows(2).all(|pair| pair[1] - pair[0] == every / 16), "{sooner:?}");
        assert_eq!((sooner[0], sooner[15]), (0, every - every / 16));
        assert_eq!(super::sooner(every, 0, 1), 0);
        assert!(super::sooner(1, 1, 2) < 1);
    }
}
