//! A process of the `registers` protocol, and where it runs.

use std::collections::VecDeque;

use primacy_core::lease::CallId;
use primacy_core::registers::{ProcessEffect, ProcessEvent, ProcessId, Reply, Request};
use primacy_core::{Instant, lease, registers};

use crate::clock::Clock;
use crate::node::Stall;
use crate::rng::Rng;
use crate::scenario::Scenario;

pub(crate) fn describe_request(request: &Request) -> String {
    match request {
        Request::Join { came_back: Some(silent), .. } => format!("join, back after {silent:?}"),
        Request::Join { .. } => "join".to_owned(),
        Request::Beat { late, without, .. } => format!("beat, late by {late:?}, without {}", without.len()),
        Request::MembershipScan { token, evict, round, .. } => {
            format!("survey with token {token}, evict {evict:?}, round {round:?}")
        }
        Request::Leave { .. } => "leave".to_owned(),
    }
}

pub(crate) fn describe_reply(reply: &Reply) -> String {
    let record = |record: &Option<lease::Record>| match record {
        None => "no row".to_owned(),
        Some(record) => crate::flight::describe_record(record),
    };
    match reply {
        Reply::Joined { id, vars } => format!("joined as number {id}, rounds {:?}", vars.round),
        Reply::Beaten { vars, head, sighting } => {
            let line: Vec<u64> = head.iter().map(|row| row.id).collect();
            format!("rounds {:?}, line {line:?}, {}", vars.round, record(&sighting.record))
        }
        Reply::Evicted { sighting, .. } => format!("evicted, {}", record(&sighting.record)),
        Reply::Scanned { vars, descriptors } => {
            let all: Vec<_> = descriptors.iter().map(|row| (row.id, row.counter, row.late)).collect();
            format!("rounds {:?}, all {all:?}", vars.round)
        }
        Reply::NotLeading => "not leading".to_owned(),
        Reply::Left => "left".to_owned(),
    }
}

pub(crate) fn describe_effect(effect: &ProcessEffect) -> String {
    match effect {
        ProcessEffect::Call { request, .. } => format!("sends {}", describe_request(request)),
        other => format!("does {other:?}"),
    }
}

/// Where a process of this protocol runs: one machine, with the candidates of these nodes.
#[derive(Debug, Default)]
pub(crate) struct ProcessHost {
    pub(crate) nodes: Vec<usize>,
    pub(crate) sim_process: Option<SimProcess>,
    pub(crate) stall: Option<Stall>,
    /// Until when something has kept its group from beating in time, for the checkers.
    pub(crate) hindered_until: u64,
}

/// The group of one process, and its driver.
#[derive(Debug)]
pub(crate) struct SimProcess {
    pub(crate) number: u64,
    pub(crate) process: ProcessId,
    /// What the product runs too.
    pub(crate) core: registers::Process,
    pub(crate) clock: Clock,
    pub(crate) started_at: u64,
    pub(crate) entropy: Rng,
    pub(crate) mailbox: VecDeque<ProcessEvent>,
    pub(crate) effects: VecDeque<ProcessEffect>,
    pub(crate) call: Option<CallId>,
    pub(crate) armed: Option<Instant>,
    pub(crate) generation: u64,
    /// Calls in the present part of the healed phase.
    pub(crate) calls: u32,
}

impl ProcessHost {
    /// The hosts of all processes of a world, in which none runs yet.
    pub(crate) fn all(scenario: &Scenario) -> Vec<Self> {
        let mut process_hosts: Vec<Self> = Vec::new();
        process_hosts.resize_with(scenario.company.map_or(0, |company| company.processes), Self::default);
        for (node, part) in scenario.parts.iter().enumerate() {
            if let Some(host) = part.process_host {
                process_hosts[host].nodes.push(node);
            }
        }
        process_hosts
    }

    pub(crate) fn is_stopped(&self, now: u64) -> bool {
        self.stall.is_some_and(|stall| now < stall.until)
    }
}

impl SimProcess {
    /// Its machine has slept.
    pub(crate) fn suspended(&mut self, at_once: bool) {
        let event = ProcessEvent::Suspended;
        if at_once {
            self.mailbox.push_front(event);
        } else {
            self.mailbox.push_back(event);
        }
    }

    /// Whether anybody takes part through it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.core.candidates().is_empty()
    }
}
