//! The thread that allocates the next segment before it is needed, and removes those that nobody needs any more.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::disk::{Disk, DiskFile};
use super::segment;

/// What is allocated ahead has this name.
pub(super) const SPARE: &str = "spare";

enum Job {
    Allocate,
    Remove(u64),
}

/// The writer's end of it.
pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    spares: Receiver<io::Result<Box<dyn DiskFile>>>,
    thread: Option<JoinHandle<()>>,
}

/// What went wrong last with a file that no answer waits for.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

impl Keeper {
    /// Starts the thread, and has the first file of this many bytes allocated.
    pub(super) fn start(disk: Arc<dyn Disk>, bytes: u32, trouble: Trouble) -> io::Result<Self> {
        let ((jobs, todo), (ready, spares)) = (channel(), channel());
        let work = move || {
            let mut may_remove = true;
            for job in todo {
                match job {
                    Job::Allocate => {
                        let made = allocate(&*disk, bytes);
                        let told = made.as_ref().err().map(|error| told(&*disk, SPARE, error));
                        if told.is_some() || may_remove {
                            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = told;
                        }
                        // If its writer is gone, so is the need.
                        let _: Result<(), _> = ready.send(made);
                    }
                    // One after the other, each on the disk before the next: so none is ever missing in the middle.
                    Job::Remove(sequence) if may_remove => {
                        let name = segment::name(sequence);
                        if let Err(error) = disk.remove(&name).and_then(|()| disk.sync()) {
                            may_remove = false;
                            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(told(&*disk, &name, &error));
                        }
                    }
                    Job::Remove(_) => {}
                }
            }
        };
        let thread = Builder::new().name("primacy-kv-files".into()).spawn(work)?;
        let keeper = Self { jobs: Some(jobs), spares, thread: Some(thread) };
        keeper.ask(Job::Allocate);
        Ok(keeper)
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // It ends with its sender. If it panicked, no spare comes, and that is told.
            let _: Result<(), _> = jobs.send(job);
        }
    }

    /// Waits for the file that is allocated. If that has failed it is tried once more, since there may be room by now.
    pub(super) fn spare(&self) -> io::Result<Box<dyn DiskFile>> {
        let wait = || self.spares.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for files is gone")));
        wait().or_else(|_| {
            self.ask(Job::Allocate);
            wait()
        })
    }

    /// The file has its name by now: the next one can be allocated.
    pub(super) fn used(&self) {
        self.ask(Job::Allocate);
    }

    /// Nobody needs that segment, nor any before it.
    pub(super) fn remove(&self, sequence: u64) {
        self.ask(Job::Remove(sequence));
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
