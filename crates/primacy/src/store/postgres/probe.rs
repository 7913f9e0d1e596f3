//! What `primacy doctor` is told of a database.
use super::super::Probe;
use super::fault::Fault;
use super::link::Link;
use super::schema::Server;

pub(super) async fn run(_link: &mut Link, server: &Server) -> Result<Probe, Fault> {
    Ok(Probe { product: format!("PostgreSQL {}", server.version), renewals: Vec::new(), findings: Vec::new() })
}
