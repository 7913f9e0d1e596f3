//! The write-ahead log of a node: one stream for the replicas of all groups, and one flush for all that waits.
//!
//! [`Wal::open`] makes the log of each replica again, as [`DurableLog`]. What replicas change from then on is [appended](Wal::append),
//! and is on the disk when the answer comes. What was never acknowledged may be torn by a crash, and is cut off; what had been on the
//! disk and is not there any more is damage, and the log is refused. The design page on the write-ahead log has the format byte by byte.
//!
//! Snapshots themselves are kept elsewhere: the log has their heads. A snapshot has to be on the disk before
//! [`Write::Install`] or [`Write::Compact`] of it is appended.
//!
//! ```
//! use primacy_core::log::{Ballot, ReplicaId, Write};
//! use primacy_core::{CandidateId, Token};
//! use primacy_kv::wal::{GroupId, Settings, Wal};
//!
//! # let place = tempfile::tempdir()?;
//! # let folder = place.path().join("wal");
//! let settings = Settings::new(7).creating().segments_of(1 << 20);
//! let opened = Wal::open::<Vec<u8>>(&folder, settings)?;
//! let (wal, group) = (opened.wal, GroupId(1));
//! wal.begin(group, ReplicaId::from_bits(1), None, |begun| assert!(begun.is_ok()))?;
//! let promise = Ballot { token: Token::new(3).expect("small"), id: CandidateId::from_bits(2) };
//! wal.append::<Vec<u8>>(group, &[Write::Promise(promise)], |written| assert!(written.is_ok()))?;
//! drop(wal);
//!
//! let again = Wal::open::<Vec<u8>>(&folder, settings)?;
//! assert_eq!(again.replicas[0].log.promised(), promise);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod disk;
mod error;
mod flaws;
#[cfg(feature = "server")]
mod folder;
mod group;
mod keeper;
mod queue;
mod record;
mod recovery;
mod report;
mod segment;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use disk::{Disk, LOCK};
pub use error::{AppendError, DiskFailure, OpenError};
#[cfg(feature = "flaws")]
pub use flaws::Flaw as PlantedFlaw;
use flaws::Planted;
#[cfg(feature = "server")]
pub use folder::check;
use keeper::{Keeper, SPARE, Trouble};
use primacy_core::log::{Config, DurableLog, Payload, ReplicaId, Write};
use queue::{Batch, Item, Queue};
use recovery::{CUT, Mending};
pub use report::{Report, SegmentReport, Tail};
use segment::{Header, Kind};
use writer::{Active, Standing, Writer};

/// The number of a group: of one replicated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    node: u128,
    create: bool,
    segment_bytes: u32,
    queue_bytes: usize,
    quiet: Duration,
    planted: Planted,
}

/// How long a segment is.
pub const SEGMENT_BYTES: u32 = 64 << 20;

/// How long nothing has to be appended until the last batch is marked as written.
const QUIET: Duration = Duration::from_millis(5);

impl Settings {
    /// Those of a node that has been there before. `node`: random bits that were drawn when it was made. A folder of another node is
    /// refused.
    pub const fn new(node: u128) -> Self {
        Self {
            node,
            create: false,
            segment_bytes: SEGMENT_BYTES,
            queue_bytes: 64 << 20,
            quiet: QUIET,
            planted: Planted::NONE,
        }
    }

    /// The same, and a log is made if there is none. A node that has been there before must not do that: it would have forgotten its
    /// promises.
    #[must_use]
    pub const fn creating(self) -> Self {
        Self { create: true, ..self }
    }

    /// The same, and the files that are made from now on have this length: [`SEGMENT_BYTES`], unless it is for a test. One record has at most a
    /// quarter of it.
    #[must_use]
    pub const fn segments_of(self, segment_bytes: u32) -> Self {
        Self { segment_bytes, ..self }
    }

    /// The same, and this many bytes may wait for the writer before who appends has to wait too.
    #[must_use]
    pub const fn queue_of(self, queue_bytes: usize) -> Self {
        Self { queue_bytes, ..self }
    }

    /// The same, with this bug.
    #[cfg(feature = "flaws")]
    #[must_use]
    pub const fn planting(self, flaw: PlantedFlaw) -> Self {
        Self { planted: Planted::of(Some(flaw)), ..self }
    }

    /// The same, and the last batch is marked after this time without another.
    #[cfg(test)]
    const fn marking_after(self, quiet: Duration) -> Self {
        Self { quiet, ..self }
    }

    fn check(&self) -> Result<(), OpenError> {
        if !(1 << 12..=1 << 30).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(8) {
            return Err(OpenError::Settings("segments have 4 KiB to 1 GiB, and a multiple of 8 bytes"));
        }
        Ok(())
    }
}

/// A replica that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered<B> {
    /// Its group.
    pub group: GroupId,
    /// Its identity.
    pub replica: ReplicaId,
    /// What it has kept.
    pub log: DurableLog<B>,
}

/// A log that was opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened<B> {
    /// To go on with.
    pub wal: Wal,
    /// The replicas, in the order of their groups.
    pub replicas: Vec<Recovered<B>>,
    /// What was found before. A torn tail that is named in it is cut off by now.
    pub report: Report,
}

/// How a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// How many segments there are.
    pub segments: u64,
    /// The groups that need the oldest one. It goes when they have a snapshot, or their entries are in later segments.
    pub holding: Vec<GroupId>,
    /// Why no file could be allocated ahead or removed, if so. Nothing is lost by it yet, but what is appended fails when the room that was
    /// allocated is used up.
    pub trouble: Option<String>,
}

impl Status {
    fn of(standing: &Mutex<Standing>, trouble: Option<String>) -> Self {
        let Standing { segments, holding } = standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { segments, holding, trouble }
    }
}

/// What a log that can be written to consists of.
struct Parts<B> {
    writer: Writer,
    replicas: Vec<Recovered<B>>,
    report: Report,
    trouble: Trouble,
}

/// The write-ahead log of a node. When it is dropped, what was appended is still written, and the folder is free for another process.
pub struct Wal {
    queue: Arc<Queue>,
    standing: Arc<Mutex<Standing>>,
    trouble: Trouble,
    largest_record: usize,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal").finish_non_exhaustive()
    }
}

impl Wal {
    /// The writer of the log on this disk, with a keeper that is made by `start`.
    fn begin_on<B: Payload + From<Vec<u8>>>(
        disk: Arc<dyn Disk>,
        settings: Settings,
        start: fn(Arc<dyn Disk>, u32, u64, Trouble) -> io::Result<Keeper>,
    ) -> Result<Parts<B>, OpenError> {
        let at = |name: &str| {
            let path = disk.path(name);
            |source| OpenError::Disk { path, source }
        };
        let mut report = Report::default();
        let (segment, oldest, groups) = match recovery::scan(&*disk, Some(settings.node), &mut report)? {
            Some(scan) => {
                let groups = finish(&*disk, scan.oldest, scan.groups)?;
                let mending = flaws::mending(settings.planted, scan.mending, scan.end);
                let name = segment::name(scan.header.sequence);
                if mending.is_cut && !mending.was_cut {
                    note_cut(&*disk).map_err(at(CUT))?;
                }
                let file = go_on(&*disk, scan.header, &mending).map_err(at(&name))?;
                (Active::new(file, scan.header, scan.end), scan.oldest, groups)
            }
            None if !settings.create => return Err(OpenError::Missing { folder: disk.path("") }),
            None => {
                let others = disk.list().map_err(at(""))?.into_iter().find(|name| name != LOCK && name != SPARE);
                if let Some(other) = others {
                    let why = "a log is made in an empty folder, and nothing else is kept in it".to_owned();
                    return Err(OpenError::Foreign { path: disk.path(&other), why });
                }
                let Settings { node, segment_bytes: bytes, .. } = settings;
                let file = keeper::allocate(&*disk, bytes).map_err(at(SPARE))?;
                let salt = disk.salt();
                let header = Header { node, sequence: 1, bytes, previous_end: 0, previous_mark: 0, salt };
                let begun = Active::begin(&*disk, file, header, &BTreeMap::new());
                (begun.map_err(|failure| at(SPARE)(io::Error::other(failure)))?, 1, Vec::new())
            }
        };
        let trouble = Trouble::default();
        let own = segment.sequence() + 1;
        let started = disk.another().and_then(|disk| start(disk, settings.segment_bytes, own, Arc::clone(&trouble)));
        let mut keeper = started.map_err(at(""))?;
        keeper.advance(segment.written());
        let (groups, replicas) = groups.into_iter().map(|(group, replica)| ((replica.group, group), replica)).unzip();
        let Settings { segment_bytes: bytes, quiet, planted, .. } = settings;
        let standing = Arc::default();
        let mut writer = Writer { disk, keeper, bytes, quiet, planted, groups, oldest, standing, segment };
        writer.retire();
        Ok(Parts { writer, replicas, report, trouble })
    }

    fn open_on<B: Payload + From<Vec<u8>>>(disk: Arc<dyn Disk>, settings: Settings) -> Result<Opened<B>, OpenError> {
        let path = disk.path("");
        let Parts { writer, replicas, report, trouble } = Self::begin_on(disk, settings, Keeper::start)?;
        let standing = Arc::clone(&writer.standing);
        let queue = Arc::new(Queue::new(settings.queue_bytes));
        let own = Arc::clone(&queue);
        let thread = Builder::new().name("primacy-kv-wal".into()).spawn(move || writer.run(&own));
        let thread = thread.map_err(|source| OpenError::Disk { path, source })?;
        let largest_record = settings.segment_bytes as usize / 4;
        Ok(Opened { wal: Self { queue, standing, trouble, largest_record, thread: Some(thread) }, replicas, report })
    }

    /// Begins a replica. What its group had here before is gone then. `founding`: it is one of the first replicas of a log.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn begin(
        &self,
        group: GroupId,
        replica: ReplicaId,
        founding: Option<Config>,
        done: impl FnOnce(Result<(), AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.put(vec![beginning(group, replica, founding)], one(done))
    }

    /// Writes what a replica changes. `done` is called when it is on the disk, or when nobody knows whether it is; in the order of what
    /// was appended, by the thread that writes, which waits for it: it is to hand that on, and must not append.
    /// [`Write::Aside`] is not written, since chunks of snapshots are kept elsewhere.
    ///
    /// Blocks while too much waits already.
    ///
    /// # Errors
    /// If the log is closed or has failed, or it is too large. Nothing was written, and `done` is not called.
    pub fn append<B: AsRef<[u8]>>(
        &self,
        group: GroupId,
        writes: &[Write<B>],
        done: impl FnOnce(Result<(), AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.put(vec![item(group, writes, self.largest_record)?], one(done))
    }

    /// Writes what replicas of several groups change, with one flush. `done` is called once, as that of [`append`](Self::append) is,
    /// with what became of each group's writes in their order: one that cannot follow harms no other.
    ///
    /// # Errors
    /// As [`append`](Self::append); then nothing was written of any group.
    pub fn append_all<B: AsRef<[u8]>>(
        &self,
        writes: &[(GroupId, Vec<Write<B>>)],
        done: impl FnOnce(Vec<Result<(), AppendError>>) + Send + 'static,
    ) -> Result<(), AppendError> {
        let items =
            writes.iter().map(|(group, writes)| item(*group, writes, self.largest_record)).collect::<Result<_, _>>()?;
        self.put(items, done)
    }

    fn put(
        &self,
        items: Vec<Item>,
        done: impl FnOnce(Vec<Result<(), AppendError>>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.queue.put(Batch { items, done: Box::new(done) })
    }

    /// How it is.
    pub fn status(&self) -> Status {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status::of(&self.standing, trouble)
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // Who waits when it panics sees the answer dropped.
            let _: Result<(), _> = thread.join();
        }
    }
}

/// What a replica that begins writes.
fn beginning(group: GroupId, replica: ReplicaId, founding: Option<Config>) -> Item {
    let founding = founding.and_then(|config| DurableLog::<Vec<u8>>::founding(config).snapshot().cloned());
    Item { group, records: vec![record::begin(replica, founding)] }
}

/// What one group writes, in records of at most that many bytes.
fn item<B: AsRef<[u8]>>(group: GroupId, writes: &[Write<B>], most: usize) -> Result<Item, AppendError> {
    let mut records = Vec::new();
    for write in writes {
        let fits = record::records(write, most, &mut records);
        fits.map_err(|bytes| AppendError::TooLarge { group, bytes, most })?;
    }
    Ok(Item { group, records })
}

/// For a batch of one item.
fn one(
    done: impl FnOnce(Result<(), AppendError>) + Send + 'static,
) -> impl FnOnce(Vec<Result<(), AppendError>>) + Send + 'static {
    |mut written| {
        if let Some(written) = written.pop() {
            done(written);
        }
    }
}

type Finished<B> = Vec<(group::Group, Recovered<B>)>;

/// What the groups have kept.
fn finish<B: Payload>(
    disk: &dyn Disk,
    oldest: u64,
    groups: BTreeMap<GroupId, group::Replay<B>>,
) -> Result<Finished<B>, OpenError> {
    let finish = |(group, replay): (GroupId, group::Replay<B>)| match replay.finish() {
        Ok((known, log)) => {
            let replica = known.head().replica;
            Ok((known, Recovered { group, replica, log }))
        }
        Err((first, last)) => {
            let why = format!("group {} needs its entries {first} to {last}, which are in no other file", group.0);
            Err(OpenError::SegmentMissing { path: disk.path(&segment::name(oldest.saturating_sub(1))), why })
        }
    };
    groups.into_iter().map(finish).collect()
}

/// Notes that a torn tail is being overwritten. It only has to outlive this process: after a loss of power the tail is seen again.
fn note_cut(disk: &dyn Disk) -> io::Result<()> {
    let noted = disk.create(CUT).or_else(|_| {
        keeper::give_room(disk);
        disk.create(CUT)
    });
    noted.map(drop)
}

/// Makes the last segment fit to be written to: what may be in memory alone is written once more and flushed, since an error of the
/// disk may have been told to the process before; a torn tail becomes zeros; and the segment before it says that it goes on.
fn go_on(disk: &dyn Disk, header: Header, mending: &Mending) -> io::Result<Box<dyn disk::DiskFile>> {
    // What an earlier process has named may be in memory alone. A segment must not say that the next one follows before that has its
    // name on the disk.
    disk.sync()?;
    if let Some(tag) = mending.unlinked {
        let mut end = Vec::new();
        let at = header.previous_end;
        segment::put_frame(&mut end, (tag, at, at), GroupId(0), Kind::End, &[]);
        let mut before = disk.open(&segment::name(header.sequence - 1))?;
        before.write_at(&end, at)?;
        before.sync()?;
    }
    let mut file = disk.open(&segment::name(header.sequence))?;
    file.write_at(&mending.bytes, mending.start)?;
    file.sync()?;
    if mending.is_cut || mending.was_cut {
        // If it stays or comes back, zeros are written once more where there are zeros.
        drop(disk.remove(CUT));
    }
    Ok(file)
}
