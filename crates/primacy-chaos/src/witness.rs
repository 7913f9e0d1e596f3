//! The unfenced witness: one file to which every program of a run appends, whether or not it believes to lead.
//!
//! The kernel orders appends to one file, so a line behind another was written later: no clock is needed to see that two
//! programs worked at once. The clock that each line carries says by how much.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use crate::clock::Moment;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It has begun.
    Start,
    /// It works.
    Beat,
    /// What it has started, in a session of its own, works.
    Kin,
    /// It was told to stop.
    Told,
    /// It has stopped.
    End,
    /// The fence refused its write.
    Refused,
}

impl Word {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Start, "start"),
        (Self::Beat, "beat"),
        (Self::Kin, "kin"),
        (Self::Told, "told"),
        (Self::End, "end"),
        (Self::Refused, "refused"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(word, _)| *word == self).map_or("", |(_, name)| name)
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(word, _)| *word)
    }

    /// Whether the program did work that only a leader may do. Being refused is no work.
    pub(crate) fn is_work(self) -> bool {
        matches!(self, Self::Start | Self::Beat | Self::Kin)
    }
}

/// One line of the witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) word: Word,
    pub(crate) token: u64,
    pub(crate) pid: i32,
    /// The candidate's label.
    pub(crate) name: String,
    pub(crate) at: Moment,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        Some(Self {
            word: Word::parse(next()?)?,
            token: next()?.parse().ok()?,
            pid: next()?.parse().ok()?,
            name: next()?.to_owned(),
            at: Moment::from_nanos(next()?.parse().ok()?),
        })
    }
}

/// A program's hand on the witness.
#[derive(Debug)]
pub(crate) struct Pen {
    file: File,
    token: u64,
    name: String,
}

impl Pen {
    pub(crate) fn open(path: &Path, token: u64, name: String) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)?, token, name })
    }

    /// Appends a line, in one write.
    pub(crate) fn write(&self, word: Word) -> io::Result<()> {
        let (pid, now) = (std::process::id(), Moment::now().nanos());
        let line = format!("{} {} {pid} {} {now}\n", word.name(), self.token, self.name);
        (&self.file).write_all(line.as_bytes())
    }
}

/// Reads the witness while it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    rest: Vec<u8>,
}

impl Reader {
    /// Creates the witness.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        File::create(path)?;
        Ok(Self { file: File::open(path)?, rest: Vec::new() })
    }

    /// The lines that have been written since the last call.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Line>> {
        self.file.read_to_end(&mut self.rest)?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = String::from_utf8_lossy(&whole);
        let parse = |text: &str| Line::parse(text).ok_or_else(|| io::Error::other(format!("not a line: {text}")));
        lines.lines().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_order_and_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("witness");
        let mut reader = Reader::create(&path).expect("it can be created");
        let pen = Pen::open(&path, 7, "c1".into()).expect("it is there");
        for (word, _) in Word::ALL {
            pen.write(word).expect("it can be written");
        }
        (&pen.file).write_all(b"beat 7 1").expect("it can be written");
        let lines = reader.read().expect("it can be read");
        assert_eq!(lines.iter().map(|line| line.word).collect::<Vec<_>>(), Word::ALL.map(|(word, _)| word));
        assert!(lines.iter().all(|line| line.token == 7 && line.name == "c1" && line.at <= Moment::now()));
        (&pen.file).write_all(b"2 c1 9\n").expect("it can be written");
        let rest = reader.read().expect("it can be read");
        assert_eq!(rest.len(), 1, "half a line waits for its end");
        assert_eq!((rest[0].pid, rest[0].at), (12, Moment::from_nanos(9)));
    }
}
