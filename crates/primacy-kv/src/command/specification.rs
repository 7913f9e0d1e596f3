//! The list of all commands: how many arguments each takes, what it may do, which of its arguments are keys, and how it
//! is read. It alone says so, to the parser and to clients that ask by `COMMAND`.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

use super::arguments::{Arguments, Limits};
use super::error::CommandError;
use super::{Command, connection, keys, strings, transaction};
use crate::resp::Reply;

/// How a command is read from its arguments.
type Parse = fn(&mut Arguments<'_>) -> Result<Command, CommandError>;

/// What is known of a command before it is read.
#[derive(Debug, Clone, Copy)]
pub struct Specification {
    /// Its name in small letters; of a subcommand, the container's name and a bar before it.
    pub name: &'static str,
    /// How many arguments it has, its name among them. A negative number: at least so many.
    pub arity: i64,
    /// What it may do.
    pub flags: &'static [Flag],
    /// Which of its arguments are keys.
    pub keys: KeyPositions,
    /// The commands whose container it is.
    pub subcommands: &'static [Specification],
    /// What it is for, in one line.
    pub summary: &'static str,
    parse: Parse,
}

/// What a command may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Changes keys.
    Write,
    /// Reads keys.
    ReadOnly,
    /// Needs memory, and is refused if there is none.
    DenyOom,
    /// Takes no longer with more data.
    Fast,
    /// Is possible before the client has said who it is.
    NoAuth,
    /// Is for operators.
    Admin,
}

impl Flag {
    /// What clients know it as.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::ReadOnly => "readonly",
            Self::DenyOom => "denyoom",
            Self::Fast => "fast",
            Self::NoAuth => "no_auth",
            Self::Admin => "admin",
        }
    }
}

/// Which arguments are keys: from the first to the last in steps. A last of -1 is the last argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPositions {
    /// The first key; 0 if there is none.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// The distance between two.
    pub step: i64,
}

const NONE: KeyPositions = KeyPositions { first: 0, last: 0, step: 0 };
const ONE: KeyPositions = KeyPositions { first: 1, last: 1, step: 1 };
const ALL: KeyPositions = KeyPositions { first: 1, last: -1, step: 1 };
const PAIRS: KeyPositions = KeyPositions { first: 1, last: -1, step: 2 };

const READ: &[Flag] = &[Flag::ReadOnly];
const READ_FAST: &[Flag] = &[Flag::ReadOnly, Flag::Fast];
const WRITE: &[Flag] = &[Flag::Write];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const GROW: &[Flag] = &[Flag::Write, Flag::DenyOom];
const GROW_FAST: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Fast];
const FAST: &[Flag] = &[Flag::Fast];
const OPEN: &[Flag] = &[Flag::Fast, Flag::NoAuth];
const ADMIN: &[Flag] = &[Flag::Admin];

const fn command(
    name: &'static str,
    arity: i64,
    flags: &'static [Flag],
    keys: KeyPositions,
    parse: Parse,
    summary: &'static str,
) -> Specification {
    Specification { name, arity, flags, keys, subcommands: &[], summary, parse }
}

const fn container(
    name: &'static str,
    arity: i64,
    subcommands: &'static [Specification],
    parse: Parse,
    summary: &'static str,
) -> Specification {
    Specification { name, arity, flags: &[], keys: NONE, subcommands, summary, parse }
}

/// All commands, by name.
pub const COMMANDS: &[Specification] = &[
    command("append", 3, GROW_FAST, ONE, strings::append, "Appends to the value of a key."),
    command("auth", -2, OPEN, NONE, connection::authenticate, "Says who the client is."),
    container("client", -2, CLIENT, only_contains, "What concerns connections."),
    container("command", -1, COMMAND, connection::command_information, "What is known of commands."),
    container("config", -2, CONFIG, only_contains, "What concerns settings."),
    command("dbsize", 1, READ_FAST, NONE, keys::size, "Returns the number of keys."),
    command("decr", 2, GROW_FAST, ONE, strings::decrement, "Subtracts one from an integer."),
    command("decrby", 3, GROW_FAST, ONE, strings::decrement_by, "Subtracts from an integer."),
    command("del", -2, WRITE, ALL, keys::delete, "Deletes keys."),
    command("delex", -2, WRITE_FAST, ONE, keys::delete_if, "Deletes a key if its value is the right one."),
    command("delifeq", 3, WRITE_FAST, ONE, keys::delete_if_equal, "Deletes a key if its value is this one."),
    command("discard", 1, FAST, NONE, transaction::discard, "Gives up a transaction."),
    command("echo", 2, FAST, NONE, connection::echo, "Returns its argument."),
    command("exec", 1, &[], NONE, transaction::execute, "Carries out a transaction."),
    command("exists", -2, READ_FAST, ALL, keys::exists, "Returns how many of the keys are there."),
    command("expire", -3, WRITE_FAST, ONE, keys::expire, "Sets the time to live of a key in seconds."),
    command("expireat", -3, WRITE_FAST, ONE, keys::expire_at, "Sets the time of day until which a key lives."),
    command("flushall", -1, WRITE, NONE, keys::flush_all, "Deletes all keys."),
    command("flushdb", -1, WRITE, NONE, keys::flush_all, "Deletes all keys."),
    command("get", 2, READ_FAST, ONE, strings::get, "Returns the value of a key."),
    command("getdel", 2, WRITE_FAST, ONE, strings::get_delete, "Returns the value of a key, and deletes it."),
    command("getex", -2, WRITE_FAST, ONE, strings::get_expire, "Returns a value, and sets its time to live."),
    command("getset", 3, GROW_FAST, ONE, strings::get_set, "Sets a value, and returns the one before."),
    command("hello", -1, OPEN, NONE, connection::hello, "Chooses the version of the protocol."),
    command("incr", 2, GROW_FAST, ONE, strings::increment, "Adds one to an integer."),
    command("incrby", 3, GROW_FAST, ONE, strings::increment_by, "Adds to an integer."),
    command("incrbyfloat", 3, GROW_FAST, ONE, strings::increment_by_float, "Adds to a decimal number."),
    command("info", -1, &[], NONE, connection::information, "Tells about the node."),
    command("keys", 2, READ, NONE, keys::keys, "Returns the keys that match a pattern."),
    command("mget", -2, READ_FAST, ALL, strings::get_many, "Returns the values of keys."),
    command("mset", -3, GROW, PAIRS, strings::set_many, "Sets the values of keys in one slot."),
    command("msetnx", -3, GROW, PAIRS, strings::set_many_if_absent, "Sets them if none of the keys is there."),
    command("multi", 1, FAST, NONE, transaction::begin, "Begins a transaction."),
    command("persist", 2, WRITE_FAST, ONE, keys::persist, "Lets a key live for ever."),
    command("pexpire", -3, WRITE_FAST, ONE, keys::expire_milliseconds, "As EXPIRE, in milliseconds."),
    command("pexpireat", -3, WRITE_FAST, ONE, keys::expire_at_milliseconds, "As EXPIREAT, in milliseconds."),
    command("ping", -1, FAST, NONE, connection::ping, "Answers."),
    command("psetex", 4, GROW, ONE, strings::set_milliseconds, "As SETEX, in milliseconds."),
    command("pttl", 2, READ_FAST, ONE, keys::time_to_live_milliseconds, "As TTL, in milliseconds."),
    command("quit", -1, OPEN, NONE, connection::quit, "Ends the connection."),
    command("randomkey", 1, READ, NONE, keys::random_key, "Returns some key."),
    command("reset", 1, OPEN, NONE, connection::reset, "Makes the connection as it was at first."),
    command("scan", -2, READ, NONE, keys::scan, "Returns the keys step by step."),
    command("select", 2, FAST, NONE, connection::select, "Chooses a database: the only one."),
    command("set", -3, GROW, ONE, strings::set, "Sets the value of a key."),
    command("setex", 4, GROW, ONE, strings::set_seconds, "Sets a value and its time to live."),
    command("setnx", 3, GROW_FAST, ONE, strings::set_if_absent, "Sets a value if there is none."),
    command("strlen", 2, READ_FAST, ONE, strings::length, "Returns the length of a value."),
    command("time", 1, FAST, NONE, connection::time, "Returns the time of day."),
    command("ttl", 2, READ_FAST, ONE, keys::time_to_live, "Returns the time to live in seconds."),
    command("type", 2, READ_FAST, ONE, keys::type_of, "Returns the type of a value."),
    command("unlink", -2, WRITE_FAST, ALL, keys::delete, "Deletes keys."),
    command("unwatch", 1, FAST, NONE, transaction::unwatch, "Forgets what is watched."),
    command("wait", 3, &[], NONE, connection::wait, "Returns how many nodes have what was written."),
    command("watch", -2, FAST, ALL, transaction::watch, "Lets the next EXEC fail if a key changes."),
];

const CLIENT: &[Specification] = &[
    command("client|getname", 2, &[], NONE, connection::client_get_name, "Returns the connection's name."),
    command("client|id", 2, &[], NONE, connection::client_id, "Returns the connection's number."),
    command("client|info", 2, &[], NONE, connection::client_information, "Tells about the connection."),
    command("client|kill", -3, ADMIN, NONE, connection::client_kill, "Ends connections."),
    command("client|list", -2, ADMIN, NONE, connection::client_list, "Tells about connections."),
    command("client|no-evict", 3, ADMIN, NONE, connection::client_switch, "Changes nothing."),
    command("client|no-touch", 3, &[], NONE, connection::client_switch, "Changes nothing."),
    command("client|setinfo", 4, &[], NONE, connection::client_set_information, "Names the client's library."),
    command("client|setname", 3, &[], NONE, connection::client_set_name, "Names the connection."),
];

const COMMAND: &[Specification] = &[
    command("command|count", 2, &[], NONE, connection::command_count, "Returns how many commands there are."),
    command("command|docs", -2, &[], NONE, connection::command_documentation, "Says what commands are for."),
    command("command|info", -2, &[], NONE, connection::command_information, "Describes commands."),
    command("command|list", -2, &[], NONE, connection::command_list, "Returns the names of commands."),
];

const CONFIG: &[Specification] =
    &[command("config|get", -3, ADMIN, NONE, connection::settings, "Returns settings whose names match.")];

/// A container whose subcommand is missing. The number of arguments says so before.
fn only_contains(arguments: &mut Arguments<'_>) -> Result<Command, CommandError> {
    Err(CommandError::wrong_number(arguments.name))
}

/// The longest name of a command or subcommand.
const NAME_MAX: usize = 16;

/// The command of this name, in large or small letters, in a list that is ordered by name.
fn find(list: &'static [Specification], name: &[u8]) -> Option<&'static Specification> {
    let mut small = [0; NAME_MAX];
    let small = small.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    let at = list.binary_search_by(|specification| specification.own_name().as_bytes().cmp(small));
    at.ok().map(|at| &list[at])
}

impl Specification {
    /// The name of this name, in large or small letters.
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        find(COMMANDS, name)
    }

    /// Its name without that of its container.
    fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Whether it has this flag.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// What `COMMAND INFO` answers.
    pub fn information(&self) -> Reply {
        let word = |word: &'static str| Reply::Simple(Cow::Borrowed(word));
        let mut flags: Vec<Reply> = self.flags.iter().map(|flag| word(flag.name())).collect();
        if self.keys == NONE {
            flags.extend([word("noscript"), word("stale")]);
            if !self.has(Flag::Write) && !self.has(Flag::ReadOnly) {
                flags.push(word("loading"));
            }
        }
        let subcommands = self.subcommands.iter().map(Self::information).collect();
        Reply::Array(vec![
            Reply::bulk(self.name),
            Reply::Integer(self.arity),
            Reply::Set(flags),
            Reply::Integer(self.keys.first),
            Reply::Integer(self.keys.last),
            Reply::Integer(self.keys.step),
            Reply::Set(Vec::new()),
            Reply::Array(Vec::new()),
            Reply::Array(Vec::new()),
            Reply::Array(subcommands),
        ])
    }

    fn documentation(&self) -> Reply {
        Reply::Map(vec![(Reply::bulk("summary"), Reply::bulk(self.summary))])
    }
}

/// Answers a question about commands.
pub fn describe(query: &connection::CommandQuery) -> Reply {
    use connection::CommandQuery;
    match query {
        CommandQuery::Count => Reply::count(COMMANDS.len()),
        CommandQuery::List => Reply::Array(COMMANDS.iter().map(|each| Reply::bulk(each.name)).collect()),
        CommandQuery::Information(names) if names.is_empty() => {
            Reply::Array(COMMANDS.iter().map(Specification::information).collect())
        }
        CommandQuery::Information(names) => {
            let found = names.iter().map(|name| Specification::find(name));
            Reply::Array(found.map(|found| found.map_or(Reply::NullArray, Specification::information)).collect())
        }
        CommandQuery::Documentation(names) => {
            let all = COMMANDS.iter().filter(|_| names.is_empty());
            let named = names.iter().filter_map(|name| Specification::find(name));
            Reply::Map(all.chain(named).map(|each| (Reply::bulk(each.name), each.documentation())).collect())
        }
    }
}

/// Reads the arguments of a request, the name of the command first.
pub(super) fn parse(arguments: &[&[u8]], limits: &Limits) -> Result<Command, CommandError> {
    let unknown = || CommandError::unknown_command(arguments);
    let (name, _) = arguments.split_first().ok_or_else(unknown)?;
    let mut found = Specification::find(name).ok_or_else(unknown)?;
    let mut skipped = 1;
    if let Some(name) = arguments.get(1).filter(|_| !found.subcommands.is_empty()) {
        found = find(found.subcommands, name).ok_or_else(|| CommandError::unknown_subcommand(found.name, name))?;
        skipped = 2;
    }
    if !found.takes(arguments.len()) {
        return Err(CommandError::wrong_number(found.name));
    }
    (found.parse)(&mut Arguments::new(found.name, &arguments[skipped..], limits))
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        let names = |list: &'static [Specification]| list.iter().map(Specification::own_name);
        for list in [COMMANDS, CLIENT, COMMAND, CONFIG] {
            assert!(names(list).is_sorted());
            assert!(names(list).all(|name| name.len() <= NAME_MAX && find(list, name.as_bytes()).is_some()));
        }
        assert!(Specification::find(b"SeT").is_some());
        assert!(Specification::find(&[b'a'; 100]).is_none());
    }

    #[test]
    fn flags_and_key_positions_say_what_the_parser_does() {
        for specification in COMMANDS.iter().filter(|each| each.subcommands.is_empty()) {
            let count = usize::try_from(specification.arity.abs()).unwrap();
            let text = |at: usize| if at == 0 { String::from(specification.name) } else { format!("{at}") };
            let texts: Vec<_> = (0..count).map(text).collect();
            let arguments: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            let parsed = parse(&arguments, &Limits::default());
            let keys = specification.keys;
            let last = if keys.last < 0 { i64::try_from(count).unwrap() + keys.last } else { keys.last };
            let positions = (keys.first..=last).step_by(usize::try_from(keys.step.max(1)).unwrap());
            let expected: Vec<_> = positions.filter(|at| *at > 0).map(|at| format!("{at}")).collect();
            match &parsed {
                Ok(Command::Operation(operation)) => {
                    // GETEX without an option only reads.
                    if specification.name != "getex" {
                        assert_eq!(specification.has(Flag::Write), operation.is_write(), "{}", specification.name);
                    }
                    let named: Vec<_> = operation.keys().map(|key| str::from_utf8(key).unwrap()).collect();
                    assert_eq!(named, expected, "{}", specification.name);
                    assert_eq!(specification.has(Flag::DenyOom), operation.growth_max() > 0, "{}", specification.name);
                }
                Ok(_) => assert!(!specification.has(Flag::Write), "{}", specification.name),
                Err(error) => assert_eq!(error.reply(), Reply::error("ERR DB index is out of range")),
            }
        }
    }
}
