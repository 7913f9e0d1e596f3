//! Giving back a leadership that a dead runner had through the agent: over the runner's own connection.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use primacy::Token;

use crate::agent_wire::{Said, TokenText, unread_tokens};

/// Says that the work of this token has stopped, and of any that the runner has not read of. What cannot be said is not: then the
/// leadership lasts until its deadline.
pub(super) fn give_back(agent: &mut UnixStream, token: u64) {
    let unread = unread_tokens(Vec::new(), &*agent);
    for token in Token::new(token).map(TokenText).into_iter().chain(unread) {
        let Ok(mut line) = serde_json::to_vec(&Said::Stopped { token }) else { continue };
        line.push(b'\n');
        if agent.write_all(&line).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_a_dead_runner_has_not_read_is_given_back_with_what_it_had() {
        let (mut agent, runner) = UnixStream::pair().expect("a pair");
        // It has read the beginning of the first line.
        agent
            .write_all(
                b"token\":\"7\",\"stop_ns\":1}\n\
                  {\"type\":\"lost\",\"n\":3,\"token\":\"7\",\"reason\":\"expired\",\"why\":\"\"}\n\
                  {\"type\":\"elected\",\"n\":4,\"token\":\"8\",\"stop_ns\":1,\"deadline_ns\":2,\"lease_ms\":1,\"grace_ms\":0}\n\
                  {\"type\":\"elected\",\"n\":5,\"token\":\"9\"",
            )
            .expect("there is room");
        // The warden's file of it.
        let mut of_warden = runner.try_clone().expect("a file");
        drop(runner);
        give_back(&mut of_warden, 7);
        drop(of_warden);
        let mut said = String::new();
        agent.read_to_string(&mut said).expect("it is text");
        let stopped = |token: u64| format!("{{\"type\":\"stopped\",\"token\":\"{token}\"}}\n");
        assert_eq!(said, stopped(7) + &stopped(8));
    }
}
