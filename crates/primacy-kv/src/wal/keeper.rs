//! The thread that has the next segment's file ready before it is needed, and takes away segments that nobody needs any more.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::disk::{Disk, DiskFile};
use super::segment;

/// What is ready for the next segment has this name.
pub(super) const SPARE: &str = "spare";
/// A segment that nobody needs any more, and that is to be used again, has its name with this ending.
const FREE: &str = ".free";
/// How many of them are kept. Several segments may go at once, when a group's snapshot sets them free: what is more is removed file by
/// file, since flushes of the log wait for each removal.
const FREE_MAX: usize = 4;
/// After how long without anything else to do one is removed that is too many.
const STILL: Duration = Duration::from_millis(250);

/// How much of a file of zeros is written and flushed at once. A flush of the log queues behind that much at most.
const CHUNK: u32 = 1 << 20;

enum Job {
    /// Has the next file ready up to there. If that is all of it, the answer is what came of it.
    Fill(u32),
    Retire(u64),
}

/// The writer's end of it.
pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    spares: Receiver<Made>,
    thread: Option<JoinHandle<()>>,
    /// Who does the jobs if there is no thread.
    inline: Option<RefCell<Files>>,
    /// How long a segment is.
    bytes: u32,
    /// Up to where the next file was asked for. When that is all of it, there is an answer to be had.
    asked: u32,
}

/// A file that was made ready.
type Made = io::Result<Box<dyn DiskFile>>;

/// What went wrong last with a file that no answer waits for.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// What the thread works on.
struct Files {
    disk: Arc<dyn Disk>,
    /// How long a segment is.
    bytes: u32,
    /// Segments from this one on are that long: this process began them.
    own: u64,
    /// Names of files that can be used again.
    free: Vec<String>,
    /// The file that is being made ready.
    next: Option<Spare>,
    /// After a failure no segment goes any more, so that none is ever missing in the middle.
    may_retire: bool,
    trouble: Trouble,
    ready: Sender<Made>,
}

impl Keeper {
    /// Starts the thread for files of this many bytes. `own`: the first segment that this process begins.
    pub(super) fn start(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble) -> io::Result<Self> {
        let ((jobs, todo), (ready, spares)) = (channel(), channel());
        let mut files = Files::new(disk, bytes, own, trouble, ready);
        let work = move || {
            files.clear();
            while let Some(job) = files.wait(&todo) {
                files.carry_out(job);
            }
        };
        let thread = Builder::new().name("primacy-kv-files".into()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), spares, thread: Some(thread), inline: None, bytes, asked: 0 })
    }

    /// As [`start`](Self::start), and each job is done by who asks for it.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn inline(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble) -> io::Result<Self> {
        let (ready, spares) = channel();
        let files = Files::new(disk, bytes, own, trouble, ready);
        files.clear();
        Ok(Self { jobs: None, spares, thread: None, inline: Some(RefCell::new(files)), bytes, asked: 0 })
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // It ends with its sender. If it panicked, no spare comes, and that is told.
            let _: Result<(), _> = jobs.send(job);
        } else if let Some(files) = &self.inline {
            files.borrow_mut().carry_out(job);
        }
    }

    fn fill(&mut self, to: u32) {
        self.asked = to;
        self.ask(Job::Fill(to));
    }

    /// The segment that is written to is full up to there. The next file keeps twice as far ahead, and is ready when that one is half
    /// full: so what its zeros cost is spread over all that time.
    pub(super) fn advance(&mut self, end: u32) {
        let wanted = end.saturating_mul(2).saturating_add(CHUNK).min(self.bytes);
        if wanted >= self.asked.saturating_add(CHUNK).min(self.bytes) && self.asked < self.bytes {
            self.fill(wanted);
        }
    }

    /// Waits for the next file. If making it ready has failed it is tried once more, since there may be room by now.
    pub(super) fn spare(&mut self) -> io::Result<Box<dyn DiskFile>> {
        if self.asked < self.bytes {
            self.fill(self.bytes);
        }
        let spare = self.wait().or_else(|_| {
            self.fill(self.bytes);
            self.wait()
        });
        self.asked = 0;
        spare
    }

    fn wait(&self) -> io::Result<Box<dyn DiskFile>> {
        self.spares.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for files is gone")))
    }

    /// Nobody needs that segment, nor any before it.
    pub(super) fn retire(&self, sequence: u64) {
        self.ask(Job::Retire(sequence));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was said already.
            let _: Result<(), _> = thread.join();
        }
    }
}

impl Files {
    fn new(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble, ready: Sender<Made>) -> Self {
        Self { disk, bytes, own, free: Vec::new(), next: None, may_retire: true, trouble, ready }
    }

    fn carry_out(&mut self, job: Job) {
        match job {
            Job::Fill(to) => {
                let filled = self.fill(to);
                if to == self.bytes {
                    let made = filled.and_then(|()| self.taken());
                    // If its writer is gone, so is the need.
                    drop(self.ready.send(made));
                    self.shrink();
                }
            }
            Job::Retire(sequence) => self.retire(sequence),
        }
    }

    /// Removes what an earlier process would have used again: it may be of another length.
    fn clear(&self) {
        let names = self.disk.list().unwrap_or_default();
        // What stays is in the way of nothing, and the next opening tries again.
        names.iter().filter(|name| name.ends_with(FREE)).for_each(|name| drop(remove(&*self.disk, name)));
    }

    /// What is to be done next, unless nothing ever will be.
    fn wait(&mut self, todo: &Receiver<Job>) -> Option<Job> {
        while self.free.len() > FREE_MAX {
            match todo.recv_timeout(STILL) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.shrink(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        todo.recv().ok()
    }

    /// Removes one of the files that wait, if they are too many. If that fails it is removed at the next opening.
    fn shrink(&mut self) {
        if self.free.len() > FREE_MAX
            && let Some(name) = self.free.pop()
        {
            drop(remove(&*self.disk, &name));
        }
    }

    /// Has a segment's file ready up to there, under the name of what is ready.
    fn fill(&mut self, to: u32) -> io::Result<()> {
        let filled = self.try_fill(to);
        if filled.is_err() {
            self.next = None;
        }
        let failure = filled.as_ref().err().map(|error| told(&*self.disk, SPARE, error));
        if failure.is_some() || self.may_retire {
            self.tell(failure);
        }
        filled
    }

    fn try_fill(&mut self, to: u32) -> io::Result<()> {
        let next = match (&mut self.next, self.free.pop()) {
            (Some(next), free) => {
                self.free.extend(free);
                next
            }
            (next, None) => next.insert(Spare::zeros(&*self.disk, self.bytes)?),
            (next, Some(free)) => {
                let file = reuse(&*self.disk, &free).inspect_err(|_| drop(remove(&*self.disk, &free)))?;
                next.insert(Spare { file, ready: self.bytes })
            }
        };
        next.fill(&*self.disk, to)
    }

    /// What is ready is the writer's now.
    fn taken(&mut self) -> io::Result<Box<dyn DiskFile>> {
        self.next.take().map(|next| next.file).ok_or_else(|| io::Error::other("no file was made ready"))
    }

    /// Takes a segment away. Its old name is gone from the disk before anything else is done, also to what was in it.
    fn retire(&mut self, sequence: u64) {
        if !self.may_retire {
            return;
        }
        let name = segment::name(sequence);
        let free = format!("{name}{FREE}");
        // Another name may need room where to remove one needs none.
        let is_kept = sequence >= self.own && self.disk.rename(&name, &free).is_ok();
        let gone = if is_kept { Ok(()) } else { self.disk.remove(&name) };
        match gone.and_then(|()| self.disk.sync()) {
            Ok(()) if is_kept => self.free.push(free),
            Ok(()) => {}
            Err(error) => {
                self.may_retire = false;
                self.tell(Some(told(&*self.disk, &name, &error)));
            }
        }
    }

    fn tell(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// Makes a file ready that was a segment. Its blocks are there and written, and so a flush of the log has nothing else to write; what is
/// in it is of other segments, and is not read as if it were of this one.
fn reuse(disk: &dyn Disk, name: &str) -> io::Result<Box<dyn DiskFile>> {
    let file = disk.open(name)?;
    disk.rename(name, SPARE)?;
    Ok(file)
}

/// A file for a segment.
struct Spare {
    file: Box<dyn DiskFile>,
    /// Its blocks are there and written before here.
    ready: u32,
}

impl Spare {
    /// A file of this many bytes in which nothing is ready yet, and for which there is room.
    fn zeros(disk: &dyn Disk, bytes: u32) -> io::Result<Self> {
        remove(disk, SPARE)?;
        let mut file = disk.create(SPARE)?;
        file.reserve(bytes).inspect_err(|_| drop(remove(disk, SPARE)))?;
        Ok(Self { file, ready: 0 })
    }

    /// Makes it ready up to there. Zeros are written, since blocks that are only reserved are marked as written by the first flush that
    /// needs them, which is one more write elsewhere.
    fn fill(&mut self, disk: &dyn Disk, to: u32) -> io::Result<()> {
        let zeros = vec![0; CHUNK.min(to.saturating_sub(self.ready)) as usize];
        while self.ready < to {
            let chunk = &zeros[..CHUNK.min(to - self.ready) as usize];
            let written = self.file.write_at(chunk, self.ready).and_then(|()| self.file.sync());
            // What a failure has taken of the room is given back, if that can be done.
            written.inspect_err(|_| drop(remove(disk, SPARE)))?;
            self.ready += chunk.len() as u32;
        }
        Ok(())
    }
}

/// Makes a file of zeros.
pub(super) fn allocate(disk: &dyn Disk, bytes: u32) -> io::Result<Box<dyn DiskFile>> {
    let mut spare = Spare::zeros(disk, bytes)?;
    spare.fill(disk, bytes)?;
    Ok(spare.file)
}

fn told(disk: &dyn Disk, name: &str, error: &io::Error) -> String {
    format!("{}: {error}", disk.path(name).display())
}

fn remove(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
