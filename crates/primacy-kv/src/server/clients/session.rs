//! The commands of one connection: each is read when it is its turn, and begun as soon as the order allows.
//!
//! The order: a command that reads or writes keys is begun when no command of the other kind, reads or writes, of the same connection is
//! under way in the same group. Writes reach their group in order. All other commands wait for all before them. So a connection
//! reads what it has written, and many of its commands are under way at once.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::task::Context;

use super::answers;
use super::hub::Hub;
use super::line::{Line, Load};
use super::requests::{Part, all, all_or_unknown};
use super::transaction::{Queued, Transaction, Watched, merged, slot};
use crate::command::{
    ClientCommand, Command, CommandError, ConnectionCommand, Flag, Key, KeyspaceCommand, Operation, Placement,
    SetAnswer, Specification, TransactionCommand,
};
use crate::entry::Change;
use crate::request::{ClientRequest, Query};
use crate::resp::{Protocol, Reply};
use crate::slot::Slot;

/// For how many seconds a command waits for the groups.
const LOADING_MAX: u64 = 2;

/// A command that has been read.
#[derive(Debug)]
pub(super) enum Step {
    /// Is answered without a group.
    Reply(Reply),
    /// Reads or writes keys.
    Operation(Operation, Placement),
    /// Is begun when nothing is under way.
    Alone(Alone),
    /// Comes from a web page that has led a browser here. There is no answer.
    Foreign,
}

impl Step {
    /// Whether a group may be asked for it.
    fn needs_groups(&self) -> bool {
        match self {
            Self::Reply(_) | Self::Foreign => false,
            Self::Alone(alone) => matches!(alone, Alone::Keyspace(_) | Alone::Watch(_) | Alone::Execute),
            Self::Operation(..) => true,
        }
    }
}

/// A command that waits for all before it.
#[derive(Debug)]
pub(super) enum Alone {
    Keyspace(KeyspaceCommand),
    Watch(Vec<Key>),
    Unwatch,
    Execute,
    Discard,
    Connection(ConnectionCommand),
}

/// What a connection is in the middle of.
pub(super) struct Session {
    pub(super) hub: Rc<Hub>,
    pub(super) line: Rc<Line>,
    transaction: Option<Transaction>,
    watched: Watched,
    /// Since when a command has waited for the groups, in seconds of the front.
    waits_since: Option<u64>,
    /// Nothing more is read.
    pub(super) is_over: bool,
}

impl Session {
    pub(super) fn new(hub: Rc<Hub>, line: Rc<Line>) -> Self {
        Self { hub, line, transaction: None, watched: Watched::default(), waits_since: None, is_over: false }
    }

    /// Reads the arguments of a request.
    pub(super) fn read(&mut self, arguments: &[&[u8]]) -> Step {
        let name = arguments.first().copied().unwrap_or_default();
        // A line of HTTP. A browser can be made to send some to any address, with commands in what follows.
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            return Step::Foreign;
        }
        if !self.line.is_known.get() && !is_open(name) {
            return Step::Reply(Reply::error("NOAUTH Authentication required."));
        }
        let step = match Command::parse(arguments, &self.hub.command_limits) {
            Err(error) => Err(error.reply()),
            Ok(command) if self.transaction.is_some() => {
                self.in_transaction(command, arguments.iter().map(|argument| argument.len()).sum())
            }
            Ok(command) => self.by_itself(command),
        };
        step.unwrap_or_else(|refused| {
            if let Some(transaction) = &mut self.transaction {
                transaction.spoil();
            }
            Step::Reply(refused)
        })
    }

    fn by_itself(&mut self, command: Command) -> Result<Step, Reply> {
        Ok(match command {
            Command::Operation(operation) => {
                let placement = operation.placement().map_err(|error| error.reply())?;
                Step::Operation(operation, placement)
            }
            Command::Keyspace(command) => Step::Alone(Alone::Keyspace(command)),
            Command::Connection(command) => Step::Alone(Alone::Connection(command)),
            Command::Transaction(TransactionCommand::Begin) => {
                self.set_transaction(Some(Transaction::default()));
                Step::Reply(Reply::OK)
            }
            Command::Transaction(TransactionCommand::Execute) => Step::Reply(Reply::error("ERR EXEC without MULTI")),
            Command::Transaction(TransactionCommand::Discard) => Step::Reply(Reply::error("ERR DISCARD without MULTI")),
            Command::Transaction(TransactionCommand::Watch(keys)) => Step::Alone(Alone::Watch(keys)),
            Command::Transaction(TransactionCommand::Unwatch) => Step::Alone(Alone::Unwatch),
        })
    }

    /// An error spoils the transaction.
    fn in_transaction(&mut self, command: Command, bytes: usize) -> Result<Step, Reply> {
        let queued = match command {
            Command::Operation(operation) => match operation.placement().map_err(|error| error.reply())? {
                Placement::One(_) => Queued::Operation(operation),
                Placement::Several => return Err(CommandError::CROSS_SLOT.reply()),
                Placement::Every => return Err(answers::NOT_IN_TRANSACTION),
            },
            Command::Keyspace(_) => return Err(answers::NOT_IN_TRANSACTION),
            Command::Transaction(TransactionCommand::Begin) => {
                return Ok(Step::Reply(Reply::error("ERR MULTI calls can not be nested")));
            }
            Command::Transaction(TransactionCommand::Watch(_)) => {
                return Ok(Step::Reply(Reply::error("ERR WATCH inside MULTI is not allowed")));
            }
            Command::Transaction(TransactionCommand::Execute) => return Ok(Step::Alone(Alone::Execute)),
            Command::Transaction(TransactionCommand::Discard) => return Ok(Step::Alone(Alone::Discard)),
            // What is watched is forgotten by EXEC anyway.
            Command::Transaction(TransactionCommand::Unwatch) => Queued::Connection(ConnectionCommand::Select),
            Command::Connection(command @ (ConnectionCommand::Quit | ConnectionCommand::Reset)) => {
                return Ok(Step::Alone(Alone::Connection(command)));
            }
            Command::Connection(command) if is_small(&command) => Queued::Connection(command),
            Command::Connection(_) => return Err(answers::NOT_IN_TRANSACTION),
        };
        let Some(transaction) = &mut self.transaction else { return Err(Reply::Null) };
        let reply = transaction.queue(queued, bytes);
        self.line.queued.set(Some(transaction.len()));
        Ok(Step::Reply(reply))
    }

    fn set_transaction(&mut self, transaction: Option<Transaction>) -> Option<Transaction> {
        self.line.queued.set(transaction.as_ref().map(Transaction::len));
        std::mem::replace(&mut self.transaction, transaction)
    }

    /// Begins a command, or gives it back if it has to wait. Then the task is woken when that may be over.
    pub(super) fn begin(&mut self, step: Step, context: &mut Context<'_>) -> Option<Step> {
        if self.hub.backend.groups() == 0 && step.needs_groups() {
            return self.wait_for_groups(step);
        }
        match step {
            Step::Reply(reply) => self.line.reply(reply),
            Step::Operation(operation, Placement::One(slot)) => return self.one(operation, slot, context),
            Step::Operation(operation, Placement::Several) => return self.several(operation, context),
            Step::Operation(operation, Placement::Every) => {
                if !self.line.is_idle() {
                    return Some(Step::Operation(operation, Placement::Every));
                }
                let place = self.line.begin_alone();
                let requests = self.hub.every(|| ClientRequest::Write(Change::Operation(operation.clone())));
                self.hub.gather(requests, move |parts| {
                    let done = all_or_unknown(parts).map(|_| Reply::OK);
                    place.answer(done.unwrap_or_else(|error| error));
                });
            }
            Step::Alone(alone) => return self.alone(alone, context).map(Step::Alone),
            Step::Foreign => {
                self.hub.warn(&self.line, "a request of HTTP: somebody may attack by way of a browser");
                self.line.end();
            }
        }
        None
    }

    /// Gives the command back, or refuses it if it has waited for long enough, or one just before it.
    fn wait_for_groups(&mut self, step: Step) -> Option<Step> {
        let now = self.hub.statistics.seconds();
        let waited = now - *self.waits_since.get_or_insert(now);
        if waited <= LOADING_MAX {
            return Some(step);
        }
        // Those of one pipeline do not wait one after the other. After that it was another command that has waited.
        if waited > LOADING_MAX + 1 {
            self.waits_since = Some(now);
            return Some(step);
        }
        let refusal = match step {
            Step::Alone(Alone::Watch(_)) => self.watched.fail(answers::LOADING),
            Step::Alone(Alone::Execute) => {
                self.set_transaction(None);
                self.watched.take();
                answers::LOADING
            }
            _ => answers::LOADING,
        };
        self.line.reply(refusal);
        None
    }

    fn one(&self, operation: Operation, slot: Slot, context: &mut Context<'_>) -> Option<Step> {
        let (group, load) = (self.hub.backend.group_of(slot), load(&operation));
        if !self.line.may_begin(group, load) || self.hub.backend.poll_ready(group, context).is_pending() {
            return Some(Step::Operation(operation, Placement::One(slot)));
        }
        self.hub.submit(self.line.begin(group, load), request(operation));
        None
    }

    fn several(&self, operation: Operation, context: &mut Context<'_>) -> Option<Step> {
        let (backend, load) = (&self.hub.backend, load(&operation));
        let groups: BTreeSet<u16> = operation.keys().map(|key| backend.group_of(Slot::of(key))).collect();
        let mut may_begin =
            |group: &u16| self.line.may_begin(*group, load) && backend.poll_ready(*group, context).is_ready();
        if !groups.iter().all(&mut may_begin) {
            return Some(Step::Operation(operation, Placement::Several));
        }
        let place = self.line.begin_in(groups.into_iter().collect(), load);
        let (mut requests, mut positions) = (Vec::new(), Vec::new());
        for (group, part) in operation.split(|slot| backend.group_of(slot)) {
            requests.push((group, request(part.operation)));
            positions.push(part.positions);
        }
        self.hub.gather(requests, move |parts| {
            let replies = if load.is_write { all_or_unknown(parts) } else { all(parts) };
            place.answer(match replies {
                Ok(replies) => Operation::join(positions.into_iter().zip(replies)),
                Err(error) => error,
            });
        });
        None
    }

    fn alone(&mut self, alone: Alone, context: &mut Context<'_>) -> Option<Alone> {
        if !self.line.is_idle() {
            return Some(alone);
        }
        match alone {
            Alone::Keyspace(command) => self.hub.keyspace(self.line.begin_alone(), command),
            Alone::Watch(keys) => self.watch(keys),
            Alone::Unwatch => {
                self.watched.take();
                self.line.reply(Reply::OK);
            }
            Alone::Discard => {
                self.set_transaction(None);
                self.watched.take();
                self.line.reply(Reply::OK);
            }
            Alone::Execute => return self.execute(context),
            Alone::Connection(command) => self.connection(&command),
        }
        None
    }

    fn watch(&self, keys: Vec<Key>) {
        let keys = match self.watched.new_ones(&keys) {
            Ok(keys) => keys,
            Err(error) => return self.line.reply(self.watched.fail(error.reply())),
        };
        if !self.watched.has_room(keys.len()) {
            let error = Reply::error("ERR too many keys are watched: UNWATCH forgets them");
            return self.line.reply(self.watched.fail(error));
        }
        let Some(first) = keys.first() else { return self.line.reply(Reply::OK) };
        let group = self.hub.backend.group_of(Slot::of(first));
        let (place, watched) = (self.line.begin_alone(), self.watched.clone());
        let request = ClientRequest::Read(Query::Versions(keys.clone()));
        self.hub.gather(vec![(group, request)], move |mut parts| {
            let reply = match parts.pop().map(Part::reply) {
                Some(Ok(versions)) => watched.watch(keys, versions).unwrap_or_else(|error| error),
                Some(Err(error)) => watched.fail(error),
                None => watched.fail(Reply::Null),
            };
            place.answer(reply);
        });
    }

    fn execute(&mut self, context: &mut Context<'_>) -> Option<Alone> {
        let queued = self.transaction.as_ref().map_or(&[][..], Transaction::queued);
        let operations = queued.iter().filter_map(Queued::operation);
        let watched = self.watched.keys();
        let slot = slot(operations.flat_map(Operation::keys).chain(watched.iter().map(|(key, _)| &key[..])));
        let group = slot.as_ref().ok().copied().flatten().map(|slot| self.hub.backend.group_of(slot));
        if let Some(group) = group
            && self.hub.backend.poll_ready(group, context).is_pending()
        {
            return Some(Alone::Execute);
        }
        let has_failed = self.watched.has_failed();
        let transaction = self.set_transaction(None)?;
        let watched = self.watched.take();
        if transaction.is_spoilt() {
            self.line.reply(Reply::error("EXECABORT Transaction discarded because of previous errors."));
            return None;
        }
        if has_failed {
            self.line.reply(Reply::error("EXECABORT Transaction discarded because a WATCH before it failed."));
            return None;
        }
        if let Err(error) = slot {
            self.line.reply(error.reply());
            return None;
        }
        // Answers to what is no operation, and where they stand.
        let (mut operations, mut others) = (Vec::new(), Vec::new());
        for (position, queued) in transaction.into_queued().into_iter().enumerate() {
            match queued {
                Queued::Operation(operation) => operations.push(operation),
                Queued::Connection(command) => others.push((position, self.answer(&command))),
            }
        }
        let Some(group) = group else {
            self.line.reply(Reply::Array(others.into_iter().map(|(_, reply)| reply).collect()));
            return None;
        };
        let request = ClientRequest::Write(Change::Transaction { watched, operations });
        if others.is_empty() {
            self.hub.submit(self.line.begin(group, TRANSACTION), request);
            return None;
        }
        let place = self.line.begin_in(vec![group], TRANSACTION);
        self.hub.gather(vec![(group, request)], move |mut parts| {
            let reply = parts.pop().map_or(Reply::Null, |part| part.reply().unwrap_or_else(|error| error));
            place.answer(match reply {
                Reply::Array(replies) => Reply::Array(merged(replies, others)),
                other => other,
            });
        });
        None
    }

    /// Nothing is under way.
    fn connection(&mut self, command: &ConnectionCommand) {
        match command {
            ConnectionCommand::Quit => {
                self.line.reply(Reply::OK);
                self.is_over = true;
            }
            ConnectionCommand::Reset => {
                self.set_transaction(None);
                self.watched.take();
                self.line.set_protocol(Protocol::V2);
                self.line.description.take();
                self.line.is_known.set(self.hub.settings.password.is_none());
                self.line.reply(Reply::Simple("RESET".into()));
            }
            command => {
                let reply = self.answer(command);
                self.line.reply(reply);
                self.is_over |= self.line.is_condemned();
            }
        }
    }

    fn answer(&self, command: &ConnectionCommand) -> Reply {
        answers::answer(&self.hub, &self.line, command)
    }
}

/// What a transaction is for those that come behind it.
const TRANSACTION: Load = Load { is_write: true, is_large: true };

fn load(operation: &Operation) -> Load {
    let is_large = match operation {
        Operation::Set(set) => set.answer == SetAnswer::Previous,
        Operation::Get { .. }
        | Operation::GetMany { .. }
        | Operation::GetDelete { .. }
        | Operation::GetExpire { .. } => true,
        _ => false,
    };
    Load { is_write: operation.is_write(), is_large }
}

fn request(operation: Operation) -> ClientRequest {
    if operation.is_write() {
        ClientRequest::Write(Change::Operation(operation))
    } else {
        ClientRequest::Read(Query::Operation(operation))
    }
}

/// Whether a command is possible before the client has said who it is.
fn is_open(name: &[u8]) -> bool {
    Specification::find(name).is_some_and(|specification| specification.has(Flag::NoAuth))
}

/// Whether a command of the connection may be part of a transaction: its answer is short, and it changes nothing, which a transaction
/// that fails could not take back.
const fn is_small(command: &ConnectionCommand) -> bool {
    matches!(
        command,
        ConnectionCommand::Ping(_)
            | ConnectionCommand::Echo(_)
            | ConnectionCommand::Select
            | ConnectionCommand::Time
            | ConnectionCommand::Wait { .. }
            | ConnectionCommand::Client(ClientCommand::Id | ClientCommand::GetName | ClientCommand::Ignored)
    )
}
