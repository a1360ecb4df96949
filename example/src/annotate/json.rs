//! Breaks a canonical text into lines that fit a page.
//!
//! It knows strings and commas. It must not change a byte.

/// The widest line.
const WIDTH: usize = 120;

/// `text` in pieces of at most [`WIDTH`] bytes, where commas allow; joined they are `text`.
pub(super) fn broken(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut begin, mut comma) = (0, None);
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        if at.saturating_sub(begin) >= WIDTH
            && let Some(end) = comma.take()
        {
            pieces.extend(text.get(begin..end));
            begin = end;
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' if !in_string => comma = Some(at.saturating_add(1)),
            _ => {}
        }
    }
    pieces.extend(text.get(begin..).filter(|rest| !rest.is_empty()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_again_nothing_is_lost() {
        let item = r#"{"a":",\",","b":[1,2]},"#;
        let text = format!("[{}0]", item.repeat(40));
        let pieces = broken(&text);
        assert_eq!(pieces.concat(), text);
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() <= WIDTH));
        // A comma within a string is no place to break at.
        assert!(
            pieces.iter().all(|piece| piece.matches('"').count() % 2 == 0 || piece.contains('\\'))
        );
        assert_eq!(broken(""), Vec::<&str>::new());
    }
}
