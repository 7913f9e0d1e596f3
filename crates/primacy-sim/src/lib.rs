//! A deterministic world around the protocols of primacy.
