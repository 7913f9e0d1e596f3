//! The one thread that writes: all that waits, one write, one flush, then the answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::disk::{Disk, DiskFile};
use super::error::{AppendError, DiskFailure};
use super::flaws::{Flaw, Planted};
use super::group::{Change, Group, Head};
use super::keeper::{Keeper, SPARE};
use super::queue::{Batch, Item, Queue};
use super::segment::{self, FRAME, HEADER, Header, Kind, Tag, frame_length, put_frame};
use super::{GroupId, record};

/// What others may ask of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub(super) segments: u64,
    pub(super) holding: Vec<GroupId>,
}

pub(super) struct Writer {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) keeper: Keeper,
    /// How long new segments are.
    pub(super) bytes: u32,
    /// After how long without another batch the last one is marked.
    pub(super) quiet: Duration,
    pub(super) planted: Planted,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) oldest: u64,
    pub(super) standing: Arc<Mutex<Standing>>,
    pub(super) segment: Active,
}

/// The segment that is written to.
pub(super) struct Active {
    file: Box<dyn DiskFile>,
    header: Header,
    tag: Tag,
    /// All before here is on the disk.
    flushed: u32,
    /// All before here was written.
    written: u32,
    /// What is to be written next.
    pending: Vec<u8>,
}

impl Active {
    /// One that goes on where it ends.
    pub(super) fn new(file: Box<dyn DiskFile>, header: Header, end: u32) -> Self {
        Self { file, header, tag: header.tag(), flushed: end, written: end, pending: Vec::new() }
    }

    /// Makes the file that is ready a segment, in one step.
    pub(super) fn begin(
        disk: &dyn Disk,
        mut file: Box<dyn DiskFile>,
        header: Header,
        groups: &BTreeMap<GroupId, Group>,
    ) -> Result<Self, Arc<DiskFailure>> {
        let name = segment::name(header.sequence);
        let heads = record::heads(groups.iter().map(|(group, known)| (*group, known.head())));
        if HEADER as usize + frame_length(heads.len()) > header.bytes as usize / 2 {
            let source = io::Error::other("there are too many groups for segments of this size");
            return Err(failure(disk, &name, "begun")(source));
        }
        let mut bytes = header.to_bytes();
        put_frame(&mut bytes, (header.tag(), 0, HEADER), GroupId(0), Kind::Heads, &heads);
        file.write_at(&bytes, 0).and_then(|()| file.sync()).map_err(failure(disk, SPARE, "written"))?;
        disk.rename(SPARE, &name).and_then(|()| disk.sync()).map_err(failure(disk, &name, "begun"))?;
        Ok(Self::new(file, header, bytes.len() as u32))
    }

    pub(super) const fn sequence(&self) -> u64 {
        self.header.sequence
    }

    pub(super) const fn written(&self) -> u32 {
        self.written
    }

    fn end(&self) -> u32 {
        self.written + self.pending.len() as u32
    }

    /// Whether such a frame still fits, and the last one behind it.
    fn has_room(&self, body: usize) -> bool {
        self.end() as usize + frame_length(body) + FRAME as usize <= self.header.bytes as usize
    }

    fn add(&mut self, group: GroupId, kind: Kind, body: &[u8]) {
        put_frame(&mut self.pending, (self.tag, self.written, self.flushed), group, kind, body);
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.file.write_at(&self.pending, self.written)?;
            self.written = self.end();
            self.pending.clear();
        }
        Ok(())
    }
}

/// Says what happened to which file.
pub(super) fn failure(disk: &dyn Disk, name: &str, what: &'static str) -> impl FnOnce(io::Error) -> Arc<DiskFailure> {
    let path = disk.path(name);
    move |source| Arc::new(DiskFailure { path, what, source })
}

impl Writer {
    /// Writes until the queue is closed and empty, or the disk fails.
    pub(super) fn run(mut self, queue: &Queue) {
        let _ends = Ends(queue, self.disk.as_ref().path(""));
        let mut batches = queue.take();
        let failed = loop {
            if batches.is_empty() {
                break self.flush();
            }
            let written = match self.write_all(&batches) {
                Ok(written) => written,
                Err(failure) => {
                    // Nobody may append once one has been told.
                    queue.fail(&failure);
                    return batches.into_iter().for_each(|batch| batch.fail(&failure));
                }
            };
            for (batch, written) in batches.into_iter().zip(written) {
                (batch.done)(written);
            }
            batches = match self.next(queue) {
                Ok(batches) => batches,
                Err(failure) => break Err(failure),
            };
        };
        if let Err(failure) = failed {
            queue.fail(&failure);
        }
    }

    /// What waits behind a batch; empty if nothing ever will. A mark costs a write: while there is always another batch soon, that
    /// one's frames say the same.
    fn next(&mut self, queue: &Queue) -> Result<Vec<Batch>, Arc<DiskFailure>> {
        match queue.take_within(self.quiet) {
            Some(batches) if !batches.is_empty() => Ok(batches),
            last => {
                self.mark()?;
                Ok(last.unwrap_or_else(|| queue.take()))
            }
        }
    }

    /// Writes and flushes that, but for what cannot follow: what became of each item of each batch.
    pub(super) fn write_all(
        &mut self,
        batches: &[Batch],
    ) -> Result<Vec<Vec<Result<(), AppendError>>>, Arc<DiskFailure>> {
        let mut written = Vec::with_capacity(batches.len());
        for batch in batches {
            written.push(batch.items.iter().map(|item| self.add(item)).collect::<Result<_, _>>()?);
        }
        if self.planted.is(Flaw::AnswersBeforeFlush) {
            self.write()?;
        } else {
            self.flush()?;
        }
        // Before the answers, so that who has one sees in the status what it has brought about.
        self.retire();
        Ok(written)
    }

    /// Adds what is to be flushed next, or says why it cannot follow.
    fn add(&mut self, item: &Item) -> Result<Result<(), AppendError>, Arc<DiskFailure>> {
        if let Err(why) = self.check(item) {
            return Ok(Err(AppendError::Unfit { group: item.group, why }));
        }
        for record in &item.records {
            if !self.segment.has_room(record.body.len()) {
                self.roll()?;
            }
            self.segment.add(item.group, record.kind, &record.body);
            self.keeper.advance(self.segment.end());
            self.note(item.group, &record.change);
        }
        Ok(Ok(()))
    }

    /// Whether all of it can follow.
    fn check(&self, item: &Item) -> Result<(), &'static str> {
        let mut head = self.groups.get(&item.group).map(|group| group.head().clone());
        for record in &item.records {
            match (&mut head, &record.change) {
                (Some(head), change) => head.apply(change)?,
                (None, Change::Begin(replica, snapshot)) => head = Some(Head::begun(*replica, snapshot.clone())),
                (None, _) => return Err("this group has no replica here"),
            }
        }
        Ok(())
    }

    fn note(&mut self, group: GroupId, change: &Change) {
        let sequence = self.segment.header.sequence;
        match (self.groups.get_mut(&group), change) {
            (Some(known), change) => {
                let noted = known.apply(change, sequence);
                debug_assert_eq!(noted, Ok(()), "it was checked");
            }
            (None, Change::Begin(replica, snapshot)) => {
                self.groups.insert(group, Group::new(Head::begun(*replica, snapshot.clone())));
            }
            (None, _) => {}
        }
    }

    /// Returns when all that was added is on the disk.
    fn flush(&mut self) -> Result<(), Arc<DiskFailure>> {
        self.write()?;
        let Self { disk, segment, .. } = self;
        if segment.flushed < segment.written {
            let name = segment::name(segment.header.sequence);
            segment.file.sync().map_err(failure(&**disk, &name, "flushed"))?;
            segment.flushed = segment.written;
        }
        Ok(())
    }

    /// Nothing has come for a while: says that all before is on the disk, so that damage of the last records can be told from a torn
    /// tail. That is not flushed by itself.
    pub(super) fn mark(&mut self) -> Result<(), Arc<DiskFailure>> {
        let segment = &mut self.segment;
        if segment.flushed < segment.written || !segment.has_room(0) {
            return Ok(());
        }
        segment.add(GroupId(0), Kind::Mark, &[]);
        self.write()
    }

    /// Writes what was added, without a flush.
    fn write(&mut self) -> Result<(), Arc<DiskFailure>> {
        let Self { disk, segment, .. } = self;
        segment.write().map_err(failure(&**disk, &segment::name(segment.header.sequence), "written"))
    }

    /// Goes on in the next segment.
    fn roll(&mut self) -> Result<(), Arc<DiskFailure>> {
        self.flush()?;
        let Header { node, sequence, .. } = self.segment.header;
        let next = segment::name(sequence + 1);
        let file = self.keeper.spare().map_err(failure(&*self.disk, &next, "allocated"))?;
        let header = Header {
            node,
            sequence: sequence + 1,
            bytes: self.bytes,
            previous_end: self.segment.end(),
            previous_mark: self.segment.tag.mark,
            salt: self.disk.salt(),
        };
        let begun = Active::begin(&*self.disk, file, header, &self.groups)?;
        // Only now, and before anything is written to the new one: so the last segment says that it is the last.
        self.segment.add(GroupId(0), Kind::End, &[]);
        self.flush()?;
        self.segment = begun;
        Ok(())
    }

    /// Has the segments removed that no group needs, and says which are left.
    pub(super) fn retire(&mut self) {
        let active = self.segment.header.sequence;
        let needed = self.groups.values().filter_map(Group::oldest).min().unwrap_or(active);
        if needed > self.oldest {
            (self.oldest..needed).for_each(|sequence| self.keeper.retire(sequence));
            self.oldest = needed;
        }
        let holds = |group: &Group| group.oldest() == Some(self.oldest);
        let holding = self.groups.iter().filter(|(_, group)| holds(group)).map(|(group, _)| *group).collect();
        let segments = active - self.oldest + 1;
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = Standing { segments, holding };
    }
}

/// Says it to all who wait in the queue if the writer panics. Those whose batches it has in hand see their answers dropped.
struct Ends<'a>(&'a Queue, std::path::PathBuf);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let source = io::Error::other("the writer has panicked");
            self.0.fail(&Arc::new(DiskFailure { path: self.1.clone(), what: "written", source }));
        }
    }
}
