//! Commands about the connection and the node at its other end. They are checked here, and answered by the node.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::Command;
use super::arguments::{Arguments, is_word, one_of};
use super::error::CommandError;
use super::operation::Value;
use crate::number::integer;
use crate::resp::Protocol;

type Parsed = Result<Command, CommandError>;
type Bytes = Box<[u8]>;

/// A command that no key has a part in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionCommand {
    /// `HELLO`.
    Hello(Hello),
    /// `AUTH`.
    Authenticate(Credentials),
    /// `PING`, with what to say instead of `PONG`.
    Ping(Option<Value>),
    /// `ECHO`.
    Echo(Value),
    /// `QUIT`.
    Quit,
    /// `RESET`.
    Reset,
    /// `SELECT 0`. There is no other database.
    Select,
    /// `CLIENT`.
    Client(ClientCommand),
    /// `COMMAND`.
    Commands(CommandQuery),
    /// `CONFIG GET`, with patterns of names.
    Settings(Vec<Bytes>),
    /// `INFO`, with names of sections.
    Information(Vec<Bytes>),
    /// `TIME`.
    Time,
    /// `WAIT`.
    Wait {
        /// How many copies the client wants.
        copies: i64,
        /// How long it waits for them, in milliseconds. 0 means for ever.
        patience: i64,
    },
}

/// `HELLO` with its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Which version of RESP to speak from now on.
    pub protocol: Option<Protocol>,
    /// Who the client is.
    pub credentials: Option<Credentials>,
    /// What the connection is to be called.
    pub name: Option<Bytes>,
}

/// Who a client says that it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `default`, if the client names nobody.
    pub user: Option<Bytes>,
    /// Its password.
    pub password: Bytes,
}

/// Without the password.
impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// `CLIENT` and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCommand {
    /// `CLIENT ID`.
    Id,
    /// `CLIENT INFO`.
    Information,
    /// `CLIENT LIST`.
    List(ClientFilter),
    /// `CLIENT SETNAME`. An empty name is none.
    SetName(Bytes),
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT SETINFO`: which library the client is, and its version.
    SetInformation {
        /// Whether it is the version.
        is_version: bool,
        /// The text.
        value: Bytes,
    },
    /// `CLIENT NO-EVICT`, `CLIENT NO-TOUCH`: there is nothing that they could change.
    Ignored,
    /// `CLIENT KILL`.
    Kill(ClientFilter),
}

/// Which connections are meant: those for which all that is stated is true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// Their numbers.
    pub ids: Vec<i64>,
    /// Their address and port.
    pub address: Option<Bytes>,
    /// The address and port that they are connected to.
    pub local_address: Option<Bytes>,
    /// Their kind, such as `normal`.
    pub kind: Option<Bytes>,
    /// Their user.
    pub user: Option<Bytes>,
    /// Whether the connection that asks is left out.
    pub skips_self: bool,
    /// Whether it is `CLIENT KILL ADDRESS`, which answers `OK` or an error instead of a number.
    pub is_short: bool,
}

/// What a client wants to know about commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandQuery {
    /// `COMMAND`, `COMMAND INFO`: those of these names; all, if there is none.
    Information(Vec<Bytes>),
    /// `COMMAND COUNT`.
    Count,
    /// `COMMAND DOCS`: those of these names; all, if there is none.
    Documentation(Vec<Bytes>),
    /// `COMMAND LIST`.
    List,
}

fn connection(command: ConnectionCommand) -> Parsed {
    Ok(Command::Connection(command))
}

fn client(command: ClientCommand) -> Parsed {
    connection(ConnectionCommand::Client(command))
}

fn names(arguments: &mut Arguments<'_>) -> Vec<Bytes> {
    core::iter::from_fn(|| arguments.optional()).map(Into::into).collect()
}

/// The name of a connection is one word.
fn name(text: &[u8], kind: &str) -> Result<Bytes, CommandError> {
    let is_plain = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let why = || CommandError::of(format!("ERR {kind} cannot contain spaces, newlines or special characters."));
    if is_plain { Ok(text.into()) } else { Err(why()) }
}

pub(super) fn hello(arguments: &mut Arguments<'_>) -> Parsed {
    let mut hello = Hello::default();
    if let Some(version) = arguments.optional() {
        let version =
            integer(version).ok_or(CommandError::new("ERR Protocol version is not an integer or out of range"))?;
        hello.protocol = Some(match version {
            2 => Protocol::V2,
            3 => Protocol::V3,
            _ => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        });
    }
    while let Some(option) = arguments.optional() {
        let wrong = || {
            let option = alloc::string::String::from_utf8_lossy(option);
            CommandError::of(format!("ERR Syntax error in HELLO option '{option}'"))
        };
        if is_word(option, "AUTH") && arguments.len() >= 2 {
            let (user, password) = (arguments.required()?, arguments.required()?);
            hello.credentials = Some(Credentials { user: Some(user.into()), password: password.into() });
        } else if is_word(option, "SETNAME") && arguments.len() >= 1 {
            hello.name = Some(name(arguments.required()?, "Client names")?);
        } else {
            return Err(wrong());
        }
    }
    connection(ConnectionCommand::Hello(hello))
}

pub(super) fn authenticate(arguments: &mut Arguments<'_>) -> Parsed {
    let first = arguments.required()?;
    let (user, password) = match arguments.optional() {
        Some(password) => (Some(first.into()), password.into()),
        None => (None, first.into()),
    };
    arguments.end()?;
    connection(ConnectionCommand::Authenticate(Credentials { user, password }))
}

pub(super) fn ping(arguments: &mut Arguments<'_>) -> Parsed {
    let message = arguments.optional().map(|message| Value::new(message.into()));
    if arguments.len() > 0 {
        return Err(CommandError::wrong_number(arguments.name));
    }
    connection(ConnectionCommand::Ping(message))
}

pub(super) fn echo(arguments: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Echo(Value::new(arguments.required()?.into())))
}

pub(super) fn quit(_: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Quit)
}

pub(super) fn reset(_: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Reset)
}

pub(super) fn select(arguments: &mut Arguments<'_>) -> Parsed {
    match arguments.integer()? {
        0 => connection(ConnectionCommand::Select),
        _ => Err(CommandError::new("ERR DB index is out of range")),
    }
}

pub(super) fn time(_: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Time)
}

pub(super) fn wait(arguments: &mut Arguments<'_>) -> Parsed {
    let copies = arguments.integer()?;
    let patience = integer(arguments.required()?);
    let patience = patience.ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    if patience < 0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    connection(ConnectionCommand::Wait { copies, patience })
}

pub(super) fn information(arguments: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Information(names(arguments)))
}

pub(super) fn settings(arguments: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Settings(names(arguments)))
}

pub(super) fn command_information(arguments: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Commands(CommandQuery::Information(names(arguments))))
}

pub(super) fn command_count(_: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Commands(CommandQuery::Count))
}

pub(super) fn command_documentation(arguments: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Commands(CommandQuery::Documentation(names(arguments))))
}

pub(super) fn command_list(_: &mut Arguments<'_>) -> Parsed {
    connection(ConnectionCommand::Commands(CommandQuery::List))
}

pub(super) fn client_id(_: &mut Arguments<'_>) -> Parsed {
    client(ClientCommand::Id)
}

pub(super) fn client_information(_: &mut Arguments<'_>) -> Parsed {
    client(ClientCommand::Information)
}

pub(super) fn client_set_name(arguments: &mut Arguments<'_>) -> Parsed {
    client(ClientCommand::SetName(name(arguments.required()?, "Client names")?))
}

pub(super) fn client_get_name(_: &mut Arguments<'_>) -> Parsed {
    client(ClientCommand::GetName)
}

pub(super) fn client_set_information(arguments: &mut Arguments<'_>) -> Parsed {
    let (attribute, value) = (arguments.required()?, arguments.required()?);
    let unknown = || {
        let attribute = alloc::string::String::from_utf8_lossy(attribute);
        CommandError::of(format!("ERR Unrecognized option '{attribute}'"))
    };
    let known = [("LIB-NAME", (false, "lib-name")), ("LIB-VER", (true, "lib-ver"))];
    let (is_version, kind) = one_of(attribute, &known).ok_or_else(unknown)?;
    client(ClientCommand::SetInformation { is_version, value: name(value, kind)? })
}

pub(super) fn client_switch(arguments: &mut Arguments<'_>) -> Parsed {
    match one_of(arguments.required()?, &[("ON", ()), ("OFF", ())]) {
        Some(()) => client(ClientCommand::Ignored),
        None => Err(CommandError::SYNTAX),
    }
}

pub(super) fn client_list(arguments: &mut Arguments<'_>) -> Parsed {
    let mut filter = ClientFilter::default();
    match arguments.optional() {
        None => {}
        Some(option) if is_word(option, "TYPE") => {
            filter.kind = Some(arguments.of_option()?.into());
            arguments.end()?;
        }
        Some(option) if is_word(option, "ID") => {
            filter.ids = arguments.all(|arguments| client_number(arguments.of_option()?))?;
        }
        Some(_) => return Err(CommandError::SYNTAX),
    }
    client(ClientCommand::List(filter))
}

fn client_number(text: &[u8]) -> Result<i64, CommandError> {
    let number = integer(text).filter(|number| *number > 0);
    number.ok_or(CommandError::new("ERR client-id should be greater than 0"))
}

pub(super) fn client_kill(arguments: &mut Arguments<'_>) -> Parsed {
    let mut filter = ClientFilter { skips_self: true, ..ClientFilter::default() };
    if arguments.len() == 1 {
        filter.address = Some(arguments.required()?.into());
        (filter.skips_self, filter.is_short) = (false, true);
    }
    while let Some(option) = arguments.optional() {
        let value = arguments.of_option()?;
        match option {
            _ if is_word(option, "ID") => filter.ids.push(client_number(value)?),
            _ if is_word(option, "ADDR") => filter.address = Some(value.into()),
            _ if is_word(option, "LADDR") => filter.local_address = Some(value.into()),
            _ if is_word(option, "TYPE") => filter.kind = Some(value.into()),
            _ if is_word(option, "USER") => filter.user = Some(value.into()),
            _ if is_word(option, "SKIPME") => {
                let skips = one_of(value, &[("YES", true), ("NO", false)]);
                filter.skips_self = skips.ok_or(CommandError::SYNTAX)?;
            }
            _ => return Err(CommandError::SYNTAX),
        }
    }
    client(ClientCommand::Kill(filter))
}
