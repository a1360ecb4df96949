//! State that real frameworks hold goes through value trees without loss.
//!
//! The files of `conformance/vectors/state-dicts` are made by `make_state_dicts.py` beside them,
//! which has checked that every object comes back from its tree. Here each tree is read and written
//! to the same bytes, and what makes such state hard is seen to be among them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test says where it fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use waystation_format::json::Value;
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Dtype, Identity, Record};

const FILES: [&str; 9] = [
    "grain",
    "mlx",
    "numpy-random",
    "oddities",
    "optax",
    "python-random",
    "torch-optimizers",
    "torch-rest",
    "torch-schedules",
];

/// Levels of a record's tree at most: it begins at the fourth of the hundred of a part.
const DEEPEST: usize = 97;

/// The records' trees by name, and the tensors' identity keys.
struct File {
    trees: BTreeMap<String, (Tree, usize)>,
    tensors: BTreeSet<String>,
}

fn text_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/state-dicts");
    std::fs::read_to_string(path.join(format!("{name}.json"))).unwrap()
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    match value.get(member) {
        Some(Value::List(items)) => items,
        other => panic!("{member}: {other:?}"),
    }
}

fn string<'v>(value: &'v Value, member: &str) -> &'v str {
    match value.get(member) {
        Some(Value::Str(text)) => text,
        other => panic!("{member}: {other:?}"),
    }
}

/// Reads a file; whatever does not come back to the same bytes is a panic.
fn file(name: &str) -> File {
    let text = text_of(name);
    let whole = Value::parse(&text).unwrap();
    assert_eq!(whole.encode().unwrap(), text, "{name}");
    let mut trees = BTreeMap::new();
    for record in list(&whole, "records") {
        let name = string(record, "name");
        let value = record.get("value").unwrap();
        let tree = Tree::parse_record_value(value).unwrap();
        assert_eq!(tree.to_record_value().encode().unwrap(), value.encode().unwrap(), "{name}");
        tree.check().unwrap();
        let made = Record::new("value", name, Vec::new(), value).unwrap();
        assert_eq!(*made.json, *record.encode().unwrap(), "{name}");
        let levels = depth(value);
        assert!(trees.insert(name.to_owned(), (tree, levels)).is_none(), "{name} twice");
    }
    let mut tensors = BTreeSet::new();
    for row in list(&whole, "tensors") {
        let dtype = Dtype::from_id(string(row, "dtype")).unwrap();
        let elements: i64 = list(row, "shape")
            .iter()
            .map(|extent| match extent {
                Value::Int(extent) => *extent,
                other => panic!("{other:?}"),
            })
            .product();
        let bytes = usize::try_from(elements).unwrap() * usize::try_from(dtype.bits() / 8).unwrap();
        assert_eq!(string(row, "bytes").len(), bytes * 2);
        assert!(tensors.insert(row.get("identity").unwrap().encode().unwrap()));
    }
    File { trees, tensors }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Calls `seen` with the tree and all within it.
fn walk<'t>(tree: &'t Tree, seen: &mut dyn FnMut(&'t Tree)) {
    seen(tree);
    match tree {
        Tree::List(items) | Tree::Tuple(items) => items.iter().for_each(|item| walk(item, seen)),
        Tree::Map(pairs) => pairs.iter().for_each(|(_, item)| walk(item, seen)),
        Tree::Type(_, inner) => walk(inner, seen),
        _ => {}
    }
}

/// Whether anything in any of the trees is so.
fn any<'f>(files: impl IntoIterator<Item = &'f File>, is: impl Fn(&Tree) -> bool) -> bool {
    let mut found = false;
    for (tree, _) in files.into_iter().flat_map(|file| file.trees.values()) {
        walk(tree, &mut |tree| found |= is(tree));
    }
    found
}

fn typed(tree: &Tree, name: &str) -> bool {
    matches!(tree, Tree::Type(found, _) if found == name)
}

/// The value of a map's key, where the tree is one.
fn at<'t>(tree: &'t Tree, key: &str) -> Option<&'t Tree> {
    let Tree::Map(pairs) = tree else { return None };
    pairs.iter().find(|(found, _)| *found == MapKey::Str(key.to_owned())).map(|(_, tree)| tree)
}

#[test]
fn every_tree_is_written_as_it_was_read_and_names_tensors_that_exist() {
    let mut found: Vec<String> = Vec::new();
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/state-dicts");
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        found.push(name.strip_suffix(".json").unwrap().to_owned());
    }
    found.sort();
    assert_eq!(found, FILES);

    for name in FILES {
        let file = file(name);
        assert!(!file.trees.is_empty(), "{name}");
        let mut named = BTreeSet::new();
        for (tree, levels) in file.trees.values() {
            assert!(*levels <= DEEPEST, "{name}");
            walk(tree, &mut |tree| {
                if let Tree::Tensor(identity) = tree {
                    assert_eq!(Identity::parse_key(&identity.key()).unwrap(), **identity);
                    named.insert(identity.key());
                }
            });
        }
        assert_eq!(named, file.tensors, "{name}");
    }
}

#[test]
fn what_makes_state_hard_is_among_them() {
    let files: BTreeMap<&str, File> = FILES.map(|name| (name, file(name))).into();
    let odd = &files["oddities"];

    for (bits, what) in [
        (0x8000_0000_0000_0000, "minus zero"),
        (0x7ff0_0000_0000_0000, "infinity"),
        (0xfff0_0000_0000_0000, "minus infinity"),
        (0x7ff8_0000_dead_beef, "a NaN with a payload"),
        (0xfff8_0000_0000_0001, "a NaN with a sign"),
        (0x7ff0_0000_0000_0001, "a signalling NaN"),
        (0x0000_0000_0000_0001, "the least subnormal"),
        (0x3fb9_9999_9999_999a, "0.1"),
    ] {
        assert!(any([odd], |tree| *tree == Tree::F64(bits)), "{what}");
    }
    assert!(any([odd], |tree| *tree == Tree::F32(0x7fc0_1234)), "an f32 NaN with a payload");
    assert!(any([odd], |tree| *tree == Tree::F32(0x8000_0000)), "an f32 minus zero");
    for whole in
        [i128::from(u64::MAX) + 1, -(i128::from(u64::MAX) + 1), i128::from(i64::MIN), i128::MAX]
    {
        assert!(any([odd], |tree| *tree == Tree::int(whole)), "{whole}");
    }
    let beyond = |tree: &Tree| matches!(tree, Tree::BigInt(digits) if digits.len() > 39);
    assert!(any([odd], beyond), "an integer of more than 128 bits");
    for edge in [(1_i128 << 53) - 1, 1 << 53, -(1 << 53) + 1, -(1 << 53)] {
        assert!(any([odd], |tree| *tree == Tree::int(edge)), "{edge}");
    }

    assert!(any([odd], |tree| *tree == Tree::Tuple(Vec::new())));
    assert!(any([odd], |tree| *tree == Tree::List(Vec::new())));
    assert!(any([odd], |tree| *tree == Tree::Map(Vec::new())));
    assert!(any([odd], |tree| *tree == Tree::Bytes(Vec::new())));
    assert!(any([odd], |tree| matches!(tree, Tree::Bytes(bytes) if bytes.len() == 8192)));
    assert!(any([odd], |tree| matches!(tree, Tree::Str(text) if text.contains('\0'))));
    assert!(any([odd], |tree| matches!(tree, Tree::Str(text) if text.contains('😀'))));
    let both = |tree: &Tree| {
        let keys = |wanted: [MapKey; 2]| {
            matches!(tree, Tree::Map(pairs)
                if wanted.iter().all(|wanted| pairs.iter().any(|(key, _)| key == wanted)))
        };
        keys([MapKey::Int(1), MapKey::Str("1".to_owned())])
            && keys([MapKey::Int(-1), MapKey::BigInt("18446744073709551616".to_owned())])
    };
    assert!(any([odd], both), "an integer beside the string of its digits, as keys");
    let unsorted = |tree: &Tree| matches!(tree, Tree::Map(pairs) if pairs.len() == 3 && pairs.first().is_some_and(|(key, _)| *key == MapKey::Str("b".to_owned())));
    assert!(any([odd], unsorted), "an order that is not the keys'");
    for name in ["deep-lists", "deep-tuples", "deep-maps"] {
        assert_eq!(odd.trees[&format!("oddities/{name}")].1, DEEPEST, "{name}");
    }
    for name in ["null", "true", "zero", "text", "float", "big"] {
        assert!(odd.trees.contains_key(&format!("oddities/bare-{name}")), "{name}");
    }

    for name in [
        "bytearray",
        "collections.Counter",
        "collections.OrderedDict",
        "complex",
        "frozenset",
        "jax.Array",
        "jax.random.key",
        "mlx.core.array",
        "numpy.bool",
        "numpy.dtype",
        "numpy.float16",
        "numpy.float32",
        "numpy.float64",
        "numpy.int64",
        "numpy.ndarray",
        "numpy.uint64",
        "optax.AddNoiseState",
        "optax.EmptyState",
        "optax.FactoredState",
        "optax.InjectStatefulHyperparamsState",
        "optax.MaskedNode",
        "optax.MultiStepsState",
        "optax.PartitionState",
        "optax.ScaleByAdamState",
        "optax.ScaleByScheduleState",
        "set",
        "torch.Size",
        "torch.device",
        "torch.dtype",
    ] {
        assert!(any(files.values(), |tree| typed(tree, name)), "{name}");
    }
}

#[test]
fn each_framework_holds_what_it_holds() {
    let torch = file("torch-optimizers");
    for name in [
        "adamw",
        "adamw-named-lazy",
        "adamw-bf16",
        "adam-tensor-rate",
        "sgd-0",
        "sgd-0.9",
        "adafactor",
        "nadam",
        "lbfgs",
    ] {
        let (tree, _) = &torch.trees[&format!("torch-optimizers/{name}")];
        let state = at(tree, "state").unwrap_or_else(|| panic!("{name}"));
        let Tree::Map(pairs) = state else { panic!("{name}: {state:?}") };
        assert_eq!(pairs.is_empty(), name == "sgd-0", "{name}: state of parameters");
        assert!(pairs.iter().all(|(key, _)| matches!(key, MapKey::Int(_))), "{name}: keys");
    }
    let betas = |tree: &Tree| matches!(at(tree, "betas"), Some(Tree::Tuple(two)) if two.len() == 2);
    assert!(any([&torch], betas));
    assert!(any([&torch], |tree| matches!(at(tree, "lr"), Some(Tree::Tensor(_)))));
    assert!(any(
        [&torch],
        |tree| matches!(at(tree, "old_dirs"), Some(Tree::List(dirs)) if !dirs.is_empty())
    ));
    assert!(any([&torch], |tree| matches!(at(tree, "foreach"), Some(Tree::Null))));

    let schedules = file("torch-schedules");
    let nested =
        |tree: &Tree| matches!(at(tree, "_schedulers"), Some(Tree::List(two)) if two.len() == 2);
    assert!(any([&schedules], nested));
    let infinite = |tree: &Tree| at(tree, "best") == Some(&Tree::F64(f64::INFINITY.to_bits()));
    assert!(any([&schedules], infinite));
    let no_lambda = |tree: &Tree| at(tree, "lr_lambdas") == Some(&Tree::List(vec![Tree::Null]));
    assert!(any([&schedules], no_lambda));

    let rest = file("torch-rest");
    let tracker = |tree: &Tree| matches!(at(tree, "_growth_tracker"), Some(Tree::Int(_)));
    assert!(any([&rest], tracker));
    assert!(any([&rest], |tree| at(tree, "n_averaged").is_some()));

    let python = file("python-random");
    let gauss = |tree: &Tree| matches!(tree, Tree::Tuple(three) if matches!(three.as_slice(), [Tree::Int(3), Tree::Tuple(words), Tree::F64(_)] if words.len() == 625));
    assert!(any([&python], gauss));
    let none =
        |tree: &Tree| matches!(tree, Tree::Tuple(three) if three.last() == Some(&Tree::Null));
    assert!(any([&python], none));

    let numpy = file("numpy-random");
    let wide =
        |tree: &Tree| matches!(at(tree, "inc"), Some(Tree::BigInt(digits)) if digits.len() > 30);
    assert!(any([&numpy], wide), "a stream's increment of 128 bits");
    assert!(any([&numpy], |tree| at(tree, "has_uint32") == Some(&Tree::Int(1))));

    let chain = |tree: &Tree| matches!(tree, Tree::Tuple(items) if items.iter().any(|item| typed(item, "optax.EmptyState")));
    assert!(any([&file("optax")], chain));
    assert!(any([&file("grain")], |tree| at(tree, "next_index").is_some()));
}

#[test]
fn one_level_more_than_a_text_may_have_is_refused() {
    let file = file("oddities");
    let (deep, levels) = &file.trees["oddities/deep-lists"];
    let mut tree = deep.clone();
    // Two levels a list: 97, 99, 101.
    for _ in 0..2 {
        assert!(tree.to_record_value().encode().is_ok());
        tree = Tree::List(vec![tree]);
    }
    assert_eq!(*levels, DEEPEST);
    assert!(tree.to_record_value().encode().is_err());
}
