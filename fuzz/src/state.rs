//! `state`: what records of training state say, and the engines and sequences that they are of.
//!
//! An input is a word, a newline and what follows from the word: the kind of a record and its `value` as JSON; `rng` with an
//! algorithm and raw bytes of a state; `native` with a form and bytes or a tree; `walk` and a cursor made of bytes.

use arbitrary::Unstructured;
use waystation_format::json::Value;
use waystation_format::records::cursor::{Cursor, Item};
use waystation_format::records::rng::{OnReshape, State};
use waystation_format::records::{Stream, Typed};
use waystation_format::registry::record_kinds;
use waystation_format::value_tree::Tree;
use waystation_format::{Advance, Class, Code, Digest, Error, RngAlgorithm};
use waystation_state::cursor::{NoTensors, Walk, after, check_canary};
use waystation_state::rng::native::{Form, Native, Unsaid};
use waystation_state::rng::{self, Engine, StreamState};
use waystation_state::{Budget, schedule};

use crate::{gen_cursor, judge, memory};

/// Steps and bytes of a walk.
const STEPS: u64 = 1 << 14;
const BYTES: u64 = 1 << 20;
/// Items of which two walks are compared.
const ITEMS: u64 = 300;
/// Memory of a walk beside what its budget counts: copies that a canary walks ahead on, and items.
const WALK: memory::Bound = memory::Bound { factor: 64, base: (4 * BYTES) as usize };

/// The same of a walk of one item, which may hold a quarter of this.
const FIRST: memory::Bound = memory::Bound { factor: 64, base: 256 << 10 };

/// Reads what a record may say, and does with it what a restore does.
///
/// # Panics
/// If what is read has another text; an engine that is stored and taken up again gives other outputs; a walk that is stored and
/// taken up again gives other items, goes on after its budget, or takes more memory than it says.
pub fn run(data: &[u8]) {
    let split = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (words, rest) = (&data[..split], data.get(split + 1..).unwrap_or_default());
    let Ok(words) = std::str::from_utf8(words) else { return };
    match words.split_once(' ') {
        Some(("rng", algorithm)) => {
            if let Some(algorithm) = RngAlgorithm::from_id(algorithm) {
                engine(algorithm, rest);
            }
        }
        Some(("native", form)) => native(form, rest),
        _ if words == "walk" => {
            if let Ok(cursor) = gen_cursor::cursor(&mut Unstructured::new(rest)) {
                start(&cursor, rest.len());
            }
        }
        _ if record_kinds::is_known(words) => record(words, rest),
        _ => {}
    }
}

fn record(kind: &str, text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let value = match Value::parse(text) {
        Ok(value) => value,
        Err(e) => return judge::refusal(&e),
    };
    assert_eq!(
        value.encode().expect("what was read can be written"),
        text,
        "a value with two texts"
    );
    let (typed, peak) = memory::peak(|| Typed::parse(kind, &value, None));
    memory::DECODING.check(peak, text.len(), "a record");
    judge::canonical(text.as_bytes(), "a value");
    let typed = match typed {
        Ok(typed) => typed,
        Err(e) => return judge::refusal(&e),
    };
    assert_eq!(typed.kind(), Some(kind));
    let written =
        typed.to_value().expect("of a known kind").encode().expect("what was read can be written");
    assert_eq!(written, text, "a record with two texts");
    match typed {
        Typed::Schedule(schedule) => refused(schedule::check(&schedule)),
        Typed::Rng(stream) => recorded(&stream),
        Typed::Cursor(cursor) => {
            match check_canary(&cursor, &NoTensors, budget()) {
                Ok(true) => comes(&cursor),
                Ok(false) => {}
                Err(e) => judge::refusal(&e),
            }
            walked(&cursor, text.len());
        }
        Typed::Value(tree) => tree.check().expect("a tree that was read"),
        _ => {}
    }
}

fn refused(answer: Result<(), Error>) {
    if let Err(e) = answer {
        judge::refusal(&e);
    }
}

/// A stream as a record says it.
fn recorded(stream: &Stream) {
    let State::Inline(bytes) = &stream.state else { return };
    let Some(algorithm) = stream.known_algorithm() else { return };
    engine(algorithm, bytes);
    match rng::check_canary(algorithm, bytes, &stream.next_raw) {
        Ok(()) => {
            let mut engine = Engine::decode(algorithm, bytes).expect("a moment ago it could");
            let drawn = engine.draw(stream.next_raw.len());
            let digits = algorithm.width() as usize / 4;
            let spelled = drawn.into_iter().map(|output| format!("{output:0digits$x}"));
            assert!(spelled.eq(stream.next_raw.iter().cloned()), "{algorithm}: another canary");
        }
        Err(e) => judge::refusal(&e),
    }
    let Ok(neutral) = StreamState::of_record(stream, bytes.clone()) else { return };
    if neutral.engine().is_err() {
        return;
    }
    let again = neutral.to_record(OnReshape::Require, "fuzz").expect("of a good state");
    assert_eq!(again.state, stream.state);
    assert_eq!(again.caches, stream.caches, "caches have one spelling");
    for &form in Form::ALL {
        if let Ok(native) = form.write(&neutral) {
            let unsaid = form.unsaid(&neutral).expect("a state that was written");
            let read = form
                .read(&native, &unsaid)
                .unwrap_or_else(|e| panic!("{form} refuses its own: {e}"));
            let of = |s: &StreamState| (s.algorithm, s.state.clone(), s.caches.clone());
            assert_eq!(of(&read), of(&neutral), "{form}");
        }
    }
}

/// Every item that the canary of a cursor is of comes.
fn comes(cursor: &Cursor) {
    let canary = cursor.next.as_ref().expect("a canary was compared");
    let walk = Walk::new(cursor, &NoTensors, budget()).expect("a moment ago it could");
    let items: Vec<Item> = walk.take(canary.count as usize).map_while(Result::ok).collect();
    assert_eq!(items.len() as u64, canary.count, "items of a canary");
    assert!(items.iter().take(4).eq(&canary.first), "the first items of a canary");
    assert_eq!(canary.first.len(), items.len().min(4), "the first items of a canary");
    let bytes: Vec<u8> = items
        .iter()
        .flat_map(|item| item.integers().iter().flat_map(|integer| integer.to_le_bytes()))
        .collect();
    assert_eq!(canary.sha256, Digest::of(&bytes), "the digest of a canary");
}

/// A state that is taken up gives what the engine would have given that was stored.
fn engine(algorithm: RngAlgorithm, state: &[u8]) {
    let (decoded, peak) = memory::peak(|| Engine::decode(algorithm, state));
    memory::DECODING.check(peak, state.len(), "a state");
    let engine = match decoded {
        Ok(engine) => engine,
        Err(e) => return judge::refusal(&e),
    };
    assert_eq!(
        engine.encode().expect("nothing was drawn"),
        state,
        "{algorithm}: a state with two forms"
    );
    let (mut continued, mut resumed) = (engine.clone(), engine.clone());
    // A multiple of what any algorithm gives at once.
    let first = continued.draw(1000 * 4);
    if algorithm.advance() == Advance::Key {
        assert_eq!(resumed.draw(1000 * 4), first, "{algorithm}: a key that moves");
        return;
    }
    assert_eq!(resumed.draw(3 * 4), first[..3 * 4], "{algorithm}: one engine, two outputs");
    let stored = resumed.encode().expect("whole blocks were drawn");
    let mut resumed = Engine::decode(algorithm, &stored)
        .unwrap_or_else(|e| panic!("{algorithm}: its own state is refused: {e}"));
    assert_eq!(
        resumed.draw((1000 - 3) * 4),
        first[3 * 4..],
        "{algorithm}: resumed, it goes on elsewhere"
    );
    assert_eq!(resumed.encode().expect("whole"), continued.encode().expect("whole"), "{algorithm}");
}

fn native(form: &str, rest: &[u8]) {
    let mut words = form.split(' ');
    let Some(Ok(form)) = words.next().map(Form::named) else { return };
    let unsaid = Unsaid {
        algorithm: words.clone().next().and_then(RngAlgorithm::from_id),
        implementation: words.next().map(str::to_owned),
        partitionable: words.next().map(|word| word == "true"),
    };
    let native = if form.is_bytes() {
        Native::Bytes(rest.to_vec())
    } else {
        let value = std::str::from_utf8(rest).ok().and_then(|text| Value::parse(text).ok());
        let Some(Ok(tree)) = value.as_ref().map(Tree::parse) else { return };
        Native::Tree(tree)
    };
    match form.read(&native, &unsaid) {
        Err(e) => assert!(matches!(e.code(), Code::BadRngState | Code::BadArgument), "{form}: {e}"),
        Ok(state) => {
            engine(state.algorithm, &state.state);
            let written = form
                .write(&state)
                .unwrap_or_else(|e| panic!("{form} cannot write what it read: {e}"));
            let unsaid = form.unsaid(&state).expect("a state that was written");
            let read = form
                .read(&written, &unsaid)
                .unwrap_or_else(|e| panic!("{form} refuses its own: {e}"));
            assert_eq!(read, state, "{form}");
        }
    }
}

/// A cursor that is no record's yet.
fn start(cursor: &Cursor, length: usize) {
    // As a record it has a canary, and a text that says the same.
    match Cursor::parse_start(&cursor.to_value()) {
        Ok(read) => assert_eq!(read, *cursor),
        Err(e) => return judge::refusal(&e),
    }
    walked(cursor, length);
}

/// The first item of a walk that may hold little: what it holds is counted.
fn first(cursor: &Cursor, length: usize) {
    let (_, peak) = memory::peak(|| {
        let budget = Budget::new(STEPS, FIRST.base as u64 / 4);
        Walk::new(cursor, &NoTensors, budget).map(|mut walk| walk.next())
    });
    FIRST.check(peak, length, "the first item of a walk");
}

fn budget() -> Budget {
    Budget::new(STEPS, BYTES)
}

/// Walks a cursor to the end of its budget, and again in two pieces.
fn walked(cursor: &Cursor, length: usize) {
    first(cursor, length);
    let (items, peak) = memory::peak(|| {
        let walk = Walk::new(cursor, &NoTensors, budget())?;
        let mut items: Vec<Item> = Vec::new();
        for (count, item) in (0..).zip(walk) {
            assert!(count <= STEPS, "a walk goes on after its budget");
            match item {
                Ok(item) => items.push(item),
                Err(e) => return Ok::<_, Error>((items, Some(e))),
            }
        }
        Ok((items, None))
    });
    WALK.check(peak, length, "a walk");
    let (items, ended) = match items {
        Ok(walked) => walked,
        // What the specification does not compute is no refusal of the record.
        Err(e) if e.code() == Code::NotExact => return,
        Err(e) => return judge::refusal(&e),
    };
    if let Some(e) = &ended {
        judge::refusal(e);
    }
    // Far from the end of the budget, so that both see the same.
    let most = ITEMS.min(items.len() as u64 / 4);
    if ended.as_ref().is_some_and(|e| e.class() != Class::Limit) {
        return;
    }
    let head = usize::try_from(most / 2).expect("few");
    let mut walk = Walk::new(cursor, &NoTensors, budget()).expect("a moment ago it could");
    for expected in &items[..head] {
        assert_eq!(&walk.next().expect("a moment ago").expect("a moment ago"), expected);
    }
    let Ok(stored) = walk.cursor(2) else { return };
    let skipped = after(cursor, head as u64, 2, &NoTensors, budget());
    if let Ok(skipped) = skipped {
        assert_eq!(skipped, stored, "stepping over items is not walking over them");
    }
    let value = stored.to_value();
    let read = Cursor::parse(&value, None)
        .unwrap_or_else(|e| panic!("a walk stores what is refused: {e}"));
    assert_eq!(read, stored);
    match check_canary(&stored, &NoTensors, budget()) {
        Ok(compared) => assert!(compared),
        Err(e) => assert_eq!(e.class(), Class::Limit, "the canary of a walk: {e}"),
    }
    let resumed = Walk::new(&stored, &NoTensors, budget());
    let resumed = resumed.unwrap_or_else(|e| panic!("a walk cannot be taken up: {e}"));
    let tail = usize::try_from(most).expect("few");
    for (expected, item) in items[head..tail].iter().zip(resumed) {
        match item {
            Ok(item) => assert_eq!(&item, expected, "taken up, a walk goes elsewhere"),
            Err(e) => return assert_eq!(e.class(), Class::Limit, "taken up, a walk ends: {e}"),
        }
    }
}
