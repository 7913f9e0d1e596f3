//! A request on its way to the store.

use primacy_core::lease::{CallId, HandoverRequest, Record, Reply, Request};
use primacy_core::registers;

use crate::scenario::Fate;
use crate::store::Asker;

/// A request on its way to the store.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) node: usize,
    pub(crate) asker: Asker,
    pub(crate) ask: Ask,
    /// When it was sent, in real time.
    pub(crate) sent: u64,
    pub(crate) by: By,
    pub(crate) fate: Option<Fate>,
    pub(crate) abandoned: bool,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Something of the election's row.
    Row(Request),
    /// A round in the registers.
    Round(registers::Request),
}

#[derive(Debug)]
pub(crate) enum By {
    Process { number: u64, call: CallId },
    Group { host: usize, sim_process: u64, call: CallId },
    Warden,
}

impl Flight {
    /// Whether it is this call.
    pub(crate) fn is_of(&self, process: u64, of: CallId) -> bool {
        matches!(self.by, By::Process { number, call } if number == process && call == of)
    }

    /// Whether this group sent it, as this call if one is given.
    pub(crate) fn is_of_group(&self, of: u64, sent: Option<CallId>) -> bool {
        matches!(self.by, By::Group { sim_process, call, .. } if sim_process == of && sent.is_none_or(|sent| sent == call))
    }

    /// Whether this process sent it.
    pub(crate) fn is_by(&self, process: u64) -> bool {
        matches!(self.by, By::Process { number, .. } if number == process)
    }
}

pub(crate) fn describe_request(request: &Request) -> String {
    match request {
        Request::Look { .. } => "look".to_owned(),
        Request::Acquire { expect: Some(expect), .. } => format!("acquire if {}", expect.version),
        Request::Acquire { expect: None, floor, .. } => format!("acquire if absent, above {floor}"),
        Request::Renew { version, .. } => format!("renew {version}"),
        Request::Release { version, reason, .. } => format!("release {version} ({})", reason.word()),
        Request::Leave => "leave".to_owned(),
    }
}

pub(crate) fn describe_reply(reply: &Reply) -> String {
    let row = |record: &Option<Record>| match record {
        None => "no row".to_owned(),
        Some(record) => describe_record(record),
    };
    match reply {
        Reply::Seen(sighting) => row(&sighting.record),
        Reply::Applied(record) => format!("applied, {}", describe_record(record)),
        Reply::Conflict(sighting) => format!("conflict, {}", row(&sighting.record)),
        Reply::Left => "left".to_owned(),
    }
}

pub(crate) fn describe_record(record: &Record) -> String {
    let holder = record.holder.as_ref().map_or("nobody", |holder| holder.label.as_str());
    let handover = match &record.handover {
        None => String::new(),
        Some(HandoverRequest::NewElection) => ", hand-over: another".to_owned(),
        Some(HandoverRequest::Successor(label)) => format!(", hand-over: {label}"),
    };
    format!("{} of {holder}{handover}{}", record.version, if record.paused { ", paused" } else { "" })
}
