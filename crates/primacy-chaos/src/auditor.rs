//! Reads the fenced table while it grows, apart from everything else: a server that hangs holds up nobody but this.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::work::{Row, open_table};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// What there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// Whatever was committed stays.
    Grows,
    /// A failover may replace the end of it: after every interruption it is read from its beginning.
    Changes,
}

/// What has been read.
#[derive(Debug)]
pub(crate) enum Read {
    /// All that was read before counts no more.
    Anew,
    /// More rows, in the order of their commits.
    Rows(Vec<Row>),
}

/// The rows that have been committed since.
#[derive(Debug)]
pub(crate) struct Auditor {
    read: Receiver<Read>,
    url: String,
}

impl Auditor {
    /// Begins to read the table at this URL.
    pub(crate) fn start(url: String, history: History) -> Self {
        let (sender, read) = channel();
        let own = url.clone();
        thread::spawn(move || audit(&own, history, &sender));
        Self { read, url }
    }

    /// What has been read since the last call.
    pub(crate) fn read(&self) -> Vec<Read> {
        self.read.try_iter().collect()
    }

    /// What has not been read yet, behind this row.
    pub(crate) fn rest(&self, number: u64) -> Result<Vec<Row>> {
        open_table(&self.url)?.rows_after(number)
    }
}

/// Reads until nobody listens.
fn audit(url: &str, history: History, sender: &Sender<Read>) {
    let mut last = 0;
    let mut table = None;
    loop {
        if table.is_none() {
            table = open_table(url).ok();
            if table.is_some() && history == History::Changes {
                last = 0;
                let _ = sender.send(Read::Anew);
            }
        }
        let rows = table.as_mut().and_then(|table| table.rows_after(last).ok());
        if rows.is_none() {
            table = None;
        }
        let rows = rows.unwrap_or_default();
        last = rows.last().map_or(last, |(number, _)| *number);
        if sender.send(Read::Rows(rows)).is_err() {
            return;
        }
        thread::park_timeout(EVERY);
    }
}
