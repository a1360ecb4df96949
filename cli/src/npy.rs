//! The header of a NumPy .npy file (format version 1.0). Knows dtypes and shapes, not data.

use waystation_format::{Code, Dtype, Error, Result};

/// The bytes before the data: magic, version, and a Python dict padded so that data begins at a multiple of 64.
///
/// # Errors
/// [`Code::BadArgument`] for a dtype that NumPy itself does not have, such as BF16.
pub(crate) fn header(dtype: Dtype, shape: &[u64]) -> Result<Vec<u8>> {
    let descr = descr(dtype).ok_or_else(|| {
        let message = format!(
            "NumPy has no dtype for {}: expected an integer, bool, F16, F32, F64 or complex tensor; \
             use --format raw",
            dtype.as_str()
        );
        Error::new(Code::BadArgument, message)
    })?;
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let dict = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        dims.join(", ")
    );
    // Magic, version and length take 10 bytes; the dict ends in a newline.
    let used = dict.len().saturating_add(11);
    let padded = used.next_multiple_of(64).saturating_sub(10);
    let length = u16::try_from(padded)
        .map_err(|_| Error::new(Code::Limit, "the shape is too long for a .npy header"))?;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(dict.as_bytes());
    out.resize(padded.saturating_add(9), b' ');
    out.push(b'\n');
    Ok(out)
}

fn descr(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "|b1",
        Dtype::U8 => "|u1",
        Dtype::I8 => "|i1",
        Dtype::U16 => "<u2",
        Dtype::I16 => "<i2",
        Dtype::U32 => "<u4",
        Dtype::I32 => "<i4",
        Dtype::U64 => "<u8",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::C64 => "<c8",
        Dtype::C128 => "<c16",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_readable() {
        for (shape, text) in [(&[][..], "()"), (&[3][..], "(3,)"), (&[2, 5][..], "(2, 5)")] {
            let header = header(Dtype::F32, shape).unwrap();
            assert_eq!(header.len() % 64, 0);
            let stated = usize::from(u16::from_le_bytes([header[8], header[9]]));
            assert_eq!(stated + 10, header.len());
            let dict = std::str::from_utf8(&header[10..]).unwrap();
            assert!(dict.contains(&format!("'shape': {text}, }}")), "{dict}");
            assert!(dict.ends_with('\n'));
        }
        assert_eq!(super::header(Dtype::BF16, &[1]).unwrap_err().code(), Code::BadArgument);
    }
}
