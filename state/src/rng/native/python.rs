//! Python's `random.getstate()`: `(3, (624 words and the position), gauss_next)`.

use waystation_format::value_tree::Tree;
use waystation_format::{Result, RngAlgorithm, RngCache};

use super::super::mt19937::Mt19937;
use super::super::stream::{Cache, StreamState};
use super::tree::{bad, bad_tree, float, int, items, u32, u32s};

const WHAT: &str = "python";

/// Reads the form.
///
/// # Errors
///
/// [`Code::BadRngState`](waystation_format::Code::BadRngState) for another version than 3, and for
/// anything else that Python does not write.
pub fn from_tree(tree: &Tree) -> Result<StreamState> {
    let [version, internal, gauss_next] = items(tree, WHAT)? else {
        return Err(bad_tree(WHAT, "(version, internal state, gauss_next)", tree));
    };
    if *version != Tree::Int(3) {
        return Err(bad_tree(WHAT, "version 3", version));
    }
    let Some((pos, words)) = items(internal, "python: internal state")?.split_last() else {
        return Err(bad(WHAT, "624 words and a position, found none"));
    };
    let engine = Mt19937::new(u32s(words, "python: words")?, u32(pos, "python: position")?)?;
    let mut stream = StreamState::new(RngAlgorithm::Mt19937, engine.encode())?;
    if *gauss_next != Tree::Null {
        let bits = float(gauss_next, "python: gauss_next, if it is not None")?;
        stream.caches.push(Cache::new(RngCache::PythonGaussNextF64, bits));
    }
    Ok(stream)
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for another algorithm or caches of
/// other frameworks, `bad-rng-state` for an illegal state.
pub fn to_tree(stream: &StreamState) -> Result<Tree> {
    stream.expect(WHAT, &[RngAlgorithm::Mt19937], &[RngCache::PythonGaussNextF64])?;
    let engine = Mt19937::decode(&stream.state)?;
    let internal = engine.key().iter().copied().chain([engine.pos()]).map(int).collect();
    let gauss_next = stream.cache(RngCache::PythonGaussNextF64).map_or(Tree::Null, Tree::F64);
    Ok(Tree::Tuple(vec![Tree::Int(3), Tree::Tuple(internal), gauss_next]))
}
