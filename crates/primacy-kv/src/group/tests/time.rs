//! A change of leaders makes a key live longer and never shorter, and the group's time goes on while somebody leads.

use super::*;

const LIVES: Duration = Duration::from_millis(100);
const AWAY: Duration = Duration::from_millis(240);

impl Cluster {
    fn end(&mut self, own: u128, token: u64) {
        let now = self.now;
        self.act(own, |group| group.ended(ballot(token).token, now));
    }

    /// Sets a key that lives for 100 ms.
    fn set_mortal(&mut self, own: u128) {
        let set = expiring("a", "1", Expiry::After(LIVES.as_millis() as i64));
        assert_eq!(self.answer(own, set), Ok(Reply::OK));
    }

    fn get_after(&mut self, own: u128, span: Duration) -> Answered {
        self.now = self.now + span;
        self.answer(own, get("a"))
    }

    /// How long the key that was set just now lives, as this leader says: all of its time, and no longer.
    fn lives_out(&mut self, leader: u128) {
        let almost = LIVES - Duration::from_millis(1);
        assert_eq!(self.get_after(leader, almost), bulk("1"), "it goes early");
        assert_eq!(self.get_after(leader, LIVES - almost), Ok(Reply::Null));
    }
}

/// With this planted bug the key is gone at once, as this leader says.
#[cfg(feature = "flaws")]
fn goes_early(flaw: AnyFlaw, history: fn(Cluster) -> Cluster, leader: u128) {
    let mut cluster = history(Cluster { flaw: Some(flaw), ..Cluster::default() }.with(3));
    assert_eq!(cluster.get_after(leader, Duration::ZERO), Ok(Reply::Null), "the planted bug shows");
}

/// 3 opens alone, beats, and gives up. Then 2 leads, and then 3.
fn opens_in_vain(mut cluster: Cluster) -> Cluster {
    cluster.lead(1, 1);
    cluster.end(1, 1);
    cluster.away = [3].into();
    cluster.grant(3, 2);
    cluster.pass(AWAY);
    cluster.end(3, 2);
    cluster.away.clear();
    cluster.lead(2, 3);
    cluster.set_mortal(1);
    cluster.lead(3, 4);
    cluster
}

#[test]
fn a_ballot_that_never_serves_leaves_no_time_behind() {
    opens_in_vain(Cluster::of(3)).lives_out(3);
    #[cfg(feature = "flaws")]
    goes_early(AnyFlaw::Log(log::Flaw::TimeOfAnyBallot), opens_in_vain, 3);
}

/// 2 begins to serve after 3 was granted a larger ballot. Then 3 opens.
fn opens_while_another_leads(mut cluster: Cluster) -> Cluster {
    cluster.lead(1, 1);
    cluster.end(1, 1);
    cluster.away = [3].into();
    cluster.grant(3, 3);
    cluster.pass(AWAY);
    cluster.lead(2, 2);
    cluster.set_mortal(1);
    cluster.away.clear();
    let now = cluster.now;
    for other in [1, 2] {
        cluster.act(3, |group| group.connected(id(other), now));
    }
    cluster.run();
    assert_eq!(cluster.nodes[&3].group.status().leads, Some((ballot(3), true)));
    cluster.nodes.get_mut(&3).expect("is there").believed = Some(ballot(3).token);
    cluster
}

#[test]
fn the_clock_of_a_leader_stands_while_it_opens() {
    opens_while_another_leads(Cluster::of(3)).lives_out(3);
    #[cfg(feature = "flaws")]
    goes_early(AnyFlaw::Group(Flaw::CountsWhileOpening), opens_while_another_leads, 3);
}

/// 1 goes on counting where nobody hears it, 2 leads from where the log ends, and then 1 leads again.
fn counts_on_alone(mut cluster: Cluster) -> Cluster {
    cluster.lead(1, 1);
    cluster.away = [1].into();
    cluster.pass(AWAY);
    cluster.lead(2, 2);
    cluster.set_mortal(3);
    cluster.away.clear();
    cluster.lead(1, 3);
    cluster
}

#[test]
fn a_leader_that_was_cut_off_goes_on_from_the_time_of_the_log() {
    counts_on_alone(Cluster::of(3)).lives_out(1);
    #[cfg(feature = "flaws")]
    goes_early(AnyFlaw::Log(log::Flaw::TimeOfAnyBallot), counts_on_alone, 1);
}

/// 1 has told 3 its time, and 2 not, which leads next and begins where the log ends.
#[test]
fn what_one_replica_was_told_does_not_count_behind_the_entries_of_the_next_leader() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    cluster.away = [2].into();
    cluster.pass(AWAY);
    cluster.end(1, 1);
    cluster.away.clear();
    cluster.lead(2, 2);
    cluster.set_mortal(1);
    cluster.lead(3, 3);
    cluster.lives_out(3);
}

#[test]
fn what_a_leader_has_told_is_not_lost_where_nothing_is_written() {
    let mut cluster = Cluster::of(3);
    cluster.lead(1, 1);
    assert_eq!(cluster.answer(1, expiring("a", "1", Expiry::After(1_000))), Ok(Reply::OK));
    for (leader, token) in [(2, 2), (3, 3), (1, 4)] {
        cluster.pass(LEASE / 4);
        cluster.lead(leader, token);
    }
    // At most one beat is lost with each change.
    let lost = LEASE / 6 * 3;
    cluster.pass(LEASE / 4 + lost);
    assert_eq!(cluster.answer(1, get("a")), Ok(Reply::Null));
}
