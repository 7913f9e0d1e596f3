//! Requests on their way to groups, alone or several at once, and failures in the words that clients get.

use std::cell::RefCell;
use std::rc::Rc;

use super::hub::Hub;
use super::line::Ticket;
use super::statistics::{Statistics, add};
use crate::request::{Answered, ClientRequest, Failure};
use crate::resp::Reply;

impl Hub {
    fn count(&self, is_write: bool) {
        add(if is_write { &self.statistics.writes } else { &self.statistics.reads }, 1);
    }

    /// Hands a request to the group of its ticket.
    pub(super) fn submit(&self, ticket: Ticket, request: ClientRequest) {
        self.count(ticket.load.is_write);
        let (group, mut waiting) = (ticket.group, Waiting(ticket));
        self.backend.submit(group, request, Box::new(move |answered| waiting.take(answered)));
    }

    /// Hands requests to groups, and calls `then` when all are answered, with the answers in the order of the requests.
    pub(super) fn gather(&self, requests: Vec<(u16, ClientRequest)>, then: impl FnOnce(Vec<Part>) + 'static) {
        let parts = requests.iter().map(|(group, request)| Part {
            group: *group,
            is_write: request.is_write(),
            answered: Err(Failure::Unknown),
        });
        let parts = parts.collect();
        let gathering = Rc::new(Gathering { parts: RefCell::new(parts), then: RefCell::new(Some(Box::new(then))) });
        for (at, (group, request)) in requests.into_iter().enumerate() {
            self.count(request.is_write());
            let gathering = Rc::clone(&gathering);
            let statistics = Rc::clone(&self.statistics);
            self.backend.submit(
                group,
                request,
                Box::new(move |answered| {
                    if answered.is_err() {
                        add(&statistics.failures, 1);
                    }
                    if let Some(part) = gathering.parts.borrow_mut().get_mut(at) {
                        part.answered = answered;
                    }
                }),
            );
        }
    }
}

/// A request whose answer has not come.
struct Waiting(Ticket);

impl Waiting {
    fn take(&mut self, answered: Answered) {
        let (group, is_write) = (self.0.group, self.0.load.is_write);
        self.0.finish(|statistics| match answered {
            Ok(reply) => reply,
            Err(failure) => failed(failure, group, is_write, statistics),
        });
    }
}

/// Nobody will answer any more.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.take(Err(Failure::Unknown));
    }
}

/// What one group has answered.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) group: u16,
    is_write: bool,
    pub(super) answered: Answered,
}

impl Part {
    /// Its answer, or a failure in words.
    pub(super) fn reply(self) -> Result<Reply, Reply> {
        self.answered.map_err(|failure| failure_reply(failure, self.group, self.is_write))
    }
}

type Then = Box<dyn FnOnce(Vec<Part>)>;

/// Answers that are collected. The last one that comes, or is lost, ends it.
struct Gathering {
    parts: RefCell<Vec<Part>>,
    then: RefCell<Option<Then>>,
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(self.parts.take());
        }
    }
}

/// All answers of parts that only read, or the first failure.
pub(super) fn all(parts: Vec<Part>) -> Result<Vec<Reply>, Reply> {
    parts.into_iter().map(Part::reply).collect()
}

/// All answers of parts that write. If some parts are done and others are not, or may be, the client has to know.
pub(super) fn all_or_unknown(parts: Vec<Part>) -> Result<Vec<Reply>, Reply> {
    let is_certain = |part: &Part| part.answered.as_ref().is_err_and(|failure| failure.is_certain());
    let nothing_is_done = parts.iter().all(is_certain);
    let failed = parts.iter().find_map(|part| Some((part.group, *part.answered.as_ref().err()?)));
    match failed {
        Some((group, failure)) if !nothing_is_done => Err(Reply::Error(
            format!(
                "UNKNOWN it may have been done in part: group {group} has not answered ({failure}), others have. Read the keys \
                 back before you send it again"
            )
            .into(),
        )),
        _ => all(parts),
    }
}

fn failed(failure: Failure, group: u16, is_write: bool, statistics: &Statistics) -> Reply {
    add(&statistics.failures, 1);
    failure_reply(failure, group, is_write)
}

/// What a client is told: a code that says whether it was done, why, and what to do.
fn failure_reply(failure: Failure, group: u16, is_write: bool) -> Reply {
    let text = match failure {
        // What only reads can be asked again.
        Failure::Unknown if !is_write => {
            format!("TRYAGAIN the answer of group {group} was lost, and nothing was changed: send it again")
        }
        Failure::Unknown => format!(
            "UNKNOWN it may have been done: the answer of group {group} was lost. Read the key back before you send it again"
        ),
        Failure::NoLeader => format!(
            "TRYAGAIN nobody leads group {group}, and nothing was done: send it again. `primacy kv explain {group}`, where a node \
             runs, says which nodes are missing"
        ),
        Failure::Stopped => {
            "TRYAGAIN this node is ending, and nothing was done: connect to another one and send it again".into()
        }
        Failure::OutOfMemory => {
            "OOM command not allowed: the keys and values have used up the memory of --memory, and nothing was \
             done. Delete keys, or allow more"
                .into()
        }
        Failure::DiskFull => {
            "MISCONF the leader's disk has too little room left for its log, and nothing was done. Reads and \
             deletions go on. Make room on it"
                .into()
        }
        Failure::Busy => {
            "TRYAGAIN too many requests of this node are under way, and nothing was done: send it again, or fewer at once".into()
        }
        Failure::Overtaken => {
            "TRYAGAIN it was not done, and later writes of this node were: send it again".into()
        }
        Failure::TooLarge => {
            "ERR it is larger than a log entry can be, and nothing was done: send it in several parts".into()
        }
    };
    Reply::Error(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(answered: Answered) -> Part {
        Part { group: 3, is_write: true, answered }
    }

    fn code(reply: &Reply) -> &str {
        match reply {
            Reply::Error(text) => text.split(' ').next().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_code_says_whether_it_was_done() {
        let code = |failure, is_write| code(&failure_reply(failure, 3, is_write)).to_owned();
        assert_eq!(code(Failure::NoLeader, true), "TRYAGAIN");
        assert_eq!(code(Failure::Stopped, true), "TRYAGAIN");
        assert_eq!(code(Failure::Unknown, true), "UNKNOWN");
        assert_eq!(code(Failure::Unknown, false), "TRYAGAIN");
        assert_eq!(code(Failure::OutOfMemory, true), "OOM");
        assert_eq!(code(Failure::DiskFull, true), "MISCONF");
        assert_eq!(code(Failure::TooLarge, true), "ERR");
    }

    #[test]
    fn done_in_part_is_unknown() {
        let done = || part(Ok(Reply::OK));
        let (certain, unknown) = (|| part(Err(Failure::NoLeader)), || part(Err(Failure::Unknown)));
        assert!(all_or_unknown(vec![done(), done()]).is_ok());
        let told = |parts| code(&all_or_unknown(parts).unwrap_err()).to_owned();
        assert_eq!(told(vec![certain(), certain()]), "TRYAGAIN");
        assert_eq!(told(vec![done(), certain()]), "UNKNOWN");
        assert_eq!(told(vec![certain(), unknown()]), "UNKNOWN");
        assert_eq!(told(vec![unknown()]), "UNKNOWN");
    }
}
