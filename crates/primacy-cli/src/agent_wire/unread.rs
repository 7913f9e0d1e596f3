//! Leaderships that a program was told of and did not take. Nothing works by them, so they can be given back.

use std::os::fd::AsFd;

use rustix::net::{RecvFlags, recv};
use serde::Deserialize;

use super::TokenText;

/// How much is read of what has come.
const UNREAD_MOST: usize = 64 << 10;

/// The token of a line that says that the program leads, also if this version can make nothing of the rest of it.
pub(crate) fn elected_token(line: &[u8]) -> Option<TokenText> {
    #[derive(Deserialize)]
    struct Elected {
        #[serde(rename = "type")]
        kind: String,
        token: TokenText,
    }
    let Elected { kind, token } = serde_json::from_slice(line).ok()?;
    (kind == "elected").then_some(token)
}

/// The tokens of leaderships in what was read and not looked at, and in what lies in the connection. Does not wait.
pub(crate) fn unread_tokens(mut unread: Vec<u8>, connection: impl AsFd) -> Vec<TokenText> {
    let mut chunk = [0; 4_096];
    while unread.len() <= UNREAD_MOST
        && let Ok((count @ 1.., _)) = recv(&connection, &mut chunk, RecvFlags::DONTWAIT)
    {
        unread.extend_from_slice(&chunk[..count]);
    }
    // A part of the first line may have been looked at.
    unread.split(|byte| *byte == b'\n').filter_map(elected_token).collect()
}
