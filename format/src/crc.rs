//! CRC-32C: of bytes, of joined pieces, and of a chunk's blocks.
//!
//! It knows the polynomial and the arithmetic of joining. It must not know where bytes come from.
//!
//! A CRC is the remainder of a polynomial over GF(2). In the reflected form used here the
//! coefficient of x^0 is the highest bit. Appending n bytes to a message multiplies its
//! remainder by x^(8n), so two pieces join by one multiplication and an exclusive-or; the
//! initial value and the final inversion cancel out.

/// The polynomial 0x1EDC6F41, reflected, without its highest term.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0 in reflected form.
const ONE: u32 = 1 << 31;
/// x^8 in reflected form: one byte.
const BYTE: u32 = 1 << 23;

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The CRC-32C of what has the CRC-32C `crc`, followed by `bytes`; 0 is that of nothing.
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The CRC-32C of two pieces joined: `a` of the first, `b` of the second, which has `len_b` bytes.
#[must_use]
pub fn combine(a: u32, b: u32, len_b: u64) -> u32 {
    multiply(power_of_bytes(len_b), a) ^ b
}

/// Takes a chunk's bytes in order, in pieces of any length, and gives its CRC-32C and that of
/// each of its blocks. Every byte is looked at once: the whole's is joined from the blocks'.
#[derive(Clone, Debug)]
pub struct BlockCrcs {
    block_bytes: u64,
    /// x^(8 * block_bytes).
    by_block: u32,
    /// Of the full blocks so far.
    whole: u32,
    blocks: Vec<u32>,
    /// Of the block under way, and its bytes so far, below `block_bytes`.
    open: u32,
    open_bytes: u64,
}

impl BlockCrcs {
    /// For a chunk whose blocks have `block_bytes` bytes, the last one perhaps fewer. A
    /// checkpoint's `block_bytes` is never 0; 0 is taken as 1.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        let block_bytes = block_bytes.max(1);
        let by_block = power_of_bytes(block_bytes);
        Self { block_bytes, by_block, whole: 0, blocks: Vec::new(), open: 0, open_bytes: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.block_bytes.saturating_sub(self.open_bytes);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.open = append(self.open, piece);
            // A slice's length is below 2^64 on every machine.
            let piece_bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.open_bytes = self.open_bytes.saturating_add(piece_bytes);
            if self.open_bytes >= self.block_bytes {
                self.whole = multiply(self.by_block, self.whole) ^ self.open;
                self.blocks.push(self.open);
                (self.open, self.open_bytes) = (0, 0);
            }
            bytes = rest;
        }
    }

    /// The CRC-32C of all bytes, and of each block in order: one block for a chunk that is not
    /// longer than a block, none for no bytes.
    #[must_use]
    pub fn finish(mut self) -> (u32, Vec<u32>) {
        if self.open_bytes > 0 {
            self.whole = combine(self.whole, self.open, self.open_bytes);
            self.blocks.push(self.open);
        }
        (self.whole, self.blocks)
    }
}

/// x^(8 * bytes), by squaring.
fn power_of_bytes(mut bytes: u64) -> u32 {
    let (mut power, mut square) = (ONE, BYTE);
    while bytes > 0 {
        if bytes & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        bytes >>= 1;
    }
    power
}

/// The product of two remainders: for each term of `a`, from x^0 up, add `b` times that term.
fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        // Times x: the term that passes x^31 comes back as the polynomial.
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(append(crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(combine(crc32c(b"1234"), crc32c(b"56789"), 5), 0xe306_9283);
    }

    #[test]
    fn joining_long_zeros_agrees_with_hashing_them() {
        let zeros = vec![0; 1 << 20];
        let (mut long, mut joined) = (crc32c(b"head"), crc32c(b"head"));
        for _ in 0..5 {
            long = append(long, &zeros);
        }
        let five = (0..5).fold(0, |crc, _| append(crc, &zeros));
        joined = combine(joined, five, 5 << 20);
        assert_eq!(joined, long);
    }

    proptest! {
        #[test]
        fn combine_is_the_crc_of_the_joined(
            a in prop::collection::vec(any::<u8>(), 0..300),
            b in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let joined = [a.as_slice(), b.as_slice()].concat();
            let len_b = b.len() as u64;
            prop_assert_eq!(combine(crc32c(&a), crc32c(&b), len_b), crc32c(&joined));
        }

        #[test]
        fn blocks_do_not_depend_on_pieces(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            cuts in prop::collection::vec(0usize..600, 0..8),
            block in 1usize..70,
        ) {
            let mut crcs = BlockCrcs::new(block as u64);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut begin = 0;
            for end in cuts.into_iter().chain([bytes.len()]) {
                crcs.update(&bytes[begin..end]);
                begin = end;
            }
            let (whole, blocks) = crcs.finish();
            prop_assert_eq!(whole, crc32c(&bytes));
            let naive: Vec<u32> = bytes.chunks(block).map(crc32c).collect();
            prop_assert_eq!(blocks, naive);
        }
    }
}
