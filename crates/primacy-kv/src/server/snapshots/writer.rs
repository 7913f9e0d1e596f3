//! The thread that writes snapshots: this node's own, and those that come in from others.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use primacy::{Instant, clock};
use primacy_core::log::{Ballot, Snapshot, Write};

use super::{NewFile, SnapshotFileError, SnapshotFolder};
use crate::payload::LogBytes;
use crate::wal::{AppendError, GroupId, Wal};

/// How long after a disk was full it is tried again.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// What is told by the thread that writes.
#[derive(Debug)]
pub(in crate::server) enum Told {
    /// A chunk of a group's own snapshot is written: the next one may come.
    Chunk { group: GroupId, index: u64 },
    /// A group's own snapshot is on the disk, in this many chunks.
    Written { group: GroupId, index: u64, chunks: u32 },
    /// It cannot be written.
    NotWritten { group: GroupId, index: u64, error: SnapshotFileError },
    /// What a group had to write cannot be written: nobody knows what is on the disk, and the node ends.
    Failed { error: String },
}

/// What the thread is to do.
enum Order {
    /// A chunk of a group's own snapshot.
    Chunk { group: GroupId, index: u64, data: Vec<u8> },
    /// It has no more chunks.
    Finish { group: GroupId, index: u64 },
    /// Nobody wants it any more.
    GiveUp { group: GroupId, index: u64 },
    /// The log has a snapshot up to there.
    Retire { group: GroupId, index: u64 },
    /// Writes with chunks of snapshots from others among them, and those that wait for room.
    Write(Option<Pending>),
}

type Done = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// The thread that writes snapshots.
#[derive(Debug)]
pub(in crate::server) struct SnapshotWriter {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl SnapshotWriter {
    /// # Errors
    /// If the system gives no thread.
    pub(in crate::server) fn start(
        folder: SnapshotFolder,
        wal: Arc<Wal>,
        tell: impl Fn(Told) + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let work = Work {
            folder,
            wal,
            own: BTreeMap::new(),
            incoming: BTreeMap::new(),
            pending: Vec::new(),
            is_full: false,
            again: Instant::ZERO,
        };
        let thread = Builder::new().name("primacy-kv-snap".into()).spawn(move || work.run(&inbox, &tell))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A thread that has gone has said so.
            let _ = orders.send(order);
        }
    }

    /// [`Told::Chunk`] follows, or [`Told::NotWritten`].
    pub(in crate::server) fn chunk(&self, group: GroupId, index: u64, data: Vec<u8>) {
        self.order(Order::Chunk { group, index, data });
    }

    /// [`Told::Written`] follows, or [`Told::NotWritten`].
    pub(in crate::server) fn finish(&self, group: GroupId, index: u64) {
        self.order(Order::Finish { group, index });
    }

    /// A group's own snapshot, whose last chunk has not come, is not wanted any more.
    pub(in crate::server) fn give_up(&self, group: GroupId, index: u64) {
        self.order(Order::GiveUp { group, index });
    }

    /// Removes what the snapshot up to there, which the log has, takes the place of.
    pub(in crate::server) fn retire(&self, group: GroupId, index: u64) {
        self.order(Order::Retire { group, index });
    }

    /// As [`Wal::append`], with chunks and snapshots on the disk before what follows them.
    pub(in crate::server) fn write(
        &self,
        group: GroupId,
        writes: Vec<Write<LogBytes>>,
        done: impl FnOnce(Result<(), AppendError>) + Send + 'static,
    ) {
        self.order(Order::Write(Some(Pending { group, writes, count: 0, done: Box::new(done) })));
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _: Result<(), _> = thread.join();
        }
    }
}

/// Whether these writes have chunks of a snapshot or need one whose chunks have come. The node's own is on the disk before the log is
/// given it ([`Told::Written`]), and does not wait here for what other groups write.
pub(in crate::server) fn concerns(writes: &[Write<LogBytes>]) -> bool {
    writes.iter().any(|write| matches!(write, Write::Aside { .. } | Write::Install(_)))
}

/// A group's writes that wait for room on the disk.
struct Pending {
    group: GroupId,
    writes: Vec<Write<LogBytes>>,
    /// How many of them are done.
    count: usize,
    done: Done,
}

struct Work {
    folder: SnapshotFolder,
    wal: Arc<Wal>,
    /// Snapshots of this node's own tables.
    own: BTreeMap<GroupId, NewFile>,
    /// Those that come in: by which ballot they end, and what there is of them.
    incoming: BTreeMap<GroupId, (Ballot, NewFile)>,
    /// What waits for room. Each group has one write under way at a time, so they hold up nothing of their own groups.
    pending: Vec<Pending>,
    /// There was no room for one of them.
    is_full: bool,
    /// When they are tried again.
    again: Instant,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Order>, tell: &(impl Fn(Told) + Send + 'static)) {
        while let Some(order) = self.next(inbox) {
            match order {
                Order::Chunk { group, index, data } => match self.chunk(group, index, &data) {
                    Ok(()) => tell(Told::Chunk { group, index }),
                    Err(error) => {
                        self.own.remove(&group);
                        tell(Told::NotWritten { group, index, error });
                    }
                },
                Order::Finish { group, index } => match self.finish(group, index) {
                    Ok(chunks) => tell(Told::Written { group, index, chunks }),
                    Err(error) => tell(Told::NotWritten { group, index, error }),
                },
                Order::GiveUp { group, index } => {
                    if self.own.get(&group).is_some_and(|file| file.index == index) {
                        self.own.remove(&group);
                    }
                }
                Order::Retire { group, index } => {
                    if let Err(error) = self.folder.retire(group, index) {
                        tracing::warn!(group = group.0, %error, "an old snapshot could not be removed");
                    }
                }
                Order::Write(pending) => {
                    self.pending.extend(pending);
                    if let Err(error) = self.write() {
                        return tell(Told::Failed { error });
                    }
                }
            }
        }
    }

    /// What is to be done next; `None` at the end.
    fn next(&self, inbox: &Receiver<Order>) -> Option<Order> {
        if self.pending.is_empty() {
            return inbox.recv().ok();
        }
        match inbox.recv_timeout(self.again.since(clock::now())) {
            Err(RecvTimeoutError::Timeout) => Some(Order::Write(None)),
            order => order.ok(),
        }
    }

    fn chunk(&mut self, group: GroupId, index: u64, data: &[u8]) -> Result<(), SnapshotFileError> {
        let file = match self.own.remove(&group).filter(|file| file.index == index) {
            Some(file) => file,
            None => NewFile::create(&self.folder, group, index, "new")?,
        };
        self.own.entry(group).or_insert(file).add(data)
    }

    fn finish(&mut self, group: GroupId, index: u64) -> Result<u32, SnapshotFileError> {
        let file = self.own.remove(&group).filter(|file| file.index == index);
        let file = file.ok_or_else(|| SnapshotFileError::Damaged {
            path: self.folder.file(group, index),
            why: "it ends and was never begun".to_owned(),
        })?;
        let chunks = file.count();
        file.finish(&self.folder)?;
        Ok(chunks)
    }

    /// Writes what waits. What there is no room for waits on.
    fn write(&mut self) -> Result<(), String> {
        let was_full = self.is_full;
        self.is_full = false;
        for mut pending in mem::take(&mut self.pending) {
            match self.write_one(&mut pending) {
                Ok(()) => {
                    let Pending { group, writes, done, .. } = pending;
                    self.wal.append(group, &writes, done).map_err(|error| error.to_string())?;
                }
                Err(SnapshotFileError::Full { path }) => {
                    if !was_full && !self.is_full {
                        let path = path.display();
                        tracing::warn!(%path, "the disk is full: a snapshot from another node waits for room");
                    }
                    self.is_full = true;
                    self.again = clock::now() + ROOM_AGAIN;
                    self.pending.push(pending);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        if was_full && !self.is_full {
            tracing::info!("the disk has room again for snapshots from other nodes");
        }
        Ok(())
    }

    fn write_one(&mut self, pending: &mut Pending) -> Result<(), SnapshotFileError> {
        let Pending { group, writes, count, .. } = pending;
        for write in &writes[*count..] {
            match write {
                Write::Aside { snapshot, chunk, data } => self.aside(*group, snapshot, *chunk, data.as_ref())?,
                Write::Install(snapshot) => self.install(*group, snapshot)?,
                Write::Compact(_) | Write::Promise(_) | Write::Append { .. } => {}
            }
            *count += 1;
        }
        Ok(())
    }

    /// Has a snapshot count that has come.
    fn install(&mut self, group: GroupId, snapshot: &Snapshot) -> Result<(), SnapshotFileError> {
        let position = snapshot.position;
        let is_it = |(ballot, file): &(Ballot, NewFile)| *ballot == position.ballot && file.index == position.index;
        let Some((ballot, file)) = self.incoming.remove(&group).filter(is_it) else {
            return Err(SnapshotFileError::Damaged {
                path: self.folder.file(group, position.index),
                why: "a snapshot was installed that has not come".to_owned(),
            });
        };
        // Only its end may find no room: what fails later is final.
        if let Err(error) = file.end() {
            self.incoming.insert(group, (ballot, file));
            return Err(error);
        }
        file.publish(&self.folder)
    }

    fn aside(&mut self, group: GroupId, snapshot: &Snapshot, chunk: u32, data: &[u8]) -> Result<(), SnapshotFileError> {
        let position = snapshot.position;
        if chunk == 0 {
            // It goes before the new one takes its name.
            drop(self.incoming.remove(&group));
            let file = NewFile::create(&self.folder, group, position.index, "incoming")?;
            self.incoming.insert(group, (position.ballot, file));
        }
        match self.incoming.get_mut(&group) {
            Some((ballot, file))
                if *ballot == position.ballot && file.index == position.index && file.count() == chunk =>
            {
                file.add(data)
            }
            // The log takes chunks in order, so this is one that it has dropped since.
            _ => Ok(()),
        }
    }
}
