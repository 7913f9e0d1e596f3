//! What the published statements make of the row.

use std::fmt;

/// A service's identity. The post offers the host's name, or one with a number that is another after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u8);

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'a' + self.0))
    }
}

/// The single row of `service_election`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Who leads.
    pub service_id: ServiceId,
    /// When it polled last, in whole seconds of the server's wall clock, as a `timestamp` has them.
    pub last_seen_active: i64,
}

/// The count that the server returns: 1 for a new row, 2 for a changed one, 0 for one that is as it was.
pub type Affected = u8;

/// "Attempt election": `INSERT … ON DUPLICATE KEY UPDATE`, at `now` by the server's wall clock.
///
/// MySQL assigns from left to right: the second `if` sees the service that the first has written.
pub fn attempt(row: Option<Row>, service: ServiceId, now: i64, timeout: i64) -> (Row, Affected) {
    let Some(row) = row else { return (Row { service_id: service, last_seen_active: now }, 1) };
    let service_id = if row.last_seen_active < now - timeout { service } else { row.service_id };
    let last_seen_active = if service_id == service { now } else { row.last_seen_active };
    let next = Row { service_id, last_seen_active };
    (next, if next == row { 0 } else { 2 })
}

/// "Forcibly assume leadership": `REPLACE INTO`.
pub fn force(service: ServiceId, now: i64) -> Row {
    Row { service_id: service, last_seen_active: now }
}

/// "Am I the leader?": `SELECT count(*) … WHERE anchor = 1 AND service_id = …`.
pub fn is_leader(row: Option<Row>, service: ServiceId) -> bool {
    row.is_some_and(|row| row.service_id == service)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServiceId = ServiceId(0);
    const B: ServiceId = ServiceId(1);

    /// The steps that the post goes through below its statement.
    #[test]
    fn the_statement_does_what_the_post_says_of_it() {
        let (row, affected) = attempt(None, A, 100, 20);
        assert_eq!((row, affected), (Row { service_id: A, last_seen_active: 100 }, 1));
        assert_eq!(attempt(Some(row), B, 101, 20), (row, 0), "nothing is updated");
        let (row, affected) = attempt(Some(row), A, 105, 20);
        assert_eq!((row, affected), (Row { service_id: A, last_seen_active: 105 }, 2));
        assert_eq!(attempt(Some(row), B, 125, 20), (row, 0), "20 seconds are not more than 20 seconds");
        assert_eq!(attempt(Some(row), B, 126, 20), (Row { service_id: B, last_seen_active: 126 }, 2));
    }

    #[test]
    fn the_row_says_who_leads() {
        assert!(!is_leader(None, A));
        let row = Some(force(B, 7));
        assert!(is_leader(row, B) && !is_leader(row, A));
    }
}
