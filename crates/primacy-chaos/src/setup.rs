//! What a run is asked to be.

use std::path::PathBuf;
use std::time::Duration;

use crate::canary::Canary;
use crate::fault::Kind;

/// What a run is asked to be.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) span: Duration,
    pub(crate) candidates: usize,
    pub(crate) lease: Duration,
    pub(crate) protocol: Protocol,
    pub(crate) faults: Vec<Kind>,
    pub(crate) primacy: PathBuf,
    pub(crate) canary: Option<Canary>,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) quiet: bool,
    /// Why candidates have no hosts of their own, for people, where a server is to be reached.
    pub(crate) no_wires: Option<String>,
    pub(crate) prefix: String,
    /// How a run of nodes is to be.
    pub(crate) nodes: NodeOptions,
}

/// By which protocol candidates take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// Each waits in the order in which it came
    Lease,
    /// They are members, with rounds of half a lease that do not grow, so that bounds stay what they are
    Registers,
    /// Each start draws one of them
    Mixed,
}

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Registers => "registers",
            Self::Mixed => "mixed",
        }
    }

    pub(crate) const fn round(self, lease: Duration) -> Duration {
        match self {
            Self::Lease => Duration::ZERO,
            Self::Registers | Self::Mixed => Duration::from_nanos(lease.as_nanos() as u64 / 2),
        }
    }

    /// How much longer it may take to a leader after all faults: a round to stand in line, and the lease that is left to a
    /// successor.
    pub(crate) fn settles(self, lease: Duration) -> Duration {
        if self == Self::Lease { Duration::ZERO } else { self.round(lease) + lease }
    }
}

/// How a run of nodes is to be.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct NodeOptions {
    /// How many nodes of the key-value store
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) nodes: usize,
    /// How many connections clients have to each node of the key-value store
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub(crate) connections: usize,
    /// Go on until this many leaders of the key-value store were killed
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) kills: usize,
    /// Go on until this many operations of the key-value store were answered
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) operations: u64,
}

impl NodeOptions {
    /// The words that say the same, where they say more than usual.
    pub(crate) fn words(self) -> String {
        let Self { nodes, connections, kills, operations } = self;
        format!(" --nodes {nodes} --connections {connections} --kills {kills} --operations {operations}")
    }
}
