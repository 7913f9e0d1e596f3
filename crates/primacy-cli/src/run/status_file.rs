//! `--status-file`: how the candidate stands, for scripts that read files. It is written by a thread of its own: no disk holds up the
//! runner.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

use primacy::{ElectionName, Label, clock};
use serde::Serialize;
use tokio::sync::oneshot;
use tracing::warn;

use crate::output::schema::SCHEMA;
use crate::standing::{CandidateSource, Standing, StandingParts};

/// Between two attempts to write the file.
const AGAIN: Duration = Duration::from_secs(1);
/// What says which start of the machine this is.
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long the end of the process waits for the last word in the file.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// The file, as long as this lives. When it is dropped the candidate has gone, and the file says so.
pub(super) struct StatusFile {
    /// Dropped when the candidate has gone.
    end: Option<oneshot::Sender<()>>,
    written: Receiver<()>,
}

/// What the file has.
#[derive(Debug, Serialize)]
struct FileStatus {
    schema: u32,
    election: String,
    label: String,
    standing: &'static str,
    token: Option<u64>,
    stop_ns: Option<u64>,
    boot_id: Option<String>,
    pid: u32,
    why: Option<String>,
}

impl StatusFile {
    /// Writes how the candidate stands, now and after each change.
    ///
    /// # Errors
    /// If it cannot be written for the first time, or the system gives no thread.
    pub(super) fn start(path: PathBuf, candidate: Arc<CandidateSource>) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        write(&path, candidate.election(), candidate.label(), &candidate.standing())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let ((tell, written), (end, ended)) = (channel(), oneshot::channel());
        let follow = move || {
            runtime.block_on(follow(&path, &candidate, ended));
            // Nobody may wait any more.
            let _ = tell.send(());
        };
        Builder::new().name("primacy-status".into()).spawn(follow)?;
        Ok(Self { end: Some(end), written })
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.written.recv_timeout(LAST_WORD_WITHIN).is_err() {
            warn!("the status file does not say how all has ended: its disk is slow");
        }
    }
}

async fn follow(path: &Path, candidate: &CandidateSource, mut ended: oneshot::Receiver<()>) {
    let (mut last, mut is_in_trouble) = (candidate.standing(), false);
    loop {
        let again = async {
            match is_in_trouble {
                true => tokio::time::sleep(AGAIN).await,
                false => std::future::pending().await,
            }
        };
        let is_over = tokio::select! {
            _ = &mut ended => true,
            () = candidate.changed(&last) => false,
            () = again => false,
        };
        let standing = match candidate.standing() {
            gone @ Standing::Gone { .. } => gone,
            _ if is_over => Standing::Gone { why: "this process ends".to_owned() },
            standing => standing,
        };
        if standing == last && !is_in_trouble && !is_over {
            continue;
        }
        match write(path, candidate.election(), candidate.label(), &standing) {
            Ok(()) => is_in_trouble = false,
            Err(error) => {
                if !is_in_trouble {
                    warn!(%error, "the status file {} cannot be written; it is tried again", path.display());
                }
                is_in_trouble = true;
            }
        }
        last = standing;
        if is_over {
            return;
        }
    }
}

/// Writes it whole, so that nobody reads a half.
pub(super) fn write(path: &Path, election: &ElectionName, label: &Label, standing: &Standing) -> io::Result<()> {
    let StandingParts { word, token, stop_at, why } = standing.parts();
    let status = FileStatus {
        schema: SCHEMA,
        election: election.as_str().to_owned(),
        label: label.as_str().to_owned(),
        standing: word,
        token: token.map(primacy::Token::get),
        stop_ns: stop_at.map(clock::to_boot_nanos),
        boot_id: fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()),
        pid: std::process::id(),
        why: why.map(str::to_owned),
    };
    let mut text = serde_json::to_vec_pretty(&status).map_err(io::Error::other)?;
    text.push(b'\n');
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no name"))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(beside);
    // Neither what another process of this number has left, nor what somebody has put there to be followed.
    let _ = fs::remove_file(&beside);
    let written =
        OpenOptions::new().write(true).create_new(true).open(&beside).and_then(|mut file| file.write_all(&text));
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // Nothing half-written is left behind; if this fails, too, there was none.
        let _ = fs::remove_file(&beside);
    })
}
