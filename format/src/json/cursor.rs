//! Walking a canonical text, value by value.
//!
//! It knows types of values and the errors for another type than expected. It must be given a
//! text that [`check_canonical`](super::check_canonical) has passed; on any other it answers
//! [`Code::NotCanonical`] or nonsense, but does not panic.

use std::borrow::Cow;

use super::pointer::pointer_at;
use crate::{Code, Error, Result, rule};

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// An integer.
    Int,
    /// A string.
    Str,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// How far the members of one object are read.
#[derive(Debug)]
pub struct Members {
    first: bool,
}

/// The members that an object may have, ascending by name, and whether it must have them.
pub type Form = [(&'static str, bool)];

/// How far an object of a listed form is read.
#[derive(Debug)]
pub struct Object {
    members: Members,
    start: usize,
    /// What may still come.
    rest: &'static Form,
}

/// How far the items of one array are read.
#[derive(Debug)]
pub struct Items {
    first: bool,
    start: usize,
}

/// A place in a canonical text. Errors carry the JSON pointer of the value they are about.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the text's first value.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// At byte `offset`, where a value, or what follows one, must begin.
    #[must_use]
    pub fn at(text: &'a str, offset: usize) -> Self {
        Self { text, at: offset }
    }

    /// Bytes before the cursor.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The text from byte `start` to the cursor.
    #[must_use]
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The type of the value that comes next; `None` where none does.
    #[must_use]
    pub fn peek(&self) -> Option<Kind> {
        Some(match self.byte()? {
            b'n' => Kind::Null,
            b't' | b'f' => Kind::Bool,
            b'-' | b'0'..=b'9' => Kind::Int,
            b'"' => Kind::Str,
            b'[' => Kind::Array,
            b'{' => Kind::Object,
            _ => return None,
        })
    }

    /// Enters an object; read it with [`next_member`](Self::next_member).
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is none.
    pub fn begin_object(&mut self) -> Result<Members> {
        self.enter(b'{', "an object")?;
        Ok(Members { first: true })
    }

    /// The name of the next member, whose value must be read or skipped then; `None` behind the
    /// object's end.
    ///
    /// # Errors
    /// [`Code::NotCanonical`] only when the text is not what it must be.
    pub fn next_member(&mut self, members: &mut Members) -> Result<Option<Cow<'a, str>>> {
        if self.ends(b'}', &mut members.first)? {
            return Ok(None);
        }
        let name = self.string()?;
        self.expect(b':')?;
        Ok(Some(name))
    }

    /// Enters an object whose members a chapter lists; read it with
    /// [`next_of`](Self::next_of).
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is no object.
    pub fn begin(&mut self, form: &'static Form) -> Result<Object> {
        let start = self.at;
        Ok(Object { members: self.begin_object()?, start, rest: form })
    }

    /// As [`next_member`](Self::next_member), but an unknown member is an error at its place and
    /// a missing one where it would stand.
    ///
    /// # Errors
    /// [`Code::BadMember`].
    pub fn next_of(&mut self, object: &mut Object) -> Result<Option<&'static str>> {
        let found = self.next_member(&mut object.members)?;
        while let [(name, required), rest @ ..] = object.rest {
            match &found {
                Some(found) if **found < **name => break,
                Some(found) if **found == **name => {
                    object.rest = rest;
                    return Ok(Some(name));
                }
                _ if *required => return Err(self.missing(object.start, name)),
                _ => object.rest = rest,
            }
        }
        if found.is_some() { Err(self.unknown_member()) } else { Ok(None) }
    }

    /// Enters an array; read it with [`next_item`](Self::next_item).
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is none.
    pub fn begin_array(&mut self) -> Result<Items> {
        let start = self.at;
        self.enter(b'[', "an array")?;
        Ok(Items { first: true, start })
    }

    /// Whether an item follows, which must be read or skipped then; false behind the array's end.
    ///
    /// # Errors
    /// [`Code::NotCanonical`] only when the text is not what it must be.
    #[inline]
    pub fn next_item(&mut self, items: &mut Items) -> Result<bool> {
        Ok(!self.ends(b']', &mut items.first)?)
    }

    /// For an array of fixed form: enters its next item.
    ///
    /// # Errors
    /// [`Code::BadMember`] when there is none.
    #[inline]
    pub fn want_item(&mut self, items: &mut Items, form: &str) -> Result<()> {
        if self.next_item(items)? { Ok(()) } else { Err(self.bad_length(items, form, "fewer")) }
    }

    /// For an array of fixed form: leaves it.
    ///
    /// # Errors
    /// [`Code::BadMember`] when there is one more item.
    #[inline]
    pub fn end_array(&mut self, items: &mut Items, form: &str) -> Result<()> {
        if self.next_item(items)? { Err(self.bad_length(items, form, "more")) } else { Ok(()) }
    }

    #[cold]
    fn bad_length(&self, items: &Items, form: &str, found: &str) -> Error {
        let message = format!("expected {form}, found {found} items");
        self.fail(items.start, Code::BadMember, rule::JSON_TYPES, message)
    }

    /// A string.
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is none.
    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        let start = self.at;
        if self.byte() != Some(b'"') {
            return Err(self.bad_type(start, "a string"));
        }
        let inner = start.saturating_add(1);
        let rest = self.text.as_bytes().get(inner..).unwrap_or_default();
        let Some(plain) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
            return Err(self.not_canonical());
        };
        let stop = inner.saturating_add(plain);
        if self.text.as_bytes().get(stop) == Some(&b'"') {
            self.at = stop.saturating_add(1);
            return Ok(Cow::Borrowed(self.text.get(inner..stop).unwrap_or_default()));
        }
        self.at = inner;
        self.escaped_string().map(Cow::Owned)
    }

    /// An integer of 0 or more.
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is none.
    #[inline]
    pub fn uint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0_u64;
        while let Some(digit @ b'0'..=b'9') = self.byte() {
            // A canonical integer is below 2^53.
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit & 0xf));
            self.step();
        }
        if self.at == start {
            Err(self.bad_type(start, "an integer of 0 or more"))
        } else {
            Ok(value)
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is none.
    pub fn int(&mut self) -> Result<i64> {
        let start = self.at;
        if self.peek() != Some(Kind::Int) {
            return Err(self.bad_type(start, "an integer"));
        }
        let negative = self.byte() == Some(b'-');
        if negative {
            self.step();
        }
        let value = i64::try_from(self.uint()?).map_err(|_| self.not_canonical())?;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// [`Code::BadMember`] when the next value is neither.
    pub fn bool(&mut self) -> Result<bool> {
        if self.word("true") {
            Ok(true)
        } else if self.word("false") {
            Ok(false)
        } else {
            Err(self.bad_type(self.at, "true or false"))
        }
    }

    /// Whether the next value is `null`, which is then read.
    pub fn null(&mut self) -> bool {
        self.word("null")
    }

    /// Any value, as its own text.
    ///
    /// # Errors
    /// [`Code::NotCanonical`] only when the text is not what it must be.
    pub fn raw_value(&mut self) -> Result<&'a str> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.byte() {
                Some(b'{' | b'[') => {
                    depth = depth.saturating_add(1);
                    self.step();
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.step();
                }
                Some(b'"') => self.skip_string(),
                Some(b',' | b':') => self.step(),
                Some(_) => {
                    while !matches!(self.byte(), None | Some(b',' | b'}' | b']')) {
                        self.step();
                    }
                }
                None => return Err(self.not_canonical()),
            }
            if depth == 0 {
                return Ok(self.since(start));
            }
        }
    }

    /// Steps over any value.
    ///
    /// # Errors
    /// As [`raw_value`](Self::raw_value).
    pub fn skip(&mut self) -> Result<()> {
        self.raw_value().map(|_| ())
    }

    /// An error about the value that begins at byte `offset`.
    #[cold]
    pub fn fail(
        &self,
        offset: usize,
        code: Code,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Error {
        Error::rule(code, rule, message).at_pointer(pointer_at(self.text, offset))
    }

    /// The error for a value of another form than expected.
    #[cold]
    pub fn bad_type(&self, offset: usize, wanted: &str) -> Error {
        let found = match Cursor::at(self.text, offset).peek() {
            Some(Kind::Null) => "null",
            Some(Kind::Bool) => "true or false",
            Some(Kind::Int) => "an integer",
            Some(Kind::Str) => "a string",
            Some(Kind::Array) => "an array",
            Some(Kind::Object) => "an object",
            None => "nothing",
        };
        let message = format!("expected {wanted}, found {found}");
        self.fail(offset, Code::BadMember, rule::JSON_TYPES, message)
    }

    /// The error for a string that does not spell what is wanted.
    #[cold]
    pub fn bad_spelling(&self, offset: usize, wanted: &str, found: &str) -> Error {
        let message = format!("expected {wanted}, found {found:?}");
        self.fail(offset, Code::BadMember, rule::JSON_TYPES, message)
    }

    /// The error for the member whose value comes next and that its object must not have.
    #[cold]
    #[must_use]
    pub fn unknown_member(&self) -> Error {
        let message = "expected only the members that the chapter lists, found another";
        self.fail(self.at, Code::BadMember, rule::JSON_UNKNOWN_MEMBER, message)
    }

    /// The value of a member that the object at byte `start` must have.
    ///
    /// # Errors
    /// [`Code::BadMember`] when it is missing.
    #[inline]
    pub fn required<T>(&self, start: usize, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.missing(start, name))
    }

    #[cold]
    fn missing(&self, start: usize, name: &str) -> Error {
        let message = format!("expected a member {name:?}, found none");
        self.fail(start, Code::BadMember, rule::JSON_UNKNOWN_MEMBER, message)
    }

    /// Whether the container ends here; else steps over the comma.
    #[inline]
    fn ends(&mut self, bracket: u8, first: &mut bool) -> Result<bool> {
        let was_first = std::mem::replace(first, false);
        match self.byte() {
            Some(byte) if byte == bracket => {
                self.step();
                Ok(true)
            }
            Some(b',') if !was_first => {
                self.step();
                Ok(false)
            }
            Some(_) if was_first => Ok(false),
            _ => Err(self.not_canonical()),
        }
    }

    #[inline]
    fn enter(&mut self, bracket: u8, wanted: &str) -> Result<()> {
        if self.byte() != Some(bracket) {
            return Err(self.bad_type(self.at, wanted));
        }
        self.step();
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.byte() != Some(byte) {
            return Err(self.not_canonical());
        }
        self.step();
        Ok(())
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word));
        if found {
            self.at = self.at.saturating_add(word.len());
        }
        found
    }

    /// The rest of a string, from its first character.
    #[cold]
    fn escaped_string(&mut self) -> Result<String> {
        let mut out = String::new();
        let mut rest = self.text.get(self.at..).unwrap_or_default().chars();
        while let Some(char) = rest.next() {
            match char {
                '"' => {
                    self.at = self.text.len().saturating_sub(rest.as_str().len());
                    return Ok(out);
                }
                '\\' => out.push(match rest.next() {
                    Some('b') => '\u{8}',
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('f') => '\u{c}',
                    Some('r') => '\r',
                    Some('u') => {
                        let (digits, after) = rest.as_str().split_at_checked(4).unwrap_or_default();
                        rest = after.chars();
                        let code = u32::from_str_radix(digits, 16).ok();
                        code.and_then(char::from_u32).ok_or_else(|| self.not_canonical())?
                    }
                    Some(itself) => itself,
                    None => break,
                }),
                _ => out.push(char),
            }
        }
        Err(self.not_canonical())
    }

    fn skip_string(&mut self) {
        self.step();
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            self.at = self.at.saturating_add(plain.unwrap_or(rest.len()));
            let escape = self.byte() == Some(b'\\');
            self.step();
            if !escape {
                return;
            }
            self.step();
        }
    }

    #[cold]
    fn not_canonical(&self) -> Error {
        let message = "expected canonical JSON, found a text that was not checked to be";
        let error = Error::rule(Code::NotCanonical, rule::JSON_CANONICAL, message);
        error.at_offset(u64::try_from(self.at).unwrap_or(u64::MAX))
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }
}
