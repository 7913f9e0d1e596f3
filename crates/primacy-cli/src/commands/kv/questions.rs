//! What is asked of a running node, over the socket in its folder.

use std::io;
use std::path::Path;

use primacy::peers::{PeersStore, Reconfiguration};
use primacy_kv::server::control::{Answer, GroupStatus, NodeStatus, Question, ReplicaStatus, ask};

use super::super::voters;
use crate::cli::Common;
use crate::failure::{Failure, code};
use crate::output::Output;
use crate::output::kv_schema;
use crate::output::schema::SCHEMA;
use crate::output::style::Tone;
use crate::output::table::{Cell, table};

fn unreached(folder: &Path, error: &io::Error) -> Failure {
    let place = folder.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::unavailable(format!(
            "no node runs in {place}: start one with primacy kv, or name the folder of one that runs on this machine with --dir"
        )),
        io::ErrorKind::PermissionDenied => Failure::unavailable(format!(
            "the node in {place} may be asked by its own user only: use that one, or root"
        )),
        _ => Failure::unavailable(format!("the node in {place} does not answer: {error}")),
    }
}

async fn node_status(folder: &Path) -> Result<NodeStatus, Failure> {
    let mut found = None;
    let asked = ask(folder, &Question::Status, |answer| found = Some(answer)).await;
    asked.map_err(|error| unreached(folder, &error))?;
    match found {
        Some(Answer::Status(status)) => Ok(status),
        Some(Answer::Refused { why }) => Err(Failure::refused(why)),
        _ => Err(Failure::unavailable("the node has ended while it was asked")),
    }
}

pub(super) async fn status(folder: &Path, output: &mut Output) -> Result<u8, Failure> {
    let status = node_status(folder).await?;
    let led = status.groups.iter().filter(|group| group.leader.is_some()).count();
    let here = status.groups.iter().filter(|group| group.is_led_here).count();
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let all = keys(status.groups.iter().map(|group| group.keys).sum());
    let max = status.memory_max.map(|max| format!(" of {}", mib(max))).unwrap_or_default();
    let mut text = format!(
        "{} serves clients on {}\n{all} in {}{max}; {} groups, {here} led here, {} without a known leader\n",
        status.name,
        status.serves,
        mib(status.memory_bytes),
        status.groups.len(),
        status.groups.len() - led,
    );
    if status.is_disk_full {
        text += "the disk is nearly full: nothing that needs room is written\n";
    }
    if let Some(trouble) = &status.log_trouble {
        text += &format!("its log: {trouble}\n");
    }
    let nodes = status.nodes.iter().map(|node| {
        let (state, tone) = match &node.id {
            Some(_) => ("connected", Tone::Plain),
            None => ("not connected", Tone::Notice),
        };
        vec![Cell::plain(&node.name), Cell::plain(&node.address), Cell::new(state, tone), Cell::plain(&node.serves)]
    });
    text += &table(&nodes.collect::<Vec<_>>(), 2, output.palette);
    let groups = status.groups.iter().map(|group| {
        let (leader, tone) = match &group.leader {
            Some(leader) => (leader.clone(), Tone::Plain),
            None => ("nobody".to_owned(), Tone::Notice),
        };
        vec![
            Cell::plain(format!("kv/{}", group.group)),
            Cell::new(leader, tone),
            Cell::plain(format!("token {}", group.token)),
            Cell::plain(keys(group.keys)),
            Cell::plain(format!("applied {} of {}", group.applied, group.last)),
            Cell::plain(lag(group)),
        ]
    });
    text += &table(&groups.collect::<Vec<_>>(), 2, output.palette);
    output.text(&text)?;
    let is_led = led == status.groups.len() && led > 0;
    output.json(&kv_schema::KvStatus { schema: SCHEMA, node: status })?;
    Ok(if is_led { 0 } else { code::REFUSED })
}

fn keys(count: u64) -> String {
    format!("{count} {}", if count == 1 { "key" } else { "keys" })
}

/// Who of a group's replicas lacks what, as its leader knows.
fn lag(group: &GroupStatus) -> String {
    let behind = |replica: &ReplicaStatus| {
        let lacks = group.last.saturating_sub(replica.matched?);
        (lacks > 0).then(|| format!("{} lacks {lacks}", replica.name))
    };
    let mut lacks: Vec<String> = group.replicas.iter().filter_map(behind).collect();
    if group.is_changing {
        lacks.push("its replicas are changing".to_owned());
    }
    lacks.join(", ")
}

pub(super) async fn explain(number: u16, folder: &Path, output: &mut Output) -> Result<u8, Failure> {
    let status = node_status(folder).await?;
    let Some(group) = status.groups.iter().find(|group| group.group == number) else {
        let why = match status.groups.len() {
            0 => "the node has no groups yet: it waits for the other nodes".to_owned(),
            count => format!("there is no group {number}: they are 0 to {}", count - 1),
        };
        return Err(Failure::refused(why));
    };
    let mut text = match (&group.leader, group.is_led_here) {
        (_, true) => format!(
            "{} leads group {number} with token {}, and may believe that for {} ms more.\n",
            status.name,
            group.token,
            group.remaining_ms.unwrap_or_default()
        ),
        (Some(leader), false) => format!(
            "{leader} leads group {number} with token {}, as far as {} knows; requests that come here are sent to it.\n",
            group.token, status.name
        ),
        (None, false) => format!(
            "Nobody leads group {number} as far as {} knows: {} requests wait here, and are answered with TRYAGAIN after two leases.\n",
            status.name, group.waiting
        ),
    };
    let names: Vec<&str> = group.replicas.iter().map(|replica| replica.name.as_str()).collect();
    text += &match *names {
        [name] => {
            format!("Its only replica is that of {name}, which has a write on its disk before it is acknowledged.\n")
        }
        _ => format!(
            "Its replicas are those of {}; {} of them have to have a write on their disks before it is acknowledged.\n",
            names.join(", "),
            names.len() / 2 + 1
        ),
    };
    for ReplicaStatus { name, matched, .. } in &group.replicas {
        if let Some(matched) = matched {
            text += &match group.last.saturating_sub(*matched) {
                0 => format!("  {name} has all of it on its disk\n"),
                lacks => format!("  {name} lacks the last {lacks} entries\n"),
            };
        }
    }
    let away: Vec<&str> = status.nodes.iter().filter(|node| node.id.is_none()).map(|node| node.name.as_str()).collect();
    if !away.is_empty() {
        text += &format!("Not connected to {}: {}.\n", status.name, away.join(", "));
    }
    if group.is_changing {
        text += "Its replicas are changing.\n";
    }
    text += if status.nodes.is_empty() {
        "If its leader is lost, nobody leads until it is back: there is no other node.\n"
    } else {
        "If its leader is lost now, any of the others may lead: each fetches what it lacks.\n"
    };
    if let Some(store) = store(folder) {
        text += &format!("Who stands: primacy status --store {store} --election kv/{number}\n");
    }
    output.text(&text)?;
    output.json(&kv_schema::KvGroup { schema: SCHEMA, group: group.clone(), text })?;
    Ok(0)
}

/// The voters by the socket of this node's, if it has one, as it can be typed into a shell.
fn store(folder: &Path) -> Option<String> {
    let socket = std::path::absolute(folder.join("voter/socket")).ok().filter(|socket| socket.exists())?;
    let path =
        socket.to_str().filter(|path| !path.contains(['\'', '?', '#', '%']) && !path.contains(char::is_control))?;
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    Some(if is_plain { format!("peers://{path}") } else { format!("'peers://{path}'") })
}

pub(super) async fn snapshot(folder: &Path, output: &mut Output) -> Result<u8, Failure> {
    say(folder, &Question::Snapshot, output).await
}

pub(super) async fn replace(name: &str, folder: &Path, common: &Common, output: &mut Output) -> Result<u8, Failure> {
    let status = node_status(folder).await?;
    let own = &status.name;
    if status.nodes.is_empty() {
        return Err(Failure::refused(format!(
            "'{own}' is a node alone: no other one can be replaced, or make it anew"
        )));
    }
    let names = status.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let node = status.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
        Failure::refused(if name == own {
            format!("'{own}' is this node: ask another one, {names}, on its machine and with its --dir")
        } else {
            format!("{own} knows of no other node '{name}': there are {names}")
        })
    })?;
    // Its voter first: without a majority of voters nobody leads anything.
    let place = format!("{name}@{}", node.address)
        .parse()
        .map_err(|_| Failure::refused(format!("the address of '{name}' is not known")))?;
    let change = Reconfiguration { add: vec![place], remove: vec![name.to_owned()] };
    let store = PeersStore::through(&folder.join("voter/socket"));
    let exchanged = voters::exchange(&store, &change, common, output).await?;
    let is_news = exchanged.is_news();
    if is_news {
        exchanged.tell(output)?;
    }
    let done = answer(folder, &Question::Replace { name: name.to_owned() }, output).await?;
    if !is_news {
        exchanged.tell_json(output)?;
    }
    tell(done, output)
}

async fn say(folder: &Path, question: &Question, output: &mut Output) -> Result<u8, Failure> {
    let done = answer(folder, question, output).await?;
    tell(done, output)
}

fn tell(text: String, output: &mut Output) -> Result<u8, Failure> {
    output.text(&format!("{text}\n"))?;
    output.json(&kv_schema::KvDone { schema: SCHEMA, text })?;
    Ok(0)
}

/// Asks, and waits until it is done.
async fn answer(folder: &Path, question: &Question, output: &mut Output) -> Result<String, Failure> {
    let mut last = None;
    let asked = ask(folder, question, |answer| match answer {
        Answer::Progress { text } => output.remark(&text),
        answer => last = Some(answer),
    });
    asked.await.map_err(|error| unreached(folder, &error))?;
    match last {
        Some(Answer::Done { text }) => Ok(text),
        Some(Answer::Refused { why }) => Err(Failure::refused(why)),
        _ => Err(Failure::new(code::PENDING, "the node has ended meanwhile: do the same again")),
    }
}
