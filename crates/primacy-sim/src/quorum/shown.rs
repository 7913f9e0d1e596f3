//! What a step may show, and some step of a search must.

pub(super) const DISMISSED: &str = "a leader is deposed at once";
pub(super) const FORGOT: &str = "an election is forgotten";
pub(super) const MOVED: &str = "the lease moves from one candidate to another";
pub(super) const RENEWED: &str = "a lease is renewed";
pub(super) const WITHDRAWN: &str = "a renewal is withdrawn, and the next one counts";
pub(super) const RELEASED: &str = "a released lease is taken before it would have ended";
pub(super) const CAUGHT_UP: &str = "a voter that missed a claim supports its holder later";
pub(super) const CAME_OVER: &str = "a voter that supported another in the holder's term supports it later";
pub(super) const CAME_BACK: &str = "a voter that supported a later claim in vain comes back to the holder";
pub(super) const RECONFIGURED: &str = "the voters are exchanged";
pub(super) const KEPT_ON: &str = "a lease is renewed by other voters than have granted it";
pub(super) const REFUSED: &str = "a candidate asks and is refused";
