//! The text that is learnt, as characters numbered from 0, and its windows.
//!
//! It knows the text and what one training sample is. It must not know in which order samples
//! come.

/// A short story written for this purpose.
const TEXT: &str = include_str!("text.txt");

/// Characters that the model sees before it guesses the next.
pub(crate) const CONTEXT: usize = 8;

/// A text over a small alphabet.
pub(crate) struct Text {
    /// The characters that occur, ascending.
    alphabet: Vec<u8>,
    /// The text, each character as its place in the alphabet.
    numbers: Vec<usize>,
}

/// One sample: some characters and the one that follows.
pub(crate) struct Window<'t> {
    pub(crate) context: &'t [usize],
    pub(crate) next: usize,
}

impl Text {
    /// The text that ships with this crate, in lower case, lines joined.
    pub(crate) fn new() -> Self {
        let bytes = raw();
        let mut alphabet = bytes.clone();
        alphabet.sort_unstable();
        alphabet.dedup();
        let number = |byte: &u8| alphabet.binary_search(byte).unwrap_or(0);
        let numbers = bytes.iter().map(number).collect();
        Self { alphabet, numbers }
    }

    /// Number of characters that occur.
    pub(crate) fn alphabet(&self) -> usize {
        self.alphabet.len()
    }

    /// Number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.numbers.len().saturating_sub(CONTEXT)
    }

    /// The window that begins at character `at`, `None` beyond the last.
    pub(crate) fn window(&self, at: u64) -> Option<Window<'_>> {
        let at = usize::try_from(at).ok()?;
        let (context, rest) = self.numbers.get(at..)?.split_at_checked(CONTEXT)?;
        Some(Window { context, next: *rest.first()? })
    }
}

/// What the numbers are made of: the same bytes give the same samples.
pub(crate) fn raw() -> Vec<u8> {
    TEXT.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_there_and_none_more() {
        let text = Text::new();
        let last = text.windows() as u64 - 1;
        assert!(text.windows() > 1000 && text.alphabet() < 64);
        assert_eq!(text.window(0).unwrap().context.len(), CONTEXT);
        assert_eq!(text.window(last).unwrap().next, *text.numbers.last().unwrap());
        assert!(text.window(last + 1).is_none());
        assert_eq!(text.window(1).unwrap().context[0], text.numbers[1]);
    }
}
