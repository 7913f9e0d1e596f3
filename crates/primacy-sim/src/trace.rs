//! What happened, event by event: always as a hash, and as readable lines when somebody looks.

use std::hash::{Hash, Hasher};

use primacy_core::Instant;

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Line {
    /// When, in real time.
    pub real: u64,
    /// Whose doing, and what its own clock showed if it had one.
    pub who: Option<(String, Option<Instant>)>,
    /// What happened.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As text, or the width would be lost.
        let real = Instant::from_nanos(self.real).to_string();
        match &self.who {
            None => write!(f, "{real:>14}  {:<4} {:>14}  {}", "", "", self.text),
            Some((name, None)) => write!(f, "{real:>14}  {name:<4} {:>14}  {}", "", self.text),
            Some((name, Some(own))) => {
                let own = own.to_string();
                write!(f, "{real:>14}  {name:<4} {own:>14}  {}", self.text)
            }
        }
    }
}

/// The log of one run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: Mixer,
    lines: Option<Vec<Line>>,
}

impl Trace {
    /// A log that keeps its lines if `keep` is set, and else only their hash.
    pub fn new(keep: bool) -> Self {
        Self { hash: Mixer::default(), lines: keep.then(Vec::new) }
    }

    /// Takes something into the hash.
    pub fn hash(&mut self, what: &impl Hash) {
        what.hash(&mut self.hash);
    }

    /// Whether lines are kept.
    pub fn keeps(&self) -> bool {
        self.lines.is_some()
    }

    /// Keeps a line.
    pub fn line(&mut self, line: Line) {
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// Two runs with the same fingerprint had the same events.
    pub fn fingerprint(&self) -> u64 {
        self.hash.finish()
    }

    /// The lines that were kept.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines.unwrap_or_default()
    }
}

/// A hash that is the same on every machine, unlike that of the standard library's maps.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, i: u8) {
        self.mix(u64::from(i));
    }

    fn write_u32(&mut self, i: u32) {
        self.mix(u64::from(i));
    }

    fn write_u64(&mut self, i: u64) {
        self.mix(i);
    }

    fn write_usize(&mut self, i: usize) {
        self.mix(i as u64);
    }

    fn write_isize(&mut self, i: isize) {
        self.mix(i as u64);
    }
}
