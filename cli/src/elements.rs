//! Elements as text: decodes any registered dtype from packed bytes, one element at a time.
//! Knows dtypes and bits. It must not know tensors or where bytes come from.

use waystation_format::Dtype;

/// The text of element `index` of `packed`, or `None` when the bytes end before it.
///
/// Floats print as their shortest decimal that reads back to the same value, so nothing is lost.
pub(crate) fn text(dtype: Dtype, packed: &[u8], index: usize) -> Option<String> {
    let bits = usize::try_from(dtype.bits()).ok()?;
    if bits == 128 {
        let at = index.checked_mul(16)?;
        let re = f64::from_bits(word(packed, at, 8)?);
        let im = f64::from_bits(word(packed, at.checked_add(8)?, 8)?);
        return Some(format!("{re:?}{im:+?}j"));
    }
    let raw = raw(packed, index, bits)?;
    Some(match dtype {
        Dtype::Bool => match raw {
            0 => "false".to_owned(),
            1 => "true".to_owned(),
            other => format!("bool({other})"),
        },
        Dtype::U1 | Dtype::U2 | Dtype::U4 | Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => {
            raw.to_string()
        }
        Dtype::I2 | Dtype::I4 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => {
            sign_extended(raw, dtype.bits()).to_string()
        }
        Dtype::F16 => format!("{:?}", half::f16::from_bits(low16(raw)).to_f32()),
        Dtype::BF16 => format!("{:?}", half::bf16::from_bits(low16(raw)).to_f32()),
        Dtype::F32 => format!("{:?}", f32::from_bits(low32(raw))),
        Dtype::F64 => format!("{:?}", f64::from_bits(raw)),
        Dtype::C64 => {
            let im = f32::from_bits(low32(raw.wrapping_shr(32)));
            format!("{:?}{im:+?}j", f32::from_bits(low32(raw)))
        }
        Dtype::F8E8M0 => match raw {
            0xff => "NaN".to_owned(),
            e => format!("{:?}", 2f64.powi(small(e).wrapping_sub(127))),
        },
        Dtype::F8E4M3 => {
            MiniFloat { exponent: 4, mantissa: 3, bias: 7, special: Special::NanOnly }.text(raw)
        }
        Dtype::F8E5M2 => {
            MiniFloat { exponent: 5, mantissa: 2, bias: 15, special: Special::Ieee }.text(raw)
        }
        Dtype::F8E4M3FNUZ => {
            MiniFloat { exponent: 4, mantissa: 3, bias: 8, special: Special::Fnuz }.text(raw)
        }
        Dtype::F8E5M2FNUZ => {
            MiniFloat { exponent: 5, mantissa: 2, bias: 16, special: Special::Fnuz }.text(raw)
        }
        Dtype::F8E3M4 => {
            MiniFloat { exponent: 3, mantissa: 4, bias: 3, special: Special::Ieee }.text(raw)
        }
        Dtype::F6E2M3 => {
            MiniFloat { exponent: 2, mantissa: 3, bias: 1, special: Special::None }.text(raw)
        }
        Dtype::F6E3M2 => {
            MiniFloat { exponent: 3, mantissa: 2, bias: 3, special: Special::None }.text(raw)
        }
        Dtype::F4E2M1 => {
            MiniFloat { exponent: 2, mantissa: 1, bias: 1, special: Special::None }.text(raw)
        }
        _ => format!("0x{raw:x}"),
    })
}

/// Which bit patterns of a small float are not numbers (the dtype registry says the same in words).
enum Special {
    /// The greatest exponent holds infinities and NaN, as in IEEE 754.
    Ieee,
    /// Only all ones is NaN.
    NanOnly,
    /// Only the pattern of negative zero is NaN.
    Fnuz,
    /// Every pattern is a number.
    None,
}

struct MiniFloat {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

impl MiniFloat {
    fn text(&self, raw: u64) -> String {
        let mask = |bits: u32| 1u64.wrapping_shl(bits).wrapping_sub(1);
        let fraction = raw & mask(self.mantissa);
        let exponent = raw.wrapping_shr(self.mantissa) & mask(self.exponent);
        let negative = raw.wrapping_shr(self.mantissa.wrapping_add(self.exponent)) & 1 == 1;
        let sign = if negative { -1f64 } else { 1f64 };
        let all_ones = exponent == mask(self.exponent);
        match self.special {
            Special::Ieee if all_ones && fraction == 0 => {
                return format!("{:?}", sign * f64::INFINITY);
            }
            Special::Ieee if all_ones => return "NaN".to_owned(),
            Special::NanOnly if all_ones && fraction == mask(self.mantissa) => {
                return "NaN".to_owned();
            }
            Special::Fnuz if negative && exponent == 0 && fraction == 0 => return "NaN".to_owned(),
            _ => {}
        }
        let scale = 2f64.powi(small(u64::from(self.mantissa)));
        let fraction = f64::from(small(fraction)) / scale;
        let value = if exponent == 0 {
            fraction * 2f64.powi(1i32.wrapping_sub(self.bias))
        } else {
            (1.0 + fraction) * 2f64.powi(small(exponent).wrapping_sub(self.bias))
        };
        format!("{:?}", sign * value)
    }
}

/// Element `index` of `bits` bits, least significant bit first.
fn raw(packed: &[u8], index: usize, bits: usize) -> Option<u64> {
    if bits >= 8 {
        let bytes = bits.checked_div(8)?;
        return word(packed, index.checked_mul(bytes)?, bytes);
    }
    let first = index.checked_mul(bits)?;
    let mut value = 0;
    for i in 0..bits {
        let at = first.checked_add(i)?;
        let byte = *packed.get(at.checked_div(8)?)?;
        let bit = byte.checked_shr(u32::try_from(at % 8).ok()?)? & 1;
        value |= u64::from(bit).checked_shl(u32::try_from(i).ok()?)?;
    }
    Some(value)
}

fn word(packed: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let run = packed.get(at..at.checked_add(bytes)?)?;
    let mut le = [0; 8];
    le.get_mut(..bytes)?.copy_from_slice(run);
    Some(u64::from_le_bytes(le))
}

fn sign_extended(raw: u64, bits: u32) -> i64 {
    let unused = 64u32.wrapping_sub(bits);
    raw.wrapping_shl(unused).cast_signed().wrapping_shr(unused)
}

fn low16(raw: u64) -> u16 {
    let [a, b, ..] = raw.to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn low32(raw: u64) -> u32 {
    let [a, b, c, d, ..] = raw.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A field of at most 8 bits as a signed number.
fn small(field: u64) -> i32 {
    i32::from(low16(field).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_number() {
        let cases: &[(Dtype, &[u8], usize, &str)] = &[
            (Dtype::F32, &[0, 0, 0x80, 0x3f], 0, "1.0"),
            (Dtype::BF16, &[0x80, 0x3f, 0, 0xc0], 1, "-2.0"),
            (Dtype::F16, &[0, 0x3c], 0, "1.0"),
            (Dtype::I8, &[0xff], 0, "-1"),
            (Dtype::I4, &[0x8f], 1, "-8"),
            (Dtype::U2, &[0b1110_0100], 3, "3"),
            (Dtype::F4E2M1, &[0x70], 1, "6.0"),
            (Dtype::F4E2M1, &[0x01], 0, "0.5"),
            (Dtype::F8E4M3, &[0x7e], 0, "448.0"),
            (Dtype::F8E4M3, &[0x7f], 0, "NaN"),
            (Dtype::F8E5M2, &[0x7b], 0, "57344.0"),
            (Dtype::F8E5M2, &[0xfc], 0, "-inf"),
            (Dtype::F8E4M3FNUZ, &[0x80], 0, "NaN"),
            (Dtype::F8E4M3FNUZ, &[0x7f], 0, "240.0"),
            (Dtype::F8E8M0, &[127], 0, "1.0"),
            (Dtype::F6E3M2, &[0x1f], 0, "28.0"),
            (Dtype::F6E2M3, &[0x1f], 0, "7.5"),
            (Dtype::Bool, &[7], 0, "bool(7)"),
            (Dtype::U64, &[0xff; 8], 0, "18446744073709551615"),
            (Dtype::C64, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], 0, "1.0-2.0j"),
        ];
        for (dtype, bytes, index, expected) in cases {
            assert_eq!(text(*dtype, bytes, *index).as_deref(), Some(*expected), "{dtype:?}");
        }
        assert_eq!(text(Dtype::F32, &[0, 0, 0], 0), None);
    }
}
