//! What programs and people ask an agent beside holding: how an election stands, orders, and who holds what.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use primacy::store::{Snapshot, StoreError};
use primacy::{ElectionName, clock};
use serde::Deserialize;
use tokio::net::UnixStream;
use tracing::{debug, info};

use super::rights::Caller;
use super::{Agent, Refusal};
use crate::agent_wire::{
    self, ANSWER_MOST, Channel, Frame, HoldFrame, OrderRequest, PROTOCOL, RefusalCode, Request, Said,
};
use crate::failure::{Failure, code};
use crate::observed::{Change, ElectionChanges, Manner, News, NotFollowed};
use crate::order::RemoteOrder;
use crate::output::Output;
use crate::output::schema::{Millis, SCHEMA, State, Status};
use crate::output::span::span;
use crate::reach::Reach;

/// How long a program may take to read an answer.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// How many elections are looked at: each takes a connection to the store, and files.
const OBSERVED_MOST: usize = 128;
/// How long an order may take.
const ORDER_WITHIN: Duration = Duration::from_secs(10);
/// How long the store may take to answer for the first time.
const FIRST_WITHIN: Duration = Duration::from_secs(5);
/// How long an agent may take to answer this command.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Tells how an election stands, at once and after each change, for as long as that is read.
///
/// # Errors
/// Why this one may not look.
pub(super) async fn observe(
    agent: &Rc<Agent>,
    election: &str,
    caller: &Caller,
    mut channel: Channel,
) -> Result<(), (Channel, Refusal)> {
    let (mut changes, election) = match follow(agent, election, caller) {
        Ok(prepared) => prepared,
        Err(refusal) => return Err((channel, refusal)),
    };
    let mut ending = agent.ending.clone();
    let (mut told, mut trouble) = (0, None);
    let patience = tokio::time::sleep(FIRST_WITHIN);
    tokio::pin!(patience);
    loop {
        let news = tokio::select! {
            news = changes.next() => news,
            () = &mut patience, if trouble.is_some() => {
                let why = trouble.map(|error: StoreError| error.to_string()).unwrap_or_default();
                return Err((channel, Refusal::new(RefusalCode::Unavailable, why)));
            }
            line = channel.next() => match line {
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return Ok(()),
            },
            _ = ending.wait_for(|ends| *ends) => return Err((channel, Refusal::new(RefusalCode::Ending, "the agent ends"))),
        };
        match news {
            None => {
                let why = "the election is not observed any more";
                return Err((channel, Refusal::new(RefusalCode::Unavailable, why)));
            }
            Some(News::Lost(error)) => trouble = Some(error).filter(|_| told == 0),
            Some(News::Found(_)) => {}
            Some(News::Changed(news)) => {
                let Change { now, age, .. } = *news;
                (told, trouble) = (told + 1, None);
                let status = Box::new(status(agent, &election, now.as_ref(), age));
                let frame = Frame::Seen { n: told, status };
                let read =
                    async { channel.send(&frame, READ_WITHIN).await.is_ok() && is_read(&mut channel, told).await };
                // One that does not read is not told more, and holds up no end.
                if !tokio::time::timeout(READ_WITHIN, read).await.unwrap_or(false) {
                    return Ok(());
                }
            }
        }
    }
}

fn follow(agent: &Agent, election: &str, caller: &Caller) -> Result<(ElectionChanges, ElectionName), Refusal> {
    let election = super::election(election)?;
    if !agent.rule(&election)?.may_look(caller) {
        return Err(Refusal::not_allowed(caller, "look at", &election));
    }
    let most = if caller.is_trusted() { OBSERVED_MOST } else { OBSERVED_MOST / 2 };
    match agent.observations.follow(&election, Manner::Known, most) {
        Ok(changes) => Ok((changes, election)),
        Err(NotFollowed::TooMany) => Err(Refusal::new(RefusalCode::Busy, "too many elections are looked at")),
        Err(NotFollowed::Setup(error)) => Err(Refusal::new(RefusalCode::Unavailable, error.to_string())),
    }
}

fn status(agent: &Agent, election: &ElectionName, snapshot: Option<&Snapshot>, age: Duration) -> Status {
    Status {
        schema: SCHEMA,
        store: agent.fleet.store().location(),
        answer_age_ms: Millis(age),
        state: State::of(election, snapshot),
        support: None,
        explanation: None,
    }
}

/// Waits until the frame with this number was read. `false` when the program is gone.
async fn is_read(channel: &mut Channel, number: u64) -> bool {
    loop {
        let line = channel.next().await.ok().flatten();
        match line.and_then(|line| serde_json::from_slice::<Said>(&line).ok()) {
            Some(Said::Read { n }) if n >= number => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Gives an order.
///
/// # Errors
/// Why nothing was changed, or is not known to be.
pub(super) async fn order(
    agent: &Rc<Agent>,
    request: OrderRequest,
    caller: &Caller,
    channel: Channel,
) -> Result<(), (Channel, Refusal)> {
    match ordered(agent, request, caller).await {
        Ok(outcome) => {
            if let Err(error) = channel.send(&Frame::Ordered { outcome }, READ_WITHIN).await {
                debug!(%error, "the outcome of an order cannot be told");
            }
            Ok(())
        }
        Err(refusal) => Err((channel, refusal)),
    }
}

async fn ordered(agent: &Agent, request: OrderRequest, caller: &Caller) -> Result<serde_json::Value, Refusal> {
    let OrderRequest { election, order, candidate, token, .. } = request;
    let election = super::election(&election)?;
    if !agent.rule(&election)?.may_order(caller) {
        return Err(Refusal::not_allowed(caller, "give orders in", &election));
    }
    let token = token.map(|digits| agent_wire::token(&digits).ok_or_else(|| Refusal::malformed("token: it is none")));
    let order = RemoteOrder::read(&order, candidate, token.transpose()?).map_err(Refusal::malformed)?;
    info!(%election, %order, "ordered by {caller}");
    let mut reach = Reach::new(Arc::clone(agent.fleet.store()), election, None);
    reach.end_at(clock::now() + ORDER_WITHIN);
    let printed = order.give(&mut reach).await.map_err(|failure| {
        let code = match failure.code {
            code::REFUSED => RefusalCode::Refused,
            code::USAGE => RefusalCode::Malformed,
            _ => RefusalCode::Unavailable,
        };
        Refusal::new(code, failure.to_string())
    })?;
    serde_json::from_slice(&printed).map_err(|error| Refusal::new(RefusalCode::Unavailable, error.to_string()))
}

/// What an agent answers about its holds.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Answer {
    Agent {},
    Holds { name: String, version: String, holds: Vec<HoldFrame> },
    Refused { why: String },
}

/// `primacy agent list`.
pub(super) async fn list(socket: Option<PathBuf>, output: &mut Output) -> Result<u8, Failure> {
    let path = socket.unwrap_or_else(agent_wire::agent_of_host);
    let failed = |why: String| {
        Failure::unavailable(format!("no agent answers on {}: {why}", path.display()))
            .with("start one with: primacy agent, or name its socket with --socket")
    };
    let asked = tokio::time::timeout(ANSWER_WITHIN, ask(&path)).await;
    let (name, version, holds) = asked.map_err(|_| failed("it is silent".to_owned()))?.map_err(failed)?;
    output.json(&serde_json::json!({ "schema": SCHEMA, "agent": name, "version": version, "holds": holds }))?;
    let mut text = String::new();
    if holds.is_empty() {
        text = format!("no program of yours is connected to agent {name}\n");
    }
    let now = clock::boot_nanos().unwrap_or_default();
    for hold in holds {
        let HoldFrame { election, name, pid, standing, token, deadline_ns, .. } = hold;
        let process = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let election = primacy::internal::escape(&election);
        text += &format!("{election}: {name} (process {process}) ");
        let left = deadline_ns.map(|at| span(Duration::from_nanos(at.saturating_sub(now)))).unwrap_or_default();
        let token = token.map(|token| token.0.to_string()).unwrap_or_default();
        text += &match &*standing {
            "leads" => format!("leads with token {token}, for {left} unless that is renewed\n"),
            "draining" => format!("stops its work; its leadership with token {token} lasts {left} at most\n"),
            "ends" => format!("is gone; its leadership with token {token} lasts {left} more\n"),
            _ => "waits\n".to_owned(),
        };
    }
    output.text(&text)?;
    Ok(0)
}

async fn ask(path: &PathBuf) -> Result<(String, String, Vec<HoldFrame>), String> {
    let words = |error: std::io::Error| error.to_string();
    let mut channel = Channel::new(UnixStream::connect(path).await.map_err(words)?);
    let request = serde_json::to_vec(&Request::List { protocol: PROTOCOL }).map_err(|error| error.to_string())?;
    channel.write(request).await.map_err(words)?;
    loop {
        let line = channel.next_within(ANSWER_MOST).await.map_err(words)?.ok_or("it has closed the connection")?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Agent {}) => {}
            Ok(Answer::Holds { name, version, holds }) => return Ok((name, version, holds)),
            Ok(Answer::Refused { why }) => return Err(why),
            Err(error) => return Err(format!("its answer cannot be read: {error}")),
        }
    }
}
