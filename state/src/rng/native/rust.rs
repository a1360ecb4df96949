//! The serialised forms of `rand_chacha`, `rand_pcg` and `rand_xoshiro`.
//!
//! They do not say which engine they are of: the type did. `StdRng` and `SmallRng` have no form,
//! as their engines may change.

use waystation_format::value_tree::Tree;
use waystation_format::{Code, Error, Result, RngAlgorithm};

use super::super::chacha::ChaCha;
use super::super::fields::{Fields, join_u64s};
use super::super::pcg::{Pcg64, Pcg128};
use super::super::stream::StreamState;
use super::super::xoshiro::Xoshiro256PlusPlus;
use super::tree::{Members, bad, int, items, list, map, u64, u64s, uint};

const WHAT: &str = "rust";
/// Positions of a ChaCha stream, after which it begins anew.
const POSITIONS: u128 = 1 << 68;

/// Reads `{"seed","stream","word_pos"}` of a ChaCha, `{"state","increment"}` of a PCG or `{"s"}` of
/// a xoshiro256++.
///
/// # Errors
///
/// [`Code::BadRngState`] for anything that the crates do not write, [`Code::BadArgument`] for an
/// algorithm that is none of theirs.
pub fn from_tree(algorithm: RngAlgorithm, tree: &Tree) -> Result<StreamState> {
    let state = match algorithm {
        RngAlgorithm::ChaCha8 | RngAlgorithm::ChaCha12 | RngAlgorithm::ChaCha20 => {
            let members = Members::of(tree, WHAT, &["seed", "stream", "word_pos"])?;
            let mut seed = Vec::new();
            for byte in items(members.get("seed")?, "rust: seed")? {
                let byte = uint(byte, "rust: byte of the seed", u128::from(u8::MAX))?;
                seed.push(u8::try_from(byte).unwrap_or(u8::MAX));
            }
            let found = seed.len();
            let seed = seed.try_into();
            let seed = seed.map_err(|_| bad("rust: seed", &format!("32 bytes, found {found}")))?;
            let stream = u64(members.get("stream")?, "rust: stream")?;
            // Where the stream begins anew the crate shows a position beyond its end; it takes
            // positions modulo 2^68.
            let word_pos = uint(members.get("word_pos")?, "rust: word_pos", u128::MAX)?;
            ChaCha { seed, stream, word_pos: word_pos & (POSITIONS - 1) }.encode()
        }
        RngAlgorithm::Pcg64XslRr | RngAlgorithm::Pcg64Dxsm => {
            let members = Members::of(tree, WHAT, &["increment", "state"])?;
            let state = uint(members.get("state")?, "rust: state", u128::MAX)?;
            let inc = uint(members.get("increment")?, "rust: increment", u128::MAX)?;
            Pcg128 { state, inc }.encode()
        }
        RngAlgorithm::Pcg32XshRr => {
            let members = Members::of(tree, WHAT, &["increment", "state"])?;
            let state = u64(members.get("state")?, "rust: state")?;
            let inc = u64(members.get("increment")?, "rust: increment")?;
            Pcg64 { state, inc }.encode()
        }
        RngAlgorithm::Xoshiro256PlusPlus => {
            let members = Members::of(tree, WHAT, &["s"])?;
            let words: [u64; 4] = u64s(items(members.get("s")?, "rust: s")?, "rust: s")?;
            join_u64s(&words)
        }
        _ => {
            let message = format!("no crate of Rust has {algorithm} in a form that is known here");
            return Err(Error::new(Code::BadArgument, message));
        }
    };
    StreamState::new(algorithm, state)
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`] for another algorithm or any cache, [`Code::BadRngState`] for an illegal
/// state.
pub fn to_tree(stream: &StreamState) -> Result<Tree> {
    let known = [
        RngAlgorithm::ChaCha8,
        RngAlgorithm::ChaCha12,
        RngAlgorithm::ChaCha20,
        RngAlgorithm::Pcg64XslRr,
        RngAlgorithm::Pcg64Dxsm,
        RngAlgorithm::Pcg32XshRr,
        RngAlgorithm::Xoshiro256PlusPlus,
    ];
    stream.expect(WHAT, &known, &[])?;
    let mut fields = Fields::new(stream.algorithm, &stream.state)?;
    Ok(match stream.algorithm {
        RngAlgorithm::Pcg64XslRr | RngAlgorithm::Pcg64Dxsm => {
            let pcg = Pcg128::decode(&mut fields)?;
            map([("state", int(pcg.state)), ("increment", int(pcg.inc))])
        }
        RngAlgorithm::Pcg32XshRr => {
            let pcg = Pcg64::decode(&mut fields)?;
            map([("state", int(pcg.state)), ("increment", int(pcg.inc))])
        }
        RngAlgorithm::Xoshiro256PlusPlus => {
            let Xoshiro256PlusPlus(words) = Xoshiro256PlusPlus::decode(&mut fields)?;
            map([("s", list(words))])
        }
        _ => {
            let chacha = ChaCha::decode(&mut fields)?;
            map([
                ("seed", list(chacha.seed)),
                ("stream", int(chacha.stream)),
                ("word_pos", int(chacha.word_pos)),
            ])
        }
    })
}
