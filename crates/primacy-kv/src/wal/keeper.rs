//! The thread that has the next segment's file ready before it is needed, and takes away segments that nobody needs any more.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::disk::{Disk, DiskFile};
use super::segment;

/// What is ready for the next segment has this name.
pub(super) const SPARE: &str = "spare";
/// A segment that nobody needs any more, and that is to be used again or removed, has its name with this ending.
const FREE: &str = ".free";
/// How many of them are kept to be used again.
const FREE_MAX: usize = 4;
/// After how long without anything else to do a file is removed that is too many, or more of the next one is made ready.
const STILL: Duration = Duration::from_millis(250);

/// How much of a file of that many bytes is made ready at once. A flush of the log queues behind that much at most.
fn chunk(bytes: u32) -> u32 {
    (bytes / 8).clamp(1, 1 << 20)
}

enum Job {
    /// Has the next file ready up to there. If that is all of it, the answer is what came of it.
    Fill(u32),
    Retire(u64),
}

/// The writer's end of it.
pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    spares: Receiver<FileResult>,
    thread: Option<JoinHandle<()>>,
    /// Who does the jobs if there is no thread.
    inline: Option<RefCell<Files>>,
    /// How long a segment is.
    bytes: u32,
    /// Up to where the next file was asked for. When that is all of it, there is an answer to be had.
    asked: u32,
}

/// A file that is ready, or why there is none.
type FileResult = io::Result<Box<dyn DiskFile>>;

/// What went wrong last with a file that no answer waits for.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// What the thread works on, and what it has still to do.
struct Files {
    disk: Arc<dyn Disk>,
    /// How long a segment is.
    bytes: u32,
    /// Segments from this one on are that long: this process began them.
    own: u64,
    /// Names of files that can be used again.
    free: Vec<String>,
    /// Names of files that are to be removed. Flushes of the log wait for each removal, so they go one by one.
    surplus: Vec<String>,
    /// The segments that are to go, in order.
    retiring: VecDeque<u64>,
    /// The file that is being made ready.
    next: Option<Spare>,
    /// Up to where it is wanted. If that is all of it, somebody waits for the answer.
    wanted: u32,
    /// Why making it ready has failed. It is not tried again before all of it is wanted: each trial may take all the room that is left.
    not_filled: Option<String>,
    /// Why a segment could not be taken away. None goes any more then, so that none is ever missing in the middle.
    not_retired: Option<String>,
    trouble: Trouble,
    ready: Sender<FileResult>,
}

impl Keeper {
    /// Starts the thread for files of this many bytes. `own`: the first segment that this process begins.
    pub(super) fn start(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble) -> io::Result<Self> {
        let ((jobs, todo), (ready, spares)) = (channel(), channel());
        let mut files = Files::new(disk, bytes, own, trouble, ready);
        let work = move || while files.work(&todo) {};
        let thread = Builder::new().name("primacy-kv-files".into()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), spares, thread: Some(thread), inline: None, bytes, asked: 0 })
    }

    /// As [`start`](Self::start), and each job is done by who asks for it.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn inline(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble) -> io::Result<Self> {
        let (ready, spares) = channel();
        let files = Files::new(disk, bytes, own, trouble, ready);
        Ok(Self { jobs: None, spares, thread: None, inline: Some(RefCell::new(files)), bytes, asked: 0 })
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // It ends with its sender. If it panicked, no spare comes, and that is told.
            let _: Result<(), _> = jobs.send(job);
        } else if let Some(files) = &self.inline {
            let mut files = files.borrow_mut();
            files.note(job);
            while files.step() {}
        }
    }

    /// Without a thread: nothing was asked for in a while.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn rest(&self) {
        if let Some(files) = &self.inline {
            files.borrow_mut().do_more();
        }
    }

    fn fill(&mut self, to: u32) {
        self.asked = to;
        self.ask(Job::Fill(to));
    }

    /// The segment that is written to is full up to there. The next file keeps twice as far ahead, and is ready when that one is half
    /// full: so what its zeros cost is spread over all that time.
    pub(super) fn advance(&mut self, end: u32) {
        let chunk = chunk(self.bytes);
        let wanted = end.saturating_mul(2).saturating_add(chunk).min(self.bytes);
        if self.asked < self.bytes && wanted >= self.asked.saturating_add(chunk).min(self.bytes) {
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
    fn new(disk: Arc<dyn Disk>, bytes: u32, own: u64, trouble: Trouble, ready: Sender<FileResult>) -> Self {
        // What an earlier process would have used again may be of another length.
        let surplus = disk.list().unwrap_or_default().into_iter().filter(|name| name.ends_with(FREE)).collect();
        Self {
            disk,
            bytes,
            own,
            free: Vec::new(),
            surplus,
            retiring: VecDeque::new(),
            next: None,
            wanted: 0,
            not_filled: None,
            not_retired: None,
            trouble,
            ready,
        }
    }

    /// Does what is most urgent of what there is to do, or waits for more. Returns whether there will ever be more.
    fn work(&mut self, todo: &Receiver<Job>) -> bool {
        // All that was asked for is known before anything is done.
        let asked = match todo.try_recv() {
            Err(TryRecvError::Empty) if self.step() => return true,
            Err(TryRecvError::Empty) if self.has_more() => todo.recv_timeout(STILL),
            Err(TryRecvError::Empty) => todo.recv().map_err(Into::into),
            asked => asked.map_err(|_| RecvTimeoutError::Disconnected),
        };
        match asked {
            Ok(job) => self.note(job),
            Err(RecvTimeoutError::Timeout) => self.do_more(),
            Err(RecvTimeoutError::Disconnected) => {
                self.give_room();
                return false;
            }
        }
        true
    }

    /// Whether something is of use that nobody has asked for.
    fn has_more(&self) -> bool {
        !self.surplus.is_empty() || self.free.len() > FREE_MAX || self.may_go_on()
    }

    /// Does some of that.
    fn do_more(&mut self) {
        if !self.shrink() && self.may_go_on() {
            self.fill(self.bytes);
        }
    }

    /// Whether more of the next file may be made ready than is wanted. Not before any of it is: the one before may still have its name.
    fn may_go_on(&self) -> bool {
        self.wanted > 0 && self.may_fill(self.bytes)
    }

    fn note(&mut self, job: Job) {
        match job {
            Job::Fill(to) => {
                self.wanted = to;
                self.not_filled.take_if(|_| to == self.bytes);
            }
            Job::Retire(sequence) => self.retiring.push_back(sequence),
        }
    }

    /// Does something that was asked for; returns whether there was anything. The next file comes first, since the writer may wait for
    /// it.
    fn step(&mut self) -> bool {
        if self.fill(self.wanted) {
            return true;
        }
        let retiring = self.retiring.pop_front();
        retiring.into_iter().for_each(|sequence| self.retire(sequence));
        retiring.is_some()
    }

    /// Takes all segments away that are to go, and removes all files that are too many.
    fn give_room(&mut self) {
        while let Some(sequence) = self.retiring.pop_front() {
            self.retire(sequence);
        }
        while self.shrink() {}
    }

    /// Removes a file that is too many, if there is one. If that fails it is removed at the next opening.
    fn shrink(&mut self) -> bool {
        if self.free.len() > FREE_MAX {
            self.surplus.extend(self.free.pop());
        }
        let name = self.surplus.pop();
        name.iter().for_each(|name| drop(remove(&*self.disk, name)));
        name.is_some()
    }

    /// Whether some of the next file is to be made ready, if it is wanted up to there.
    fn may_fill(&self, to: u32) -> bool {
        let ready = self.next.as_ref().map_or(0, |next| next.ready);
        self.not_filled.is_none() && (ready < to || self.wanted == self.bytes)
    }

    /// Has some more of the next file ready, if it is wanted up to there, under the name of what is ready; tells when it is whole, if
    /// that is awaited. Returns whether there was anything to do.
    fn fill(&mut self, to: u32) -> bool {
        if !self.may_fill(to) {
            return false;
        }
        let mut filled = self.try_fill(to);
        if filled.is_err() && self.wanted == self.bytes {
            // The writer ends if this fails twice.
            self.next = None;
            self.give_room();
            filled = self.try_fill(to);
        }
        self.not_filled = filled.as_ref().err().map(|error| told(&*self.disk, SPARE, error));
        if self.not_filled.is_some() {
            self.next = None;
        }
        self.tell();
        if self.wanted == self.bytes {
            let made = match filled {
                Ok(()) => self.next.take_if(|next| next.ready >= self.bytes).map(|next| Ok(next.file)),
                Err(error) => Some(Err(error)),
            };
            if let Some(made) = made {
                self.wanted = 0;
                // If its writer is gone, so is the need.
                drop(self.ready.send(made));
                self.shrink();
            }
        }
        true
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
        next.fill(&*self.disk, to.min(next.ready.saturating_add(chunk(self.bytes))))
    }

    /// Takes a segment away. Its old name is gone from the disk before anything else is done, also to what was in it.
    fn retire(&mut self, sequence: u64) {
        if self.not_retired.is_some() {
            return;
        }
        let name = segment::name(sequence);
        let free = format!("{name}{FREE}");
        // Another name may need room where to remove one needs none.
        let is_renamed = self.disk.rename(&name, &free).is_ok();
        let gone = if is_renamed { Ok(()) } else { self.disk.remove(&name) };
        match gone.and_then(|()| self.disk.sync()) {
            Ok(()) if is_renamed && sequence >= self.own => self.free.push(free),
            Ok(()) if is_renamed => self.surplus.push(free),
            Ok(()) => {}
            Err(error) => {
                self.not_retired = Some(told(&*self.disk, &name, &error));
                self.tell();
            }
        }
    }

    fn tell(&self) {
        let troubles: Vec<&str> =
            [&self.not_filled, &self.not_retired].into_iter().filter_map(Option::as_deref).collect();
        let trouble = (!troubles.is_empty()).then(|| troubles.join("; "));
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
        let zeros = vec![0; to.saturating_sub(self.ready) as usize];
        if !zeros.is_empty() {
            let written = self.file.write_at(&zeros, self.ready).and_then(|()| self.file.sync());
            // What a failure has taken of the room is given back, if that can be done.
            written.inspect_err(|_| drop(remove(disk, SPARE)))?;
            self.ready = to;
        }
        Ok(())
    }
}

/// Gives the room back of files that hold nothing.
pub(super) fn give_room(disk: &dyn Disk) {
    let names = disk.list().unwrap_or_default();
    names.iter().filter(|name| *name == SPARE || name.ends_with(FREE)).for_each(|name| drop(remove(disk, name)));
}

/// Makes a file of zeros.
pub(super) fn allocate(disk: &dyn Disk, bytes: u32) -> io::Result<Box<dyn DiskFile>> {
    let mut spare = Spare::zeros(disk, bytes)?;
    while spare.ready < bytes {
        spare.fill(disk, bytes.min(spare.ready + chunk(bytes)))?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::simulation::{Fault, Image, MemoryDisk};

    const BYTES: u32 = 4096;

    fn files(disk: &MemoryDisk) -> (Files, Receiver<FileResult>) {
        let (ready, spares) = channel();
        (Files::new(Arc::new(disk.clone()), BYTES, 1, Trouble::default(), ready), spares)
    }

    #[test]
    fn in_quiet_times_the_next_file_becomes_whole_and_the_one_that_was_handed_over_keeps_its_name() {
        let disk = MemoryDisk::holding(&Image::new(), 1, 512);
        let (mut files, spares) = files(&disk);
        files.note(Job::Fill(512));
        while files.step() {}
        let mut more = 0;
        while files.has_more() {
            files.do_more();
            more += 1;
        }
        assert_eq!(more, 7, "a chunk each time");
        files.note(Job::Fill(BYTES));
        while files.step() {}
        let mut file = spares.try_recv().expect("it is whole").expect("the disk works");
        file.write_at(b"handed over", 0).expect("the disk works");
        assert!(!files.has_more());
        for _ in 0..3 {
            files.do_more();
        }
        assert!(disk.image()[SPARE].starts_with(b"handed over"), "it waits to be named");
    }

    #[test]
    fn what_an_earlier_process_has_left_and_what_is_too_much_goes_file_by_file() {
        let left = |n: u64| (format!("{}{FREE}", segment::name(n)), vec![0; BYTES as usize]);
        let segments = (3..10).map(|n| (segment::name(n), vec![0; BYTES as usize]));
        let disk = MemoryDisk::holding(&(1..3).map(left).chain(segments).collect(), 1, 512);
        let (mut files, _spares) = files(&disk);
        (3..10).for_each(|n| files.note(Job::Retire(n)));
        // The next file comes first.
        files.note(Job::Fill(512));
        assert!(files.step());
        assert_eq!(disk.image()[SPARE].len(), BYTES as usize);
        while files.step() {}
        let mut counts = vec![disk.image().len()];
        while disk.image().len() > FREE_MAX + 1 {
            files.do_more();
            counts.push(disk.image().len());
        }
        assert_eq!(counts, (FREE_MAX + 1..=10).rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_keeps_segments_is_told_for_good_and_what_keeps_the_next_file_as_long_as_it_does() {
        let segments = (1..3).map(|n| (segment::name(n), vec![0; BYTES as usize]));
        let disk = MemoryDisk::holding(&segments.collect(), 1, 512);
        let (mut files, _spares) = files(&disk);
        let told = |files: &Files| files.trouble.lock().expect("nobody panics").clone().unwrap_or_default();
        disk.fail_at(0, Fault::Flush);
        files.note(Job::Retire(1));
        assert!(files.step());
        let kept = told(&files);
        assert!(kept.contains(&segment::name(1)), "{kept}");
        disk.fill(true);
        files.note(Job::Fill(512));
        assert!(files.step());
        let both = told(&files);
        assert!(both.contains(SPARE) && both.ends_with(&kept), "{both}");
        disk.fill(false);
        files.note(Job::Fill(BYTES));
        while files.step() {}
        assert_eq!(told(&files), kept);
        files.note(Job::Retire(2));
        assert!(files.step() && disk.image().contains_key(&segment::name(2)), "none is missing in the middle");
    }

    #[test]
    fn after_a_failure_nothing_is_tried_before_all_is_wanted_and_each_wish_for_all_is_answered_once() {
        let disk = MemoryDisk::holding(&Image::new(), 1, 512);
        let (mut files, spares) = files(&disk);
        disk.fill(true);
        files.note(Job::Fill(512));
        assert!(files.step() && !files.step() && !files.has_more());
        disk.fill(false);
        files.note(Job::Fill(1024));
        assert!(!files.step(), "it has failed");
        disk.fill(true);
        files.note(Job::Fill(BYTES));
        while files.step() {}
        assert!(spares.try_recv().expect("an answer").is_err() && spares.try_recv().is_err());
        disk.fill(false);
        files.note(Job::Fill(BYTES));
        while files.step() {}
        assert!(spares.try_recv().expect("an answer").is_ok() && spares.try_recv().is_err());
    }
}
