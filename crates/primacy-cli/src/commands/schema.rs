//! `primacy schema`: the SQL that sets a database up, for an administrator to read and run.

use primacy::fenced::Dialect;
use primacy::store::UrlError;

use crate::cli::{Common, Database, SchemaArgs};
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(args: &SchemaArgs, common: &Common, output: &mut Output) -> Result<u8, Failure> {
    let database = match args.database {
        Some(database) => database,
        None => of_store(common)?,
    };
    if args.schema.is_some() && database != Database::Postgres {
        return Err(Failure::usage("--schema is for postgres; elsewhere the tables are in the database itself"));
    }
    let schema = args.schema.as_deref().unwrap_or("public");
    let refused = |error: UrlError| Failure::usage(error.to_string());
    let sql = match (database, args.fence_only) {
        (Database::Postgres, true) => Dialect::Postgres.fence_sql_in(schema).map_err(refused)?,
        (Database::Mysql, true) => Dialect::Mysql.fence_sql().to_owned(),
        (Database::Sqlite, _) => Dialect::Sqlite.fence_sql().to_owned(),
        (Database::Postgres, false) => postgres(schema)?,
        (Database::Mysql, false) => mysql()?,
    };
    output.page(sql.as_bytes())?;
    Ok(0)
}

/// The database of the store that was named.
fn of_store(common: &Common) -> Result<Database, Failure> {
    let url = common.store_url()?;
    match url.split(':').next() {
        Some("postgres" | "postgresql") => Ok(Database::Postgres),
        Some("mysql" | "mariadb") => Ok(Database::Mysql),
        Some("sqlite") => Ok(Database::Sqlite),
        Some("peers") => Err(Failure::refused(
            "peers need no SQL: there is nothing to set up; for the fence of a database that keeps your data, name it: \
             primacy schema --fence-only postgres, mysql or sqlite",
        )),
        _ => Err(Failure::usage("say for which database: primacy schema postgres, mysql or sqlite")),
    }
}

#[cfg(feature = "postgres")]
fn postgres(schema: &str) -> Result<String, Failure> {
    primacy::store::postgres::schema_sql_in(schema).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_schema: &str) -> Result<String, Failure> {
    Err(Failure::usage("this build of primacy has no store in PostgreSQL; --fence-only works"))
}

#[cfg(feature = "mysql")]
fn mysql() -> Result<String, Failure> {
    Ok(primacy::store::mysql::schema_sql())
}

#[cfg(not(feature = "mysql"))]
fn mysql() -> Result<String, Failure> {
    Err(Failure::usage("this build of primacy has no store in MySQL; --fence-only works"))
}
