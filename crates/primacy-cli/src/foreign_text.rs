//! Text that others have written: users, stores, other programs.

/// Foreign text for one line: escaped, and cut to about `most` characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    let more = cut.len() < text.len();
    format!("{}{}", primacy::internal::escape(&cut), if more { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        assert_eq!(shorten("a\u{1b}b", 60), "a\\u{1b}b");
        assert_eq!(shorten(&"é".repeat(100), 3), "ééé…");
    }
}
