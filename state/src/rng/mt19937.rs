//! The Mersenne Twister MT19937 of Matsumoto and Nishimura, with both of its published seedings.
//!
//! It knows the engine and its canonical state. What frameworks keep beside it is not its business.

use waystation_format::{Error, Result, RngAlgorithm};

use super::fields::illegal;

/// Words of the state.
const WORDS: usize = 624;
/// How far ahead the word is that is mixed in.
const AHEAD: usize = 397;

/// A Mersenne Twister: 624 words of key, and how many of them are drawn.
///
/// At position 624 the next draw first makes the next 624 words; a fresh engine stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mt19937 {
    key: [u32; WORDS],
    /// At most [`WORDS`].
    pos: usize,
}

impl Mt19937 {
    /// The engine seeded from one word, as NumPy's `RandomState(seed)` and PyTorch do.
    #[must_use]
    pub fn init_genrand(seed: u32) -> Self {
        let mut last = seed;
        let mut key = [0; WORDS];
        for (index, word) in (0_u32..).zip(&mut key) {
            if index > 0 {
                last = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(index);
            }
            *word = last;
        }
        Self { key, pos: WORDS }
    }

    /// The engine seeded from words, least significant first, as Python's `random.seed` does.
    /// No words are the one word 0.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "each index is taken below the length it indexes")]
    #[expect(clippy::arithmetic_side_effects, reason = "`at` is 1 to 624, the seed has a word")]
    pub fn init_by_array(seed: &[u32]) -> Self {
        let seed = if seed.is_empty() { &[0] } else { seed };
        let mut key = Self::init_genrand(19_650_218).key;
        let mut at = 1;
        // Word 0 stays out: after the last word its value is moved there, and the round begins anew.
        let mut step = |change: &dyn Fn(u32, u32, usize) -> u32| {
            let before = key[at - 1];
            key[at] = change(key[at], before ^ (before >> 30), at);
            at += 1;
            if at == WORDS {
                key[0] = key[WORDS - 1];
                at = 1;
            }
        };
        for round in 0..WORDS.max(seed.len()) {
            let index = round % seed.len();
            step(&|word, mixed, _| {
                (word ^ mixed.wrapping_mul(1_664_525))
                    .wrapping_add(seed[index])
                    .wrapping_add(low(index))
            });
        }
        for _ in 1..WORDS {
            step(&|word, mixed, at| {
                (word ^ mixed.wrapping_mul(1_566_083_941)).wrapping_sub(low(at))
            });
        }
        key[0] = 1 << 31;
        Self { key, pos: WORDS }
    }

    /// The engine with this key, of whose words `pos` are drawn.
    ///
    /// # Errors
    ///
    /// `bad-rng-state` when `pos` is above 624 or all bits that the engine uses are 0: it
    /// would give zeros for ever.
    pub fn new(key: [u32; WORDS], pos: u32) -> Result<Self> {
        let bad = |message: &str| Err(illegal(RngAlgorithm::Mt19937, message));
        let pos = match usize::try_from(pos) {
            Ok(small) if small <= WORDS => small,
            _ => return bad(&format!("expected pos at most {WORDS}, found {pos}")),
        };
        let [first, others @ ..] = &key;
        if first >> 31 == 0 && others.iter().all(|word| *word == 0) {
            return bad("expected a bit set in the key that the engine uses, found none");
        }
        Ok(Self { key, pos })
    }

    /// Reads the canonical state: 624 words and the position, each u32 little-endian.
    ///
    /// # Errors
    ///
    /// `bad-rng-state` for another length than 2500 bytes, and as [`new`](Self::new).
    pub fn decode(state: &[u8]) -> Result<Self> {
        let (words, rest) = state.as_chunks::<4>();
        let (Some((pos, words)), []) = (words.split_last(), rest) else {
            return Err(wrong_length(state.len()));
        };
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let key = words.try_into().map_err(|_| wrong_length(state.len()))?;
        Self::new(key, u32::from_le_bytes(*pos))
    }

    /// The canonical state, 2500 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let words = self.key.iter().copied().chain([self.pos()]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// The words.
    #[must_use]
    pub fn key(&self) -> &[u32; WORDS] {
        &self.key
    }

    /// How many of the words are drawn, at most 624.
    #[must_use]
    pub fn pos(&self) -> u32 {
        low(self.pos)
    }

    /// The next output.
    pub fn next_u32(&mut self) -> u32 {
        let mut word = match self.key.get(self.pos) {
            Some(word) => *word,
            None => {
                self.twist();
                self.pos = 0;
                let [first, ..] = self.key;
                first
            }
        };
        self.pos = self.pos.saturating_add(1);
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// An engine with the same outputs that does not stand at position 0: there it takes the words
    /// before the twist, at position 624. None when no twist gives these words.
    ///
    /// Seeding and drawing never leave an engine at position 0, and PyTorch refuses it.
    #[must_use]
    pub fn before_twist(&self) -> Option<Self> {
        if self.pos > 0 {
            return Some(self.clone());
        }
        let before = self.clone().untwisted();
        let mut again = before.clone();
        again.twist();
        (again.key == self.key).then_some(before)
    }

    /// Undoes a twist. Of the first word only the highest bit is determined; the others, which no
    /// output depends on, are 0.
    #[expect(clippy::indexing_slicing, reason = "each index is a remainder by the length")]
    #[expect(clippy::arithmetic_side_effects, reason = "indices stay below three times the length")]
    fn untwisted(mut self) -> Self {
        // Word `at` became: word `at + AHEAD` ^ (top bit of word `at`, low bits of word `at + 1`).
        let mixed = |key: &[u32; WORDS], at: usize| {
            let after = key[at % WORDS] ^ key[(at + AHEAD) % WORDS];
            // The highest bit is the odd flag's alone: what was shifted in there is 0.
            let odd = after >> 31;
            ((after ^ (odd * 0x9908_b0df)) << 1) | odd
        };
        for at in (0..WORDS).rev() {
            let top = mixed(&self.key, at) & (1 << 31);
            let low = mixed(&self.key, at + WORDS - 1) & !(1 << 31);
            self.key[at] = top | low;
        }
        self.key[0] &= 1 << 31;
        self.pos = WORDS;
        self
    }

    /// Makes the next 624 words from these.
    #[expect(clippy::indexing_slicing, reason = "each index is a remainder by the length")]
    #[expect(clippy::arithmetic_side_effects, reason = "indices stay below three times the length")]
    fn twist(&mut self) {
        for at in 0..WORDS {
            let mixed = (self.key[at] & 1 << 31) | (self.key[(at + 1) % WORDS] & !(1 << 31));
            let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            self.key[at] = self.key[(at + AHEAD) % WORDS] ^ (mixed >> 1) ^ odd;
        }
    }
}

/// The low 32 bits of an index.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low(index: usize) -> u32 {
    index as u32
}

#[cold]
fn wrong_length(found: usize) -> Error {
    illegal(RngAlgorithm::Mt19937, &format!("expected a state of 2500 bytes, found {found}"))
}

#[cfg(test)]
mod tests {
    use waystation_format::Code;

    use super::*;

    fn drawn(mut engine: Mt19937, skip: usize, count: usize) -> Vec<u32> {
        for _ in 0..skip {
            engine.next_u32();
        }
        (0..count).map(|_| engine.next_u32()).collect()
    }

    /// The figures that the authors publish with their own program, and the standard's (C++
    /// `mt19937`: the 10,000th draw from the seed 5489 is 4123659995).
    #[test]
    fn published_outputs() {
        let authors = Mt19937::init_by_array(&[0x123, 0x234, 0x345, 0x456]);
        let begin = [1_067_595_299, 955_945_823, 477_289_528, 4_107_218_783, 4_228_976_476];
        assert_eq!(drawn(authors, 0, 5), begin);
        assert_eq!(drawn(Mt19937::init_genrand(5489), 9999, 1), [4_123_659_995]);
    }

    #[test]
    fn a_state_is_what_was_read() {
        let mut engine = Mt19937::init_genrand(42);
        for _ in 0..1300 {
            let state = engine.encode();
            assert_eq!(state.len(), 2500);
            let again = Mt19937::decode(&state).unwrap();
            assert_eq!(again, engine);
            assert_eq!(drawn(again, 0, 1), drawn(engine.clone(), 0, 1));
            engine.next_u32();
        }
    }

    #[test]
    fn position_0_has_a_state_before_it() {
        let mut engine = Mt19937::init_genrand(42);
        for _ in 0..3 {
            engine.next_u32();
            let begin = Mt19937::new(*engine.key(), 0).unwrap();
            let before = begin.before_twist().unwrap();
            assert_eq!(before.pos(), 624);
            assert_eq!(drawn(before, 0, 2000), drawn(begin, 0, 2000));
            assert_eq!(engine.before_twist().unwrap(), engine);
            for _ in 0..623 {
                engine.next_u32();
            }
        }
        let mut key = *engine.key();
        key[0] ^= 1;
        assert_eq!(Mt19937::new(key, 0).unwrap().before_twist(), None);
    }

    #[test]
    fn states_of_no_engine_are_refused() {
        let good = Mt19937::init_genrand(42).encode();
        let mut beyond = good.clone();
        beyond[2496..].copy_from_slice(&625_u32.to_le_bytes());
        let mut dead = vec![0; 2500];
        dead[..4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        for bad in [&good[..2499], &good[..2496], &good[..0], &beyond, &dead] {
            assert_eq!(Mt19937::decode(bad).unwrap_err().code(), Code::BadRngState);
        }
        dead[3] = 0x80;
        Mt19937::decode(&dead).unwrap();
    }
}
