//! What operators have a client do, and what it has heard of their orders.

use alloc::vec::Vec;

use super::{Output, QuorumClient, Step};
use crate::Token;
use crate::lease::{CallError, Version};
use crate::quorum::port::{Ask, OrderRegister, Orders};

impl QuorumClient {
    /// Begins to write operators' orders, after a look: those of [`orders`](Self::orders) with one of a larger
    /// count. With a token, only if no later one has been granted. Ends with [`Seen`](crate::lease::Reply::Seen) when a
    /// majority has them, and with [`Conflict`](crate::lease::Reply::Conflict) if it has not and this is known; some voters
    /// may have them nevertheless.
    pub fn order(&mut self, orders: Orders, token: Option<Token>, out: &mut Vec<Output>) {
        self.give_up(out);
        self.step = Step::Telling;
        self.ask_all(&Ask::Order { orders, token }, out);
    }

    /// Begins to free the voters of the holder that was shown last, whatever it believes: two may lead until it notices. Ends
    /// as [`order`](Self::order) does.
    pub fn dismiss(&mut self, out: &mut Vec<Output>) {
        self.give_up(out);
        let shown = self.shown.as_ref().and_then(|shown| Some((shown.version, shown.holder.as_ref()?.id)));
        let Some((Version { token: term, beat }, id)) = shown else {
            return self.finish(Err(CallError::NotDone), out);
        };
        self.step = Step::Telling;
        self.ask_all(&Ask::Release { term, id, beat: beat.saturating_add(1), completed_order: 0 }, out);
    }

    /// Begins to forget the election, after a look: in the term above all that were seen then. Ends as
    /// [`order`](Self::order) does.
    pub fn forget(&mut self, out: &mut Vec<Output>) {
        let highest = self.views().highest();
        // Who has supported somebody in that term forgets in a later one only.
        let may_follow = self.heard.values().all(|view| view.highest < highest || view.is_forgotten());
        self.give_up(out);
        let term = highest.next(0);
        if highest == self.forgotten && highest > Token::NONE && self.shown.is_none() && may_follow {
            // It may be known to a few voters only. Where orders are shown, they came after it.
            self.step = Step::Telling;
            return self.ask_all(&Ask::Forget { term: highest }, out);
        }
        if term <= highest {
            return self.finish(Err(CallError::NotDone), out);
        }
        self.step = Step::Telling;
        self.ask_all(&Ask::Forget { term }, out);
    }

    /// The last term in which the election was forgotten, as far as it has heard; `Token::NONE` if it was not.
    pub const fn forgotten(&self) -> Token {
        self.forgotten
    }

    /// The latest orders among the answers to the last question that a majority answered.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Up to which term nothing is shown: the election was forgotten in it, and nobody is bound to a holder of it or before.
    pub(super) fn hidden(&self) -> Token {
        let is_led = self.forgotten > Token::NONE && self.views().is_bound_up_to(self.forgotten);
        if is_led { Token::NONE } else { self.forgotten }
    }

    /// Takes note of the orders that were heard of, and of hand-overs that are completed, up to `completed_order` by
    /// what is done now.
    pub(super) fn note_orders(&mut self, completed_order: u64) {
        self.orders = Orders::default();
        self.heard.values().for_each(|view| self.orders.merge(&view.orders));
        let forgotten = self.views().forgotten();
        self.forgotten = self.forgotten.max(forgotten);
        let told = self.views().completed_order(self.hidden());
        self.completed_order = self.completed_order.max(completed_order).max(told);
        // What came true was ordered, though none of these voters may have it: later orders come after it, and later claims
        // tell that it is done.
        self.orders.merge(&Orders { handover: OrderRegister::new(self.completed_order, None), ..Orders::default() });
    }
}
