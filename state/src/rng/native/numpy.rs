//! NumPy: the `state` of a bit generator, and `RandomState.get_state()` in both of its forms.
//!
//! It knows the members that each bit generator has. What a half output left behind after it was
//! drawn (`uinteger` where `has_uint32` is 0) is not part of the state, and not kept.

use waystation_format::value_tree::Tree;
use waystation_format::{Result, RngAlgorithm, RngCache};

use super::super::fields::{Fields, join_u64s};
use super::super::mt19937::Mt19937;
use super::super::pcg::Pcg128;
use super::super::philox;
use super::super::stream::{Cache, StreamState};
use super::tree::{Members, bad_tree, flag, float, int, items, list, map, u32, u32s, u64s, uint};

const WHAT: &str = "numpy";
const LEGACY: &str = "numpy-legacy";

/// The bit generators and what they are.
const BIT_GENERATORS: [(&str, RngAlgorithm); 5] = [
    ("MT19937", RngAlgorithm::Mt19937),
    ("PCG64", RngAlgorithm::Pcg64XslRr),
    ("PCG64DXSM", RngAlgorithm::Pcg64Dxsm),
    ("Philox", RngAlgorithm::Philox4x64Numpy),
    ("SFC64", RngAlgorithm::Sfc64),
];

/// The name of the bit generator with this algorithm, if NumPy has one.
#[must_use]
pub fn bit_generator(algorithm: RngAlgorithm) -> Option<&'static str> {
    BIT_GENERATORS.iter().find(|(_, it)| *it == algorithm).map(|(name, _)| *name)
}

/// Reads the dictionary `BitGenerator.state`.
///
/// # Errors
///
/// [`Code::BadRngState`](waystation_format::Code::BadRngState) for an unknown bit generator, and
/// for anything that NumPy does not write.
pub fn from_tree(tree: &Tree) -> Result<StreamState> {
    from_members(tree, &[])
}

/// Reads `RandomState.get_state()`: the tuple `('MT19937', words, pos, has_gauss,
/// cached_gaussian)`, or the dictionary that `legacy=False` gives.
///
/// # Errors
///
/// As [`from_tree`].
pub fn from_legacy_tree(tree: &Tree) -> Result<StreamState> {
    let (mut stream, has_gauss, gauss) = if let Tree::Map(_) = tree {
        let stream = from_members(tree, &["gauss", "has_gauss"])?;
        let members = Members::of(tree, LEGACY, &ALL_MEMBERS)?;
        (stream, members.get("has_gauss")?, members.get("gauss")?)
    } else {
        let [name, words, pos, has_gauss, gauss] = items(tree, LEGACY)? else {
            let form = "('MT19937', words, pos, has_gauss, cached_gaussian)";
            return Err(bad_tree(LEGACY, form, tree));
        };
        if *name != Tree::Str("MT19937".to_owned()) {
            return Err(bad_tree(LEGACY, "the name MT19937", name));
        }
        let words = u32s(items(words, "numpy-legacy: words")?, "numpy-legacy: words")?;
        let engine = Mt19937::new(words, u32(pos, "numpy-legacy: pos")?)?;
        let stream = StreamState::new(RngAlgorithm::Mt19937, engine.encode())?;
        (stream, has_gauss, gauss)
    };
    let bits = float(gauss, "numpy-legacy: cached_gaussian")?;
    if flag(has_gauss, "numpy-legacy: has_gauss")? {
        // Its kind is the least of NumPy's.
        stream.caches.insert(0, Cache::new(RngCache::NumpyLegacyGaussF64, bits));
    }
    Ok(stream)
}

/// Writes the dictionary `BitGenerator.state`; its arrays are lists.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for an algorithm or caches that no
/// bit generator has, `bad-rng-state` for an illegal state.
pub fn to_tree(stream: &StreamState) -> Result<Tree> {
    stream.expect(WHAT, &algorithms(), half(stream.algorithm))?;
    members(stream).map(map)
}

/// Writes what `RandomState.set_state` takes: the tuple of a Mersenne Twister, the dictionary of
/// another bit generator.
///
/// # Errors
///
/// As [`to_tree`].
pub fn to_legacy_tree(stream: &StreamState) -> Result<Tree> {
    let caches = [&[RngCache::NumpyLegacyGaussF64], half(stream.algorithm)].concat();
    stream.expect(LEGACY, &algorithms(), &caches)?;
    let gauss = stream.cache(RngCache::NumpyLegacyGaussF64);
    let (has_gauss, bits) = (int(u32::from(gauss.is_some())), Tree::F64(gauss.unwrap_or(0)));
    if stream.algorithm != RngAlgorithm::Mt19937 {
        let gauss = [("has_gauss", has_gauss), ("gauss", bits)];
        return Ok(map(members(stream)?.into_iter().chain(gauss)));
    }
    let engine = Mt19937::decode(&stream.state)?;
    Ok(Tree::Tuple(vec![
        Tree::Str("MT19937".to_owned()),
        list(*engine.key()),
        int(engine.pos()),
        has_gauss,
        bits,
    ]))
}

/// Every member that some bit generator or `RandomState` has.
const ALL_MEMBERS: [&str; 8] = [
    "bit_generator",
    "buffer",
    "buffer_pos",
    "gauss",
    "has_gauss",
    "has_uint32",
    "state",
    "uinteger",
];

fn algorithms() -> [RngAlgorithm; 5] {
    BIT_GENERATORS.map(|(_, algorithm)| algorithm)
}

/// The caches of a bit generator: those of 64 bits keep half an output.
fn half(algorithm: RngAlgorithm) -> &'static [RngCache] {
    if algorithm == RngAlgorithm::Mt19937 { &[] } else { &[RngCache::NumpyU32Half] }
}

/// Reads the dictionary, in which the members `more` may stand beside the bit generator's.
fn from_members(tree: &Tree, more: &[&str]) -> Result<StreamState> {
    let named = Members::of(tree, WHAT, &ALL_MEMBERS)?.get("bit_generator")?;
    let of = |(name, _): &&(&str, RngAlgorithm)| *named == Tree::Str((*name).to_owned());
    let Some((_, algorithm)) = BIT_GENERATORS.iter().find(of) else {
        let known = "MT19937, PCG64, PCG64DXSM, Philox or SFC64";
        return Err(bad_tree("numpy: bit_generator", known, named));
    };
    let own: &[&str] = match algorithm {
        RngAlgorithm::Mt19937 => &["bit_generator", "state"],
        RngAlgorithm::Philox4x64Numpy => {
            &["bit_generator", "buffer", "buffer_pos", "has_uint32", "state", "uinteger"]
        }
        _ => &["bit_generator", "has_uint32", "state", "uinteger"],
    };
    let members = Members::of(tree, WHAT, &[own, more].concat())?;
    let inner = members.get("state")?;
    let state = match algorithm {
        RngAlgorithm::Mt19937 => {
            let inner = Members::of(inner, "numpy: state", &["key", "pos"])?;
            let key = u32s(items(inner.get("key")?, "numpy: key")?, "numpy: key")?;
            Mt19937::new(key, u32(inner.get("pos")?, "numpy: pos")?)?.encode()
        }
        RngAlgorithm::Philox4x64Numpy => {
            let inner = Members::of(inner, "numpy: state", &["counter", "key"])?;
            let words = |tree, what| items(tree, what);
            philox::Numpy {
                counter: u64s(words(inner.get("counter")?, "numpy: counter")?, "numpy: counter")?,
                key: u64s(words(inner.get("key")?, "numpy: key")?, "numpy: key")?,
                buffer: u64s(words(members.get("buffer")?, "numpy: buffer")?, "numpy: buffer")?,
                buffer_pos: u32(members.get("buffer_pos")?, "numpy: buffer_pos")?,
            }
            .encode()
        }
        RngAlgorithm::Sfc64 => {
            let inner = Members::of(inner, "numpy: state", &["state"])?;
            let words = items(inner.get("state")?, "numpy: state")?;
            let words: [u64; 4] = u64s(words, "numpy: state")?;
            join_u64s(&words)
        }
        _ => {
            let inner = Members::of(inner, "numpy: state", &["inc", "state"])?;
            let state = uint(inner.get("state")?, "numpy: state", u128::MAX)?;
            let inc = uint(inner.get("inc")?, "numpy: inc", u128::MAX)?;
            Pcg128 { state, inc }.encode()
        }
    };
    let mut stream = StreamState::new(*algorithm, state)?;
    if *algorithm != RngAlgorithm::Mt19937 {
        let half = u32(members.get("uinteger")?, "numpy: uinteger")?;
        if flag(members.get("has_uint32")?, "numpy: has_uint32")? {
            stream.caches.push(Cache::new(RngCache::NumpyU32Half, u64::from(half)));
        }
    }
    Ok(stream)
}

/// The members of the dictionary, in NumPy's order.
fn members(stream: &StreamState) -> Result<Vec<(&'static str, Tree)>> {
    let mut fields = Fields::new(stream.algorithm, &stream.state)?;
    stream.engine()?;
    let name = bit_generator(stream.algorithm).unwrap_or_default();
    let mut all = vec![("bit_generator", Tree::Str(name.to_owned()))];
    match stream.algorithm {
        RngAlgorithm::Mt19937 => {
            let key: [u32; 624] = fields.u32s()?;
            all.push(("state", map([("key", list(key)), ("pos", int(fields.u32()?))])));
            return Ok(all);
        }
        RngAlgorithm::Philox4x64Numpy => {
            let philox = philox::Numpy::decode(&mut fields)?;
            let inner = [("counter", list(philox.counter)), ("key", list(philox.key))];
            all.push(("state", map(inner)));
            all.push(("buffer", list(philox.buffer)));
            all.push(("buffer_pos", int(philox.buffer_pos)));
        }
        RngAlgorithm::Sfc64 => {
            let words: [u64; 4] = fields.u64s()?;
            all.push(("state", map([("state", list(words))])));
        }
        _ => {
            let pcg = Pcg128::decode(&mut fields)?;
            all.push(("state", map([("state", int(pcg.state)), ("inc", int(pcg.inc))])));
        }
    }
    let half = stream.cache(RngCache::NumpyU32Half);
    all.push(("has_uint32", int(u32::from(half.is_some()))));
    all.push(("uinteger", int(half.unwrap_or(0))));
    Ok(all)
}
