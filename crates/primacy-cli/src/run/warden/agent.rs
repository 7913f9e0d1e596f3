//! Giving back a leadership that a dead runner had through the agent: over the runner's own connection.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use primacy::Token;

use crate::agent_wire::{Heard, Said, TokenText};

/// How much is read of what the runner has not.
const UNREAD_MOST: usize = 64 << 10;

/// Says that the work of this token has stopped, and of any that the runner has not read of. What cannot be said is not: then the
/// leadership lasts until its deadline.
pub(super) fn give_back(agent: &mut UnixStream, token: u64) {
    let mut unread = Vec::new();
    let mut chunk = [0; 4_096];
    // The connection does not block.
    while let Ok(count @ 1..) = agent.read(&mut chunk) {
        unread.extend_from_slice(&chunk[..count]);
        if unread.len() > UNREAD_MOST {
            break;
        }
    }
    // The runner may have read a part of the first line.
    let elected = unread.split(|byte| *byte == b'\n').filter_map(|line| match Heard::read(line) {
        Ok((Heard::Elected(elected), _)) => Some(elected.token),
        _ => None,
    });
    for token in Token::new(token).map(TokenText).into_iter().chain(elected) {
        let Ok(mut line) = serde_json::to_vec(&Said::Stopped { token }) else { continue };
        line.push(b'\n');
        if agent.write_all(&line).is_err() {
            return;
        }
    }
}
