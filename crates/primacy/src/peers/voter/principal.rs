//! Who may do what at a voter: which role a certificate or a socket's user has, and which role each frame takes.
//!
//! This is the only place that says so. The design page on roles is made from here.

use primacy_core::quorum::Role;

use super::command::VoterCommand;
use crate::peers::config::RoleNames;

/// Who is at the other end of a connection, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Principal {
    pub(super) authentication: Authentication,
    /// What it says that it is at most, as a peer does that passes on what somebody says on its socket.
    pub(super) claim: Option<Role>,
    /// It says that it comes through another peer.
    pub(super) is_relayed: bool,
}

/// How a principal has proven who it is.
#[derive(Clone, Debug)]
pub(super) enum Authentication {
    /// By a certificate with this name first, if that is one that a peer can have.
    Certificate(Option<String>),
    /// By its user, on this machine.
    Socket(Role),
    /// Not at all: plain text is spoken.
    Nothing,
}

impl Principal {
    /// Somebody whose greeting has not come yet.
    pub(super) const fn new(authentication: Authentication) -> Self {
        Self { authentication, claim: None, is_relayed: false }
    }

    /// Its role, where a voter has one of these names. What it claims makes it less and never more; a peer that passes something
    /// on and does not say for whom does it for a candidate.
    pub(super) fn role(&self, names: &RoleNames, is_voter: impl Fn(&str) -> bool) -> Role {
        let proven = match &self.authentication {
            Authentication::Certificate(Some(name)) if is_voter(name) => Role::Voter,
            Authentication::Certificate(Some(name)) => names.role(name),
            Authentication::Certificate(None) => Role::Observer,
            Authentication::Socket(role) => *role,
            Authentication::Nothing => Role::Voter,
        };
        match self.claim {
            Some(claim) => proven.min(claim).min(Role::Operator),
            None if self.is_relayed => proven.min(Role::Candidate),
            None => proven,
        }
    }

    /// The name that it has proven to have itself.
    pub(super) fn own_name(&self) -> Option<&str> {
        match &self.authentication {
            Authentication::Certificate(name) if !self.is_relayed && self.claim.is_none() => name.as_deref(),
            _ => None,
        }
    }
}

/// The role of a user on a socket: root and the voter's own user can do what they want to the voter anyway.
pub(super) fn of_user(user: u32, own: u32) -> Role {
    if user == 0 || user == own { Role::Operator } else { Role::Candidate }
}

/// The least role that each frame takes which asks a voter for something, and what it asks for.
pub(super) const fn right(command: &VoterCommand) -> (Role, &'static str) {
    match command {
        VoterCommand::Ask { query, .. } => match query.query.ask.least_role() {
            Role::Observer if query.query.announce.is_some() => (Role::Candidate, "to wait for a lease"),
            Role::Observer => (Role::Observer, "a look"),
            Role::Candidate => (Role::Candidate, "to campaign"),
            least => (least, "an order"),
        },
        VoterCommand::Leave { .. } => (Role::Candidate, "to wait no more"),
        VoterCommand::Watch { .. }
        | VoterCommand::List { .. }
        | VoterCommand::Recall { .. }
        | VoterCommand::Probe { .. } => (Role::Observer, "a look"),
        VoterCommand::Behind { .. } => (Role::Candidate, "to tell of other voters"),
        VoterCommand::Testify { .. } => (Role::Observer, "a look"),
        VoterCommand::Config { page, .. } => (page.ask.least_role(), "to exchange voters"),
        VoterCommand::Found { .. } => (Role::Voter, "to bring voters together"),
        // These come from this voter itself.
        VoterCommand::Learn { .. } | VoterCommand::Gone { .. } => (Role::Voter, "to answer for others"),
    }
}

/// Why somebody may not do that, and what to do.
pub(super) fn denial(who: &str, role: Role, least: Role, what: &str) -> String {
    let who = primacy_core::ids::escape(who);
    let how = match least {
        Role::Operator | Role::Voter => {
            "use a certificate with the name of an operator ('primacy peer certs DIR operator'; the peers' --operators say \
             which names those are), or the socket of a peer, as root or that peer's user"
        }
        Role::Candidate | Role::Observer => {
            "use a certificate with another name; the peers' --observers say which names only look"
        }
    };
    format!("'{who}' is {} {role} here, and {what} takes {} {least}: {how}", article(role), article(least))
}

const fn article(role: Role) -> &'static str {
    match role {
        Role::Observer | Role::Operator => "an",
        Role::Candidate | Role::Voter => "a",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::wire;

    fn certificate(name: &str) -> Principal {
        Principal::new(Authentication::Certificate(Some(name.to_owned())))
    }

    fn role(principal: &Principal) -> Role {
        principal.role(&RoleNames::default(), |name| ["a", "b", "operator-of-old"].contains(&name))
    }

    #[test]
    fn the_name_in_a_certificate_is_the_role() {
        for (name, wanted) in [
            ("a", Role::Voter),
            ("operator", Role::Operator),
            ("operator-1", Role::Operator),
            ("operator-of-old", Role::Voter),
            ("operators", Role::Candidate),
            ("observer-x.example", Role::Observer),
            ("web-1", Role::Candidate),
            ("an-operator", Role::Candidate),
        ] {
            assert_eq!(role(&certificate(name)), wanted, "{name}");
        }
        assert_eq!(role(&Principal::new(Authentication::Certificate(None))), Role::Observer);
        assert_eq!(role(&Principal::new(Authentication::Nothing)), Role::Voter);
    }

    #[test]
    fn what_is_claimed_makes_less_and_never_more() {
        for (name, claim, wanted) in [
            ("web-1", Role::Operator, Role::Candidate),
            ("web-1", Role::Voter, Role::Candidate),
            ("observer", Role::Voter, Role::Observer),
            ("operator", Role::Observer, Role::Observer),
            ("a", Role::Operator, Role::Operator),
            ("a", Role::Candidate, Role::Candidate),
            ("a", Role::Voter, Role::Operator),
        ] {
            let principal = Principal { claim: Some(claim), ..certificate(name) };
            assert_eq!(role(&principal), wanted, "{name} as {claim}");
            assert_eq!(principal.own_name(), None, "who speaks for another is not itself");
        }
        let silent = Principal { is_relayed: true, ..certificate("a") };
        assert_eq!((role(&silent), silent.own_name()), (Role::Candidate, None), "for whom is not said");
        assert_eq!(certificate("a").own_name(), Some("a"));
        assert_eq!(wire::role(77), Some(Role::Observer));
        for role in [Role::Observer, Role::Candidate, Role::Operator, Role::Voter] {
            assert_eq!(wire::role(wire::role_number(role)), Some(role));
        }
    }

    #[test]
    fn root_and_the_voters_user_are_operators_on_its_socket() {
        assert_eq!([of_user(0, 7), of_user(7, 7), of_user(8, 7)], [Role::Operator, Role::Operator, Role::Candidate]);
    }
}
