//! Reads the fenced table while it grows, apart from everything else: a server that hangs holds up nobody but this.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::work::{Row, open_table};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// The rows that have been committed since.
#[derive(Debug)]
pub(crate) struct Auditor {
    rows: Receiver<Vec<Row>>,
    url: String,
}

impl Auditor {
    /// Begins to read the table at this URL.
    pub(crate) fn start(url: String) -> Self {
        let (sender, rows) = channel();
        let own = url.clone();
        thread::spawn(move || audit(&own, &sender));
        Self { rows, url }
    }

    /// What has been read since the last call.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.try_iter().flatten().collect()
    }

    /// What has not been read yet, behind this row.
    pub(crate) fn rest(&self, number: u64) -> Result<Vec<Row>> {
        open_table(&self.url)?.rows_after(number)
    }
}

/// Reads until nobody listens.
fn audit(url: &str, sender: &Sender<Vec<Row>>) {
    let mut last = 0;
    let mut table = None;
    loop {
        table = table.or_else(|| open_table(url).ok());
        let rows = table.as_mut().and_then(|table| table.rows_after(last).ok());
        if rows.is_none() {
            table = None;
        }
        let rows = rows.unwrap_or_default();
        last = rows.last().map_or(last, |(number, _)| *number);
        if sender.send(rows).is_err() {
            return;
        }
        thread::park_timeout(EVERY);
    }
}
