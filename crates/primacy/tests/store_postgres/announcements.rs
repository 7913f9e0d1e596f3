//! Announcements age by the server's clock.

use primacy::store::{Standing, Store};

use crate::logged::Log;
use crate::support::{Actor, at, election, server, started};

#[tokio::test]
async fn who_has_been_silent_counts_no_more_and_is_forgotten_in_the_end() {
    let (server, store) = started();
    let mut leader = Actor::join(&store, "e", 1).await;
    leader.take().await;
    let mut a = Actor::join(&store, "e", 2).await;
    a.announce().await;
    let mut b = Actor::join(&store, "e", 3).await;
    assert_eq!(b.announce().await.standing, Standing { ahead: 1, others: 1 });
    let ages = [("-20 s", 1, 2), ("-26 s", 0, 2), ("20 s", 1, 2), ("1 day", 0, 1)];
    for (age, counted, kept) in ages {
        // A leader with a lease of 10 s makes an announcement count for 25 s.
        let sql = format!(
            "UPDATE primacy_candidate SET seen_at = now() + interval '{age}', fresh_ns = 25000000000 WHERE label = 'c2'"
        );
        server.sql(&sql).expect("ages");
        assert_eq!(b.look().await.standing, Standing { ahead: counted, others: counted }, "{age}");
        let shown = store.admin().await.expect("opens").snapshot(&election("e")).await.expect("reads");
        assert_eq!(shown.expect("a row").candidates.len(), 1 + counted as usize, "{age}");
        b.announce().await;
        assert_eq!(server.sql("SELECT count(*) FROM primacy_candidate").expect("counts"), kept.to_string(), "{age}");
    }
    server
        .sql("UPDATE primacy_candidate SET seen_at = now() - interval '251 s', fresh_ns = 25000000000")
        .expect("ages");
    leader.announce().await;
    assert_eq!(server.sql("SELECT string_agg(label, ' ') FROM primacy_candidate").expect("counts"), "c1");
}

#[tokio::test]
async fn a_candidate_that_cannot_be_announced_says_so_once_until_it_can() {
    let mut log = Log::begin();
    let server = server();
    let mut a = Actor::join(&at(&server.url()), "unannounced", 1).await;
    let told = ["election=unannounced ", "could not be announced", "no room here"];
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room here'; END $$";
    server.sql(refuse).expect("creates");
    for times in [1, 2] {
        let refuse = "CREATE TRIGGER crowded BEFORE INSERT ON primacy_candidate EXECUTE FUNCTION refuse()";
        server.sql(refuse).expect("creates");
        a.announce().await;
        a.announce().await;
        assert_eq!(log.says(&told).await, times);
        server.sql("DROP TRIGGER crowded ON primacy_candidate").expect("drops");
        a.announce().await;
    }
}
