//! Why orders were not written, or may not have been.

use primacy::store::{Basis, Snapshot};

use crate::failure::Failure;
use crate::output::lead::LOST;
use crate::reach::Reach;

/// Another leads than when the order was given, by itself or because of it.
pub(super) const UNKNOWN: &str =
    "another token was granted meanwhile, and it is unknown whether the order was written: see primacy status";

/// Why an order about an election without any candidate was refused.
pub(crate) fn no_such_election(reach: &Reach) -> Failure {
    Failure::refused(format!(
        "nobody has ever campaigned in the election {} in {}; nothing was changed (see primacy list)",
        reach.election(),
        reach.location()
    ))
}

/// Why an order about an election that has no record was refused.
pub(super) fn no_record(reach: &Reach, before: &Snapshot) -> Failure {
    let (election, token) = (reach.election(), before.record.version.token);
    Failure::refused(match before.basis {
        Basis::Forgotten => format!(
            "the election {election} is forgotten; nothing was changed. It begins again, with a token above {token}, when a \
             candidate runs"
        ),
        Basis::Record | Basis::Remains => format!(
            "{LOST}, and who leads in {election} is unknown; nothing was changed. The last token is {token}: order again \
             when a candidate leads"
        ),
    })
}
