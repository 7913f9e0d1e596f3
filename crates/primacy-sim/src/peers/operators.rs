//! Operators and wardens, who ask voters for something once: as `primacy`'s admin and release do.

use primacy_core::CandidateId;
use primacy_core::lease::row::OrderKind;
use primacy_core::lease::{CallError, EndReason, HandoverRequest, Reply, Request, Version};
use primacy_core::quorum::OrderVerdict;

use crate::clock::Clock;
use crate::tally::Sometimes;
use crate::voters::PeersEvent;
use crate::voters::client::{ClientKind, Plan};
use crate::voters::order_task::{OrderTarget, OrderTask, judge};
use crate::world::World;

impl World {
    /// An operator goes about an order.
    pub(crate) fn order_peers(&mut self, order: OrderKind, target: OrderTarget, insists: bool) {
        self.engine.trace.hash(&(self.engine.now, &order));
        self.log(None, || format!("an operator is about to order {order:?}"));
        let host = self.peers.cuts.hosts().saturating_sub(1);
        let clock = Clock::new(self.engine.now, 0, 0);
        let order_task = OrderTask { order, target, insists, telling: None };
        let client = self.new_client(ClientKind::Operator(order_task), CandidateId::from_bits(0), host, clock);
        self.look_for_errand(client);
    }

    pub(super) fn retry_order_task(&mut self, client: u64) {
        match self.peers.clients.get(client).map(|client| &client.who) {
            Some(ClientKind::Reconfiguration(_)) => self.plan(client, Plan::Reconfigure),
            Some(_) => self.look_for_errand(client),
            None => {}
        }
    }

    fn look_for_errand(&mut self, number: u64) {
        self.plan_in_time(number, Plan::Call(Request::Look { announce: None }), 5_000_000_000);
    }

    fn plan_in_time(&mut self, number: u64, plan: Plan, patience: u64) {
        self.plan(number, plan);
        if let Some(client) = self.peers.clients.get(number) {
            self.after_peers(patience, PeersEvent::GiveUp { client: number, calls: client.calls });
        }
    }

    /// What an operator was told.
    pub(super) fn order_task_hears(&mut self, number: u64, result: Result<Reply, CallError>) {
        let entropy = self.engine.rng.bits();
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let mut known = client.quorum.client().orders().clone();
        let ClientKind::Operator(order_task) = &mut client.who else { return };
        let telling = order_task.telling.take();
        match (result, telling) {
            (Err(_), _) if order_task.insists => {
                self.after_peers(20_000_000, PeersEvent::Retry { client: number });
                return;
            }
            (Ok(Reply::Seen(seen)), None) => {
                let gone = seen.holder_gone;
                if let Some(record) = seen.record {
                    if order_task.insists {
                        // It knows of all that was ever ordered, also where that is not seen by a majority yet.
                        self.peers.voter_nodes.iter().for_each(|voter_node| voter_node.tell_orders(&mut known));
                    }
                    let verdict = judge(&record, !gone, &known, order_task, entropy);
                    if record.paused && record.holder.is_none() {
                        self.tally.saw(Sometimes::Held);
                    }
                    match verdict {
                        OrderVerdict::Already => {}
                        OrderVerdict::TokenChanged => self.saw(Sometimes::Refused),
                        OrderVerdict::Tell(telling) => {
                            order_task.telling = Some(telling.orders.clone());
                            self.peers.ledger.sent(telling.orders.paused.count);
                            let plan = Plan::Order(telling.orders, telling.until);
                            return self.plan_in_time(number, plan, 5_000_000_000);
                        }
                    }
                }
            }
            (Ok(Reply::Seen(_)), Some(orders)) => match &order_task.order {
                OrderKind::Pause => self.peers.ledger.paused(orders.paused.count),
                OrderKind::Promote { successor, .. } => {
                    self.peers.ledger.ordered_handover(Some(HandoverRequest::Successor(successor.clone())));
                }
                OrderKind::Depose { .. } => self.peers.ledger.ordered_handover(None),
                OrderKind::Resume => {}
            },
            (Ok(Reply::Conflict(_)), _) => self.saw(Sometimes::Refused),
            _ => {}
        }
        self.log(None, || "the operator is done".to_owned());
        self.end_client(number);
    }

    /// A warden asks for its dead process.
    pub(crate) fn warden_asks(&mut self, n: usize, id: CandidateId, version: Version) {
        let is_it =
            |who: &ClientKind, of: CandidateId| matches!(who, ClientKind::Warden { node } if *node == n) && of == id;
        let known = self.peers.clients.iter().find(|(_, client)| is_it(&client.who, client.id));
        let known = known.map(|(number, _)| number);
        let host = self.scenario.peers.as_ref().map_or(0, |setting| setting.hosts[n]);
        let clock = Clock::new(self.engine.now, 0, self.nodes[n].ppm);
        let number = known.unwrap_or_else(|| self.new_client(ClientKind::Warden { node: n }, id, host, clock));
        let request = Request::Release { id, version, reason: EndReason::Died };
        let patience = crate::nanos(self.nodes[n].part.timing.call_timeout());
        self.plan_in_time(number, Plan::Call(request), patience);
    }
}
