//! Reads a folder: makes the logs of all groups again, and tells a torn tail from damage.

use std::collections::BTreeMap;

use primacy_core::log::Payload;

use super::GroupId;
use super::disk::Disk;
use super::error::OpenError;
use super::group::{Change, Head, Replay};
use super::record;
use super::report::{Report, SegmentReport, Tail};
use super::segment::{self, FRAME, Frame, HEADER, Header, HeaderError, Kind, Tag, frame};

/// A file with this name is there while a torn tail is being overwritten with zeros. If their flush fails, the next process reads them
/// from memory, and would not see that the tail is still on the disk.
pub(super) const CUT: &str = "cut";

/// What was found.
pub(super) struct Scan<B> {
    pub(super) groups: BTreeMap<GroupId, Replay<B>>,
    pub(super) oldest: u64,
    /// The last segment's.
    pub(super) header: Header,
    /// Behind its last sound frame.
    pub(super) end: u32,
    pub(super) mending: Mending,
}

/// What has to be done to the last segment before the log goes on.
pub(super) struct Mending {
    /// There is a torn tail.
    pub(super) is_cut: bool,
    /// An earlier process has begun to overwrite one, and may have failed.
    pub(super) was_cut: bool,
    /// From where on it is written to.
    pub(super) start: u32,
    /// What is written: what may not be on the disk, and zeros in the place of a torn tail.
    pub(super) bytes: Vec<u8>,
    /// The tag of the segment before it, if that may not say on the disk yet that it goes on.
    pub(super) unlinked: Option<Tag>,
}

/// One segment, as it was read.
struct Segment {
    name: String,
    bytes: Vec<u8>,
    header: Header,
    tag: Tag,
}

/// How far a segment can be read.
struct Walk {
    end: u32,
    records: u64,
    /// All before here was on the disk.
    flushed: u32,
}

/// Reads what is in a folder, without changing it. `None`: there is no log. `node`: whose it has to be.
pub(super) fn scan<B: Payload + From<Vec<u8>>>(
    disk: &dyn Disk,
    node: Option<u128>,
    report: &mut Report,
) -> Result<Option<Scan<B>>, OpenError> {
    let names = disk.list().map_err(|source| OpenError::Disk { path: disk.path(""), source })?;
    let sequences = sequences(disk, &names)?;
    let Some(oldest) = sequences.first().copied() else { return Ok(None) };
    let mut groups = None;
    // That of the segment before this one, if it is not there.
    let (mut missing_link, mut previous) = (None, None);
    let mut next = Some(read(disk, oldest, node)?);
    while let Some(this) = next.take() {
        let sequence = this.header.sequence;
        report.node = Some(this.header.node);
        let follows = sequence + 1;
        if sequences.contains(&follows) {
            next = Some(read(disk, follows, Some(this.header.node))?);
        }
        let limit = next.as_ref().map(|next| next.header.previous_end);
        let walk = walk(disk, &this, limit, &mut groups)?;
        if let Some(unlinked) = missing_link.take()
            && (next.is_some() || walk.records > 1)
        {
            return Err(unlinked);
        }
        let used = segment::used(&this.bytes, this.tag, walk.end);
        report.segments.push(SegmentReport {
            path: disk.path(&this.name),
            records: walk.records,
            end: walk.end,
            flushed: if next.is_some() { walk.end } else { walk.flushed },
        });
        let link = frame(&this.bytes, this.tag, walk.end).filter(|frame| frame.kind == Kind::End);
        let damaged = |why: &str| damaged(disk, &this.name, walk.end, why);
        if let Some(next) = &next {
            if Some(walk.end) != limit {
                return Err(damaged("what was written there cannot be read, and a segment follows"));
            }
            if next.header.previous_mark != this.tag.mark {
                let why = "it is not the one that the next segment goes on from".to_owned();
                return Err(OpenError::Foreign { path: disk.path(&this.name), why });
            }
            previous = Some(this.tag);
            missing_link = link.is_none().then(|| damaged("that the log goes on in the next segment is not there"));
            continue;
        }
        if link.is_some() {
            let (path, why) = (disk.path(&segment::name(follows)), format!("{} says that it follows", this.name));
            return Err(OpenError::SegmentMissing { path, why });
        }
        if segment::is_known_flushed(&this.bytes, this.tag, walk.end) {
            return Err(damaged(
                "what was written there cannot be read, and what follows says that it was on the disk",
            ));
        }
        if used > walk.end {
            report.tail = Some(Tail { position: walk.end, bytes: used - walk.end });
        }
        let groups: BTreeMap<GroupId, Replay<B>> = groups.unwrap_or_default();
        report.groups = groups.len();
        let start = walk.flushed.min(walk.end);
        let mut bytes = this.bytes[start as usize..walk.end as usize].to_vec();
        let (is_cut, was_cut) = (used > walk.end, names.iter().any(|name| name == CUT));
        // What is missing of the file's length is to be there again too. How far an earlier process has come is not known.
        let is_whole = this.bytes.len() >= this.header.bytes as usize && !was_cut;
        let length = if is_whole { used } else { used.max(this.header.bytes) };
        bytes.resize((length - start) as usize, 0);
        let unlinked = previous.filter(|_| walk.records == 1);
        let mending = Mending { is_cut, was_cut, start, bytes, unlinked };
        return Ok(Some(Scan { groups, oldest, header: this.header, end: walk.end, mending }));
    }
    Ok(None)
}

/// Which segments there are, in order.
fn sequences(disk: &dyn Disk, names: &[String]) -> Result<Vec<u64>, OpenError> {
    let mut sequences = Vec::new();
    for name in names {
        match segment::sequence(name) {
            Ok(sequence) => sequences.extend(sequence),
            Err(()) => {
                return Err(OpenError::Foreign { path: disk.path(name), why: "no segment has such a name".into() });
            }
        }
    }
    sequences.sort_unstable();
    for pair in sequences.windows(2) {
        if pair[0] + 1 != pair[1] {
            let (path, why) =
                (disk.path(&segment::name(pair[0] + 1)), "there are segments before and behind it".into());
            return Err(OpenError::SegmentMissing { path, why });
        }
    }
    Ok(sequences)
}

fn read(disk: &dyn Disk, sequence: u64, node: Option<u128>) -> Result<Segment, OpenError> {
    let name = segment::name(sequence);
    let path = || disk.path(&name);
    let bytes = disk.read(&name).map_err(|source| OpenError::Disk { path: path(), source })?;
    let foreign = |why: String| OpenError::Foreign { path: path(), why };
    let header = Header::read(&bytes).map_err(|error| match error {
        HeaderError::Foreign => foreign("it is no segment of a write-ahead log".into()),
        HeaderError::Newer(format) => OpenError::Newer { path: path(), format },
        HeaderError::Damaged => damaged(disk, &name, 0, "the header is not as it was written"),
    })?;
    if header.sequence != sequence {
        return Err(foreign(format!("it is the segment {}", segment::name(header.sequence))));
    }
    if let Some(node) = node.filter(|node| *node != header.node) {
        return Err(foreign(format!("it is of node {:032x}, and this is {node:032x}", header.node)));
    }
    Ok(Segment { tag: header.tag(), name, bytes, header })
}

/// Reads a segment up to `limit`, or as far as it goes.
fn walk<B: Payload + From<Vec<u8>>>(
    disk: &dyn Disk,
    segment: &Segment,
    limit: Option<u32>,
    groups: &mut Option<BTreeMap<GroupId, Replay<B>>>,
) -> Result<Walk, OpenError> {
    let mut walk = Walk { end: HEADER, records: 0, flushed: HEADER };
    while limit.is_none_or(|limit| walk.end + FRAME <= limit) {
        let Some(found) = frame(&segment.bytes, segment.tag, walk.end) else { break };
        if found.kind == Kind::End || limit.is_some_and(|limit| found.end > limit) {
            break;
        }
        take(&found, walk.records == 0, segment.header.sequence, groups)
            .map_err(|why| damaged(disk, &segment.name, walk.end, why))?;
        // The first one was on the disk before the file had its name.
        walk.flushed = if walk.records == 0 { found.end } else { walk.flushed.max(found.flushed) };
        walk.records += 1;
        walk.end = found.end;
    }
    match walk.records {
        0 => Err(damaged(disk, &segment.name, HEADER, "its first record cannot be read")),
        _ => Ok(walk),
    }
}

/// Carries out what is in a frame.
fn take<B: Payload + From<Vec<u8>>>(
    frame: &Frame<'_>,
    is_first: bool,
    segment: u64,
    groups: &mut Option<BTreeMap<GroupId, Replay<B>>>,
) -> Result<(), &'static str> {
    const UNFORMED: &str = "a record is not well formed, though its checksum is right";
    if is_first != (frame.kind == Kind::Heads) {
        return Err("where all groups stand has to be the first record of a segment, and no other");
    }
    if frame.kind == Kind::Heads {
        let heads = record::read_heads(frame.body).ok_or(UNFORMED)?;
        if let Some(groups) = groups {
            let own = groups.iter().map(|(group, replay)| (*group, replay.group.head()));
            return if own.eq(heads.iter().map(|(group, head)| (*group, head))) {
                Ok(())
            } else {
                Err("the segments before it lead to something else")
            };
        }
        *groups = Some(heads.into_iter().map(|(group, head)| (group, Replay::new(head))).collect());
        return Ok(());
    }
    if frame.kind == Kind::Mark {
        return Ok(());
    }
    let read = record::read::<B>(frame.kind, frame.body).ok_or(UNFORMED)?;
    let groups = groups.get_or_insert_default();
    match (groups.get_mut(&frame.group), &read.change) {
        (Some(replay), _) => replay.apply(read, segment),
        (None, Change::Begin(replica, snapshot)) => {
            groups.insert(frame.group, Replay::new(Head::begun(*replica, snapshot.clone())));
            Ok(())
        }
        (None, _) => Err("a group goes on that has not begun"),
    }
}

fn damaged(disk: &dyn Disk, name: &str, position: u32, why: &str) -> OpenError {
    OpenError::Damaged { path: disk.path(name), position, why: why.to_owned() }
}
