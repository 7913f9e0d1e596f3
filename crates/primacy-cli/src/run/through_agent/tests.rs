//! A candidate and an agent that says what a test wants, in whatever order.

use std::io::{Read as _, Seek as _};
use std::net::Shutdown;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::*;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The agent's end of the connection.
struct FakeAgent {
    stream: BufReader<UnixStream>,
    frames: u64,
}

/// A candidate whose connection is there.
struct Candidate {
    elected: mpsc::UnboundedReceiver<AgentLeadership>,
    orders: mpsc::UnboundedSender<Order>,
    status: watch::Receiver<Status>,
    /// What is left of it when the connection has ended and nothing works by it.
    driver: JoinHandle<Driver>,
}

/// Begins to take part, after a pause that is to be told from the shortest.
fn pair() -> (FakeAgent, Candidate) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (mut driver, elected, orders) = driver();
    let status = driver.status.subscribe();
    driver.pause = PAUSE * 4;
    let driver = tokio::spawn(async move {
        driver.take_part(Channel::new(ours)).await;
        driver
    });
    (FakeAgent { stream: BufReader::new(theirs), frames: 0 }, Candidate { elected, orders, status, driver })
}

fn driver() -> (Driver, mpsc::UnboundedReceiver<AgentLeadership>, mpsc::UnboundedSender<Order>) {
    let election = ElectionName::new("billing").expect("short");
    let label = Label::new("web-1").expect("short");
    let (mut driver, taken) = Driver::new(PathBuf::from("/nowhere"), &election, label, String::new());
    (driver.has_looked, driver.pause) = (true, PAUSE);
    let orders = driver.me.clone();
    (driver, taken, orders)
}

impl FakeAgent {
    /// Says something, with the next number.
    async fn says(&mut self, mut frame: Value) {
        self.frames += 1;
        frame["n"] = self.frames.into();
        let line = format!("{frame}\n");
        self.stream.get_mut().write_all(line.as_bytes()).await.expect("it is open");
    }

    /// Tells of a leadership whose deadline is this many seconds from now.
    async fn elects(&mut self, token: u64, seconds: u64) {
        let [stop_ns, deadline_ns] = [in_seconds(seconds - 2), in_seconds(seconds)];
        self.says(
            json!({"type": "elected", "token": token.to_string(), "stop_ns": stop_ns, "deadline_ns": deadline_ns,
            "lease_ms": 10_000, "grace_ms": 1_000}),
        )
        .await;
    }

    async fn extends(&mut self, token: u64, seconds: u64) {
        let [stop_ns, deadline_ns] = [in_seconds(seconds - 2), in_seconds(seconds)];
        self.says(
            json!({"type": "extended", "token": token.to_string(), "stop_ns": stop_ns, "deadline_ns": deadline_ns}),
        )
        .await;
    }

    /// What the candidate says next, without the answers to frames; `None` when it has hung up.
    async fn hears(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, self.stream.read_line(&mut line));
            // One that has hung up without reading everything is heard as an error.
            let Ok(1..) = read.await.expect("in time") else { return None };
            let said: Value = serde_json::from_str(&line).expect("it is JSON");
            if said["type"] != "read" {
                return Some(said);
            }
        }
    }

    /// Waits until the candidate has answered everything.
    async fn is_read(&mut self) {
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, self.stream.read_line(&mut line));
            assert_ne!(read.await.expect("in time").expect("it is open"), 0);
            let said: Value = serde_json::from_str(&line).expect("it is JSON");
            assert_eq!(said["type"], "read", "{said}");
            if said["n"] == self.frames {
                return;
            }
        }
    }
}

impl Candidate {
    async fn leads(&mut self) -> AgentLeadership {
        let elected = tokio::time::timeout(PATIENCE, self.elected.recv());
        elected.await.expect("in time").expect("it takes part")
    }

    async fn ends(self) -> Driver {
        tokio::time::timeout(PATIENCE, self.driver).await.expect("in time").expect("it does not fail")
    }
}

fn in_seconds(seconds: u64) -> u64 {
    clock::to_boot_nanos(clock::now() + Duration::from_secs(seconds))
}

fn stopped(token: u64) -> Option<Value> {
    Some(json!({"type": "stopped", "token": token.to_string()}))
}

fn until(leadership: &AgentLeadership) -> Option<u64> {
    match *leadership.phases.borrow() {
        Phase::Leading { until, .. } => Some(clock::to_boot_nanos(until)),
        _ => None,
    }
}

#[tokio::test]
async fn what_is_told_while_the_last_work_goes_on_is_given_back_at_once_and_the_connection_ends() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    agent.elects(8, 600).await;
    assert_eq!(agent.hears().await, stopped(8));
    assert_eq!(agent.hears().await, None);
    assert_eq!(*first.phases.borrow(), Phase::Ended { reason: EndReason::Expired });
    assert!(!candidate.driver.is_finished(), "no other connection while something works");
    drop(first);
    assert!(candidate.elected.try_recv().is_err(), "it leads with no other");
    assert!(candidate.ends().await.lead.is_none());
}

#[tokio::test]
async fn the_same_leadership_told_twice_is_never_said_to_have_stopped_while_it_is_worked_for() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    agent.elects(7, 600).await;
    assert_eq!(agent.hears().await, None);
    drop(first);
}

#[tokio::test]
async fn what_lies_unread_when_the_candidate_leaves_is_given_back() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut agent = FakeAgent { stream: BufReader::new(theirs), frames: 0 };
    agent.says(json!({"type": "waiting", "position": 1, "leader": null, "why": "..."})).await;
    agent.elects(7, 600).await;
    // Nothing has been read of it yet.
    leave(Channel::new(ours));
    assert_eq!((agent.hears().await, agent.hears().await), (stopped(7), None));
}

#[tokio::test]
async fn what_the_runner_has_not_taken_when_it_leaves_is_given_back() {
    let (mut agent, candidate) = pair();
    agent.elects(7, 600).await;
    agent.is_read().await;
    let Candidate { mut elected, orders, status, driver } = candidate;
    let (_, trouble) = watch::channel(None);
    let task = tokio::spawn(async { drop(driver.await) });
    elected.close();
    AgentCandidate { status, trouble, elected, orders, task }.withdraw().await;
    assert_eq!((agent.hears().await, agent.hears().await), (stopped(7), None));
}

#[tokio::test]
async fn frames_that_come_out_of_order_never_make_a_belief_last_longer() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    // Of another leadership: nothing works by it, and this one is not touched.
    let lasts = until(&first);
    agent.extends(6, 1_200).await;
    assert_eq!(agent.hears().await, stopped(6));
    assert_eq!(until(&first), lasts);
    agent.says(json!({"type": "lost", "token": "6", "reason": "deposed", "why": ""})).await;
    agent.extends(7, 900).await;
    agent.is_read().await;
    assert!(until(&first) > lasts);
    let draining = json!({"type": "draining", "token": "7", "reason": "deposed", "why": "", "by_ns": in_seconds(30)});
    agent.says(draining.clone()).await;
    agent.extends(7, 1_200).await;
    agent.is_read().await;
    let Phase::Draining { reason: EndReason::Deposed, by } = first.phases.borrow().clone() else { panic!("{first:?}") };
    assert!(by <= clock::now() + Duration::from_secs(30));
    agent.says(json!({"type": "lost", "token": "7", "reason": "expired", "why": ""})).await;
    agent.says(draining).await;
    agent.is_read().await;
    assert_eq!(*first.phases.borrow(), Phase::Ended { reason: EndReason::Expired });
    // How the candidate waits is known when the work has stopped.
    agent.says(json!({"type": "waiting", "position": 2, "leader": null, "why": "...", "state": "paused"})).await;
    agent.is_read().await;
    drop(first);
    assert_eq!(agent.hears().await, stopped(7));
    let waits = |status: &Status| matches!(status, Status::Waiting { why: Why::Paused, .. });
    tokio::time::timeout(PATIENCE, candidate.status.wait_for(waits)).await.expect("in time").expect("it takes part");
    agent.extends(7, 1_200).await;
    assert_eq!(agent.hears().await, stopped(7));
}

#[tokio::test]
async fn a_leadership_that_is_over_is_extended_by_no_agent_however_long_its_work_takes_to_die() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 3).await;
    let first = candidate.leads().await;
    candidate.orders.send(Order::GiveUp(EndReason::Resigned)).expect("it is there");
    let mut phases = first.phases();
    let gives_up = |phase: &Phase| !matches!(phase, Phase::Leading { .. });
    tokio::time::timeout(PATIENCE, phases.wait_for(gives_up)).await.expect("in time").expect("it is known");
    // The work has its time to stop, and the end of it can still be told.
    agent.extends(7, 600).await;
    agent.is_read().await;
    let is_over = |phase: &Phase| matches!(phase, Phase::Ended { .. });
    tokio::time::timeout(PATIENCE, phases.wait_for(is_over)).await.expect("in time").expect("it is known");
    agent.extends(7, 1_200).await;
    assert_eq!(agent.hears().await, None, "the agent lets the lease run out");
    assert!(!candidate.driver.is_finished(), "no other connection while something works");
    drop(first);
    candidate.ends().await;
}

#[tokio::test]
async fn a_leadership_that_is_told_too_late_is_never_said_to_be_led() {
    // Its point to stop has passed, or also its deadline.
    for (left, is_over) in [(600, false), (0, true)] {
        let (mut agent, mut candidate) = pair();
        let deadline_ns = in_seconds(left);
        agent
            .says(json!({"type": "elected", "token": "7", "stop_ns": 1, "deadline_ns": deadline_ns, "lease_ms": 10_000,
                "grace_ms": 1_000}))
            .await;
        let first = candidate.leads().await;
        let status = candidate.status.borrow().clone();
        let is_said =
            if is_over { matches!(status, Status::Ending { .. }) } else { matches!(status, Status::Draining { .. }) };
        assert!(is_said, "{status:?}");
        drop(first);
        assert_eq!(agent.hears().await, stopped(7));
    }
}

#[tokio::test]
async fn a_candidate_that_abstains_leaves_when_nothing_works_and_says_so() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    candidate.orders.send(Order::TakePart(false)).expect("it is there");
    agent.is_read().await;
    drop(first);
    assert_eq!((agent.hears().await, agent.hears().await), (stopped(7), None));
    let abstains = |status: &Status| matches!(status, Status::Waiting { why: Why::Abstains, .. });
    assert!(abstains(&candidate.status.borrow()), "{:?}", candidate.status);
    let mut driver = candidate.ends().await;
    driver.obey(Some(Order::TakePart(true)), None).expect("there is no connection");
    assert!(!abstains(&driver.status.borrow()), "{:?}", driver.status);
}

#[tokio::test]
async fn a_connection_over_which_the_end_of_the_work_cannot_be_told_ends() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    agent.is_read().await;
    // It reads nothing any more, and does not hang up.
    let agent = agent.stream.into_inner().into_std().expect("it is open");
    agent.shutdown(Shutdown::Read).expect("it is open");
    drop(first);
    candidate.ends().await;
    let mut agent = UnixStream::from_std(agent).expect("it is open");
    agent.write_all(b"{}\n").await.expect_err("the candidate has hung up");
}

#[tokio::test]
async fn what_an_agent_has_said_before_it_hung_up_is_heard_although_it_cannot_be_answered() {
    let (mut agent, mut candidate) = pair();
    agent.elects(7, 600).await;
    let first = candidate.leads().await;
    agent.is_read().await;
    let mut phases = first.phases();
    phases.borrow_and_update();
    agent.extends(7, 900).await;
    agent.says(json!({"type": "lost", "token": "7", "reason": "deposed", "why": ""})).await;
    drop(agent);
    let is_over = |phase: &Phase| *phase == Phase::Ended { reason: EndReason::Deposed };
    tokio::time::timeout(PATIENCE, phases.wait_for(is_over)).await.expect("in time").expect("it is known");
    drop(first);
    candidate.ends().await;
}

#[tokio::test]
async fn what_cannot_begin_is_given_back_and_is_not_asked_for_again_at_once() {
    // It leaves no time between the grace and the deadline; and a frame of a later version that has no points.
    let elected =
        json!({"type": "elected", "token": "7", "stop_ns": 1, "deadline_ns": 2, "lease_ms": 10, "grace_ms": 900});
    for frame in [elected, json!({"type": "elected", "token": "7", "span": "later"})] {
        let (mut agent, candidate) = pair();
        agent.says(json!({"type": "waiting", "position": 1, "leader": null, "why": "...", "state": "asking"})).await;
        agent.says(frame).await;
        assert_eq!((agent.hears().await, agent.hears().await), (stopped(7), None));
        assert_eq!(candidate.ends().await.pause, PAUSE * 4);
    }
}

#[tokio::test]
async fn the_same_refusal_is_told_once() {
    let log = Arc::new(tempfile::tempfile().expect("a temporary file"));
    let logger = tracing_subscriber::fmt().with_writer(Arc::clone(&log)).with_ansi(false).finish();
    let _logs = tracing::subscriber::set_default(logger);
    let (mut driver, _elected, _orders) = driver();
    for why in ["no", "no", "never", "never"] {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut agent = FakeAgent { stream: BufReader::new(theirs), frames: 0 };
        agent.says(json!({"type": "refused", "code": "not-allowed", "why": why})).await;
        driver.take_part(Channel::new(ours)).await;
    }
    let mut text = String::new();
    (&*log).rewind().expect("it is a file");
    (&*log).read_to_string(&mut text).expect("it is text");
    let told: Vec<_> = text.lines().filter_map(|line| line.split("the agent ").nth(1)).collect();
    assert_eq!(told, ["refuses: no; it is asked again", "refuses: never; it is asked again"], "{text}");
}
