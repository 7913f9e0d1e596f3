//! Connections that stand, and then a certificate expires or is revoked.

use super::*;
use crate::peers::config::certs::revoke_at;

const PATIENCE: Duration = Duration::from_secs(20);

fn revoke(folder: &TempDir, names: &[&str], now: UnixTime) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    revoke_at(folder.path(), &names, now).expect("they were made here");
}

/// Why this end stops reading.
async fn end(stream: &mut Stream) -> io::Error {
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut [0])).await;
    read.expect("it ends").expect_err("nothing is said on it")
}

#[track_caller]
fn is_ended(error: &io::Error, says: &str) {
    let ended = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    assert!(matches!(ended, Some(TlsError::Ended { .. })), "{error:?}");
    assert!(error.kind() == io::ErrorKind::InvalidData && error.to_string().contains(says), "{says:?} in {error}");
}

/// A byte from one to the other.
async fn say(from: &mut Stream, to: &mut Stream) {
    from.write_all(b"?").await.expect("it stands");
    from.flush().await.expect("it stands");
    to.read_exact(&mut [0]).await.expect("it stands");
}

#[tokio::test]
async fn a_connection_ends_at_each_side_when_a_certificate_of_either_has_expired() {
    let folder = certificates_for(&["lasts"]);
    issue(folder.path(), &["expires"], 7, days_from_now(0));
    for (server, client) in [("lasts", "expires"), ("expires", "lasts")] {
        for is_servers_clock in [true, false] {
            let clocks = [Calendar::at(days_from_now(0)), Calendar::at(days_from_now(0))];
            let one = on_calendar(&folder, server, &clocks[0]);
            let two = on_calendar(&folder, client, &clocks[1]);
            let (accepted, connected) = meet(&one, &two, server).await;
            let (mut accepted, mut connected) = (accepted.expect("accepted"), connected.expect("connected"));
            say(&mut accepted, &mut connected).await;
            clocks[usize::from(!is_servers_clock)].set(days_from_now(9));
            let (own, mut ends, mut other) = match is_servers_clock {
                true => (server, accepted, connected),
                false => (client, connected, accepted),
            };
            let says = if own == "expires" {
                "our certificate, with which it was made, expired"
            } else {
                "('expires') expired"
            };
            is_ended(&end(&mut ends).await, says);
            let after = ends.write_all(b"?").await.expect_err("nothing goes out any more");
            assert_eq!(after.kind(), io::ErrorKind::NotConnected);
            drop(ends);
            end(&mut other).await;
        }
    }
}

#[tokio::test]
async fn a_calendar_that_was_wrong_for_a_while_costs_connections_that_can_be_made_again() {
    let folder = certificates_for(&["peer-1", "peer-2"]);
    let clock = Calendar::at(days_from_now(0));
    let (one, two) = (on_calendar(&folder, "peer-1", &clock), load(&folder, "peer-2"));
    for wrong in [20_000, -20_000, 31] {
        let (accepted, connected) = meet(&one, &two, "peer-1").await;
        let (mut accepted, _connected) = (accepted.expect("accepted"), connected.expect("connected"));
        clock.set(days_from_now(wrong));
        is_ended(&end(&mut accepted).await, "certificate");
        let (server, _) = quarrel(&one, &two, "peer-1").await;
        assert!(server.contains("the other side's certificate"), "{server}");
        clock.set(days_from_now(0));
    }
    // Within the certificates' time its steps mean nothing.
    let (accepted, connected) = meet(&one, &two, "peer-1").await;
    let (mut accepted, mut connected) = (accepted.expect("accepted"), connected.expect("connected"));
    for right in [29, 1, 10] {
        clock.set(days_from_now(right));
        accepted.check().expect("its certificates are valid on that day");
        say(&mut connected, &mut accepted).await;
    }
}

#[tokio::test]
async fn who_is_revoked_is_refused_by_both_sides_and_connections_end_while_others_go_on() {
    let folder = certificates_for(&["peer-1", "stolen", "web"]);
    let clock = Calendar::at(days_from_now(0));
    let [one, stolen, web] = ["peer-1", "stolen", "web"].map(|name| on_calendar(&folder, name, &clock));
    // One that does not know of lists, so that the other side is the one that refuses.
    let naive = |name| {
        let identity = Identity { revocations: Revocations::Without, ..Identity::within(folder.path(), name) };
        Tls::load(&identity).expect("the files are good")
    };
    let blind = naive("stolen");
    let (from_blind, mut to_blind) = meet(&one, &blind, "peer-1").await;
    let (served, at_blind) = meet(&blind, &one, "stolen").await;
    let (mine, theirs) = meet(&naive("peer-1"), &stolen, "peer-1").await;
    let (kept_here, kept_there) = meet(&one, &web, "peer-1").await;
    let mut connections = [from_blind, at_blind, theirs].map(|connection| connection.expect("they meet"));
    let (mut kept_here, mut kept_there) = (kept_here.expect("accepted"), kept_there.expect("connected"));

    revoke(&folder, &["stolen"], days_from_now(0));
    let [from_blind, at_blind, theirs] = &mut connections;
    is_ended(&end(from_blind).await, "('stolen') has been revoked");
    is_ended(&end(at_blind).await, "('stolen') has been revoked");
    is_ended(&end(theirs).await, "our certificate, with which it was made, has been revoked");
    say(&mut kept_here, &mut kept_there).await;
    drop((served, mine, connections));

    end(to_blind.as_mut().expect("it was connected")).await;
    let (server, client) = quarrel(&one, &blind, "peer-1").await;
    assert!(server.contains("the other side's certificate has been revoked"), "{server}");
    assert!(client.contains("our certificate has been revoked: make one by"), "{client}");
    let (server, client) = quarrel(&blind, &one, "stolen").await;
    assert!(server.contains("our certificate has been revoked"), "{server}");
    assert!(client.contains("the other side's certificate has been revoked"), "{client}");
    let told = refused(&Identity::within(folder.path(), "stolen"));
    assert!(told.contains("stolen.pem has been revoked: make one by 'primacy peer certs'"), "{told}");
    assert!(matches!(stolen.reload(), Err(TlsError::Revoked { .. })), "its owner is told");

    // A new one of that name is good.
    issue(folder.path(), &["stolen"], 30, days_from_now(0));
    let (accepted, connected) = meet(&one, &load(&folder, "stolen"), "peer-1").await;
    assert_eq!(accepted.expect("accepted").peer_name().as_deref(), Some("stolen"));
    connected.expect("connected");
}

#[tokio::test]
async fn a_list_that_is_wrong_is_refused_with_what_to_do_and_the_good_one_stays_in_use() {
    let (folder, other) = (certificates_for(&["peer-1", "peer-2", "stolen"]), certificates_for(&["stolen"]));
    let file = |name: &str| folder.path().join(name);
    revoke(&folder, &["stolen"], days_from_now(0));
    revoke(&other, &["stolen"], days_from_now(0));
    let good = fs::read(file("ca.crl")).expect("it was made");
    let foreign = fs::read(other.path().join("ca.crl")).expect("it was made");
    let twice = [good.clone(), good.clone()].concat();
    let garbage = b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".to_vec();
    let one = load(&folder, "peer-1");
    let blind = Identity { revocations: Revocations::Without, ..Identity::within(folder.path(), "stolen") };
    let blind = Tls::load(&blind).expect("it knows of no list");
    let wrong = [
        (foreign, "has not signed this list: bring the one"),
        (garbage, "it is no list of revoked certificates"),
        (Vec::new(), "there is no list of revoked certificates in it"),
        (b"nothing".to_vec(), "there is no list of revoked certificates in it"),
        (twice, "it holds two lists of one authority"),
    ];
    for (bytes, says) in wrong {
        fs::write(file("ca.crl"), bytes).expect("ours");
        let told = refused(&Identity::within(folder.path(), "peer-1"));
        assert!(told.contains("ca.crl") && told.contains(says), "{says:?} in {told}");
        assert_eq!(one.reload().expect_err("it is wrong").to_string(), told);
    }
    fs::remove_file(file("ca.crl")).expect("ours");
    let told = one.reload().expect_err("a list does not go away").to_string();
    assert!(told.contains("it is gone") && told.contains("bring it back"), "{told}");

    let (accepted, connected) = meet(&one, &load(&folder, "peer-2"), "peer-1").await;
    assert!(accepted.is_ok() && connected.is_ok(), "it goes on");
    let (server, _) = quarrel(&one, &blind, "peer-1").await;
    assert!(server.contains("has been revoked"), "{server}");
    // One that was named has to be there.
    let named = Revocations::Required(file("ca.crl"));
    let told = refused(&Identity { revocations: named.clone(), ..Identity::within(folder.path(), "peer-1") });
    assert!(told.contains("ca.crl: No such file"), "{told}");
    fs::write(file("ca.crl"), good).expect("ours");
    let named = Identity { revocations: named, ..Identity::within(folder.path(), "peer-1") };
    Tls::load(&named).expect("it is there");
    one.reload().expect("it is back");

    // While two authorities are trusted, a list of one alone would lock out all others.
    let both = file("both.pem");
    fs::write(&both, authorities(&[&folder, &other])).expect("ours");
    let told = refused(&Identity { authority: both, ..named });
    assert!(told.contains("two authorities of one name"), "{told}");
}

#[tokio::test]
async fn a_list_that_is_out_of_date_still_counts_and_is_warned_of() {
    let folder = certificates_for(&["peer-1", "peer-2", "stolen"]);
    let blind = load(&folder, "stolen");
    // It lasts 7,300 days.
    revoke(&folder, &["stolen"], days_from_now(-7_400));
    let (one, two) = (load(&folder, "peer-1"), load(&folder, "peer-2"));
    assert!(matches!(one.health(), Health::ListIsOld(text) if text.contains("ca.crl should have been replaced")));
    let (accepted, connected) = meet(&one, &two, "peer-1").await;
    assert!(accepted.is_ok() && connected.is_ok(), "elections go on");
    let (server, _) = quarrel(&one, &blind, "peer-1").await;
    assert!(server.contains("has been revoked"), "{server}");
}

#[test]
fn that_a_certificate_expires_is_said_before_and_sooner_of_short_ones() {
    let folder = certificates_for(&[]);
    for (days, good, soon) in [(365, 361, 363), (4, 2, 3)] {
        issue(folder.path(), &["web"], days, days_from_now(0));
        let clock = Calendar::at(days_from_now(0));
        let web = on_calendar(&folder, "web", &clock);
        clock.set(days_from_now(good));
        assert!(matches!(web.health(), Health::Good(_)), "{:?}", web.health());
        clock.set(days_from_now(soon));
        assert!(matches!(web.health(), Health::EndsSoon(text) if text.contains("web.pem expires in")));
        clock.set(days_from_now(days.into()));
        clock.set(days_from_now(i64::from(days) + 1));
        assert!(matches!(web.health(), Health::Ended(text) if text.contains("web.pem has expired")));
    }
}
