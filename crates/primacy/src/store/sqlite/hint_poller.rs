//! Hints for those who get no notification from the kernel: a glance at the hint file's times, some times a second.
//!
//! Linux gives one user 128 inotify instances by default (`fs.inotify.max_user_instances`), which is fewer than the
//! candidates that one host can run. A glance is one `stat` and costs a few microseconds.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::super::{BoxFuture, Hints};

/// Time between two glances. For 72 candidates beyond the limit, 20 glances a second cost 6 % of a core more than 5 do
/// (measured). A hand-over to one of them takes this long at the most; those with notifications are sooner.
const INTERVAL: Duration = Duration::from_millis(200);

/// Hints from looking at a file.
pub(super) struct HintFilePoller {
    file: PathBuf,
    database: PathBuf,
    last: State,
}

/// What a change shows in.
#[derive(PartialEq, Eq)]
struct State {
    rung: Option<SystemTime>,
    database: bool,
}

impl State {
    fn of(file: &Path, database: &Path) -> Self {
        let rung = file.symlink_metadata().and_then(|metadata| metadata.modified()).ok();
        Self { rung, database: database.exists() }
    }
}

impl HintFilePoller {
    pub(super) fn at(file: PathBuf, database: PathBuf) -> Self {
        let last = State::of(&file, &database);
        Self { file, database, last }
    }
}

impl Hints for HintFilePoller {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let now = State::of(&self.file, &self.database);
                if now != self.last {
                    self.last = now;
                    return;
                }
                tokio::time::sleep(INTERVAL).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_touched_file_is_noticed_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, database] = ["hint", "p.db"].map(|name| folder.path().join(name));
        fs::write(&database, "").expect("writable");
        let mut poller = HintFilePoller::at(file.clone(), database.clone());
        let patience = Duration::from_secs(20);
        fs::write(&file, "1").expect("writable");
        tokio::time::timeout(patience, poller.next()).await.expect("a file that appears is a hint");
        assert!(tokio::time::timeout(INTERVAL * 3, poller.next()).await.is_err(), "told once");
        fs::remove_file(&database).expect("it is there");
        tokio::time::timeout(patience, poller.next()).await.expect("a database that disappears is a hint");
    }
}
