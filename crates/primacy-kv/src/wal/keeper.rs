//! The thread that has the next segment's file ready before it is needed, and takes away segments that nobody needs any more.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::disk::{Disk, DiskFile};
use super::segment;

/// What is ready for the next segment has this name.
pub(super) const SPARE: &str = "spare";
/// A segment that nobody needs any more, and that is to be used again, has its name with this ending.
const FREE: &str = ".free";
/// How many of them are kept: several segments may go at once, when a group's snapshot sets them free.
const FREE_MAX: usize = 4;

enum Job {
    Prepare,
    Retire(u64),
}

/// The writer's end of it.
pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    spares: Receiver<io::Result<Box<dyn DiskFile>>>,
    thread: Option<JoinHandle<()>>,
}

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
    /// After a failure no segment goes any more, so that none is ever missing in the middle.
    may_retire: bool,
    trouble: Trouble,
}

impl Keeper {
    /// Starts the thread, and has the first file of this many bytes made ready. `own`: the first segment that this process begins.
    pub(super) fn start(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble) -> io::Result<Self> {
        let ((jobs, todo), (ready, spares)) = (channel(), channel());
        let mut files = Files { disk, bytes, own, free: Vec::new(), may_retire: true, trouble };
        let work = move || {
            files.clear();
            for job in todo {
                match job {
                    // If its writer is gone, so is the need.
                    Job::Prepare => drop(ready.send(files.prepare())),
                    Job::Retire(sequence) => files.retire(sequence),
                }
            }
        };
        let thread = Builder::new().name("primacy-kv-files".into()).spawn(work)?;
        let keeper = Self { jobs: Some(jobs), spares, thread: Some(thread) };
        keeper.ask(Job::Prepare);
        Ok(keeper)
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // It ends with its sender. If it panicked, no spare comes, and that is told.
            let _: Result<(), _> = jobs.send(job);
        }
    }

    /// Waits for the file that is made ready. If that has failed it is tried once more, since there may be room by now.
    pub(super) fn spare(&self) -> io::Result<Box<dyn DiskFile>> {
        let wait = || self.spares.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for files is gone")));
        wait().or_else(|_| {
            self.ask(Job::Prepare);
            wait()
        })
    }

    /// The file has its name by now: the next one can be made ready.
    pub(super) fn used(&self) {
        self.ask(Job::Prepare);
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
    /// Removes what an earlier process would have used again: it may be of another length.
    fn clear(&self) {
        let names = self.disk.list().unwrap_or_default();
        // What stays is in the way of nothing, and the next opening tries again.
        names.iter().filter(|name| name.ends_with(FREE)).for_each(|name| drop(remove(&*self.disk, name)));
    }

    /// A segment's file, under the name of what is ready.
    fn prepare(&mut self) -> io::Result<Box<dyn DiskFile>> {
        let made = match self.free.pop() {
            Some(name) => reuse(&*self.disk, &name).inspect_err(|_| drop(remove(&*self.disk, &name))),
            None => allocate(&*self.disk, self.bytes),
        };
        let failure = made.as_ref().err().map(|error| told(&*self.disk, SPARE, error));
        if failure.is_some() || self.may_retire {
            self.tell(failure);
        }
        made
    }

    /// Takes a segment away. Its old name is gone from the disk before anything else is done, also to what was in it.
    fn retire(&mut self, sequence: u64) {
        if !self.may_retire {
            return;
        }
        let name = segment::name(sequence);
        let free = format!("{name}{FREE}");
        // Another name may need room where to remove one needs none.
        let is_kept = sequence >= self.own && self.free.len() < FREE_MAX && self.disk.rename(&name, &free).is_ok();
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

/// Makes a file of zeros. They are written, since blocks that are only reserved are marked as written by the first flush that needs
/// them, which is one more write elsewhere.
pub(super) fn allocate(disk: &dyn Disk, bytes: u32) -> io::Result<Box<dyn DiskFile>> {
    const CHUNK: u32 = 1 << 20;
    remove(disk, SPARE)?;
    let mut file = disk.create(SPARE)?;
    let zeros = vec![0; CHUNK.min(bytes) as usize];
    for start in (0..bytes).step_by(CHUNK as usize) {
        // Chunk by chunk, so that flushes of the log do not queue behind all of it.
        let chunk = &zeros[..CHUNK.min(bytes - start) as usize];
        let written = file.write_at(chunk, start).and_then(|()| file.sync());
        if let Err(error) = written {
            // What it took of the room is given back, if that can be done.
            let _: io::Result<()> = remove(disk, SPARE);
            return Err(error);
        }
    }
    Ok(file)
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
