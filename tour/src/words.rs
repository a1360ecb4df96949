//! Lines for people: paragraphs as wide as the terminal, headings, counts.
//!
//! It knows columns. It must not know what is told.

use waystation_format::Result;

/// Where lines for people go.
pub type Say<'s> = &'s mut dyn FnMut(&str) -> Result<()>;

/// No narrower, or nothing fits; no wider, or nobody reads it.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=96;
/// Columns before what belongs to a heading.
const INDENT: &str = "   ";

/// Says lines of a given width.
pub(crate) struct Teller<'s> {
    say: Say<'s>,
    width: usize,
}

impl<'s> Teller<'s> {
    pub(crate) fn new(say: Say<'s>, width: usize) -> Self {
        Self { say, width: width.clamp(*WIDTHS.start(), *WIDTHS.end()) }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// One line as it is.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        (self.say)(text)
    }

    /// One line as it is, under a heading.
    pub(crate) fn item(&mut self, text: &str) -> Result<()> {
        (self.say)(&format!("{INDENT}{text}"))
    }

    /// A paragraph under a heading.
    pub(crate) fn under(&mut self, text: &str) -> Result<()> {
        self.wrapped(INDENT, text)
    }

    /// A paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) -> Result<()> {
        self.wrapped("", text)
    }

    pub(crate) fn heading(&mut self, number: u32, text: &str) -> Result<()> {
        self.line("")?;
        self.line(&format!("{number}. {text}"))
    }

    fn wrapped(&mut self, indent: &str, text: &str) -> Result<()> {
        let mut line = String::new();
        for word in text.split_whitespace() {
            let longer = line.chars().count().saturating_add(word.chars().count());
            if line.trim().is_empty() {
                indent.clone_into(&mut line);
            } else if longer >= self.width {
                (self.say)(&line)?;
                indent.clone_into(&mut line);
            } else {
                line.push(' ');
            }
            line.push_str(word);
        }
        (self.say)(&line)
    }
}

/// A count with a comma after every three digits.
pub(crate) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_keep_their_words_and_the_width() {
        const TEXT: &str = "Three will carry what four carried, said the keeper of the station.";
        for width in [0, 40, 60, 1000] {
            let mut lines = Vec::new();
            let mut say = |line: &str| {
                lines.push(line.to_owned());
                Ok(())
            };
            let mut teller = Teller::new(&mut say, width);
            teller.under(TEXT).unwrap();
            let most = teller.width();
            assert!(lines.iter().all(|line| line.chars().count() <= most), "{lines:?}");
            assert!(lines.iter().all(|line| line.starts_with(INDENT)), "{lines:?}");
            let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            assert_eq!(words.join(" "), TEXT);
        }
    }

    #[test]
    fn counts_are_grouped_by_three() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
    }
}
