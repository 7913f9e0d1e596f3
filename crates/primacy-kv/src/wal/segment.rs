//! One file of the log: its header, its frames, and what of it is believed. No I/O.

use super::GroupId;

/// The format of files that this version writes.
pub(super) const FORMAT: u32 = 1;
/// How long a segment's header is; its first frame begins behind it.
pub(super) const HEADER: u32 = 64;
/// How long a frame without a body is.
pub(super) const FRAME: u32 = 24;
/// Frames begin at multiples of this.
const ALIGNMENT: usize = 8;
const MAGIC: &[u8; 8] = b"prmcyWAL";
const ENDING: &str = ".wal";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Where all groups stand: the first of each segment.
    Heads = 1,
    /// A replica begins, with nothing of what its group had here before.
    Begin = 2,
    /// A promise.
    Promise = 3,
    /// Entries, in the place of all behind the one before them.
    Append = 4,
    /// A snapshot in the place of state and entries.
    Install = 5,
    /// A snapshot in the place of the entries in it.
    Compact = 6,
    /// It says that all before it is on disk.
    Mark = 7,
    /// The log goes on in the next segment.
    End = 8,
}

impl Kind {
    fn read(byte: u8) -> Option<Self> {
        use Kind::{Append, Begin, Compact, End, Heads, Install, Mark, Promise};
        [Heads, Begin, Promise, Append, Install, Compact, Mark, End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A segment's name.
pub(super) fn name(sequence: u64) -> String {
    format!("{sequence:016x}{ENDING}")
}

/// Which segment has that name. `None`: it is none's; an error if it looks like one's all the same.
pub(super) fn sequence(file: &str) -> Result<Option<u64>, ()> {
    let Some(digits) = file.strip_suffix(ENDING) else { return Ok(None) };
    let read = u64::from_str_radix(digits, 16).map_err(|_| ())?;
    if name(read) == file { Ok(Some(read)) } else { Err(()) }
}

/// What stands at the beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) node: u128,
    pub(super) sequence: u64,
    /// How long the file is.
    pub(super) bytes: u32,
    /// Where the one before it ends.
    pub(super) previous_end: u32,
    /// The mark of the one before it.
    pub(super) previous_mark: u32,
    /// At random, so that nobody who has something written to the log can foretell a segment's tag: its file may have been another
    /// segment's before, with that in it.
    pub(super) salt: u64,
}

/// By what records of a segment are known from those of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// It stands in each record.
    pub(super) mark: u32,
    /// It stands in the header alone, and checksums begin with it: who guesses one of the two has not guessed the other.
    pub(super) seed: u32,
}

/// Why a file is no segment that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    Foreign,
    Damaged,
    Newer(u32),
}

impl Header {
    /// As it is stored.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER as usize);
        bytes.extend(MAGIC);
        bytes.extend([0; 4]);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(self.node.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        for number in [self.bytes, self.previous_end, self.previous_mark] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.salt.to_le_bytes());
        bytes.resize(HEADER as usize, 0);
        let mark = crc32c::crc32c(&bytes);
        bytes[8..12].copy_from_slice(&mark.to_le_bytes());
        bytes
    }

    /// The tag of its segment. Two segments of a node have different ones, but for one in 2⁶⁴.
    pub(super) fn tag(self) -> Tag {
        let bytes = self.to_bytes();
        Tag { mark: u32_at(&bytes, 8), seed: u32_at(&bytes, 52) }
    }

    /// What was stored, if it is sound.
    pub(super) fn read(file: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = file.get(..HEADER as usize) else { return Err(HeaderError::Damaged) };
        if &bytes[..8] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        let mut unsigned = bytes.to_vec();
        unsigned[8..12].fill(0);
        if crc32c::crc32c(&unsigned) != u32_at(bytes, 8) {
            return Err(HeaderError::Damaged);
        }
        match u32_at(bytes, 12) {
            FORMAT => {}
            other => return Err(HeaderError::Newer(other)),
        }
        let node = u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64;
        let [length, previous_end, previous_mark] = [40, 44, 48].map(|at| u32_at(bytes, at));
        let (sequence, salt) = (u64_at(bytes, 32), u64_at(bytes, 52));
        Ok(Self { node, sequence, bytes: length, previous_end, previous_mark, salt })
    }
}

/// A sound frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// All before here was on disk when it was written.
    pub(super) flushed: u32,
    pub(super) group: GroupId,
    pub(super) kind: Kind,
    pub(super) body: &'a [u8],
    /// Where the next one begins.
    pub(super) end: u32,
}

/// How long a frame with a body of this length is.
pub(super) fn frame_length(body: usize) -> usize {
    (FRAME as usize + body).next_multiple_of(ALIGNMENT)
}

/// Adds a frame to these bytes, which are to be written at `start` of the segment with this tag.
pub(super) fn put_frame(
    out: &mut Vec<u8>,
    (tag, start, flushed): (Tag, u32, u32),
    group: GroupId,
    kind: Kind,
    body: &[u8],
) {
    let at = out.len();
    let position = start + at as u32;
    for number in [tag.mark, 0, body.len() as u32, flushed, group.0] {
        out.extend(number.to_le_bytes());
    }
    out.extend([kind as u8, 0, 0, 0]);
    out.extend(body);
    out.resize(at + frame_length(body.len()), 0);
    let sum = checksum(tag, position, &out[at + 8..]);
    out[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(tag: Tag, position: u32, rest: &[u8]) -> u32 {
    let place = u64::from(tag.seed) | u64::from(position) << 32;
    crc32c::crc32c_append(crc32c::crc32c_append(tag.mark, &place.to_le_bytes()), rest)
}

/// The sound frame at this position of a segment with this tag, if there is one.
pub(super) fn frame(file: &[u8], tag: Tag, position: u32) -> Option<Frame<'_>> {
    let bytes = file.get(position as usize..)?;
    if bytes.len() < FRAME as usize || u32_at(bytes, 0) != tag.mark {
        return None;
    }
    let length = u32_at(bytes, 8) as usize;
    let bytes = bytes.get(..frame_length(length))?;
    if checksum(tag, position, &bytes[8..]) != u32_at(bytes, 4) {
        return None;
    }
    Some(Frame {
        flushed: u32_at(bytes, 12),
        group: GroupId(u32_at(bytes, 16)),
        kind: Kind::read(bytes[20])?,
        body: &bytes[FRAME as usize..FRAME as usize + length],
        end: position + bytes.len() as u32,
    })
}

/// The places behind this position where a frame of the segment with this tag may have begun, sound or not.
fn begun(file: &[u8], tag: Tag, position: u32) -> impl Iterator<Item = u32> {
    let last = (file.len() as u32).saturating_sub(FRAME);
    (position..=last).step_by(ALIGNMENT).filter(move |place| u32_at(file, *place as usize) == tag.mark)
}

/// Where the last frame of the segment with this tag would end that was begun behind this position, sound or not; `position` if there is
/// none. What follows is zeros, or of an earlier use of the file.
pub(super) fn used(file: &[u8], tag: Tag, position: u32) -> u32 {
    let end = |place: u32| (place as usize).saturating_add(frame_length(u32_at(file, place as usize + 8) as usize));
    begun(file, tag, position).map(|place| end(place).min(file.len()) as u32).max().unwrap_or(position)
}

/// Whether a sound frame behind this position says that all before `position` and what is there was on disk once.
pub(super) fn is_known_flushed(file: &[u8], tag: Tag, position: u32) -> bool {
    begun(file, tag, position).filter_map(|place| frame(file, tag, place)).any(|frame| frame.flushed > position)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
