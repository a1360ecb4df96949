//! `--region 0:2,:,5` to a box of a shape. Knows text and shapes, not tensors.

use waystation_format::{Code, Error, Region, Result};

/// Parses one item an axis: `:`, `i`, `a:b`, `a:`, `:b`. A single index keeps its axis, with extent 1.
///
/// # Errors
/// [`Code::BadArgument`] for text of another form, [`Code::BadRegion`] for a region outside the shape.
pub(crate) fn parse(text: &str, shape: &[u64]) -> Result<Region> {
    let items: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split(',').collect() };
    if items.len() != shape.len() {
        let message = format!(
            "--region {text:?} has {} items, the tensor {} axes {shape:?}: expected one item an axis",
            items.len(),
            shape.len()
        );
        return Err(Error::new(Code::BadRegion, message));
    }
    let mut region = Region::whole(shape);
    let sides = region.at.iter_mut().zip(region.extent.iter_mut());
    for ((item, dim), (at, extent)) in items.iter().zip(shape).zip(sides) {
        let (begin, end) = span(item.trim(), *dim)?;
        if begin > end || end > *dim {
            let message = format!(
                "--region item {item:?} is {begin}:{end}: expected within 0:{dim}, ascending"
            );
            return Err(Error::new(Code::BadRegion, message));
        }
        *at = begin;
        *extent = end.saturating_sub(begin);
    }
    Ok(region)
}

fn span(item: &str, dim: u64) -> Result<(u64, u64)> {
    let Some((begin, end)) = item.split_once(':') else {
        let index = number(item, item)?;
        let end = index.checked_add(1).ok_or_else(|| not_an_item(item))?;
        return Ok((index, end));
    };
    let begin = if begin.is_empty() { 0 } else { number(begin, item)? };
    let end = if end.is_empty() { dim } else { number(end, item)? };
    Ok((begin, end))
}

fn number(digits: &str, item: &str) -> Result<u64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_an_item(item));
    }
    digits.parse().map_err(|_| not_an_item(item))
}

fn not_an_item(item: &str) -> Error {
    let message = format!("--region item {item:?}: expected `:`, `i`, `a:b`, `a:` or `:b`");
    Error::new(Code::BadArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let region = parse("1,2:4,:,3:", &[2, 5, 6, 7]).unwrap();
        assert_eq!(region.at.as_slice(), [1, 2, 0, 3]);
        assert_eq!(region.extent.as_slice(), [1, 2, 6, 4]);
        assert!(parse("", &[]).unwrap().at.is_empty());
    }

    #[test]
    fn refused() {
        for (text, code) in [
            (":", Code::BadRegion),
            ("2,:", Code::BadRegion),
            ("1:0,:", Code::BadRegion),
            ("0:3,:", Code::BadRegion),
            ("-1,:", Code::BadArgument),
            ("a,:", Code::BadArgument),
            ("18446744073709551615,:", Code::BadArgument),
            ("99999999999999999999,:", Code::BadArgument),
        ] {
            assert_eq!(parse(text, &[2, 5]).unwrap_err().code(), code, "{text}");
        }
    }
}
