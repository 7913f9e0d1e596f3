//! In which schema the tables are.
//!
//! Unqualified names are looked for along the search path, which is another for each role: `"$user"` is its first entry.
//! Two candidates of one election would then use two tables, and both lead. So the schema is found once for a store
//! object and named in every statement from then on (see the design page on PostgreSQL).

use super::super::StoreError;
use super::connection::Connection;
use super::errors::{Fault, Stake};
use crate::qualified::Schema;

/// A row for each schema that holds a `primacy_schema`, also one that this role may not read.
pub(super) const HOMES: &str = "SELECT n.nspname::{text} \
     FROM {pg_class} AS c JOIN {pg_namespace} AS n ON n.oid {=} c.relnamespace \
     WHERE c.relname {=} 'primacy_schema' AND c.relpersistence {<>} 't' \
         AND c.relkind {=} ANY (ARRAY['r', 'p', 'v', 'm', 'f']::pg_catalog.\"char\"[])";

/// The search path as it is set; its schemas that are there for this user, and those of them in which it may create.
const PATH: &str = "{current_setting}('search_path'), {current_schemas}(false)::{text}[], \
         (SELECT {array_agg}(n.nspname::{text}) FROM {pg_namespace} AS n \
          WHERE n.nspname {=} ANY ({current_schemas}(false)) AND {has_schema_privilege}(n.oid, 'CREATE'))";

/// Where the tables are, or where to make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SchemaChoice {
    Found(Schema),
    /// There are none yet. `None`: this user may make them in no schema of its search path.
    Nowhere(Option<Schema>),
}

/// Asks the server. Changes nothing.
pub(super) async fn find(connection: &mut Connection) -> Result<SchemaChoice, StoreError> {
    let read = connection.run(&format!("SELECT ARRAY({HOMES}), {PATH}"), &[], Stake::Reading).await.and_then(|rows| {
        let row = rows.first().ok_or(Fault::Damaged("the answer about the schemas"))?;
        let list = |at: usize| row.try_get::<_, Option<Vec<String>>>(at).map(Option::unwrap_or_default);
        Ok((list(0)?, row.try_get::<_, String>(1)?, list(2)?, list(3)?))
    });
    let (mut homes, path, visible, creatable) =
        read.map_err(|fault| fault.meaning(connection.shown(), Stake::Reading))?;
    homes.sort();
    choose(&path, &homes, &visible, &creatable)
        .map_err(|why| StoreError::Unusable(format!("{}: {why}", connection.shown())))
}

/// All schemas of this database that hold tables of primacy.
pub(super) async fn all(connection: &mut Connection) -> Result<Vec<String>, Fault> {
    let rows = connection.run(HOMES, &[], Stake::Reading).await?;
    let mut homes = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    homes.sort();
    Ok(homes)
}

/// Schemas, in a sentence.
pub(super) fn shown(homes: &[String]) -> String {
    homes.iter().map(|name| primacy_core::ids::escape(name)).collect::<Vec<_>>().join(", ")
}

fn choose(path: &str, homes: &[String], visible: &[String], creatable: &[String]) -> Result<SchemaChoice, String> {
    let named = |name: &String| Schema::new(name).map_err(|why| format!("{}: {why}", primacy_core::ids::escape(name)));
    let shown = shown(homes);
    match homes {
        [] => {
            let of_path = elements(path).into_iter().find(|name| name != "$user" && creatable.contains(name));
            Ok(SchemaChoice::Nowhere(of_path.as_ref().map(named).transpose()?))
        }
        [one] if visible.contains(one) => Ok(SchemaChoice::Found(named(one)?)),
        [_] => Err(format!(
            "the tables of this database are in schema {0}, which the search_path of this user does not lead to; add \
             schema={0} to the URL, and GRANT USAGE ON SCHEMA {0} if it is missing",
            shown
        )),
        _ => Err(format!(
            "schemas {} hold tables of primacy each, and candidates that use different ones would lead at the same \
             time; find out which are in use (`primacy list` with each) and add schema=NAME to the URL of every \
             candidate",
            shown
        )),
    }
}

/// The entries of a search path as it is set: names with or without quotes, between commas.
fn elements(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut name = String::new();
    let mut quoted = false;
    let mut characters = path.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                name.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => found.push(std::mem::take(&mut name)),
            c if c.is_whitespace() && !quoted => {}
            c if quoted => name.push(c),
            // The server folds what is not quoted.
            c => name.push(c.to_ascii_lowercase()),
        }
    }
    found.push(name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(path: &str, homes: &[&str], visible: &[&str], creatable: &[&str]) -> Result<SchemaChoice, String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        choose(path, &owned(homes), &owned(visible), &owned(creatable))
    }

    fn schema(name: &str) -> Schema {
        Schema::new(name).expect("valid")
    }

    #[test]
    fn a_search_path_is_read_as_the_server_does() {
        assert_eq!(elements("\"$user\", public"), ["$user", "public"]);
        assert_eq!(elements("App,\"My, \"\"own\"\"\""), ["app", "My, \"own\""]);
        assert_eq!(elements(""), [""]);
    }

    #[test]
    fn tables_are_made_in_a_schema_that_every_role_means() {
        let own = ["cand", "public"];
        assert_eq!(chosen("\"$user\", public", &[], &own, &own), Ok(SchemaChoice::Nowhere(Some(schema("public")))));
        // Named as such, it is meant.
        assert_eq!(chosen("cand, public", &[], &own, &own), Ok(SchemaChoice::Nowhere(Some(schema("cand")))));
        assert_eq!(chosen("\"$user\", public", &[], &own, &["cand"]), Ok(SchemaChoice::Nowhere(None)));
    }

    #[test]
    fn tables_are_used_where_they_are_the_only_ones_and_in_the_search_path() {
        let own = ["cand", "public"];
        for home in own {
            assert_eq!(chosen("\"$user\", public", &[home], &own, &own), Ok(SchemaChoice::Found(schema(home))));
        }
        let elsewhere = chosen("\"$user\", public", &["cand"], &["public"], &["public"]).expect_err("not its own");
        assert!(elsewhere.contains("schema=cand"), "{elsewhere}");
        let two = chosen("public", &["cand", "public"], &["public"], &["public"]).expect_err("two");
        assert!(two.contains("cand, public") && two.contains("schema=NAME"), "{two}");
    }
}
