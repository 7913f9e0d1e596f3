//! What a line promises, tried with a carrier that waits when it is told to.

use std::sync::Mutex;

use tokio::sync::Semaphore;

use super::*;

/// A question with a number, which is its answer.
struct Question {
    election: ElectionName,
    number: u32,
    answer: oneshot::Sender<Result<u32, StoreError>>,
}

impl Job for Question {
    fn election(&self) -> Option<&ElectionName> {
        Some(&self.election)
    }

    fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    fn fail(self, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

/// What a carrier has done, and when it may.
#[derive(Default)]
struct Place {
    /// The connections, in the order in which they were opened, and the batches over each.
    carried: Mutex<Vec<(usize, Vec<u32>)>>,
    opened: AtomicU64,
    refuses: std::sync::atomic::AtomicBool,
}

struct Fake {
    place: Arc<Place>,
    /// A permit for each batch that contains an odd number; others need none.
    gate: Arc<Semaphore>,
}

impl Carrier for Fake {
    type Connection = usize;
    type Job = Question;
    const MOST: usize = 8;

    fn open(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        let number = self.place.opened.fetch_add(1, Ordering::SeqCst);
        let refuses = self.place.refuses.load(Ordering::SeqCst);
        let refused = || StoreError::Unreachable("refused".into());
        Box::pin(std::future::ready(if refuses { Err(refused()) } else { Ok(number as usize) }))
    }

    fn is_fit(&self, _: &usize) -> bool {
        true
    }

    fn carry(&self, connection: usize, batch: Vec<Queued<Question>>) -> BoxFuture<'_, Carried<usize, Question>> {
        Box::pin(async move {
            let numbers: Vec<u32> = batch.iter().map(|queued| queued.job.number).collect();
            self.place.carried.lock().expect("no panics").push((connection, numbers.clone()));
            if numbers.iter().any(|number| number % 2 == 1) {
                self.gate.acquire().await.expect("open").forget();
            }
            for queued in batch {
                let Question { number, answer, .. } = queued.into_job();
                drop(answer.send(Ok(number)));
            }
            Carried { connection: Some(connection), again: Vec::new() }
        })
    }
}

fn line() -> (Line<Question>, Arc<Place>, Arc<Semaphore>) {
    let (place, gate) = (Arc::new(Place::default()), Arc::new(Semaphore::new(0)));
    (Line::start(Fake { place: Arc::clone(&place), gate: Arc::clone(&gate) }), place, gate)
}

fn ask(line: &Line<Question>, election: &str, number: u32) -> tokio::task::JoinHandle<Result<u32, StoreError>> {
    let (line, election) = (line.clone(), ElectionName::new(election).expect("valid"));
    tokio::spawn(async move { line.ask(&[&line], |answer| Question { election, number, answer }).await? })
}

async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it comes to hold");
}

fn carried(place: &Place) -> Vec<(usize, Vec<u32>)> {
    place.carried.lock().expect("no panics").clone()
}

#[tokio::test]
async fn what_waits_leaves_together_and_of_one_election_one_after_the_other() {
    let (line, place, gate) = line();
    let first = ask(&line, "a", 1);
    until(|| carried(&place).len() == 1).await;
    let rest = [("a", 2), ("b", 4), ("a", 6), ("c", 8)].map(|(election, number)| ask(&line, election, number));
    gate.add_permits(1);
    assert_eq!(first.await.expect("no panic"), Ok(1));
    for (asked, number) in rest.into_iter().zip([2, 4, 6, 8]) {
        assert_eq!(asked.await.expect("no panic"), Ok(number));
    }
    assert_eq!(carried(&place), [(0, vec![1]), (0, vec![2, 4, 8]), (0, vec![6])]);
}

#[tokio::test]
async fn what_was_given_up_while_it_waited_is_not_begun() {
    let (line, place, gate) = line();
    let first = ask(&line, "a", 1);
    until(|| carried(&place).len() == 1).await;
    let given_up = ask(&line, "b", 2);
    tokio::task::yield_now().await;
    given_up.abort();
    assert!(given_up.await.is_err());
    let last = ask(&line, "c", 4);
    gate.add_permits(1);
    assert_eq!((first.await.expect("no panic"), last.await.expect("no panic")), (Ok(1), Ok(4)));
    assert_eq!(carried(&place), [(0, vec![1]), (0, vec![4])]);
}

#[tokio::test]
async fn a_late_batch_delays_nobody_and_its_connection_is_not_used_again() {
    let (line, place, gate) = line();
    let late = ask(&line, "a", 1);
    until(|| carried(&place).len() == 1).await;
    assert_eq!(ask(&line, "b", 2).await.expect("no panic"), Ok(2), "over another connection");
    gate.add_permits(1);
    assert_eq!(late.await.expect("no panic"), Ok(1), "it is answered all the same");
    for number in [4, 6] {
        assert_eq!(ask(&line, "a", number).await.expect("no panic"), Ok(number));
    }
    assert_eq!(carried(&place), [(0, vec![1]), (1, vec![2]), (1, vec![4]), (1, vec![6])]);
}

#[tokio::test]
async fn when_all_askers_have_given_up_the_batch_is_broken_off() {
    let (line, place, gate) = line();
    let asked = [("a", 1), ("b", 3)].map(|(election, number)| ask(&line, election, number));
    until(|| carried(&place).iter().map(|(_, numbers)| numbers.len()).sum::<usize>() == 2).await;
    for asked in asked {
        asked.abort();
        assert!(asked.await.is_err());
    }
    assert_eq!(ask(&line, "c", 2).await.expect("no panic"), Ok(2));
    assert!(carried(&place).last().is_some_and(|(connection, _)| *connection > 0), "{:?}", carried(&place));
    gate.add_permits(2);
    tokio::task::yield_now().await;
    assert_eq!(gate.available_permits(), 2, "nobody waits at the gate");
}

#[tokio::test]
async fn where_no_connection_can_be_had_all_who_wait_are_told() {
    let (line, place, _gate) = line();
    place.refuses.store(true, Ordering::SeqCst);
    for asked in [("a", 2), ("b", 4)].map(|(election, number)| ask(&line, election, number)) {
        let refused = asked.await.expect("no panic");
        assert!(matches!(&refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    }
    place.refuses.store(false, Ordering::SeqCst);
    assert_eq!(ask(&line, "a", 6).await.expect("no panic"), Ok(6));
    assert!(place.opened.load(Ordering::SeqCst) <= 3, "with a pause between attempts");
}
