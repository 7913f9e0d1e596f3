//! A disk in memory that keeps apart what a process sees and what survives a loss of power.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wal::disk::{Disk, DiskFile};
use crate::wal::keeper::SPARE;

/// What is in a folder.
pub type Image = BTreeMap<String, Vec<u8>>;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// From then on nothing works.
    PowerLoss,
    /// A write does nothing, and says so.
    Write,
    /// A write does half, and says that it failed.
    ShortWrite,
    /// A flush fails, and the disk takes what was to be flushed for written.
    Flush,
}

/// Numbers that look random, the same for each seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below that.
    pub const fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// 48 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
}

/// A folder of such a disk. Clones are the same folder.
#[derive(Clone)]
pub struct MemoryDisk(Arc<Mutex<State>>);

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct State {
    /// How much of a file reaches the disk whole or not at all.
    sector: usize,
    /// What distinguishes segments.
    salts: Random,
    /// How often a file was used again.
    reused: u64,
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    names_on_disk: BTreeMap<String, usize>,
    renamings: Vec<Naming>,
    operations: usize,
    /// The operation at which it happens, or the next one at which it can.
    fault: Option<(usize, Fault)>,
    /// No file can become longer.
    is_full: bool,
}

#[derive(Clone, Default)]
struct Content {
    seen: Vec<u8>,
    on_disk: Vec<u8>,
    /// What the process has written since the last flush.
    pending: Vec<(usize, Vec<u8>)>,
    operations: usize,
}

#[derive(Clone)]
enum Naming {
    Create(String, usize),
    /// Of that file: no disk gives the new name to another one that had the old name before.
    Rename(String, String, usize),
    Remove(String),
}

impl Naming {
    fn carry_out(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, file) => {
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    bytes.resize(bytes.len().max(offset + new.len()), 0);
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl State {
    /// Counts an operation, and says what goes wrong at it.
    fn next(&mut self, possible: &[Fault]) -> io::Result<Option<Fault>> {
        self.operations += 1;
        let due = self.fault.filter(|(at, fault)| *at < self.operations && possible.contains(fault));
        if due.is_some_and(|(_, fault)| fault != Fault::PowerLoss) {
            self.fault = None;
        }
        match due {
            Some((_, Fault::PowerLoss)) => Err(io::Error::other("no power")),
            due => Ok(due.map(|(_, fault)| fault)),
        }
    }

    fn power(&mut self) -> io::Result<()> {
        self.next(&[Fault::PowerLoss]).map(|_| ())
    }

    fn name(&mut self, naming: Naming) -> io::Result<()> {
        self.power()?;
        naming.carry_out(&mut self.names);
        self.renamings.push(naming);
        Ok(())
    }
}

impl MemoryDisk {
    /// One on which that is. Segments are distinguished by numbers of this seed, which no earlier life may have had. Sectors of this many
    /// bytes reach the disk whole or not at all.
    pub fn holding(image: &Image, seed: u64, sector: usize) -> Self {
        let mut state = State {
            sector,
            salts: Random::new(seed),
            reused: 0,
            files: Vec::new(),
            names: BTreeMap::new(),
            names_on_disk: BTreeMap::new(),
            renamings: Vec::new(),
            operations: 0,
            fault: None,
            is_full: false,
        };
        for (name, bytes) in image {
            state.names.insert(name.clone(), state.files.len());
            state.files.push(Content { seen: bytes.clone(), on_disk: bytes.clone(), ..Content::default() });
        }
        state.names_on_disk = state.names.clone();
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a file of an earlier segment was used again.
    pub fn reused(&self) -> u64 {
        self.lock().reused
    }

    /// The disk as it is after a loss of power.
    #[must_use]
    pub fn without_power(&self, random: &mut Random) -> Self {
        let survivors = self.survivors(random);
        Self::holding(&survivors, random.bits(), self.lock().sector)
    }

    /// That goes wrong at this operation, or the next one at which it can.
    pub fn fail_at(&self, operation: usize, fault: Fault) {
        self.lock().fault = Some((operation, fault));
    }

    /// There is no room for longer files, or is again.
    pub fn fill(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// How many operations there were.
    pub fn operations(&self) -> usize {
        self.lock().operations
    }

    /// How many of them wrote to the file that has this name now, or flushed it.
    pub fn operations_of(&self, name: &str) -> usize {
        let state = self.lock();
        state.names.get(name).map_or(0, |file| state.files[*file].operations)
    }

    /// What a process sees.
    pub fn image(&self) -> Image {
        let state = self.lock();
        state.names.iter().map(|(name, file)| (name.clone(), state.files[*file].seen.clone())).collect()
    }

    /// One on which the same is, and the same is not on the disk yet.
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    /// Another process opens it, and has power.
    pub fn restarted(&self) {
        self.lock().fault = None;
    }

    /// What is there after a loss of power: of what was not flushed any sectors, and any names.
    pub fn survivors(&self, random: &mut Random) -> Image {
        let state = self.lock();
        let mut names = state.names_on_disk.clone();
        for naming in &state.renamings {
            if random.below(2) == 0 {
                naming.carry_out(&mut names);
            }
        }
        names.into_iter().map(|(name, file)| (name, state.files[file].survivor(random, state.sector))).collect()
    }
}

/// Those of tests differ from each other, and from run to run if there are several threads.
#[cfg(test)]
impl MemoryDisk {
    /// One on which that is.
    pub(in crate::wal) fn of(image: &Image) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static LIVES: AtomicU64 = AtomicU64::new(1);
        Self::holding(image, LIVES.fetch_add(1, Ordering::Relaxed), 512)
    }
}

#[cfg(test)]
impl Default for MemoryDisk {
    fn default() -> Self {
        Self::of(&Image::new())
    }
}

impl Content {
    fn survivor(&self, random: &mut Random, size: usize) -> Vec<u8> {
        let mut bytes = self.on_disk.clone();
        for sector in 0..self.seen.len().div_ceil(size) {
            let range = sector * size..(sector + 1) * size;
            let touching = self.pending.iter().filter(|(at, new)| *at < range.end && at + new.len() > range.start);
            let touching: Vec<_> = touching.collect();
            // The disk was told of it after any of the writes.
            for (at, new) in &touching[..random.below(touching.len() + 1)] {
                let (from, to) = (range.start.max(*at), range.end.min(at + new.len()));
                put(&mut bytes, from, &new[from - at..to - at]);
            }
        }
        bytes
    }
}

impl Disk for MemoryDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/memory").join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.lock();
        let file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.files[*file].seen.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(Content::default());
        state.name(Naming::Create(name.to_owned(), file))?;
        Ok(Box::new(MemoryFile(self.clone(), file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.lock();
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile(self.clone(), file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.reused += u64::from(to == SPARE);
        state.name(Naming::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.name(Naming::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.next(&[Fault::PowerLoss, Fault::Flush])?.is_some() {
            return Err(eio());
        }
        state.renamings.clear();
        state.names_on_disk = state.names.clone();
        Ok(())
    }

    fn another(&self) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(self.clone()))
    }

    fn salt(&self) -> u64 {
        let salts = &mut self.lock().salts;
        salts.bits() << 32 ^ salts.bits()
    }
}

struct MemoryFile(MemoryDisk, usize);

impl DiskFile for MemoryFile {
    fn reserve(&mut self, bytes: u32) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_full {
            return Err(io::Error::from_raw_os_error(28));
        }
        state.power()?;
        state.files[self.1].seen.resize(bytes as usize, 0);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u32) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_full && state.files[self.1].seen.len() < offset as usize + bytes.len() {
            return Err(io::Error::from_raw_os_error(28));
        }
        state.files[self.1].operations += 1;
        let fault = state.next(&[Fault::PowerLoss, Fault::Write, Fault::ShortWrite])?;
        let written = match fault {
            None => bytes,
            Some(Fault::ShortWrite) => &bytes[..bytes.len() / 2],
            Some(_) => &[],
        };
        let content = &mut state.files[self.1];
        put(&mut content.seen, offset as usize, written);
        content.pending.push((offset as usize, written.to_vec()));
        if fault.is_some() { Err(eio()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.files[self.1].operations += 1;
        let fault = state.next(&[Fault::PowerLoss, Fault::Flush])?;
        let content = &mut state.files[self.1];
        let pending = std::mem::take(&mut content.pending);
        if fault.is_some() {
            return Err(eio());
        }
        pending.iter().for_each(|(at, new)| put(&mut content.on_disk, *at, new));
        Ok(())
    }
}
