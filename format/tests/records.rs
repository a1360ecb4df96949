//! Any typed record is read as it was written.

#![allow(clippy::unwrap_used, reason = "a test says where it fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use waystation_format::json::Value;
use waystation_format::records::optimizer::{Group, MasterCast, Param, StepParams, Steps};
use waystation_format::records::rng::{Cache, Fork, OnReshape, Origin, SeedRule, State, Stream};
use waystation_format::records::schedule::Unit;
use waystation_format::records::{
    Ema, Float, Integer, Optimizer, Progress, Scaler, Schedule, Typed, Uncaptured,
};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{
    Coordinate, Digest, Identity, Record, RngAlgorithm, RngCache, Role, limits,
};

fn name() -> impl Strategy<Value = String> + Clone {
    "[ -~é😀]{1,12}"
}

fn count() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..10_u64, 0..1_u64 << 53]
}

fn float() -> impl Strategy<Value = Float> + Clone {
    prop_oneof![any::<u64>().prop_map(Float::F64), any::<u32>().prop_map(Float::F32)]
}

fn integer() -> impl Strategy<Value = Integer> + Clone {
    prop_oneof![
        any::<i128>().prop_map(Integer::new),
        any::<u16>().prop_map(|i| u64::from(i).into())
    ]
}

fn tree() -> impl Strategy<Value = Tree> + Clone {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        any::<String>().prop_map(Tree::Str),
        integer().prop_map(|integer| integer.to_tree()),
        float().prop_map(Float::to_tree),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Tree::List),
            vec(inner, 0..3).prop_map(Tree::Tuple),
        ]
    })
}

fn named_list() -> impl Strategy<Value = Vec<(String, Tree)>> {
    let shuffled =
        |map: BTreeMap<String, Tree>| Just(map.into_iter().collect::<Vec<_>>()).prop_shuffle();
    btree_map(name(), tree(), 0..4).prop_flat_map(shuffled)
}

fn coordinate() -> impl Strategy<Value = Coordinate> {
    let shuffled =
        |map: BTreeMap<String, u64>| Just(map.into_iter().collect::<Vec<_>>()).prop_shuffle();
    btree_map(name(), count(), 0..4).prop_flat_map(shuffled)
}

fn progress() -> impl Strategy<Value = Progress> {
    let counts = (
        option::of(count()),
        option::of(count()),
        option::of(count()),
        count(),
        option::of(count()),
        option::of(count()),
        option::of(count()),
    );
    counts.prop_map(|(batch, epoch, iteration, optimizer_step, samples, skipped, tokens)| {
        Progress { batch, epoch, iteration, optimizer_step, samples, skipped, tokens }
    })
}

/// Params that are distinct, dealt to groups and to elements of `steps`.
fn optimizer() -> impl Strategy<Value = Optimizer> {
    let params = btree_set((name(), name()), 0..8);
    let param = |(component, name): (String, String)| Param { component, name };
    let params = params.prop_map(move |all| all.into_iter().map(param).collect::<Vec<_>>());
    let groups = btree_map(name(), (named_list(), option::of(named_list())), 1..4);
    let cast = prop_oneof![
        Just(MasterCast::NearestEven),
        Just(MasterCast::Stochastic),
        Just(MasterCast::Other)
    ];
    let steps = option::of(vec((count(), name()), 1..4));
    let parts = (name(), params.prop_shuffle(), groups, option::of(cast), steps, (count(), name()));
    parts.prop_map(|(algorithm, params, groups, masters, steps, (step, stored_as))| {
        let dealt = |count: usize, at: usize| -> Vec<Param> {
            params.iter().skip(at).step_by(count.max(1)).cloned().collect()
        };
        let number = groups.len();
        let groups = groups.into_iter().enumerate().map(|(at, (name, (hyper, implementation)))| {
            Group { hyper, implementation, name, params: dealt(number, at) }
        });
        let groups = groups.collect();
        let steps =
            match steps {
                None => vec![Steps { params: StepParams::All, step, stored_as }],
                Some(steps) => {
                    let number = steps.len();
                    let listed = steps.into_iter().enumerate().map(|(at, (step, stored_as))| {
                        Steps { params: StepParams::Listed(dealt(number, at)), step, stored_as }
                    });
                    listed.collect()
                }
            };
        Optimizer { algorithm, groups, masters, steps }
    })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let unit = prop_oneof![
        Just(Unit::OptimizerSteps),
        Just(Unit::Samples),
        Just(Unit::Tokens),
        Just(Unit::Epochs)
    ];
    let other = (name(), vec(tree(), 0..3), tree())
        .prop_map(|(name, last_value, parameters)| (format!("x/{name}"), last_value, parameters));
    let key = |name: &str, tree| (MapKey::Str(name.to_owned()), tree);
    let known = (vec((float(), float()), 0..3), float(), count(), any::<bool>()).prop_map(
        move |(values, floor, total, cosine)| {
            let (base, last): (Vec<Tree>, Vec<Tree>) =
                values.into_iter().map(|(base, last)| (base.to_tree(), last.to_tree())).unzip();
            let total = i128::from(total);
            let parameters = Tree::Map(vec![
                key("floor", floor.to_tree()),
                key("total", Tree::int(total)),
                key("warmup", Tree::int(total / 2)),
                key("base", Tree::List(base)),
            ]);
            let curve = if cosine { "cosine" } else { "linear" };
            (format!("linear-warmup+{curve}"), last, parameters)
        },
    );
    (prop_oneof![other, known], unit, count()).prop_map(
        |((algorithm, last_value, parameters), unit, position)| Schedule {
            algorithm,
            last_value,
            parameters,
            unit,
            position,
        },
    )
}

fn scaler() -> impl Strategy<Value = Scaler> {
    let floats = (float(), float(), float());
    (floats, count(), option::of(count()), count(), option::of(count())).prop_map(
        |((backoff, growth, scale), good_steps, hysteresis, interval, skipped)| Scaler {
            backoff,
            good_steps,
            growth,
            hysteresis,
            interval,
            scale,
            skipped,
        },
    )
}

fn stream() -> impl Strategy<Value = Stream> {
    let known =
        (proptest::sample::select(RngAlgorithm::ALL), 4..=64_usize).prop_map(|(known, n)| {
            let digits = usize::try_from(known.width() / 4).unwrap();
            let count = if known.has_canary() { n } else { 0 };
            (known.as_str().to_owned(), vec!["7".repeat(digits); count])
        });
    let other = (name(), vec("[0-9a-f]{1,128}", 0..=64))
        .prop_map(|(name, next_raw)| (format!("x/{name}"), next_raw));
    let caches = btree_set(name().prop_map(|name| format!("x/{name}")), 0..3);
    let caches = (caches, "([0-9a-f]{2}){0,64}", any::<bool>());
    let caches = caches.prop_map(|(others, bits, known): (BTreeSet<String>, String, bool)| {
        let known: &[RngCache] = if known { RngCache::ALL } else { &[] };
        let known = known.iter().map(|cache| Cache {
            bits: "7".repeat(usize::try_from(cache.bits() / 4).unwrap()),
            kind: cache.as_str().to_owned(),
        });
        let others = others.into_iter().map(|kind| Cache { bits: bits.clone(), kind });
        let mut caches: Vec<Cache> = known.chain(others).collect();
        caches.sort_by(|a, b| a.kind.cmp(&b.kind));
        caches
    });
    let fork =
        (coordinate(), any::<[u8; 4]>(), 0..=limits::STEP).prop_map(|(coordinate, bytes, step)| {
            Fork { coordinate, manifest: Digest::of(&bytes), step }
        });
    let origin = (option::of(name()), name(), option::of(integer()), option::of(name())).prop_map(
        |(form, framework, initial_seed, version)| Origin {
            form,
            framework,
            initial_seed,
            version,
        },
    );
    let seed_rule = (integer(), name()).prop_map(|(root, rule)| SeedRule { root, rule });
    let state = prop_oneof![
        vec(any::<u8>(), 0..100).prop_map(State::Inline),
        (name(), coordinate()).prop_map(|(name, scope)| State::Tensor(Box::new(Identity {
            role: Role::Blob,
            scope,
            ..Identity::param(name)
        })))
    ];
    let on_reshape =
        prop_oneof![Just(OnReshape::Require), Just(OnReshape::Fork), Just(OnReshape::Reinit)];
    let informative = (option::of(origin), option::of(name()), option::of(seed_rule));
    (prop_oneof![known, other], caches, option::of(fork), on_reshape, informative, state).prop_map(
        |((algorithm, next_raw), caches, fork, on_reshape, informative, state)| {
            let (origin, purpose, seed_rule) = informative;
            Stream {
                algorithm,
                caches,
                fork,
                next_raw,
                on_reshape,
                origin,
                purpose,
                seed_rule,
                state,
            }
        },
    )
}

fn typed() -> impl Strategy<Value = Typed> {
    prop_oneof![
        progress().prop_map(Typed::Progress),
        optimizer().prop_map(Typed::Optimizer),
        (option::of(float()), count())
            .prop_map(|(decay, updates)| Typed::Ema(Ema { decay, updates })),
        schedule().prop_map(Typed::Schedule),
        scaler().prop_map(Typed::Scaler),
        stream().prop_map(|stream| Typed::Rng(Box::new(stream))),
        tree().prop_map(Typed::Value),
        (name(), name()).prop_map(|(kind, reason)| Typed::Uncaptured(Uncaptured { kind, reason })),
    ]
}

proptest! {
    #[test]
    fn any_typed_record_survives_its_text(typed in typed()) {
        let record = Record::of("main", Vec::new(), &typed).unwrap();
        prop_assert_eq!(record.typed().unwrap(), typed.clone());
        let value = Value::parse(&typed.to_value().unwrap().encode().unwrap()).unwrap();
        prop_assert_eq!(Typed::parse(&record.key.kind, &value, None).unwrap(), typed);
    }

    /// Whatever stands in a record of a registered kind, it is read or refused.
    #[test]
    fn any_value_is_read_or_refused(typed in typed(), other in typed(), tree in tree()) {
        let kind = typed.kind().unwrap();
        let mut value = other.to_value().unwrap();
        let _ = Typed::parse(kind, &value, None);
        // A member of another kind's, or a tree, in the place of each.
        let mine = typed.to_value().unwrap();
        let (Value::Object(mine), Value::Object(theirs)) = (mine, &mut value) else {
            unreachable!("values of records are objects")
        };
        for name in mine.keys() {
            for replaced in theirs.values().cloned().chain([tree.to_value()]) {
                let mut changed = mine.clone();
                changed.insert(name.to_owned(), replaced);
                let changed = Value::Object(changed);
                if let Ok(read) = Typed::parse(kind, &changed, None) {
                    prop_assert_eq!(read.to_value().unwrap(), changed);
                }
            }
        }
    }
}
