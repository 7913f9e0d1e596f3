//! What people ask of a running node, over a socket in its folder: one JSON object a line in either direction.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use primacy::clock;
use primacy_core::log::ReplicaId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::core::Core;
use super::port::NodeError;
use crate::group::Status;

/// The socket's name in the node's folder.
pub const SOCKET: &str = "control";
/// The longest question.
const QUESTION_MAX: u64 = 1 << 16;
/// How long a new replica may take until who waits is told that it goes on without being watched.
const REPLACING_MAX: Duration = Duration::from_secs(3_600);

/// What a node is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// How it is.
    Status,
    /// That each of its replicas take a snapshot.
    Snapshot,
    /// That the node that is called so now take the place of the one that was called so before, in all groups.
    Replace {
        /// What it is called.
        name: String,
    },
}

/// What it answers. A replacement is answered more than once: the last time when it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// How it is.
    Status(NodeStatus),
    /// It is done.
    Done {
        /// What.
        text: String,
    },
    /// It goes on.
    Progress {
        /// How far it is.
        text: String,
    },
    /// It is not done.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// What it is called.
    pub name: String,
    /// Who it is.
    pub id: String,
    /// How often it was started.
    pub starts: u64,
    /// Where its clients are served.
    pub serves: String,
    /// How many bytes its tables take.
    pub memory_bytes: u64,
    /// How many they may take.
    pub memory_max: Option<u64>,
    /// Nothing is written that needs room.
    pub is_disk_full: bool,
    /// How many segments its log has.
    pub log_segments: u64,
    /// Why no segment could be allocated or removed, if so.
    pub log_trouble: Option<String>,
    /// The other nodes.
    pub nodes: Vec<OtherNode>,
    /// Its groups, in order. None while it waits for the other nodes.
    pub groups: Vec<GroupStatus>,
}

/// Another node, as one sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OtherNode {
    /// What it is called.
    pub name: String,
    /// Where its voter is.
    pub address: String,
    /// Who it is, if it is connected.
    pub id: Option<String>,
    /// Where its clients are served, if that is known.
    pub serves: String,
}

/// One group, as a node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// Its number.
    pub group: u16,
    /// Who leads, as far as the node knows.
    pub leader: Option<String>,
    /// The token of that leadership.
    pub token: u64,
    /// Whether this node leads and serves.
    pub is_led_here: bool,
    /// For how long this node may believe that it leads, in milliseconds.
    pub remaining_ms: Option<u64>,
    /// The last entry of this replica's log.
    pub last: u64,
    /// All up to here is committed, as far as it knows.
    pub committed: u64,
    /// All up to here is applied.
    pub applied: u64,
    /// The end of its snapshot.
    pub snapshot: Option<u64>,
    /// How many bytes of entries it keeps.
    pub log_bytes: u64,
    /// How many keys it has.
    pub keys: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// How many requests of this node's clients wait.
    pub waiting: u64,
    /// Who keeps the group; and of a leader, how far each has all on its disk.
    pub replicas: Vec<ReplicaStatus>,
    /// Whether that is changing.
    pub is_changing: bool,
}

/// One replica of a group, as a node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// What its node is called.
    pub name: String,
    /// Up to where it has all on its disk, if the node leads the group.
    pub matched: Option<u64>,
}

/// Asks a running node, and hands out what it answers until that is over.
///
/// # Errors
/// If no node runs there, or it does not answer.
pub async fn ask(folder: &Path, question: &Question, mut each: impl FnMut(Answer)) -> io::Result<()> {
    let mut stream = UnixStream::connect(folder.join(SOCKET)).await?;
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        each(serde_json::from_str(&line)?);
    }
    Ok(())
}

/// Makes the socket; `None` if the folder's path is too long for one.
pub(super) fn listen(folder: &Path) -> Result<Option<UnixListener>, NodeError> {
    let path = folder.join(SOCKET);
    let failed = |path: PathBuf| move |source| NodeError::Control { path, source };
    // The folder is locked: who left it is gone.
    crate::files::remove(&path).map_err(failed(path.clone()))?;
    let socket = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            tracing::warn!(
                "the path of the folder is too long for a socket: primacy kv status and its like cannot ask this node"
            );
            return Ok(None);
        }
        bound => bound.map_err(failed(path.clone()))?,
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed(path))?;
    Ok(Some(socket))
}

/// Answers all who ask. Never ends.
pub(super) async fn serve(socket: UnixListener, core: Rc<Core>) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                let core = Rc::clone(&core);
                tokio::task::spawn_local(async move {
                    // Who has gone reads no answer.
                    let _: io::Result<()> = answer(stream, &core).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "nobody could be answered at the control socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, core: &Core) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(QUESTION_MAX)).read_line(&mut line).await?;
    let mut say = async |answer: Answer| {
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        writer.write_all(&line).await
    };
    match serde_json::from_str(&line) {
        Ok(Question::Status) => say(Answer::Status(status(core))).await,
        Ok(Question::Snapshot) => {
            core.ask_for_snapshots();
            say(Answer::Done { text: "each group takes a snapshot, one after another".to_owned() }).await
        }
        Ok(Question::Replace { name }) => match core.replacement(&name) {
            Err(why) => say(Answer::Refused { why }).await,
            Ok((remove, add)) => {
                let (all, mut told, begin) = (usize::from(core.groups_count()), None, clock::now());
                loop {
                    // Again and again: a leader that has come meanwhile does not know of it.
                    core.want(remove, add);
                    core.go_on_replacing();
                    let done = core.replaced(remove, add);
                    if done == all {
                        let text = format!("{name} keeps replicas of all {all} groups, in the place of {remove}");
                        return say(Answer::Done { text }).await;
                    }
                    if told.replace(done) != Some(done) {
                        say(Answer::Progress { text: format!("{done} of {all} groups") }).await?;
                    }
                    if clock::now().since(begin) > REPLACING_MAX {
                        let why = "it goes on, and takes long: see primacy kv status".to_owned();
                        return say(Answer::Refused { why }).await;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        },
        Err(error) => say(Answer::Refused { why: format!("that is no question: {error}") }).await,
    }
}

fn status(core: &Core) -> NodeStatus {
    let name = |id| core.name_of(id).unwrap_or_else(|| id.to_string());
    let (memory, max, is_disk_full) = core.memory();
    let log = core.wal_status();
    let others = core.others().into_iter().map(|(name, address, id, serves)| OtherNode {
        name,
        address,
        id: id.map(|id| id.to_string()),
        serves,
    });
    let groups = core.statuses().into_iter().enumerate().map(|(group, (status, remaining))| GroupStatus {
        group: group as u16,
        leader: status.leader.map(|(_, id)| name(id)),
        token: status.leader.map_or(0, |(ballot, _)| ballot.token.get()),
        is_led_here: status.leads.is_some_and(|(_, serves)| serves),
        remaining_ms: remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        last: status.last.index,
        committed: status.commit,
        applied: status.applied,
        snapshot: status.snapshot.map(|position| position.index),
        log_bytes: status.log_bytes as u64,
        keys: status.keys as u64,
        bytes: status.bytes as u64,
        waiting: status.waiting as u64,
        replicas: replicas(&status, name),
        is_changing: status.is_changing,
    });
    NodeStatus {
        name: core.name().to_owned(),
        id: core.own().to_string(),
        starts: core.starts(),
        serves: core.serves(),
        memory_bytes: memory as u64,
        memory_max: max.map(|max| max as u64),
        is_disk_full,
        log_segments: log.as_ref().map_or(0, |log| log.segments),
        log_trouble: log.and_then(|log| log.trouble),
        nodes: others.collect(),
        groups: groups.collect(),
    }
}

fn replicas(status: &Status, name: impl Fn(ReplicaId) -> String) -> Vec<ReplicaStatus> {
    let one = |id: &ReplicaId| ReplicaStatus { name: name(*id), matched: status.matched.get(id).copied() };
    let mut replicas: Vec<ReplicaStatus> = status.replicas.iter().map(one).collect();
    replicas.sort_by(|one, next| one.name.cmp(&next.name));
    replicas
}
