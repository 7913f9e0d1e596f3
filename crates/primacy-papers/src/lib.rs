//! The elections of five papers as they were published, and what each becomes when only a preference is asked of it.
//!
//! Nothing that users run is built with this. A published form is kept line by line as its paper prints it, so that it can be
//! shown how it ends with two leaders or with none, and what its elections cost beside primacy's. A repaired form names a
//! *nominee*, who asks for the grant of [`primacy_core::quorum`]; the repaired ring stands in the core
//! ([`primacy_core::contest::ring`]), and the searches here go over it too. `docs/papers.md` says for each paper what is
//! reproduced, how, beside which number, and what is not.

pub mod mysql;
pub mod plain;
pub mod pole;
#[cfg(feature = "search")]
pub mod registers;
pub mod ring;
pub mod roulette;
#[cfg(feature = "search")]
pub mod searches;
#[cfg(feature = "search")]
pub mod world;

mod exclusions;
