//! `rng next` and `rng convert`: states of random streams, for whoever implements or debugs a
//! resume. Knows forms and files; engines and layouts are `waystation-state`'s.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::json;
use waystation_format::value_tree::{MapKey, Tree, hex};
use waystation_format::{Code, Error, Result, RngAlgorithm, RngCache};
use waystation_state::rng::native::{Native, Unsaid, one_word};
use waystation_state::rng::{Cache, Engine, StreamState, spell};

use super::Context;
use crate::args::{Rng, RngAction, RngConvert, RngForm, RngNext};
use crate::{output, plain_json};

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
    check_unsaid(args)?;
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
    let unsaid = args.to.native().map(|form| form.unsaid(&stream)).transpose()?.unwrap_or_default();
    let mut more = String::new();
    if let Some(algorithm) = unsaid.algorithm {
        more.push_str(&format!("\"algorithm\":\"{algorithm}\","));
    }
    if let Some(name) = &unsaid.implementation {
        more.push_str(&format!("\"impl\":\"{name}\","));
    }
    if let Some(partitionable) = unsaid.partitionable {
        more.push_str(&format!("\"partitionable\":{partitionable},"));
    }
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
    let Some(form) = args.from.native() else { return neutral(&plain_json::parse(input)?) };
    let native = match form.is_bytes() {
        true => Native::Bytes(bytes(input, form.lengths())),
        false => Native::Tree(plain_json::parse(input)?),
    };
    let unsaid = Unsaid {
        algorithm: args.algorithm,
        implementation: args.implementation.clone(),
        partitionable: args.partitionable,
    };
    form.read(&native, &unsaid)
}

/// What neither the form nor the flags say.
fn check_unsaid(args: &RngConvert) -> Result<()> {
    let (flag, what) = match args.from {
        RngForm::Jax if args.implementation.is_none() => ("--impl", "key data"),
        RngForm::Rust if args.algorithm.is_none() => ("--algorithm", "form"),
        _ => return Ok(()),
    };
    let verb = if what == "form" { "does" } else { "do" };
    let message = format!("expected {flag}, which the {what} {verb} not say");
    Err(Error::new(Code::BadArgument, message))
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
    let Some(form) = form.native() else { return Ok(Written::Json(neutral_text(stream))) };
    match form.write(stream)? {
        Native::Bytes(bytes) => Ok(Written::Bytes(bytes)),
        Native::Tree(tree) => plain_json::print(&tree).map(Written::Json),
    }
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
