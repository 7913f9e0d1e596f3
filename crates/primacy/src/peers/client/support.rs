//! How many voters support the leader of an election.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::quorum::{Configuration as _, VoterId, VoterView};

use super::pool::Pool;
use crate::peers::config::PeerAddress;
use crate::peers::wire::{Body, ElectionRequest, Piggyback, RequestBody};
use crate::store::{Finding, LeaderSupport, Severity, StoreError, VoterSupport};
use crate::{CandidateId, ElectionName, Token};

/// How often voters are asked that turn out not to be those who vote by now.
const ATTEMPTS: u32 = 3;

/// What is shown of a voter's own words.
const WORDS_SHOWN: usize = 200;

/// Asks all voters whom they support, and waits until each has answered or will not.
///
/// # Errors
/// If no majority answers.
pub(super) async fn ask(
    pool: &mut Pool,
    election: &ElectionName,
    (token, leader): (Token, CandidateId),
) -> Result<LeaderSupport, StoreError> {
    let request = ElectionRequest::of_no_candidate(election, RequestBody::Read(true));
    let mut answers = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        let number = pool.cluster.number();
        answers = pool.poll(&Body::Ask(ElectionRequest { voters: number, ..request.clone() })).await?;
        // The answers of other voters than those who vote by now tell nothing.
        if pool.cluster.number() == number {
            break;
        }
    }
    let views: BTreeMap<VoterId, Result<VoterView, String>> =
        answers.into_iter().map(|(voter, body)| (voter, view(&body))).collect();
    let backs = |voter| matches!(views.get(&voter), Some(Ok(view)) if view.backs(token, leader));
    let voter = |(id, address): (VoterId, &PeerAddress)| VoterSupport {
        voter: address.to_string(),
        answers: matches!(views.get(&id), Some(Ok(_))),
        obstacle: match views.get(&id) {
            Some(Ok(view)) => obstacle(view, token, leader),
            Some(Err(why)) => Some(why.clone()),
            None => Some(pool.trouble(id).unwrap_or_else(|| "it does not answer".to_owned())),
        },
    };
    let voters = pool.cluster.addresses().map(voter).collect();
    let voter_set = pool.cluster.voter_set();
    Ok(LeaderSupport { token, voters, is_majority: voter_set.is_quorum(backs), spare: voter_set.spare(backs) })
}

/// What a voter has, or why it does not tell.
fn view(body: &Body) -> Result<VoterView, String> {
    match body {
        Body::Answer(reply) => Piggyback::try_from(reply)
            .map(|reply| reply.answer.view)
            .map_err(|error| format!("its answer cannot be used: {error}")),
        Body::Refused(refused) => Err(primacy_core::ids::escape(&refused.why).chars().take(WORDS_SHOWN).collect()),
        Body::Moved(_) => Err("it has not learned yet who votes by now".to_owned()),
        _ => Err("its answer cannot be used".to_owned()),
    }
}

/// Why a voter with this does not support the leader of a term; `None` if it does.
fn obstacle(view: &VoterView, token: Token, leader: CandidateId) -> Option<String> {
    if view.backs(token, leader) {
        return None;
    }
    Some(match (&view.holder, view.bound) {
        (Some(holder), Some(left)) => {
            let left = Duration::from_millis(left.as_millis().try_into().unwrap_or(u64::MAX));
            let label = &holder.label;
            format!("it supports a claim of term {} by {label}, for {left:?} at most", view.term)
        }
        _ => "it supports nobody: the leader may not reach it".to_owned(),
    })
}

/// What a doctor says of leaders whose support was asked for twice: who is missing both times lags behind.
pub(super) fn finding(
    before: &BTreeMap<ElectionName, LeaderSupport>,
    after: &BTreeMap<ElectionName, LeaderSupport>,
) -> Option<Finding> {
    let lags = |election: &ElectionName, support: &LeaderSupport| {
        let earlier = before.get(election).filter(|earlier| earlier.token == support.token)?;
        let absent = |voter: &&VoterSupport| voter.answers && voter.obstacle.is_some();
        let is_twice =
            |voter: &&VoterSupport| earlier.voters.iter().filter(absent).any(|other| other.voter == voter.voter);
        let lagging = support.voters.iter().filter(absent).any(|voter| is_twice(&voter));
        lagging.then(|| format!("{election}: {support}"))
    };
    let lagging: Vec<String> = after.iter().filter_map(|(election, support)| lags(election, support)).collect();
    let (severity, message) = match &*lagging {
        [] if after.is_empty() => return None,
        [] => {
            let count = after.len();
            let elections = if count == 1 { "1 election".to_owned() } else { format!("{count} elections") };
            (Severity::Fine, format!("all voters that answer support the leaders of {elections}"))
        }
        some => (Severity::Warning, format!("voters do not support a leader: {}", some.join(". "))),
    };
    Some(Finding { severity, code: "support", message })
}

#[cfg(test)]
mod tests {
    use primacy_core::quorum::Orders;

    use super::*;
    use crate::Label;
    use crate::store::Holder;

    const LEADER: CandidateId = CandidateId::from_bits(1);

    fn token(n: u64) -> Token {
        Token::new(n).expect("small")
    }

    fn view(term: u64, holder: u128, bound: Option<Duration>) -> VoterView {
        let label = Label::new("web-2").expect("valid");
        VoterView {
            highest: token(term),
            term: token(term),
            holder: Some(Holder { id: CandidateId::from_bits(holder), label, data: String::new() }),
            beat: 1,
            seen: 0,
            lease: Duration::from_secs(10),
            bound,
            age: Duration::ZERO,
            released: false,
            orders: Orders::default(),
            completed_order: 0,
        }
    }

    #[test]
    fn a_voter_supports_one_leader_of_one_term_while_it_is_bound() {
        let left = Some(Duration::from_nanos(2_500_400_000));
        let told = |view: VoterView| obstacle(&view, token(7), LEADER);
        assert_eq!(told(view(7, 1, left)), None);
        let rival = "it supports a claim of term 8 by web-2, for 2.5s at most";
        assert_eq!(told(view(8, 2, left)).as_deref(), Some(rival));
        assert!(told(view(7, 2, left)).is_some(), "another candidate in the same term");
        assert!(told(view(7, 1, None)).is_some_and(|why| why.contains("nobody")), "its promise has ended");
    }

    #[test]
    fn a_doctor_tells_of_voters_that_lag_twice_and_of_no_others() {
        let voter = |name: &str, answers, obstacle: Option<&str>| VoterSupport {
            voter: name.to_owned(),
            answers,
            obstacle: obstacle.map(str::to_owned),
        };
        let with = |term: u64, third: VoterSupport| {
            let voters = vec![voter("a", true, None), voter("b", true, None), third];
            let name = ElectionName::new("billing").expect("valid");
            BTreeMap::from([(name, LeaderSupport { token: token(term), voters, is_majority: true, spare: 0 })])
        };
        let (lags, is_dead, supports) =
            (voter("c", true, Some("why")), voter("c", false, Some("why")), voter("c", true, None));
        let severity = |before: &_, after: &_| finding(before, after).map(|finding| finding.severity);
        let found = finding(&with(3, lags.clone()), &with(3, lags.clone())).expect("it lags");
        assert_eq!(found.severity, Severity::Warning);
        assert!(
            found.message.contains("billing: 2 of 3 support the leader; none of them may be lost; c: why"),
            "{found:?}"
        );
        assert_eq!(severity(&with(3, lags.clone()), &with(3, supports)), Some(Severity::Fine));
        assert_eq!(
            severity(&with(2, lags.clone()), &with(3, lags)),
            Some(Severity::Fine),
            "a new term began meanwhile"
        );
        assert_eq!(
            severity(&with(3, is_dead.clone()), &with(3, is_dead)),
            Some(Severity::Fine),
            "another finding says so"
        );
        assert_eq!(severity(&BTreeMap::new(), &BTreeMap::new()), None);
    }
}
