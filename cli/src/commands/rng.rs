//! `rng next` and `rng convert`: states of random streams, for whoever implements or debugs a
//! resume. Knows forms and files; engines and layouts are `waystation-state`'s.

mod plain_json;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::json;
use waystation_format::value_tree::{MapKey, Tree, hex};
use waystation_format::{Code, Error, Result, RngAlgorithm, RngCache};
use waystation_state::rng::native::{
    jax, mlx, numpy, python, rust, torch_cpu, torch_cuda, torch_key, torch_mps,
};
use waystation_state::rng::{Cache, Engine, StreamState, spell};

use super::Context;
use crate::args::{Rng, RngAction, RngConvert, RngForm, RngNext};
use crate::output;

/// No form is larger; what is longer is something else.
const MOST_INPUT: u64 = 1 << 20;

pub(super) fn run(args: &Rng, context: &Context) -> Result<u8> {
    match &args.action {
        RngAction::Next(next) => draw(next, context),
        RngAction::Convert(convert) => self::convert(convert, context),
    }
}

fn draw(args: &RngNext, context: &Context) -> Result<u8> {
    let state = unhex(args.state_hex.trim()).ok_or_else(|| {
        Error::new(
            Code::BadArgument,
            "--state-hex: expected an even number of hex digits, found other text",
        )
    })?;
    let mut engine = Engine::decode(args.algorithm, &state)?;
    let outputs = engine.draw(usize::try_from(args.count).unwrap_or(usize::MAX));
    let outputs: Vec<String> =
        outputs.into_iter().map(|output| spell(args.algorithm, output)).collect();
    if !args.algorithm.has_canary() {
        output::note(&format!("waystation: {} has no outputs that are defined", args.algorithm));
    }
    if !context.json {
        outputs.iter().try_for_each(|output| output::line(output))?;
        return Ok(0);
    }
    // Some algorithms have no state within a block.
    let after = engine.encode().ok().map(|state| hex(&state));
    output::object(&json!({
        "algorithm": args.algorithm.as_str(), "width": args.algorithm.width(),
        "next_raw": outputs, "state": after,
    }))?;
    Ok(0)
}

fn convert(args: &RngConvert, context: &Context) -> Result<u8> {
    check_flags(args)?;
    let input = read(&args.input)?;
    let named = |error: Error| error.in_file(args.input.display().to_string());
    let mut stream = from_form(args, &input).map_err(of_form).map_err(named)?;
    if args.initial_seed.is_some() {
        stream.initial_seed = args.initial_seed;
    }
    let written = to_form(args.to, &stream)?;
    if let Some(path) = &args.output {
        let bytes = match written {
            Written::Bytes(bytes) => bytes,
            Written::Json(text) => format!("{text}\n").into_bytes(),
        };
        write_new(path, &bytes)?;
        return Ok(0);
    }
    let text = match &written {
        Written::Bytes(bytes) if context.json => format!("\"{}\"", hex(bytes)),
        Written::Bytes(bytes) => hex(bytes),
        Written::Json(text) => text.clone(),
    };
    if !context.json {
        output::line(&text)?;
        return Ok(0);
    }
    let more = match (args.to, stream.algorithm) {
        (RngForm::Rust, algorithm) => format!("\"algorithm\":\"{algorithm}\","),
        (RngForm::Jax, _) => match jax::to_key_data(&stream)?.1 {
            jax::Implementation::Threefry { partitionable } => {
                format!("\"impl\":\"threefry2x32\",\"partitionable\":{partitionable},")
            }
            other => format!("\"impl\":\"{}\",", other.name()),
        },
        _ => String::new(),
    };
    let form =
        clap::ValueEnum::to_possible_value(&args.to).map(|value| value.get_name().to_owned());
    let form = form.unwrap_or_default();
    // Spelled by hand: integers of NumPy have up to 128 bits.
    output::line(&format!("{{\"form\":\"{form}\",{more}\"value\":{text}}}"))?;
    Ok(0)
}

/// A flag that would be ignored is a misunderstanding.
fn check_flags(args: &RngConvert) -> Result<()> {
    let jax = args.from == RngForm::Jax;
    let seeded = matches!(args.to, RngForm::TorchCpu | RngForm::Neutral);
    for (given, place, flag, whose) in [
        (args.implementation.is_some(), jax, "--impl", "--from jax"),
        (args.partitionable.is_some(), jax, "--partitionable", "--from jax"),
        (args.algorithm.is_some(), args.from == RngForm::Rust, "--algorithm", "--from rust"),
        (args.initial_seed.is_some(), seeded, "--initial-seed", "--to torch-cpu or neutral"),
    ] {
        if given && !place {
            return Err(Error::new(
                Code::BadArgument,
                format!("expected {flag} only with {whose}"),
            ));
        }
    }
    Ok(())
}

fn from_form(args: &RngConvert, input: &[u8]) -> Result<StreamState> {
    let tree = || plain_json::parse(input);
    match args.from {
        RngForm::TorchCpu => torch_cpu::from_bytes(&bytes(input, &[torch_cpu::BYTES])),
        RngForm::TorchCuda => torch_cuda::from_bytes(&bytes(input, &[16])),
        RngForm::TorchMps => torch_mps::from_bytes(&bytes(input, &[44, 36])),
        RngForm::TorchKey => match words(&tree()?)?.as_slice() {
            [seed, offset] => torch_key::from_words([*seed, *offset]),
            other => {
                let message = format!("torch-key: expected [seed, offset], found {}", other.len());
                Err(bad(&message))
            }
        },
        RngForm::Numpy => numpy::from_tree(&tree()?),
        RngForm::NumpyLegacy => numpy::from_legacy_tree(&tree()?),
        RngForm::Python => python_state(&tree()?),
        RngForm::Jax => {
            let name = args.implementation.as_deref().ok_or_else(|| {
                Error::new(Code::BadArgument, "expected --impl, which the key data do not say")
            })?;
            let implementation = jax::Implementation::named(name, args.partitionable)?;
            jax::from_key_data(&words_32(&tree()?)?, implementation)
        }
        RngForm::Mlx => {
            // The whole of `mx.random.state` is a list of the one key.
            let tree = match tree()? {
                Tree::List(mut items) if items.len() == 1 => items.remove(0),
                other => other,
            };
            match words_32(&tree)?.as_slice() {
                [first, second] => mlx::from_words([*first, *second]),
                other => {
                    Err(bad(&format!("mlx: expected a key of two words, found {}", other.len())))
                }
            }
        }
        RngForm::Rust => {
            let algorithm = args.algorithm.ok_or_else(|| {
                Error::new(Code::BadArgument, "expected --algorithm, which the form does not say")
            })?;
            rust::from_tree(algorithm, &tree()?)
        }
        RngForm::Neutral => neutral(&tree()?),
    }
}

/// What `random.getstate()` gives; a part of it is told by its length.
fn python_state(tree: &Tree) -> Result<StreamState> {
    let words = |items: &[Tree]| items.iter().all(|item| matches!(item, Tree::Int(_)));
    match tree {
        Tree::List(items) if items.len() > 3 && words(items) => Err(bad(&format!(
            "python: expected [3, [624 words, position], gauss_next], all that random.getstate() \
             gives, found a list of {} integers: is it the middle one?",
            items.len()
        ))),
        _ => python::from_tree(tree),
    }
}

/// Input of another form than the flags say is a mistake of the command line; a state of that form
/// that its engine cannot be in is a bad state.
fn of_form(error: Error) -> Error {
    match (error.code(), error.rule_id()) {
        (Code::BadRngState, None) => Error::new(Code::BadArgument, error.message()),
        _ => error,
    }
}

/// A form, ready to be printed or written.
enum Written {
    Bytes(Vec<u8>),
    Json(String),
}

fn to_form(form: RngForm, stream: &StreamState) -> Result<Written> {
    let tree = match form {
        RngForm::TorchCpu => return torch_cpu::to_bytes(stream).map(Written::Bytes),
        RngForm::TorchCuda => return torch_cuda::to_bytes(stream).map(Written::Bytes),
        RngForm::TorchMps => return torch_mps::to_bytes(stream).map(Written::Bytes),
        RngForm::TorchKey => list(torch_key::to_words(stream)?),
        RngForm::Numpy => numpy::to_tree(stream)?,
        RngForm::NumpyLegacy => numpy::to_legacy_tree(stream)?,
        RngForm::Python => python::to_tree(stream)?,
        RngForm::Jax => list(jax::to_key_data(stream)?.0),
        RngForm::Mlx => list(mlx::to_words(stream)?),
        RngForm::Rust => rust::to_tree(stream)?,
        RngForm::Neutral => return Ok(Written::Json(neutral_text(stream))),
    };
    plain_json::print(&tree).map(Written::Json)
}

/// Reads the neutral form: the members of a record of kind `rng` that are the stream's.
fn neutral(tree: &Tree) -> Result<StreamState> {
    let Tree::Map(members) = tree else {
        return Err(bad("neutral: expected an object, found another value"));
    };
    let mut stream: Option<StreamState> = None;
    let (mut caches, mut initial_seed) = (Vec::new(), None);
    let find = |name: &str| {
        members.iter().find(|(key, _)| *key == MapKey::Str(name.to_owned())).map(|(_, value)| value)
    };
    if let (Some(Tree::Str(algorithm)), Some(Tree::Str(state))) = (find("algorithm"), find("state"))
    {
        let algorithm = RngAlgorithm::from_id(algorithm).ok_or_else(|| {
            bad(&format!("neutral: expected a known algorithm, found {algorithm:?}"))
        })?;
        let state =
            unhex(state).ok_or_else(|| bad("neutral: expected state in hex, found other text"))?;
        stream = Some(StreamState::new(algorithm, state)?);
    }
    for (key, value) in members {
        match (key, value) {
            (MapKey::Str(name), _) if name == "algorithm" || name == "state" => {}
            (MapKey::Str(name), Tree::List(items)) if name == "caches" => {
                caches = items.iter().map(cache).collect::<Result<_>>()?;
            }
            (MapKey::Str(name), seed) if name == "initial_seed" => {
                initial_seed = Some(one_word(seed)?);
            }
            (name, _) => {
                let message = "neutral: expected algorithm, state, caches and initial_seed";
                return Err(bad(&format!("{message}, found {name:?} or another form of it")));
            }
        }
    }
    let mut stream = stream.ok_or_else(|| {
        bad("neutral: expected the members algorithm and state, found one or none")
    })?;
    if !caches.is_sorted_by(|a: &Cache, b| a.kind < b.kind) {
        return Err(bad(
            "neutral: expected each kind of cache once, ascending, found another order",
        ));
    }
    stream.caches = caches;
    stream.initial_seed = initial_seed;
    Ok(stream)
}

fn cache(tree: &Tree) -> Result<Cache> {
    let mut members = match tree {
        Tree::Map(pairs) => pairs.clone(),
        _ => Vec::new(),
    };
    members.sort_by_key(|(key, _)| key != &MapKey::Str("bits".to_owned()));
    let [(MapKey::Str(first), Tree::Str(bits)), (MapKey::Str(second), Tree::Str(kind))] =
        members.as_slice()
    else {
        return Err(bad("neutral: expected a cache {\"bits\",\"kind\"}, found another form"));
    };
    let known = RngCache::from_id(kind)
        .ok_or_else(|| bad(&format!("neutral: expected a known cache, found {kind:?}")))?;
    let digits = usize::try_from(known.bits() / 4).unwrap_or(usize::MAX);
    let lower = bits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match u64::from_str_radix(bits, 16) {
        Ok(value) if lower && bits.len() == digits && first == "bits" && second == "kind" => {
            Ok(Cache::new(known, value))
        }
        _ => {
            let message = format!("neutral: expected bits of {kind} in {digits} hex digits");
            Err(bad(&format!("{message}, found {} characters", bits.chars().count())))
        }
    }
}

/// The neutral form as canonical JSON, so that it can stand in a record.
fn neutral_text(stream: &StreamState) -> String {
    let digits = |cache: &Cache| {
        let bits = RngCache::from_id(&cache.kind).map_or(64, RngCache::bits);
        usize::try_from(bits / 4).unwrap_or(16)
    };
    let cache = |cache: &Cache| {
        let digits = digits(cache);
        json!({ "bits": format!("{:0digits$x}", cache.bits), "kind": cache.kind })
    };
    let mut object = json!({
        "algorithm": stream.algorithm.as_str(),
        "caches": stream.caches.iter().map(cache).collect::<Vec<_>>(),
        "state": hex(&stream.state),
    });
    if let (Some(seed), Some(members)) = (stream.initial_seed, object.as_object_mut()) {
        let bare = seed < 1 << 53;
        let seed = if bare { json!(seed) } else { json!({ "int": seed.to_string() }) };
        members.insert("initial_seed".to_owned(), seed);
    }
    object.to_string()
}

/// A word of 64 bits: bare, as records spell large ones, or as a string of decimal digits.
fn one_word(tree: &Tree) -> Result<u64> {
    let digits = |text: &str| text.parse().ok().filter(|word: &u64| word.to_string() == text);
    let word = match tree {
        Tree::Int(value) => u64::try_from(*value).ok(),
        Tree::BigInt(text) | Tree::Str(text) => digits(text),
        Tree::Map(members) => match members.as_slice() {
            [(MapKey::Str(name), Tree::Str(text))] if name == "int" => digits(text),
            _ => None,
        },
        _ => None,
    };
    word.ok_or_else(|| bad("expected an integer from 0 to 2^64 - 1, found another value"))
}

fn words(tree: &Tree) -> Result<Vec<u64>> {
    match tree {
        Tree::List(items) => items.iter().map(one_word).collect(),
        _ => Err(bad("expected a list of integers, found another value")),
    }
}

fn words_32(tree: &Tree) -> Result<Vec<u32>> {
    let narrow = |word| {
        u32::try_from(word).map_err(|_| bad(&format!("expected integers below 2^32, found {word}")))
    };
    words(tree)?.into_iter().map(narrow).collect()
}

fn list<I: Into<u64>>(values: impl IntoIterator<Item = I>) -> Tree {
    Tree::List(values.into_iter().map(|value| Tree::int(i128::from(value.into()))).collect())
}

/// Raw bytes if their number is one of `lengths`, else what they spell in hex, else themselves: the
/// form says what is wrong with them.
fn bytes(input: &[u8], lengths: &[usize]) -> Vec<u8> {
    let spelled = || unhex(std::str::from_utf8(input).ok()?.trim());
    if lengths.contains(&input.len()) {
        return input.to_vec();
    }
    spelled().unwrap_or_else(|| input.to_vec())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).ok()?;
        // A sign would be taken for a digit.
        let digits = pair.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| digits)
    };
    if odd.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let named = |error: Error| error.in_file(path.display().to_string());
    let mut input = Vec::new();
    let done = if path == Path::new("-") {
        io::stdin().lock().take(MOST_INPUT + 1).read_to_end(&mut input)
    } else {
        File::open(path).and_then(|file| file.take(MOST_INPUT + 1).read_to_end(&mut input))
    };
    done.map_err(|error| named(Error::io("read", error)))?;
    if u64::try_from(input.len()).unwrap_or(u64::MAX) > MOST_INPUT {
        return Err(named(of_form(bad("expected a state, found more than a mebibyte"))));
    }
    Ok(input)
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let done = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::new(Code::Exists, "expected no file there: nothing is replaced")
        }
        _ => Error::io("create", error),
    });
    let done = done.and_then(|mut file| file.write_all(bytes).map_err(|e| Error::io("write", e)));
    done.map_err(|error| error.in_file(path.display().to_string()))
}

#[cold]
fn bad(message: &str) -> Error {
    Error::new(Code::BadRngState, message)
}
