//! The `registers` protocol on a real server: connections that meet, locks that are held, answers that are lost.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy::registers::{
    Candidacy, MemberEventKind, ProcessId, RegistryReply as Reply, RegistryRequest as Request, Vars,
};
use primacy::select::Rank;
use primacy::store::{Admin, MemberEvent, Registry, Store, StoreError};
use primacy::{CandidateId, Label, Token};
use primacy_servers::{Postgres, Proxy, Replication};

use crate::support::{Actor, Superuser, at, election, server, started, unusable};

const ROUND: Duration = Duration::from_secs(2);

/// A process with a connection, whose candidate has the number of the process.
pub(crate) struct Process {
    pub(crate) number: u128,
    pub(crate) id: ProcessId,
    pub(crate) registry: Box<dyn Registry>,
}

impl Process {
    pub(crate) async fn try_open(store: &dyn Store, name: &str, number: u128) -> Result<Self, StoreError> {
        let registry = store.registry(&election(name)).await?;
        Ok(Self { number, id: ProcessId::from_bits(number), registry })
    }

    pub(crate) async fn open(store: &dyn Store, name: &str, number: u128) -> Self {
        Self::try_open(store, name, number).await.expect("a registry")
    }

    /// One that has joined.
    pub(crate) async fn joined(store: &dyn Store, name: &str, number: u128) -> Self {
        let mut process = Self::open(store, name, number).await;
        process.join().await;
        process
    }

    pub(crate) async fn round(&mut self, request: Request) -> Reply {
        let shown = format!("{request:?}");
        self.registry.round(request).await.unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    pub(crate) fn joining(&self) -> Request {
        let candidacy = Candidacy {
            id: CandidateId::from_bits(self.number),
            label: Label::new(format!("c{}", self.number)).expect("valid"),
            data: String::new(),
            rank: Some(Rank::default()),
        };
        Request::Join {
            process: self.id,
            rank: candidacy.rank,
            candidates: vec![candidacy],
            came_back: None,
            round: ROUND,
        }
    }

    pub(crate) fn beating(&self, without: Vec<(ProcessId, u64)>) -> Request {
        Request::Beat { process: self.id, late: Duration::ZERO, without, head: 4 }
    }

    fn surveying(
        &self,
        leader: &Actor,
        token: Token,
        evict: &[(u128, u64)],
        round: Option<(Duration, u64)>,
    ) -> Request {
        let seconds = Duration::from_secs(9);
        let evict = evict.iter().map(|(number, counter)| (ProcessId::from_bits(*number), *counter, seconds)).collect();
        Request::MembershipScan { process: self.id, holder: leader.me.id, token, evict, round }
    }

    pub(crate) async fn join(&mut self) -> (u64, Vars) {
        match self.round(self.joining()).await {
            Reply::Joined { id, vars } => (id, vars),
            other => panic!("a join was answered with {other:?}"),
        }
    }

    /// The own counter afterwards.
    async fn beat(&mut self) -> u64 {
        match self.round(self.beating(Vec::new())).await {
            Reply::Beaten { head, .. } => head.iter().find(|shown| shown.process == self.id).expect("shown").counter,
            other => panic!("a beat was answered with {other:?}"),
        }
    }
}

async fn admin(store: &dyn Store) -> Box<dyn Admin> {
    store.admin().await.expect("opens")
}

async fn numbers(store: &dyn Store, name: &str) -> Vec<u64> {
    let members = admin(store).await.members(&election(name)).await.expect("reads").expect("there");
    members.members.iter().map(|member| member.descriptor.id).collect()
}

async fn events(store: &dyn Store, name: &str) -> Vec<MemberEvent> {
    admin(store).await.events(&election(name), 100).await.expect("reads")
}

/// How often each kind of event happened: joined, left, evicted, round.
async fn kinds(store: &dyn Store, name: &str) -> [usize; 4] {
    let mut kinds = [0; 4];
    for event in events(store, name).await {
        kinds[match event.kind {
            MemberEventKind::Joined { .. } => 0,
            MemberEventKind::Left { .. } => 1,
            MemberEventKind::Evicted { .. } => 2,
            MemberEventKind::Round { .. } => 3,
        }] += 1;
    }
    kinds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_who_come_first_make_one_election_and_get_twenty_numbers() {
    let server = server();
    let all: Vec<_> = (1..=20_u128)
        .map(|number| {
            let url = server.url();
            tokio::spawn(async move { Process::open(&at(&url), "e", number).await.join().await.0 })
        })
        .collect();
    let mut given = BTreeSet::new();
    for one in all {
        given.insert(one.await.expect("no panic"));
    }
    assert_eq!(given, (1..=20).collect());
    let store = at(&server.url());
    assert_eq!(numbers(&store, "e").await, (1..=20).collect::<Vec<_>>());
    assert_eq!(kinds(&store, "e").await, [20, 0, 0, 0]);
    let told: Vec<u64> = events(&store, "e").await.iter().map(|event| event.number).collect();
    assert_eq!(told, (1..=20).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_process_that_joins_on_two_connections_gets_one_number() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    Process::joined(&store, "e", 1).await;
    // Both have begun, and seen that the process has none.
    superuser.run("BEGIN; SELECT FROM primacy_round FOR UPDATE").await;
    let both = [0; 2].map(|_| {
        let url = server.url();
        tokio::spawn(async move { Process::open(&at(&url), "e", 2).await.join().await.0 })
    });
    superuser.until_blocked(2).await;
    superuser.run("COMMIT").await;
    for one in both {
        assert_eq!(one.await.expect("no panic"), 2);
    }
    assert_eq!(Process::joined(&store, "e", 3).await.join().await.0, 3, "no number was lost either");
    assert_eq!(kinds(&store, "e").await, [3, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_is_evicted_while_it_publishes_joins_anew() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    Process::joined(&store, "e", 1).await;
    let mut a = Process::joined(&store, "e", 2).await;
    superuser.run("BEGIN; SELECT FROM primacy_round FOR UPDATE; DELETE FROM primacy_process WHERE id = 2").await;
    let joining = tokio::spawn(async move { a.join().await.0 });
    superuser.until_blocked(1).await;
    superuser.run("COMMIT").await;
    assert_eq!(joining.await.expect("no panic"), 3);
    assert_eq!(numbers(&store, "e").await, [1, 3]);
}

/// The eviction waits for the beat, which was there first, and then finds another counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_beats_while_it_is_evicted_stays() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut first = Process::joined(&store, "e", 1).await;
    let mut other = Process::joined(&store, "e", 2).await;
    let counter = other.beat().await;
    superuser.run("BEGIN; UPDATE primacy_process SET counter = counter + 1 WHERE id = 2").await;
    let scan = first.surveying(&leader, token, &[(2, counter)], None);
    let scanned = tokio::spawn(async move { first.round(scan).await });
    superuser.until_blocked(1).await;
    superuser.run("COMMIT").await;
    let Reply::Scanned { descriptors, .. } = scanned.await.expect("no panic") else { panic!("it leads") };
    assert!(descriptors.iter().any(|descriptor| descriptor.process == other.id), "{descriptors:?}");
    assert_eq!(other.beat().await, counter + 2);
    assert_eq!(kinds(&store, "e").await, [2, 0, 0, 0]);
}

/// The beat waits for the eviction, and says by whom and why, although that came after it had begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_evicted_while_it_beats_is_told_why() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    Process::joined(&store, "e", 1).await;
    let mut other = Process::joined(&store, "e", 2).await;
    superuser
        .run(
            "BEGIN; DELETE FROM primacy_process WHERE id = 2; \
             INSERT INTO primacy_event (election, number, at, kind, process, label, by_label, token, span_ns) \
             SELECT 'e', 3, now(), 'evicted', decode(lpad('2', 32, '0'), 'hex'), 'c2', 'c1', 7, 9000000000",
        )
        .await;
    let beating = tokio::spawn(async move { other.round(other.beating(Vec::new())).await });
    superuser.until_blocked(1).await;
    superuser.run("COMMIT").await;
    let Reply::Evicted { eviction: Some(eviction), .. } = beating.await.expect("no panic") else { panic!("it is") };
    assert_eq!((eviction.by.as_str(), eviction.token.get()), ("c1", 7));
    assert_eq!(eviction.silent, Duration::from_secs(9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn beats_and_evictions_race_and_never_both_win() {
    // As many as all their events are shown of.
    const TRIES: u64 = 45;
    let (_server, store) = started();
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut first = Process::joined(&store, "e", 1).await;
    let mut other = Process::joined(&store, "e", 2).await;
    let mut evicted = 0;
    for _ in 0..TRIES {
        let counter = other.beat().await;
        let scan = first.surveying(&leader, token, &[(2, counter)], None);
        let beat = other.beating(Vec::new());
        let (scanned, beaten) = tokio::join!(first.round(scan), other.round(beat));
        let Reply::Scanned { descriptors, .. } = scanned else { panic!("it leads: {scanned:?}") };
        let stays = descriptors.iter().any(|descriptor| descriptor.process == other.id);
        match beaten {
            Reply::Beaten { .. } => assert!(stays, "a beat was answered to a process that was evicted for want of it"),
            Reply::Evicted { eviction, .. } => {
                assert!(!stays && eviction.is_some());
                evicted += 1;
                other.join().await;
            }
            other => panic!("a beat was answered with {other:?}"),
        }
    }
    println!("{evicted} of {TRIES} evictions came first");
    assert_eq!(kinds(&store, "e").await[2], evicted);
}

#[tokio::test]
async fn a_deposed_leader_changes_nothing() {
    let (server, store) = started();
    let (old, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut first = Process::joined(&store, "e", 1).await;
    Process::joined(&store, "e", 2).await;
    let mut new = Actor::join(&store, "e", 2).await;
    let newer = new.take().await.version.token;
    let all = "SELECT md5(string_agg(t::text, '|')) FROM ( \
               SELECT p::text FROM primacy_process AS p UNION ALL SELECT r::text FROM primacy_round AS r \
               UNION ALL SELECT v::text FROM primacy_event AS v UNION ALL SELECT m::text FROM primacy_member AS m) AS t";
    let before = server.sql(all).expect("reads");
    for (leader, token) in [(&old, token), (&old, newer), (&new, token)] {
        for (evict, round) in [(&[][..], None), (&[(2, 1)], None), (&[(2, 1)], Some((ROUND * 2, 0)))] {
            let scan = first.surveying(leader, token, evict, round);
            assert_eq!(first.round(scan).await, Reply::NotLeading);
        }
    }
    assert_eq!(server.sql(all).expect("reads"), before);
}

/// Two leaders that evict each other's process at the same moment, the old one with a lease that it does not know is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exclusive_rounds_wait_for_each_other_and_never_deadlock() {
    let (server, store) = started();
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let all: Vec<_> = (1..=6_u128)
        .map(|number| {
            let (url, leader) = (server.url(), leader.me.clone());
            tokio::spawn(async move {
                let mut process = Process::joined(&at(&url), "e", number).await;
                for step in 0..40_u64 {
                    let evict = vec![(ProcessId::from_bits(number % 6 + 1), step / 4 + 1, ROUND)];
                    let round = (step % 3 == 0).then_some((ROUND, step));
                    let scan = Request::MembershipScan { process: process.id, holder: leader.id, token, evict, round };
                    let beat = process.beating(Vec::new());
                    let leave = Request::Leave { process: process.id };
                    let request =
                        [process.joining(), scan, beat, leave][usize::try_from(step % 4).expect("small")].clone();
                    process.round(request).await;
                }
            })
        })
        .collect();
    for one in all {
        one.await.expect("no error, a deadlock least of all");
    }
    let happened = events(&store, "e").await;
    assert!(happened.windows(2).all(|pair| pair[0].number == pair[1].number + 1), "{happened:?}");
    let counted = server.sql("SELECT events FROM primacy_round").expect("reads");
    assert_eq!(counted, happened[0].number.to_string());
    assert_eq!(
        server.sql("SELECT count(*) FROM primacy_member").expect("reads"),
        numbers(&store, "e").await.len().to_string()
    );
}

#[tokio::test]
async fn a_round_whose_answer_is_lost_is_unknown_and_is_asked_again() {
    let server = server();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let (near, far) = (at(&server.url()), at(&server.url_at(proxy.port())));
    let (leader, record) = Actor::leading(&near, "e", 1).await;
    let token = record.version.token;
    for kind in 0..5 {
        let number = 10 + kind as u128;
        let mut process = Process::open(&far, "e", number).await;
        if kind > 0 {
            process.join().await;
        }
        let requests = [
            process.joining(),
            process.beating(Vec::new()),
            process.surveying(&leader, token, &[], None),
            process.surveying(&leader, token, &[(99, 1)], None),
            Request::Leave { process: process.id },
        ];
        let request = requests[kind].clone();
        // What is prepared once has been: the answer that is lost is the round's own.
        if matches!(request, Request::Beat { .. } | Request::MembershipScan { .. }) {
            process.round(request.clone()).await;
        }
        let told = events(&near, "e").await.len();
        proxy.lose_next_answer();
        match process.registry.round(request.clone()).await {
            Err(StoreError::Unknown(_)) => {}
            other => panic!("{request:?} was answered with {other:?}"),
        }
        proxy.await_lost_answer().expect("lost");
        let over = process.registry.round(request.clone()).await;
        assert!(matches!(over, Err(StoreError::Unreachable(_))), "the old connection is over: {over:?}");
        // It was carried out, and once more does no harm: one event at most.
        let mut again = Process::open(&near, "e", number).await;
        let reply = again.round(request).await;
        match (kind, &reply) {
            (0, Reply::Joined { id: 1, vars }) => assert_eq!((vars.max_id, vars.comebacks), (1, 0)),
            (1, Reply::Beaten { head, .. }) => {
                let own = head.iter().find(|shown| shown.process == again.id).expect("shown");
                assert_eq!(own.counter, 4, "each was a beat: the first, the lost one, and this");
            }
            (2 | 3, Reply::Scanned { vars, .. }) => assert_eq!(vars.leader, Some(again.id)),
            (4, Reply::Left) => {}
            (_, reply) => panic!("{reply:?}"),
        }
        let once = usize::from(kind == 0 || kind == 4);
        assert_eq!(events(&near, "e").await.len() - told, once, "{reply:?}");
    }
}

#[tokio::test]
async fn a_connection_ended_by_the_server_in_any_round_says_what_may_have_happened() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    Process::joined(&store, "e", 1).await;
    let before = admin(&store).await.members(&election("e")).await.expect("reads").expect("there");
    for kind in 0..5 {
        let mut process = Process::open(&store, "e", 1).await;
        let request = [
            process.joining(),
            process.beating(Vec::new()),
            process.surveying(&leader, token, &[], None),
            process.surveying(&leader, token, &[], Some((ROUND * 2, 0))),
            Request::Leave { process: process.id },
        ][kind]
            .clone();
        let shown = format!("{request:?}");
        superuser.run("BEGIN; SELECT FROM primacy_round FOR UPDATE; SELECT FROM primacy_process FOR UPDATE").await;
        let round = tokio::spawn(async move { process.registry.round(request).await });
        superuser.until_blocked(1).await;
        superuser.terminate().await;
        let outcome = round.await.expect("no panic");
        superuser.run("ROLLBACK").await;
        assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{shown} was answered with {outcome:?}");
        let mut after = admin(&store).await.members(&election("e")).await.expect("reads").expect("there");
        after.members[0].age = before.members[0].age;
        assert_eq!(after, before, "{shown}");
    }
}

/// R11: what gives numbers, evicts, or changes the round time is answered when the standby has it; a beat is not worth that.
#[tokio::test]
async fn beats_do_not_wait_for_a_synchronous_standby_and_what_must_last_does() {
    let server = server();
    let standby = server.standby(Replication::Synchronous).expect("a standby");
    let refused = unusable(Process::try_open(&at(&standby.url()), "e", 1).await.map(|_| ()));
    assert!(refused.contains("standby"), "{refused}");
    let superuser = Superuser::of(&server).await;
    let store = at(&server.url());
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut a = Process::joined(&store, "e", 1).await;
    let leaving = Process::joined(&store, "e", 2).await.id;
    standby.freeze().expect("freezes");
    for request in [a.beating(Vec::new()), a.surveying(&leader, token, &[], None), Request::Leave { process: leaving }]
    {
        let answered = tokio::time::timeout(Duration::from_secs(20), a.round(request.clone())).await;
        assert!(answered.is_ok(), "{request:?} waits");
    }
    for kind in 0..3 {
        let mut process = Process::open(&store, "e", [3, 1, 1][kind]).await;
        let request = [
            process.joining(),
            process.surveying(&leader, token, &[(99, 1)], None),
            process.surveying(&leader, token, &[], Some((ROUND * 2, 0))),
        ][kind]
            .clone();
        let shown = format!("{request:?}");
        let round = tokio::spawn(async move { process.registry.round(request).await });
        let waits = "pg_stat_activity WHERE application_name = 'primacy' AND wait_event = 'SyncRep'";
        superuser.until(&format!("SELECT count(*) FROM {waits}"), 1).await;
        superuser.run(&format!("SELECT pg_cancel_backend(pid) FROM {waits}")).await;
        let outcome = round.await.expect("no panic");
        assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{shown} was answered with {outcome:?}");
    }
    standby.thaw().expect("thaws");
}

/// An abandoned round is given up by the server too: it must not take effect hours later.
#[tokio::test]
async fn a_round_that_is_dropped_waits_no_more() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let mut a = Process::joined(&store, "e", 1).await;
    superuser.run("BEGIN; SELECT FROM primacy_process FOR UPDATE").await;
    let beat = a.beating(Vec::new());
    let beating = tokio::spawn(async move { a.registry.round(beat).await });
    superuser.until_blocked(1).await;
    beating.abort();
    superuser.until_blocked(0).await;
    superuser.run("COMMIT").await;
    assert_eq!(Process::open(&store, "e", 1).await.beat().await, 2);
}

async fn has_no_registers(server: &Postgres) -> bool {
    server.sql("SELECT to_regclass('primacy_registers') IS NULL").expect("asks") == "t"
}

#[tokio::test]
async fn the_tables_are_made_by_who_takes_part_and_by_nobody_else() {
    let (server, store) = started();
    Actor::join(&store, "e", 1).await.take().await;
    let mut watch = admin(&store).await;
    assert_eq!(watch.members(&election("e")).await.expect("reads"), None);
    assert_eq!(watch.events(&election("e"), 9).await.expect("reads"), []);
    assert!(watch.snapshot(&election("e")).await.expect("reads").is_some());
    assert!(has_no_registers(&server).await);
    let mut a = Process::open(&store, "e", 7).await;
    assert_eq!(watch.members(&election("e")).await.expect("reads"), None, "nobody has joined yet");
    a.join().await;
    assert_eq!(watch.members(&election("e")).await.expect("reads").expect("there").members.len(), 1);
    let waiting = watch.snapshot(&election("e")).await.expect("reads").expect("there").candidates;
    assert_eq!(waiting.iter().map(|waiting| waiting.who.label.as_str()).collect::<Vec<_>>(), ["c7"]);
    assert_eq!(watch.elections().await.expect("reads")[0].candidates.len(), 1);

    server.sql("UPDATE primacy_registers SET version = 9").expect("a newer primacy");
    assert!(unusable(Process::try_open(&store, "e", 8).await.map(|_| ())).contains("version 9"));
    assert!(unusable(watch.members(&election("e")).await).contains("version 9"));
    assert!(unusable(watch.events(&election("e"), 9).await).contains("version 9"));
    server.sql("DELETE FROM primacy_registers").expect("deletes");
    assert!(unusable(Process::try_open(&store, "e", 8).await.map(|_| ())).contains("is empty"));
    assert!(Actor::join(&store, "e", 2).await.try_look().await.is_ok(), "elections go on");
}

#[tokio::test]
async fn what_primacy_never_writes_is_told_and_not_believed() {
    let (server, store) = started();
    let mut a = Process::joined(&store, "e", 1).await;
    for (sql, why) in [
        ("DELETE FROM primacy_round", "the row of VARS"),
        ("ALTER TABLE primacy_process DROP COLUMN late_ns", "not as primacy made them"),
        ("DROP TABLE primacy_process CASCADE", "not as primacy made them"),
    ] {
        server.sql(sql).expect(sql);
        let message = unusable(a.registry.round(a.beating(Vec::new())).await);
        assert!(message.contains(why), "{sql}: {message}");
    }
}

#[tokio::test]
async fn who_has_the_rights_that_the_schema_names_takes_part() {
    let server = server();
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE USER app PASSWORD 'pw'").expect("creates");
    let app = at(&format!("postgresql://app:pw@127.0.0.1:{}/primacy", server.port()));
    let schema = primacy::store::postgres::schema_sql();
    let (elections, registers) = schema.split_once("-- For the registers protocol").expect("a part of its own");
    server.sql(elections).expect("as an older primacy printed it");
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app").expect("grants");
    let message = unusable(Process::try_open(&app, "e", 1).await.map(|_| ()));
    assert!(message.contains("primacy schema") && message.contains("administrator"), "{message}");

    server.sql(&format!("-- {registers}")).expect("the rest runs");
    let message = unusable(Process::try_open(&app, "e", 1).await.map(|_| ()));
    assert!(message.contains("right"), "{message}");
    Actor::join(&app, "e", 1).await.take().await;
    let seen = admin(&app).await.snapshot(&election("e")).await.expect("reads").expect("there");
    assert_eq!(seen.candidates, [], "who may not see members sees the election");

    let grants = schema.split("-- The rights that candidates need").nth(1).expect("it ends with the rights");
    let grants: Vec<_> = grants.lines().skip(1).take_while(|line| !line.contains("Observers")).collect();
    server.sql(&grants.join("\n").replace("-- ", "").replace("\"candidates\"", "app")).expect("the grants run");
    let (leader, record) = Actor::leading(&app, "e", 1).await;
    let token = record.version.token;
    let mut a = Process::joined(&app, "e", 1).await;
    Process::joined(&app, "e", 2).await;
    a.beat().await;
    for evict in [&[][..], &[(2, 1)]] {
        let scan = a.surveying(&leader, token, evict, None);
        assert!(matches!(a.round(scan).await, Reply::Scanned { .. }));
    }
    let leave = Request::Leave { process: a.id };
    assert_eq!(a.round(leave).await, Reply::Left);
    assert_eq!(kinds(&app, "e").await, [2, 1, 1, 0]);
}

#[tokio::test]
async fn the_newest_thousand_events_are_kept_whatever_happens() {
    let (server, store) = started();
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut a = Process::joined(&store, "e", 1).await;
    let mut b = Process::joined(&store, "e", 2).await;
    Process::joined(&store, "other", 1).await;
    let happens = [
        Request::Leave { process: b.id },
        b.joining(),
        a.surveying(&leader, token, &[(2, 1)], None),
        a.surveying(&leader, token, &[], Some((ROUND * 2, 0))),
    ];
    for request in happens {
        let past = "DELETE FROM primacy_event; \
                    INSERT INTO primacy_event (election, number, at, kind, process, label) \
                    SELECT e, n, now(), 'left', decode(repeat('00', 16), 'hex'), 'old' \
                    FROM generate_series(1, 1500) AS n, unnest(ARRAY['e', 'other']) AS e; \
                    UPDATE primacy_round SET events = 1500";
        server.sql(past).expect("has a past");
        let by = if matches!(request, Request::MembershipScan { .. }) { &mut a } else { &mut b };
        by.round(request.clone()).await;
        let mut watch = admin(&store).await;
        let kept = watch.events(&election("e"), 5_000).await.expect("reads");
        assert_eq!((kept.len(), kept[0].number, kept[999].number), (1_000, 1_501, 502), "{request:?}");
        assert_eq!(watch.events(&election("other"), 5_000).await.expect("reads").len(), 1_500);
    }
}
