//! What a node tells about itself and its connections: `INFO`, `CONFIG GET`, `CLIENT LIST`, `TIME`.

use std::fmt::Write as _;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::hub::Hub;
use super::line::Line;
use crate::command::ClientFilter;
use crate::glob_matches;
use crate::resp::{Protocol, Reply};

/// The version of Redis whose commands these are. Clients decide by it what they may use.
pub(super) const REDIS_VERSION: &str = "7.0.15";
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

type Section = (&'static str, fn(&Hub, &mut String));

const SECTIONS: [Section; 7] = [
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", statistics),
    ("replication", replication),
    ("keyspace", keyspace),
];

/// What `INFO` answers. Without names, and for `all`, `everything` and `default`, it is all there is.
pub(super) fn information(hub: &Hub, names: &[Box<[u8]>]) -> Reply {
    let is_all = |name: &[u8]| ["all", "everything", "default"].iter().any(|all| is(name, all));
    let all = names.is_empty() || names.iter().any(|name| is_all(name));
    let mut text = String::new();
    for (section, tell) in SECTIONS.iter().filter(|(section, _)| all || names.iter().any(|name| is(name, section))) {
        if !text.is_empty() {
            text += "\r\n";
        }
        let mut title = (*section).to_owned();
        title[..1].make_ascii_uppercase();
        line(&mut text, format_args!("# {title}"));
        tell(hub, &mut text);
    }
    Reply::Verbatim(text.into())
}

fn is(name: &[u8], word: &str) -> bool {
    name.eq_ignore_ascii_case(word.as_bytes())
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{words}\r\n");
}

/// What people said cannot end a line, or a field of one.
fn word(said: &str) -> String {
    said.chars().map(|letter| if letter.is_control() || letter == ',' { '?' } else { letter }).collect()
}

fn server(hub: &Hub, text: &mut String) {
    let facts = hub.backend.facts();
    let seconds = hub.statistics.seconds();
    line(text, format_args!("redis_version:{REDIS_VERSION}"));
    line(text, format_args!("redis_mode:standalone"));
    line(text, format_args!("server_name:primacy"));
    line(text, format_args!("primacy_version:{VERSION}"));
    line(text, format_args!("os:{}", std::env::consts::OS));
    line(text, format_args!("arch_bits:{}", usize::BITS));
    line(text, format_args!("process_id:{}", std::process::id()));
    line(text, format_args!("run_id:{}", word(&facts.id)));
    line(text, format_args!("node:{}", word(&facts.name)));
    line(text, format_args!("tcp_port:{}", hub.addresses.first().map_or(0, |address| address.port())));
    line(text, format_args!("server_time_usec:{}", time_of_day().as_micros()));
    line(text, format_args!("uptime_in_seconds:{seconds}"));
    line(text, format_args!("uptime_in_days:{}", seconds / 86_400));
}

fn clients(hub: &Hub, text: &mut String) {
    line(text, format_args!("connected_clients:{}", hub.statistics.connections()));
    line(text, format_args!("maxclients:{}", hub.settings.connections_max));
    let lines = hub.lines();
    let most = |of: fn(&Line) -> usize| lines.iter().map(|line| of(line)).max().unwrap_or(0);
    line(text, format_args!("client_recent_max_input_buffer:{}", most(|line| line.unread.get())));
    line(text, format_args!("client_recent_max_output_buffer:{}", most(Line::unsent)));
    line(text, format_args!("blocked_clients:0"));
}

fn memory(hub: &Hub, text: &mut String) {
    let facts = hub.backend.facts();
    let max = facts.memory_max.unwrap_or(0);
    line(text, format_args!("used_memory:{}", facts.memory_bytes));
    line(text, format_args!("used_memory_human:{}", human(facts.memory_bytes)));
    line(text, format_args!("maxmemory:{max}"));
    line(text, format_args!("maxmemory_human:{}", human(max)));
    line(text, format_args!("maxmemory_policy:noeviction"));
}

/// Clients that look whether a server is ready look here.
fn persistence(hub: &Hub, text: &mut String) {
    line(text, format_args!("loading:{}", u8::from(hub.backend.groups() == 0)));
}

fn statistics(hub: &Hub, text: &mut String) {
    let statistics = &hub.statistics;
    line(text, format_args!("total_connections_received:{}", statistics.accepted()));
    line(text, format_args!("total_commands_processed:{}", statistics.commands()));
    line(text, format_args!("instantaneous_ops_per_sec:{:.0}", statistics.command_rate()));
    line(text, format_args!("total_net_input_bytes:{}", statistics.received()));
    line(text, format_args!("total_net_output_bytes:{}", statistics.sent()));
    line(text, format_args!("rejected_connections:{}", statistics.refused()));
    line(text, format_args!("total_reads_processed:{}", statistics.reads()));
    line(text, format_args!("total_writes_processed:{}", statistics.writes()));
    line(text, format_args!("requests_per_sec:{:.0}", statistics.request_rate()));
    line(text, format_args!("requests_without_answer:{}", statistics.failures()));
    line(text, format_args!("clients_cut_off:{}", statistics.cut_off()));
    line(text, format_args!("acl_access_denied_auth:{}", statistics.wrong_passwords()));
}

/// Every node takes all commands, so to clients it is a master.
fn replication(hub: &Hub, text: &mut String) {
    let facts = hub.backend.facts();
    line(text, format_args!("role:master"));
    line(text, format_args!("connected_slaves:{}", facts.connected_nodes));
    line(text, format_args!("groups:{}", hub.backend.groups()));
    line(text, format_args!("groups_led_here:{}", facts.groups.iter().filter(|group| group.is_led_here).count()));
    line(
        text,
        format_args!("groups_without_leader:{}", facts.groups.iter().filter(|group| group.leader.is_none()).count()),
    );
    for (number, group) in facts.groups.iter().enumerate() {
        let leader = group.leader.as_deref().map_or_else(String::new, word);
        let role = if group.is_led_here { "leader" } else { "follower" };
        line(
            text,
            format_args!("group{number}:leader={leader},role={role},applied={},keys={}", group.applied, group.keys),
        );
    }
}

/// As far as this node's replicas are.
fn keyspace(hub: &Hub, text: &mut String) {
    let keys: u64 = hub.backend.facts().groups.iter().map(|group| group.keys).sum();
    if keys > 0 {
        line(text, format_args!("db0:keys={keys},expires=0,avg_ttl=0"));
    }
}

fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{size:.2}{}", units[unit]) }
}

/// What `CONFIG GET` answers: settings whose names match one of the patterns, in the terms of Redis.
pub(super) fn settings(hub: &Hub, patterns: &[Box<[u8]>]) -> Reply {
    let settings = &hub.settings;
    let binds: Vec<String> = settings.listen.iter().map(|address| address.ip().to_string()).collect();
    let port = hub.addresses.first().map_or(0, |address| address.port());
    let (plain, encrypted) = if settings.tls.is_some() { (0, port) } else { (port, 0) };
    let known = [
        // Every write is on a majority's disks before it is answered, so nothing is saved now and then.
        ("appendfsync", "always".to_owned()),
        ("appendonly", "yes".to_owned()),
        ("bind", binds.join(" ")),
        ("client-query-buffer-limit", hub.request_limits.request.to_string()),
        ("databases", "1".to_owned()),
        ("maxclients", settings.connections_max.to_string()),
        ("maxmemory", hub.backend.facts().memory_max.unwrap_or(0).to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", plain.to_string()),
        ("proto-max-bulk-len", hub.request_limits.bulk.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
        ("tls-port", encrypted.to_string()),
    ];
    let matches = |name: &str| {
        let matches = |pattern: &[u8]| glob_matches(&pattern.to_ascii_lowercase(), name.as_bytes());
        patterns.iter().any(|pattern| matches(pattern))
    };
    let found = known.into_iter().filter(|(name, _)| matches(name));
    Reply::Map(found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect())
}

/// What `CLIENT LIST` says of one connection, without the end of the line.
pub(super) fn describe(hub: &Hub, line: &Line) -> String {
    let now = hub.statistics.seconds();
    let description = line.description.borrow();
    let said = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let resp = if line.protocol() == Protocol::V3 { 3 } else { 2 };
    let queued = line.queued.get().map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} flags={} db=0 sub=0 psub=0 multi={queued} qbuf={} omem={} user={} lib-name={} \
         lib-ver={} resp={resp}",
        line.id,
        line.ends.peer,
        line.ends.local,
        said(&description.name),
        now.saturating_sub(line.since),
        now.saturating_sub(line.heard.get()),
        if queued < 0 { 'N' } else { 'x' },
        line.unread.get(),
        line.unsent(),
        if line.is_known.get() { "default" } else { "(none)" },
        said(&description.library),
        said(&description.library_version),
    )
}

/// Whether a connection is one of those that are meant.
pub(super) fn is_meant(filter: &ClientFilter, line: &Line, asking: u64) -> bool {
    let id = i64::try_from(line.id).unwrap_or(i64::MAX);
    let is_at = |said: &Option<Box<[u8]>>, address: std::net::SocketAddr| {
        said.as_ref().is_none_or(|said| **said == *address.to_string().as_bytes())
    };
    (filter.ids.is_empty() || filter.ids.contains(&id))
        && is_at(&filter.address, line.ends.peer)
        && is_at(&filter.local_address, line.ends.local)
        && filter.kind.as_ref().is_none_or(|kind| is(kind, "normal"))
        && filter.user.as_ref().is_none_or(|user| **user == *b"default" && line.is_known.get())
        && !(filter.skips_self && line.id == asking)
}

/// What `TIME` answers.
pub(super) fn time() -> Reply {
    let now = time_of_day();
    Reply::Array(vec![Reply::bulk(now.as_secs().to_string()), Reply::bulk(now.subsec_micros().to_string())])
}

/// Only clients learn it. Nothing here depends on it.
fn time_of_day() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok().map(Duration::from);
    now.unwrap_or_default()
}
