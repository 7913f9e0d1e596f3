//! Who should lead: names, scores and ranks, and when a live leader gives way to a better candidate.
//!
//! A selection is a preference and never safety: the grant alone says who does lead. A rank may be late, wrong, or
//! computed from settings that differ between two candidates; then the wrong one asks first, which costs time. Nothing
//! here reads a clock, and none of it stores a floating-point number, so two machines that are given the same come to
//! the same.
//!
//! ```text
//! label  ──► Names ─────────┐
//!                           ├─► Selector ─► Rank ─► order of asking
//! scores ──► Classes, each ─┘                 └───► FailBackWatch ─► hand over to that one
//! ```
//!
//! A [`Selector`] makes a [`Rank`] of a candidate's label and its scores: the place that [`Names`] gives it, then one
//! class for each score. Among equals in rank a [`Turn`] decides, which is the last element of a rank: by arrival, around a
//! ring, or by a draw.
//!
//! ```
//! use primacy_core::Label;
//! use primacy_core::select::{Classes, Names, Scores, Selector};
//!
//! let names = Names::new("db-1,db-*".parse()?, "db-backup".parse()?)?;
//! let latency = "10:2".parse::<Classes>()?; // classes of 10 ms, left when a border is passed by 2 ms
//! let mut selector = Selector::new(names, vec![latency])?;
//!
//! let mut rank = |label: &str, scores: &str| {
//!     let (label, scores) = (label.parse::<Label>().unwrap(), scores.parse::<Scores>().unwrap());
//!     selector.rank(&label, &scores).unwrap()
//! };
//! // Less latency is better, so it is given as a negative number.
//! assert!(rank("db-1", "-44") < rank("db-2", "-3"), "the first name, though it is slower");
//! assert_eq!(rank("db-backup", "-1"), None, "this one may never lead");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Sources: Becker et al. 2011 §3.3 (the application gives the score), §5 (a vector of scores in order of priority with
//! equivalence ranges; resignation of a leader that is no longer the best). What the paper leaves open is here:
//! hysteresis at the border of a range, and a bound on how often a leader resigns for a better one.

mod classes;
mod fail_back;
mod names;
mod oracle;
mod rank;
mod score;
mod selector;
mod turn;

pub use classes::{Classes, ClassesError};
pub use fail_back::{FailBack, FailBackWatch};
pub use names::{Names, NamesError, PATTERNS_MAX, Pattern, Patterns};
pub use oracle::{Measurements, Metric, Oracle, ScoreOracle, UnknownMetric};
pub use rank::{Rank, RankError};
pub use score::{SCORES_MAX, Score, ScoreError, Scores};
pub use selector::{Selector, TooManyClasses};
pub use turn::{Turn, UnknownTurn};
