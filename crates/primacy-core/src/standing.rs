//! Where a candidate stands among those that wait, which its timing goes by.

/// Where a candidate stands among those that wait. It decides who asks first, never who leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// How many live candidates came before this one.
    pub ahead: u32,
    /// How many live candidates there are beside this one.
    pub others: u32,
}

impl Standing {
    /// How many candidates have a place [near the front](Self::is_near).
    pub const NEAR: u32 = 8;

    /// Whether it is one of the two that are to see every renewal, so that one of them takes over in time though the other
    /// is dead. The rest may see of each few renewals one: the store is spared their looks.
    pub const fn is_next(&self) -> bool {
        self.ahead < 2
    }

    /// Whether it is one of the first eight, who still see a renewal in each third of a lease: should the leader and most
    /// of the line be lost together, with a site or a rack, one of these is soon there.
    pub const fn is_near(&self) -> bool {
        self.ahead < Self::NEAR
    }
}
