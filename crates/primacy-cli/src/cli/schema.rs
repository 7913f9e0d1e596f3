//! The options of `primacy schema`.

use clap::{Args, ValueEnum};

/// `primacy schema`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SchemaArgs {
    /// For which database [default: that of --store]
    #[arg(value_enum, value_name = "DATABASE")]
    pub(crate) database: Option<Database>,
    /// Only the fence, for a database that keeps your data but no elections
    #[arg(long)]
    pub(crate) fence_only: bool,
    /// In which schema of PostgreSQL [default: public]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
}

/// The databases that there is SQL for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    /// PostgreSQL
    #[value(alias = "postgresql")]
    Postgres,
    /// MySQL, MariaDB, Galera
    #[value(alias = "mariadb")]
    Mysql,
    /// SQLite, of which only the fence is ever set up by hand
    Sqlite,
}
