//! Writing canonical JSON.
//!
//! It knows commas and escapes. The order of members is the caller's: every file that is made
//! here is parsed again before it is given out, which checks it.

/// Appends values to a text, with commas where they belong.
///
/// Members must be given in ascending order of their names.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    out: Vec<u8>,
    /// A value stands before, so a comma comes first.
    after_value: bool,
}

impl Encoder {
    /// An empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty text with room for `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes), after_value: false }
    }

    /// Begins an object; members follow.
    pub fn begin_object(&mut self) {
        self.open(b'{');
    }

    /// Ends the innermost object.
    pub fn end_object(&mut self) {
        self.close(b'}');
    }

    /// Begins an array; items follow.
    pub fn begin_array(&mut self) {
        self.open(b'[');
    }

    /// Ends the innermost array.
    pub fn end_array(&mut self) {
        self.close(b']');
    }

    /// The name of the next member; its value follows.
    pub fn member(&mut self, name: &str) {
        self.comma();
        string(&mut self.out, name);
        self.out.push(b':');
        self.after_value = false;
    }

    /// A string.
    pub fn string(&mut self, text: &str) {
        self.comma();
        string(&mut self.out, text);
    }

    /// An integer. Above 2^53 - 1 the text is not canonical.
    pub fn uint(&mut self, value: u64) {
        self.comma();
        decimal(&mut self.out, value);
    }

    /// An integer. Beyond ±(2^53 - 1) the text is not canonical.
    pub fn int(&mut self, value: i64) {
        self.comma();
        if value < 0 {
            self.out.push(b'-');
        }
        decimal(&mut self.out, value.unsigned_abs());
    }

    /// `null`.
    pub fn null(&mut self) {
        self.raw("null");
    }

    /// `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    /// A value that is canonical JSON already.
    pub fn raw(&mut self, json: &str) {
        self.comma();
        self.out.extend_from_slice(json.as_bytes());
    }

    /// A string of `value` as the type spells it (digests, attempts).
    pub fn display(&mut self, value: &impl std::fmt::Display) {
        self.string(&value.to_string());
    }

    /// A list of strings.
    pub fn strings<S: AsRef<str>>(&mut self, items: &[S]) {
        self.begin_array();
        items.iter().for_each(|item| self.string(item.as_ref()));
        self.end_array();
    }

    /// A list of integers.
    pub fn uints(&mut self, items: &[u64]) {
        self.begin_array();
        items.iter().for_each(|item| self.uint(*item));
        self.end_array();
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing is written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The text so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// The text.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// The text. All that goes in is `str`, so it is UTF-8.
    #[must_use]
    pub fn into_string(self) -> String {
        String::from_utf8(self.out).unwrap_or_default()
    }

    fn open(&mut self, bracket: u8) {
        self.comma();
        self.out.push(bracket);
        self.after_value = false;
    }

    fn close(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.after_value = true;
    }

    fn comma(&mut self) {
        if self.after_value {
            self.out.push(b',');
        }
        self.after_value = true;
    }
}

/// Appends `text` as a canonical JSON string, quotes included.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(plain) = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\')) {
        let (before, after) = rest.split_at(plain);
        out.extend_from_slice(before);
        if let [special, tail @ ..] = after {
            escape(out, *special);
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        _ => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Appends `value` in decimal.
fn decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut used = 0_usize;
    for slot in digits.iter_mut().rev() {
        // A digit is below 10, so neither the addition nor the narrowing loses anything.
        *slot = b'0'.wrapping_add(u8::try_from(value % 10).unwrap_or(0));
        value /= 10;
        used = used.wrapping_add(1);
        if value == 0 {
            break;
        }
    }
    let skipped = digits.len().saturating_sub(used);
    out.extend(digits.iter().skip(skipped));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_values_only() {
        let mut json = Encoder::new();
        json.begin_object();
        json.member("a");
        json.begin_array();
        json.end_array();
        json.member("b");
        json.begin_array();
        json.uint(0);
        json.int(-12);
        json.null();
        json.bool(true);
        json.begin_object();
        json.end_object();
        json.string("x");
        json.end_array();
        json.end_object();
        assert_eq!(json.into_string(), r#"{"a":[],"b":[0,-12,null,true,{},"x"]}"#);
    }

    #[test]
    fn every_character_below_the_space_is_escaped_the_one_way() {
        for code in 0..0x80_u8 {
            let text = char::from(code).to_string();
            let mut ours = Vec::new();
            string(&mut ours, &text);
            assert_eq!(String::from_utf8(ours).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }

    #[test]
    fn decimals() {
        for value in [0, 9, 10, 4096, 9_007_199_254_740_991, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
