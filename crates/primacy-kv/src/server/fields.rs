//! Names and identities in the formats of nodes, read back.

use primacy_core::log::ReplicaId;

use crate::wire::{Malformed, Reader};

/// The longest name of a node, or of a place.
const NAME_MAX: usize = 1 << 10;

pub(super) fn replica(reader: &mut Reader<'_>) -> Result<ReplicaId, Malformed> {
    Ok(ReplicaId::from_bits(u128::from_le_bytes(reader.array()?)))
}

pub(super) fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = reader.bytes(NAME_MAX)?.to_vec();
    String::from_utf8(bytes).map_err(|_| Malformed("a name is no text"))
}
