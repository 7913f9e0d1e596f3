//! What a node has on its disk, opened in order: the write-ahead log, the snapshots that it names, and the groups made of both.

use std::collections::BTreeMap;
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
    let mut waits = 0;
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
        waits += 1;
    }
    for _ in 0..waits {
        done.recv().unwrap_or(Err(wal::AppendError::Closed))?;
    }
    let mut groups = Vec::new();
    for number in 0..founding.groups {
        let group = GroupId(u32::from(number) + 1);
        let Some(log) = known.remove(&group) else { continue };
        let table = log.snapshot().map(|snapshot| snapshots.load(group, snapshot)).transpose()?;
        let made = Group::new(settings, log, table, clock::now());
        groups.push(made.map_err(|error| NodeError::Broken {
            group: number,
            why: error.to_string(),
            name: String::new(),
        })?);
    }
    Ok(Opened { wal: opened.wal, folder: snapshots, groups })
}

fn first_config(founding: &Founding) -> Result<Config, NodeError> {
    let members: std::collections::BTreeSet<ReplicaId> = founding.members.iter().map(|(_, id)| *id).collect();
    Config::new(members).map_err(|error| NodeError::Snapshot(error.to_string()))
}
