//! Whether a text is canonical JSON, and if not, where it stops being so.
//!
//! One pass, no tree, no recursion. The offset is that of the first byte with which the text is
//! no longer the beginning of any canonical text; so a byte order mark, a name out of order or a
//! number too large is reported where it can first be seen.

use crate::limits::{JSON_DEPTH, MAX_INTEGER};
use crate::{Code, Error, Result, rule};

/// Levels of nesting that a text may have: fewer than the bits of [`Scan::arrays`].
#[expect(clippy::cast_possible_truncation, reason = "100")]
const DEPTH: usize = JSON_DEPTH as usize;

/// The text, if `bytes` is one object in canonical form: a part, page or manifest.
///
/// # Errors
/// [`Code::NotCanonical`] or, where it nests too deeply, [`Code::Limit`], with the byte offset.
pub fn check_canonical(bytes: &[u8]) -> Result<&str> {
    check(bytes, true)
}

/// The text, if `bytes` is one value of any type in canonical form.
///
/// # Errors
/// As [`check_canonical`].
pub fn check_canonical_value(bytes: &[u8]) -> Result<&str> {
    check(bytes, false)
}

fn check(bytes: &[u8], object: bool) -> Result<&str> {
    let decoded = std::str::from_utf8(bytes);
    let scanned = Scan { bytes, at: 0, depth: 0, arrays: 0, names: [(0, 0); DEPTH] }.text(object);
    match (decoded, scanned) {
        (Ok(text), Ok(())) => Ok(text),
        (Ok(_), Err(deviation)) => Err(deviation.into_error()),
        (Err(encoding), scanned) => {
            let at = first_wrong_byte(bytes, encoding);
            // Bytes above 0x7f are let through by the scan, so what it finds before stands.
            Err(match scanned {
                Err(deviation) if deviation.at <= at => deviation.into_error(),
                _ => Deviation {
                    at,
                    code: Code::NotCanonical,
                    rule: rule::JSON_ENCODING,
                    found: format!("expected UTF-8, found {}", shown(bytes.get(at))),
                }
                .into_error(),
            })
        }
    }
}

struct Deviation {
    at: usize,
    code: Code,
    rule: &'static str,
    found: String,
}

impl Deviation {
    fn into_error(self) -> Error {
        let error = Error::rule(self.code, self.rule, self.found);
        error.at_offset(u64::try_from(self.at).unwrap_or(u64::MAX))
    }
}

type Scanned<T = ()> = std::result::Result<T, Box<Deviation>>;

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// Bit d: the container at depth d is an array.
    arrays: u128,
    /// Where the last name of the object at each depth begins and ends, quotes not counted.
    names: [(usize, usize); DEPTH],
}

impl Scan<'_> {
    fn text(&mut self, object: bool) -> Scanned {
        if object && self.peek() != Some(b'{') {
            return self.unexpected("one object");
        }
        loop {
            if self.value()? {
                continue; // a container was opened and its first value comes
            }
            loop {
                if self.depth == 0 {
                    return if self.peek().is_none() { Ok(()) } else { self.trailing() };
                }
                if self.after_value()? {
                    break;
                }
            }
        }
    }

    /// One value, or the opening of a container that is not empty: then true.
    #[inline]
    fn value(&mut self) -> Scanned<bool> {
        match self.peek() {
            Some(b'0'..=b'9' | b'-') => self.number()?,
            Some(b'"') => self.string()?,
            Some(b'[') => return self.open_array(),
            Some(b'{') => return self.open_object(),
            Some(b'n') => self.literal(b"null")?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            _ => self.unexpected("a value")?,
        }
        Ok(false)
    }

    /// What follows a value in a container. True if another value does.
    #[inline]
    fn after_value(&mut self) -> Scanned<bool> {
        let array = self.in_array();
        match self.peek() {
            Some(b',') => {
                self.step(1);
                if !array {
                    self.name(true)?;
                }
                Ok(true)
            }
            Some(b']') if array => Ok(self.close()),
            Some(b'}') if !array => Ok(self.close()),
            _ if array => self.unexpected("`,` or `]`").map(|()| false),
            _ => self.unexpected("`,` or `}`").map(|()| false),
        }
    }

    #[inline]
    fn open_array(&mut self) -> Scanned<bool> {
        self.open(1)?;
        if self.peek() == Some(b']') { Ok(self.close()) } else { Ok(true) }
    }

    #[inline]
    fn open_object(&mut self) -> Scanned<bool> {
        self.open(0)?;
        if self.peek() == Some(b'}') {
            return Ok(self.close());
        }
        self.name(false)?;
        Ok(true)
    }

    fn open(&mut self, array: u128) -> Scanned {
        if self.depth >= DEPTH {
            let found = format!("expected at most {DEPTH} levels of nesting, found more");
            return self.fail(self.at, Code::Limit, rule::JSON_DEPTH, found);
        }
        self.step(1);
        self.arrays = (self.arrays & !(1 << self.depth)) | (array << self.depth);
        self.depth = self.depth.wrapping_add(1); // below DEPTH
        Ok(())
    }

    /// The end of a container; false, as no value follows.
    fn close(&mut self) -> bool {
        self.step(1);
        self.depth = self.depth.saturating_sub(1);
        false
    }

    fn in_array(&self) -> bool {
        self.arrays >> self.depth.saturating_sub(1) & 1 == 1
    }

    /// A number in its one form, which no digit may follow.
    #[inline]
    fn number(&mut self) -> Scanned {
        if self.peek() == Some(b'-') {
            self.step(1);
            if !matches!(self.peek(), Some(b'1'..=b'9')) {
                return self.bad_number("a digit 1 to 9 after `-`");
            }
        }
        if self.peek() == Some(b'0') {
            self.step(1);
        } else {
            let mut value = 0_u64;
            while let Some(digit @ b'0'..=b'9') = self.peek() {
                // Below 2^53 before, so below 2^57 now.
                value = value.wrapping_mul(10).wrapping_add(u64::from(digit & 0xf));
                if value > MAX_INTEGER {
                    return self.bad_number("an integer within 2^53 - 1");
                }
                self.step(1);
            }
        }
        match self.peek() {
            Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                self.bad_number("an integer without fraction, exponent or leading zero")
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn string(&mut self) -> Scanned {
        self.step(1);
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'));
            self.step(plain.unwrap_or(rest.len()));
            match self.peek() {
                Some(b'"') => {
                    self.step(1);
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return self.bad_string("a character or `\"`"),
            }
        }
    }

    /// An escape that canonical form demands.
    #[cold]
    fn escape(&mut self) -> Scanned {
        self.step(1);
        match self.peek() {
            Some(b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r') => {
                self.step(1);
                return Ok(());
            }
            Some(b'u') => self.step(1),
            _ => return self.bad_string("an escape that the character needs"),
        }
        let mut high = 0;
        for place in 0..4 {
            let digit = self.peek();
            let fits = match (place, digit) {
                (0 | 1, Some(b'0')) | (2, Some(b'0' | b'1')) => true,
                (3, Some(b'0'..=b'9' | b'a'..=b'f')) if high == b'1' => true,
                (3, Some(b'0'..=b'7' | b'b' | b'e' | b'f')) => true, // the others have a letter
                _ => false,
            };
            if !fits {
                return self.bad_string("`\\u00` and two digits of a character without a letter");
            }
            high = digit.unwrap_or(0);
            self.step(1);
        }
        Ok(())
    }

    /// A member's name and the colon. `later`: one came before it in the same object.
    #[inline]
    fn name(&mut self, later: bool) -> Scanned {
        if self.peek() != Some(b'"') {
            return self.unexpected("a member's name");
        }
        self.step(1);
        let level = self.depth.saturating_sub(1);
        let (begin, end) = self.names.get(level).copied().unwrap_or_default();
        let mut before = self.bytes.get(begin..end).unwrap_or_default();
        let mut tied = later; // no byte above the name before yet
        let start = self.at;
        loop {
            let byte = match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    let bound =
                        if tied { first_char(before).map_or(0, |(bound, _)| bound) } else { 0 };
                    if bound > b'\\' {
                        return self.bad_order();
                    }
                    self.step(1);
                    match self.peek() {
                        Some(byte @ (b'"' | b'\\')) => byte,
                        _ => return self.bad_name(),
                    }
                }
                Some(byte @ 0x20..=0x7e) => byte,
                _ => return self.bad_name(),
            };
            if tied {
                match first_char(before) {
                    Some((bound, _)) if byte < bound => return self.bad_order(),
                    Some((bound, rest)) if byte == bound => before = rest,
                    _ => tied = false,
                }
            }
            self.step(1);
        }
        if tied {
            return self.bad_order();
        }
        if let Some(last) = self.names.get_mut(level) {
            *last = (start, self.at);
        }
        self.step(1);
        if self.peek() != Some(b':') {
            return self.unexpected("`:`");
        }
        self.step(1);
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Scanned {
        for letter in word {
            if self.peek() != Some(*letter) {
                let found = format!(
                    "expected null, true or false, found {}",
                    shown(self.bytes.get(self.at))
                );
                return self.fail(self.at, Code::NotCanonical, rule::JSON_LITERALS, found);
            }
            self.step(1);
        }
        Ok(())
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn step(&mut self, bytes: usize) {
        self.at = self.at.wrapping_add(bytes); // never beyond the text's end
    }

    #[cold]
    fn trailing(&self) -> Scanned {
        let found =
            format!("expected the end of the text, found {}", shown(self.bytes.get(self.at)));
        self.fail(self.at, Code::NotCanonical, rule::JSON_ONE_VALUE, found)
    }

    #[cold]
    fn bad_number(&self, wanted: &str) -> Scanned {
        self.wrong(rule::JSON_INTEGERS, wanted)
    }

    #[cold]
    fn bad_string(&self, wanted: &str) -> Scanned {
        self.wrong(rule::JSON_STRINGS, wanted)
    }

    #[cold]
    fn bad_name(&self) -> Scanned {
        self.wrong(rule::JSON_ASCII_MEMBERS, "a member's name of characters U+0020 to U+007E")
    }

    #[cold]
    fn bad_order(&self) -> Scanned {
        self.wrong(rule::JSON_MEMBERS, "a name above the one before it")
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Scanned {
        let rule = match self.peek() {
            Some(b' ' | b'\t' | b'\n' | b'\r') => rule::JSON_ONE_VALUE,
            Some(b'+' | b'.') => rule::JSON_INTEGERS,
            Some(b'/' | b'#' | b'A'..=b'Z' | b'a'..=b'z') => rule::JSON_LITERALS,
            Some(0xef) if self.at == 0 => rule::JSON_ENCODING,
            _ if self.at == 0 => rule::JSON_ONE_VALUE,
            _ => rule::JSON_CANONICAL,
        };
        self.wrong(rule, wanted)
    }

    #[cold]
    fn wrong(&self, rule: &'static str, wanted: &str) -> Scanned {
        let found = format!("expected {wanted}, found {}", shown(self.bytes.get(self.at)));
        self.fail(self.at, Code::NotCanonical, rule, found)
    }

    #[cold]
    fn fail(&self, at: usize, code: Code, rule: &'static str, found: String) -> Scanned {
        Err(Box::new(Deviation { at, code, rule, found }))
    }
}

/// The first character of a canonical name, unescaped, and what follows it.
fn first_char(name: &[u8]) -> Option<(u8, &[u8])> {
    match name {
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

/// Where the bytes cease to be the beginning of UTF-8. The standard library says where the
/// character begins; when its first byte is sound, it is the last byte counted that is not.
fn first_wrong_byte(bytes: &[u8], error: std::str::Utf8Error) -> usize {
    let start = error.valid_up_to();
    let sound = matches!(bytes.get(start), Some(0xc2..=0xf4));
    match error.error_len() {
        Some(counted) if sound => start.saturating_add(counted),
        Some(_) => start,
        None => bytes.len(),
    }
}

fn shown(byte: Option<&u8>) -> String {
    match byte {
        None => "the end of the text".to_owned(),
        Some(byte @ 0x21..=0x7e) => format!("`{}`", char::from(*byte)),
        Some(byte) => format!("byte {byte:#04x}"),
    }
}
