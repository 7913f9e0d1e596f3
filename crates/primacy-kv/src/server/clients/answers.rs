//! Commands about the connection and the node: who the client is, and what it wants to know.

use std::rc::Rc;

use super::hub::Hub;
use super::information;
use super::line::Line;
use super::statistics::add;
use crate::command::{ClientCommand, ClientFilter, ConnectionCommand, Credentials, Hello, describe};
use crate::resp::{Protocol, Reply};

/// In a transaction only what one group does at once is possible.
pub(super) const NOT_IN_TRANSACTION: Reply =
    Reply::error("ERR this command cannot be part of a transaction: only what concerns the keys of one slot can");

/// As in Redis, which clients know.
pub(super) const LOADING: Reply = Reply::error(
    "LOADING this node has not met all others yet for the first time, or still reads its disk, and nothing was done: send it again",
);

/// Answers a command about the connection.
pub(super) fn answer(hub: &Rc<Hub>, line: &Rc<Line>, command: &ConnectionCommand) -> Reply {
    match command {
        ConnectionCommand::Hello(hello) => self::hello(hub, line, hello).unwrap_or_else(|error| error),
        ConnectionCommand::Authenticate(credentials) => {
            authenticate(hub, line, credentials).map_or_else(|error| error, |()| Reply::OK)
        }
        ConnectionCommand::Ping(None) => Reply::Simple("PONG".into()),
        ConnectionCommand::Ping(Some(message)) | ConnectionCommand::Echo(message) => Reply::Bulk(message.clone()),
        ConnectionCommand::Quit | ConnectionCommand::Reset | ConnectionCommand::Select => Reply::OK,
        ConnectionCommand::Client(command) => client(hub, line, command),
        ConnectionCommand::Commands(query) => describe(query),
        ConnectionCommand::Settings(patterns) => information::settings(hub, patterns),
        ConnectionCommand::Information(names) => information::information(hub, names),
        ConnectionCommand::Time => information::time(),
        // What is answered is on the disks of a majority. How many more have it by now, nobody waits to hear.
        ConnectionCommand::Wait { .. } => {
            let copies = (0..hub.backend.groups()).map(|group| hub.backend.copies(group)).min();
            Reply::Integer(i64::from(copies.unwrap_or(0)))
        }
    }
}

fn authenticate(hub: &Hub, line: &Line, credentials: &Credentials) -> Result<(), Reply> {
    let Credentials { user, password } = credentials;
    let is_default = user.as_ref().is_none_or(|user| **user == *b"default");
    let is_right = match &hub.settings.password {
        Some(right) => right.is(password) && is_default,
        // As in Redis: the one user has no password, so any is right, if the client knows that there is a user.
        None if user.is_none() => {
            return Err(Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration \
                 is correct?",
            ));
        }
        None => is_default,
    };
    if is_right {
        line.is_known.set(true);
        return Ok(());
    }
    add(&hub.statistics.wrong_passwords, 1);
    hub.warn(line, "a wrong password or user");
    Err(Reply::error("WRONGPASS invalid username-password pair or user is disabled."))
}

fn hello(hub: &Hub, line: &Line, hello: &Hello) -> Result<Reply, Reply> {
    if let Some(credentials) = &hello.credentials {
        authenticate(hub, line, credentials)?;
    }
    if !line.is_known.get() {
        return Err(Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = &hello.name {
        line.description.borrow_mut().name.clone_from(name);
    }
    if let Some(protocol) = hello.protocol {
        line.set_protocol(protocol);
    }
    let version = if line.protocol() == Protocol::V3 { 3 } else { 2 };
    let known = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(information::REDIS_VERSION)),
        ("proto", Reply::Integer(version)),
        ("id", number(line)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    Ok(Reply::Map(known.map(|(name, value)| (Reply::bulk(name), value)).into()))
}

fn number(line: &Line) -> Reply {
    Reply::Integer(i64::try_from(line.id).unwrap_or(i64::MAX))
}

fn client(hub: &Hub, line: &Line, command: &ClientCommand) -> Reply {
    match command {
        ClientCommand::Id => number(line),
        ClientCommand::Information => Reply::Verbatim((information::describe(hub, line) + "\n").into()),
        ClientCommand::List(filter) => {
            if let Some(error) = unknown_kind(filter) {
                return error;
            }
            let lines = hub.lines();
            let meant = lines.iter().filter(|other| information::is_meant(filter, other, line.id));
            let described: String = meant.map(|other| information::describe(hub, other) + "\n").collect();
            Reply::Verbatim(described.into())
        }
        ClientCommand::SetName(name) => {
            line.description.borrow_mut().name.clone_from(name);
            Reply::OK
        }
        ClientCommand::GetName => {
            let name = &line.description.borrow().name;
            Reply::maybe(Some(&name[..]).filter(|name| !name.is_empty()))
        }
        ClientCommand::SetInformation { is_version, value } => {
            let mut description = line.description.borrow_mut();
            let place = if *is_version { &mut description.library_version } else { &mut description.library };
            place.clone_from(value);
            Reply::OK
        }
        ClientCommand::Ignored => Reply::OK,
        ClientCommand::Kill(filter) => kill(hub, line, filter),
    }
}

fn unknown_kind(filter: &ClientFilter) -> Option<Reply> {
    let kind = filter.kind.as_ref()?;
    let is_known = ["normal", "master", "replica", "slave", "pubsub"];
    let is_known = is_known.iter().any(|known| kind.eq_ignore_ascii_case(known.as_bytes()));
    let said = String::from_utf8_lossy(&kind[..kind.len().min(64)]);
    (!is_known).then(|| Reply::Error(format!("ERR Unknown client type '{said}'").into()))
}

fn kill(hub: &Hub, line: &Line, filter: &ClientFilter) -> Reply {
    if let Some(error) = unknown_kind(filter) {
        return error;
    }
    let mut killed = 0;
    for other in hub.lines().iter().filter(|other| information::is_meant(filter, other, line.id)) {
        killed += 1;
        // The connection that asks gets its answer first.
        if other.id == line.id { line.condemn() } else { other.end() }
    }
    match killed {
        0 if filter.is_short => Reply::error("ERR No such client"),
        _ if filter.is_short => Reply::OK,
        killed => Reply::Integer(killed),
    }
}
