//! Colours, by what they mean.

use anstyle::{AnsiColor, Style};

/// What a piece of text is, as far as colour goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As any text.
    #[default]
    Plain,
    /// What the eye looks for first: who leads, what is fine.
    Good,
    /// Something to know: unknown, paused, a warning.
    Notice,
    /// A promise that does not hold.
    Bad,
    /// Less important.
    Faint,
    /// A heading.
    Heading,
}

/// How results may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Palette {
    coloured: bool,
}

impl Palette {
    /// With colours, or without.
    pub(crate) const fn new(coloured: bool) -> Self {
        Self { coloured }
    }

    /// The text in its tone.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let style = match tone {
            Tone::Good => AnsiColor::Green.on_default().bold(),
            Tone::Notice => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Faint => Style::new().dimmed(),
            Tone::Heading => Style::new().bold(),
            Tone::Plain => Style::new(),
        };
        if self.coloured && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_switched_on_and_off_around_the_text() {
        assert_eq!(Palette::new(true).paint("web-1", Tone::Good), "\u{1b}[1m\u{1b}[32mweb-1\u{1b}[0m");
        assert_eq!(Palette::new(true).paint("web-1", Tone::Plain), "web-1");
        assert_eq!(Palette::new(false).paint("web-1", Tone::Good), "web-1");
    }
}
