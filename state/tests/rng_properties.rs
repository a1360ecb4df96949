//! What holds of every engine and form, whatever the state: none panics, none loses its place,
//! none takes a state that it cannot be in.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test says where it fails by panicking"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Advance, Code, RngAlgorithm, RngCache};
use waystation_state::rng::native::{
    jax, mlx, numpy, python, rust, torch_cpu, torch_cuda, torch_key, torch_mps,
};
use waystation_state::rng::{Cache, Engine, Mt19937, StreamState, check_canary, fork_seed, spell};

fn algorithms() -> impl Strategy<Value = RngAlgorithm> {
    proptest::sample::select(RngAlgorithm::ALL)
}

/// A legal state, from whatever bytes.
fn legal(algorithm: RngAlgorithm, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(algorithm.state_bytes(), 7);
    let at = match algorithm {
        RngAlgorithm::Mt19937 => {
            let pos = u32::from_le_bytes(bytes[2496..].try_into().unwrap()) % 625;
            bytes[2496..].copy_from_slice(&pos.to_le_bytes());
            return bytes;
        }
        RngAlgorithm::Pcg64XslRr | RngAlgorithm::Pcg64Dxsm => 16,
        RngAlgorithm::Pcg32XshRr => 8,
        RngAlgorithm::Philox4x64Numpy => {
            bytes[80] %= 5;
            bytes[81..].fill(0);
            return bytes;
        }
        RngAlgorithm::Philox4x32TorchCuda => {
            bytes[8] &= !3;
            return bytes;
        }
        RngAlgorithm::ChaCha8 | RngAlgorithm::ChaCha12 | RngAlgorithm::ChaCha20 => {
            bytes[48] &= 15;
            bytes[49..].fill(0);
            return bytes;
        }
        _ => 0,
    };
    bytes[at] |= 1;
    bytes
}

fn states() -> impl Strategy<Value = (RngAlgorithm, Vec<u8>)> {
    let bytes = prop_oneof![vec(any::<u8>(), 2500), vec(Just(255_u8), 2500)];
    (algorithms(), bytes).prop_map(|(algorithm, bytes)| (algorithm, legal(algorithm, bytes)))
}

proptest! {
    #[test]
    fn no_bytes_panic(algorithm in algorithms(), bytes in vec(any::<u8>(), 0..100)) {
        let mut padded = bytes.clone();
        padded.resize(algorithm.state_bytes(), bytes.first().copied().unwrap_or_default());
        for state in [bytes, padded] {
            match Engine::decode(algorithm, &state) {
                Ok(mut engine) => {
                    prop_assert_eq!(engine.encode().unwrap(), state);
                    engine.draw(5);
                }
                Err(error) => prop_assert_eq!(error.code(), Code::BadRngState),
            }
        }
    }

    #[test]
    fn drawing_can_be_broken_off((algorithm, state) in states(), a in 0_usize..40, b in 0_usize..40) {
        let (a, b) = if algorithm.advance() == Advance::Block { (a * 4, b) } else { (a, b) };
        let mut whole = Engine::decode(algorithm, &state).unwrap();
        let mut first = whole.clone();
        if algorithm.advance() == Advance::Key {
            first.draw(a);
            prop_assert_eq!(first.encode().unwrap(), state);
            let outputs = if algorithm.has_canary() { b } else { 0 };
            prop_assert_eq!(first.draw(b).len(), outputs);
            return Ok(());
        }
        let mut pieces = first.draw(a);
        let mut second = Engine::decode(algorithm, &first.encode().unwrap()).unwrap();
        pieces.extend(second.draw(b));
        prop_assert_eq!(&whole.draw(a + b), &pieces);
        prop_assert!(pieces.iter().all(|output| output.checked_shr(algorithm.width()).unwrap_or(0) == 0));
        match whole.encode() {
            Ok(after) => prop_assert_eq!(after, second.encode().unwrap()),
            Err(error) => {
                prop_assert!(algorithm.advance() == Advance::Block && (a + b) % 4 != 0);
                prop_assert_eq!(error.code(), Code::BadRngState);
            }
        }
    }

    #[test]
    fn forks_are_legal(algorithm in algorithms(), seed: u64) {
        let engine = Engine::seeded(algorithm, seed).unwrap();
        prop_assert_eq!(engine.algorithm(), algorithm);
        let state = engine.encode().unwrap();
        prop_assert_eq!(Engine::decode(algorithm, &state).unwrap(), engine);
    }

    #[test]
    fn forms_keep_every_stream((algorithm, state) in states(), cached: Option<u32>, seed: u64) {
        let plain = StreamState::new(algorithm, state).unwrap();
        let with = |kind: RngCache, bits: u64| {
            let mut stream = plain.clone();
            stream.caches.extend(cached.map(|_| Cache::new(kind, bits)));
            stream
        };
        let bits = u64::from(cached.unwrap_or_default());
        if let Ok((data, implementation)) = jax::to_key_data(&plain) {
            prop_assert_eq!(&jax::from_key_data(&data, implementation).unwrap(), &plain);
        }
        if let Ok(key) = mlx::to_words(&plain) {
            prop_assert_eq!(&mlx::from_words(key).unwrap(), &plain);
        }
        if let Ok(key) = torch_key::to_words(&plain) {
            prop_assert_eq!(&torch_key::from_words(key).unwrap(), &plain);
        }
        if let Ok(bytes) = torch_cuda::to_bytes(&plain) {
            prop_assert_eq!(&torch_cuda::from_bytes(&bytes).unwrap(), &plain);
        }
        if let Ok(bytes) = torch_mps::to_bytes(&plain) {
            prop_assert_eq!(&torch_mps::from_bytes(&bytes).unwrap(), &plain);
        }
        if let Ok(tree) = rust::to_tree(&plain) {
            prop_assert_eq!(&rust::from_tree(algorithm, &tree).unwrap(), &plain);
        }
        let half = if algorithm == RngAlgorithm::Mt19937 { plain.clone() } else { with(RngCache::NumpyU32Half, bits) };
        if let Ok(tree) = numpy::to_tree(&half) {
            prop_assert_eq!(&numpy::from_tree(&tree).unwrap(), &half);
            prop_assert!(numpy::from_legacy_tree(&tree).is_err());
        }
        let gauss = with(RngCache::NumpyLegacyGaussF64, bits << 20);
        if let Ok(tree) = numpy::to_legacy_tree(&gauss) {
            prop_assert_eq!(&numpy::from_legacy_tree(&tree).unwrap(), &gauss);
            prop_assert!(numpy::from_tree(&tree).is_err());
        }
        let gauss = with(RngCache::PythonGaussNextF64, bits << 20);
        if let Ok(tree) = python::to_tree(&gauss) {
            prop_assert_eq!(&python::from_tree(&tree).unwrap(), &gauss);
        }
        let mut normal = with(RngCache::TorchNormalF32, bits);
        normal.initial_seed = Some(seed);
        if let Ok(bytes) = torch_cpu::to_bytes(&normal) {
            prop_assert_eq!(&torch_cpu::from_bytes(&bytes).unwrap(), &normal);
        }
    }
}

#[test]
fn each_algorithm_has_a_form() {
    for algorithm in RngAlgorithm::ALL {
        let engine = Engine::seeded(*algorithm, 9).unwrap();
        let mut stream = StreamState::new(*algorithm, engine.encode().unwrap()).unwrap();
        stream.initial_seed = Some(9);
        let forms = [
            jax::to_key_data(&stream).is_ok(),
            mlx::to_words(&stream).is_ok(),
            numpy::to_tree(&stream).is_ok(),
            numpy::to_legacy_tree(&stream).is_ok(),
            python::to_tree(&stream).is_ok(),
            rust::to_tree(&stream).is_ok(),
            torch_cpu::to_bytes(&stream).is_ok(),
            torch_cuda::to_bytes(&stream).is_ok(),
            torch_key::to_words(&stream).is_ok(),
            torch_mps::to_bytes(&stream).is_ok(),
        ];
        assert!(forms.contains(&true), "{algorithm}");
    }
}

#[test]
fn illegal_states_are_refused() {
    let refuse = |algorithm: RngAlgorithm, change: &dyn Fn(&mut Vec<u8>)| {
        let mut state = Engine::seeded(algorithm, 5).unwrap().encode().unwrap();
        change(&mut state);
        let error = Engine::decode(algorithm, &state).unwrap_err();
        assert_eq!(error.code(), Code::BadRngState);
        assert_eq!(error.rule_id(), Some("rng.state"));
        assert!(error.message().starts_with(algorithm.as_str()), "{error}");
        assert_eq!(StreamState::new(algorithm, state).unwrap_err().code(), Code::BadRngState);
    };
    for algorithm in RngAlgorithm::ALL {
        refuse(*algorithm, &|state| state.truncate(state.len() - 1));
        refuse(*algorithm, &|state| state.push(0));
        refuse(*algorithm, &|state| state.clear());
    }
    refuse(RngAlgorithm::Mt19937, &|state| state[2496..].copy_from_slice(&625_u32.to_le_bytes()));
    refuse(RngAlgorithm::Mt19937, &|state| state[..2496].fill(0));
    refuse(RngAlgorithm::Pcg64XslRr, &|state| state[16] &= !1);
    refuse(RngAlgorithm::Pcg64Dxsm, &|state| state[16] &= !1);
    refuse(RngAlgorithm::Pcg32XshRr, &|state| state[8] &= !1);
    refuse(RngAlgorithm::Philox4x64Numpy, &|state| state[80] = 5);
    refuse(RngAlgorithm::Philox4x64Numpy, &|state| state[87] = 1);
    for odd in 1..4 {
        refuse(RngAlgorithm::Philox4x32TorchCuda, &|state| state[8] = odd);
    }
    for chacha in [RngAlgorithm::ChaCha8, RngAlgorithm::ChaCha12, RngAlgorithm::ChaCha20] {
        refuse(chacha, &|state| state[48] = 16);
        refuse(chacha, &|state| state[55] = 1);
    }
    refuse(RngAlgorithm::Xoshiro256PlusPlus, &|state| state.fill(0));
}

#[test]
fn offsets_of_torch_carry_and_begin_anew() {
    let draws = |algorithm, seed: u64, offset: u64, count| {
        let state = [seed.to_le_bytes(), offset.to_le_bytes()].concat();
        let mut engine = Engine::decode(algorithm, &state).unwrap();
        let draws = engine.draw(count);
        (draws, engine.encode().unwrap())
    };
    let (cuda, key) = (RngAlgorithm::Philox4x32TorchCuda, RngAlgorithm::Philox4x32TorchKey);
    // The same block by either offset, above 2^32 blocks too.
    for block in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 61) + 3] {
        assert_eq!(draws(cuda, 7, block * 4, 8).0, draws(key, 7, block, 8).0);
    }
    let (outputs, after) = draws(cuda, 7, u64::MAX - 3, 8);
    assert_eq!(outputs[4..], draws(cuda, 7, 0, 4).0);
    assert_eq!(after[8..], 4_u64.to_le_bytes());
    let (outputs, after) = draws(key, 7, u64::MAX, 8);
    assert_eq!(outputs[4..], draws(key, 7, 0, 4).0);
    assert_eq!(after[8..], u64::MAX.to_le_bytes());
}

#[test]
fn a_stream_without_outputs_has_no_canary() {
    for algorithm in [RngAlgorithm::JaxRbg, RngAlgorithm::JaxUnsafeRbg] {
        check_canary(algorithm, &[0; 16], &[]).unwrap();
        let error = check_canary(algorithm, &[0; 16], &["00000000".to_owned()]).unwrap_err();
        assert_eq!(error.code(), Code::CanaryMismatch);
    }
    // Neither is another spelling of an output one.
    let engine = Engine::seeded(RngAlgorithm::Sfc64, 1).unwrap();
    let output = spell(RngAlgorithm::Sfc64, engine.clone().draw(1)[0]);
    let state = engine.encode().unwrap();
    check_canary(RngAlgorithm::Sfc64, &state, std::slice::from_ref(&output)).unwrap();
    for other in [output.to_uppercase(), format!("0{output}"), format!("0x{output}")] {
        assert!(check_canary(RngAlgorithm::Sfc64, &state, &[other]).is_err());
    }
}

/// By hand: SHA-256 of the text and the numbers that section 17.5 strings together.
#[test]
fn the_seed_of_a_fork() {
    let text = b"resume-fork/1run\xe8\x03\x00\x00\x00\x00\x00\x00dropout[[\"dp\",2],[\"tp\",0]]";
    let digest = waystation_format::Digest::of(text);
    let expected = u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap());
    let coordinate = vec![("dp".to_owned(), 2), ("tp".to_owned(), 0)];
    assert_eq!(fork_seed("run", 1000, "dropout", &coordinate), expected);
}

#[test]
fn torch_states_that_torch_does_not_write_are_refused() {
    let mut engine = Mt19937::init_genrand(42);
    for _ in 0..10 {
        engine.next_u32();
    }
    let mut stream = StreamState::new(RngAlgorithm::Mt19937, engine.encode()).unwrap();
    assert_eq!(torch_cpu::to_bytes(&stream).unwrap_err().code(), Code::BadArgument);
    stream.initial_seed = Some(42);
    let good = torch_cpu::to_bytes(&stream).unwrap();
    assert_eq!(torch_cpu::from_bytes(&good).unwrap(), stream);
    // One byte each: seeded, left (0, 625, another than next says), next, the unused fields, a
    // cache that is not valid, its flags and their padding, a word of 33 bits.
    for (at, value) in [
        (12, 0),
        (12, 2),
        (8, 0),
        (16, 9),
        (16, 0),
        (5016, 1),
        (5032, 1),
        (5024, 1),
        (5040, 2),
        (5044, 1),
        (5048, 1),
        (5052, 2),
        (5053, 1),
        (5055, 1),
        (28, 1),
        (5015, 1),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        let error = torch_cpu::from_bytes(&bad).unwrap_err();
        assert_eq!(error.code(), Code::BadRngState, "{at} {value}");
    }
    for length in [0, 16, 5048, 5055, 5057] {
        let mut bad = good.clone();
        bad.resize(length, 0);
        assert_eq!(torch_cpu::from_bytes(&bad).unwrap_err().code(), Code::BadRngState);
    }
    // Just seeded, PyTorch says next 0, which does the same as 624.
    let mut fresh =
        StreamState::new(RngAlgorithm::Mt19937, Mt19937::init_genrand(1).encode()).unwrap();
    fresh.initial_seed = Some(1);
    let mut bytes = torch_cpu::to_bytes(&fresh).unwrap();
    assert_eq!(bytes[16..18], [0x70, 2]);
    bytes[16..18].fill(0);
    assert_eq!(torch_cpu::from_bytes(&bytes).unwrap(), fresh);
    // Older states of MPS lack the offset.
    assert!(torch_mps::from_bytes(&[0; 36]).unwrap_err().message().contains("offset"));
    assert!(torch_cuda::from_bytes(&[0; 8]).is_err());
}

#[test]
fn position_0_is_read_by_torch_as_the_state_before_it() {
    let mut engine = Mt19937::init_genrand(42);
    engine.next_u32();
    let begin = Mt19937::new(*engine.key(), 0).unwrap();
    let mut stream = StreamState::new(RngAlgorithm::Mt19937, begin.encode()).unwrap();
    stream.initial_seed = Some(42);
    let back = torch_cpu::from_bytes(&torch_cpu::to_bytes(&stream).unwrap()).unwrap();
    assert_eq!(back.engine().unwrap().draw(1300), stream.engine().unwrap().draw(1300));
}

#[test]
fn no_form_drops_a_cache_or_takes_another_engine() {
    let stream = |algorithm, kind: RngCache| {
        let state = Engine::seeded(algorithm, 3).unwrap().encode().unwrap();
        let mut stream = StreamState::new(algorithm, state).unwrap();
        stream.caches = vec![Cache::new(kind, 1)];
        stream.initial_seed = Some(3);
        stream
    };
    let twister = |kind| stream(RngAlgorithm::Mt19937, kind);
    let refused = |error: waystation_format::Error| error.code() == Code::BadArgument;
    assert!(refused(torch_cpu::to_bytes(&twister(RngCache::PythonGaussNextF64)).unwrap_err()));
    assert!(refused(python::to_tree(&twister(RngCache::TorchNormalF64)).unwrap_err()));
    assert!(refused(numpy::to_tree(&twister(RngCache::NumpyLegacyGaussF64)).unwrap_err()));
    assert!(refused(numpy::to_tree(&twister(RngCache::NumpyU32Half)).unwrap_err()));
    assert!(refused(numpy::to_legacy_tree(&twister(RngCache::TorchNormalF32)).unwrap_err()));
    let pcg = stream(RngAlgorithm::Pcg64XslRr, RngCache::NumpyU32Half);
    assert!(refused(rust::to_tree(&pcg).unwrap_err()));
    assert!(refused(python::to_tree(&pcg).unwrap_err()));
    let split = stream(RngAlgorithm::Threefry2x32JaxPartitionable, RngCache::NumpyU32Half);
    assert!(refused(jax::to_key_data(&split).unwrap_err()));
    assert!(refused(mlx::to_words(&split).unwrap_err()));
}

#[test]
fn trees_that_no_framework_writes_are_refused() {
    let map = |members: &[(&str, Tree)]| {
        let pair = |(name, value): &(&str, Tree)| (MapKey::Str((*name).to_owned()), value.clone());
        Tree::Map(members.iter().map(pair).collect())
    };
    let words = |count: usize| Tree::List(vec![Tree::Int(1); count]);
    let name = |name: &str| Tree::Str(name.to_owned());
    let twister = |key, pos| map(&[("key", key), ("pos", Tree::Int(pos))]);
    let mt = |state| map(&[("bit_generator", name("MT19937")), ("state", state)]);
    numpy::from_tree(&mt(twister(words(624), 624))).unwrap();
    let pcg = |state: Tree, inc: Tree, has: Tree, half: Tree| {
        let inner = map(&[("state", state), ("inc", inc)]);
        map(&[
            ("bit_generator", name("PCG64")),
            ("state", inner),
            ("has_uint32", has),
            ("uinteger", half),
        ])
    };
    let big = |text: &str| Tree::BigInt(text.to_owned());
    let most = u128::MAX.to_string();
    numpy::from_tree(&pcg(big(&most), big(&most), Tree::Int(1), Tree::Int(0xffff_ffff))).unwrap();
    let python = |version, internal, gauss| Tree::Tuple(vec![version, internal, gauss]);
    python::from_tree(&python(Tree::Int(3), words(625), Tree::f64(0.5))).unwrap();

    for bad in [
        Tree::Null,
        map(&[]),
        mt(twister(words(623), 624)),
        mt(twister(words(625), 624)),
        mt(twister(words(624), 625)),
        mt(twister(words(624), -1)),
        mt(twister(Tree::List(vec![Tree::Int(1 << 32); 624]), 1)),
        mt(twister(Tree::List(vec![Tree::Int(0); 624]), 1)),
        mt(words(624)),
        map(&[
            ("bit_generator", name("MT19937")),
            ("state", twister(words(624), 1)),
            ("more", Tree::Null),
        ]),
        map(&[("bit_generator", name("Lehmer")), ("state", twister(words(624), 1))]),
        pcg(big(&most), Tree::Int(2), Tree::Int(0), Tree::Int(0)),
        pcg(
            big("340282366920938463463374607431768211456"),
            Tree::Int(1),
            Tree::Int(0),
            Tree::Int(0),
        ),
        pcg(big("-9007199254740992"), Tree::Int(1), Tree::Int(0), Tree::Int(0)),
        pcg(Tree::Int(1), Tree::Int(1), Tree::Int(2), Tree::Int(0)),
        pcg(Tree::Int(1), Tree::Int(1), Tree::Int(1), Tree::Int(1 << 32)),
        pcg(Tree::f64(1.0), Tree::Int(1), Tree::Int(1), Tree::Int(1)),
    ] {
        assert_eq!(numpy::from_tree(&bad).unwrap_err().code(), Code::BadRngState, "{bad:?}");
        assert_eq!(numpy::from_legacy_tree(&bad).unwrap_err().code(), Code::BadRngState);
    }
    for bad in [
        python(Tree::Int(2), words(625), Tree::Null),
        python(Tree::Int(3), words(624), Tree::Null),
        python(Tree::Int(3), words(0), Tree::Null),
        python(Tree::Int(3), words(625), Tree::Int(0)),
        Tree::List(vec![Tree::Int(3), words(625)]),
        Tree::Null,
    ] {
        assert_eq!(python::from_tree(&bad).unwrap_err().code(), Code::BadRngState, "{bad:?}");
    }
    let chacha = |seed, pos| map(&[("seed", seed), ("stream", Tree::Int(0)), ("word_pos", pos)]);
    let read = |tree: &Tree| rust::from_tree(RngAlgorithm::ChaCha8, tree);
    read(&chacha(words(32), Tree::Int(0))).unwrap();
    assert!(read(&chacha(words(31), Tree::Int(0))).is_err());
    assert!(read(&chacha(Tree::List(vec![Tree::Int(256); 32]), Tree::Int(0))).is_err());
    let begins_anew = read(&chacha(words(32), big(&((1_u128 << 68) + 5).to_string()))).unwrap();
    assert_eq!(begins_anew, read(&chacha(words(32), Tree::Int(5))).unwrap());
    assert!(rust::from_tree(RngAlgorithm::Mt19937, &map(&[])).is_err());
    assert!(
        jax::from_key_data(&[1; 4], jax::Implementation::Threefry { partitionable: true }).is_err()
    );
    assert!(jax::from_key_data(&[1; 2], jax::Implementation::Rbg).is_err());
    assert!(jax::Implementation::named("fry", None).is_err());
    assert!(jax::Implementation::named("philox", Some(true)).is_err());
}
