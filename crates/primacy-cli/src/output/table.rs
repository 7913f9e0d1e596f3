//! Aligned columns, whatever alphabet the names are in.

use unicode_width::UnicodeWidthStr as _;

use super::style::{Palette, Tone};

/// One field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    right: bool,
}

impl Cell {
    /// A field in this tone.
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone, right: false }
    }

    /// A plain field.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    /// A number, which stands at the right of its column.
    pub(crate) fn number(text: impl Into<String>) -> Self {
        Self { right: true, ..Self::plain(text) }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

/// The rows one under the other, columns two spaces apart, each line indented by `indent`.
pub(crate) fn table(rows: &[Vec<Cell>], indent: usize, palette: Palette) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0))
        .collect();
    rows.iter().map(|row| line(row, &widths, indent, palette)).collect()
}

fn line(row: &[Cell], widths: &[usize], indent: usize, palette: Palette) -> String {
    let mut line = " ".repeat(indent);
    let mut gap = 0;
    for (cell, width) in row.iter().zip(widths) {
        let pad = width - cell.width();
        let (before, after) = if cell.right { (pad, 0) } else { (0, pad) };
        if cell.text.is_empty() {
            gap += width + 2;
            continue;
        }
        line.push_str(&" ".repeat(gap + before));
        line.push_str(&palette.paint(&cell.text, cell.tone));
        gap = after + 2;
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn columns_align_without_trailing_space() {
        let rows = [
            vec![Cell::plain("NAME"), Cell::number("N"), Cell::plain("SAYS")],
            vec![Cell::plain("a"), Cell::number("12"), Cell::plain("hello")],
            vec![Cell::plain("選挙"), Cell::number("7"), Cell::plain("")],
            vec![Cell::plain(""), Cell::plain(""), Cell::plain("only the last")],
        ];
        expect![[r#"
              NAME   N  SAYS
              a     12  hello
              選挙   7
                        only the last
        "#]]
        .assert_eq(&table(&rows, 0, Palette::new(false)));
        assert!(
            table(&rows, 2, Palette::new(false)).lines().all(|line| line.starts_with("  ") && !line.ends_with(' '))
        );
    }
}
