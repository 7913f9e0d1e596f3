//! What the server answers, column by column.

use mysql_async::{Row, Value};

use super::errors::Fault;

/// An answer to one statement.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Fields>,
    /// How many rows an `UPDATE`, `INSERT` or `DELETE` counted.
    pub(super) affected: u64,
}

/// The columns of a row, taken one after the other.
#[derive(Clone, Debug)]
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn of(row: Row) -> Self {
        Self(row.unwrap().into_iter())
    }

    pub(super) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        match self.0.next() {
            Some(Value::NULL) => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            _ => Err(Fault::damaged("an answer")),
        }
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, Fault> {
        let text = self.optional_bytes()?.map(String::from_utf8).transpose();
        text.map_err(|_| Fault::damaged("a text"))
    }

    pub(super) fn text(&mut self) -> Result<String, Fault> {
        self.optional_text()?.ok_or_else(|| Fault::damaged("an empty column"))
    }

    pub(super) fn optional_number(&mut self) -> Result<Option<i64>, Fault> {
        let number = self.optional_text()?.map(|text| text.parse()).transpose();
        number.map_err(|_| Fault::damaged("a number"))
    }

    pub(super) fn number(&mut self) -> Result<i64, Fault> {
        self.optional_number()?.ok_or_else(|| Fault::damaged("an empty column"))
    }
}
