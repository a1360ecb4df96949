//! Reports about data cursors: samples lost, given twice, or of another order after a resume.

use std::collections::BTreeSet;

use waystation_format::json::{Map, Value};
use waystation_format::record::Record;
use waystation_format::records::Cursor;
use waystation_format::records::cursor::{
    EpochEnd, Node, Opaque, Order, Partition, PermutedIndex, SeedRule, ShareRule, StoredShuffle,
    WindowShuffle,
};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Digest, Grade, Result, rule};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Rank, after};

use crate::support::*;

const CANARY: (Code, &str) = (Code::CanaryMismatch, rule::CURSOR_CANARY);

/// A cursor that stands at `root` and says that the next items are those of another.
fn mistaken(root: Node, canary_of: &Cursor) -> Cursor {
    Cursor { root, ..canary_of.clone() }
}

/// Verification finds the canary wrong, and no place is given the cursor.
#[track_caller]
fn is_found_out(cursor: &Cursor) {
    let (checkpoint, found) = Job::new(&[]).record("train", data(cursor)).save_broken();
    assert_eq!(found, CANARY);
    assert_eq!(refused(restore(&checkpoint, &place(&[], &[]))), CANARY);
}

/// The cursor of a checkpoint in which all is well, as a place of this topology gets it.
fn resumed(cursor: &Cursor) -> Cursor {
    let checkpoint = Job::new(&[]).record("train", data(cursor)).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(grade(&restored, "cursor", "train").0, Grade::Exact);
    train(&restored).clone()
}

/// The record that a writer would make of a cursor with other members.
fn edited(cursor: &Cursor, edit: impl FnOnce(&mut Map)) -> Result<Record> {
    let mut value = cursor.to_value();
    if let Value::Object(members) = &mut value {
        edit(members);
    }
    Record::new("cursor", "train", vec![], &value)
}

/// huggingface/datasets#7901 and #8408: the shuffle buffer was not saved. Here as it was seen: of
/// 75 records that were left, a resume with a buffer of 8 lost 7; others came twice.
#[test]
fn the_records_in_a_shuffle_buffer_are_neither_lost_nor_given_twice() {
    let window = |read: u64, index, replay| {
        let Node::PermutedIndex(leaf) = leaf(Order::Identity, 0, read) else { panic!() };
        let anchor = Node::PermutedIndex(PermutedIndex { epoch_end: EpochEnd::Stop, ..leaf });
        let order = Order::TorchRandpermCpu { seed: 5, seed_rule: SeedRule::SeedPlusEpoch };
        let (anchor, reverse, window) = (Box::new(anchor), false, 8);
        WindowShuffle { anchor, index, order, replay, reverse, window }
    };
    let from = |window| cursor(Node::WindowShuffle(window), 25);
    let given = ordinals(&from(window(0, 0, 0)), 25);
    let saved = from(window(24, 3, 1));
    let rest = ordinals(&resumed(&saved), 1000);
    assert_eq!(rest.len(), 75);
    let both: BTreeSet<u64> = given.iter().chain(&rest).copied().collect();
    assert_eq!(both, (0..CORPUS).collect());

    // The loader had read 32 records when it had given 25. Going on there loses 7 …
    let lost = from(window(32, 4, 0));
    assert_eq!(ordinals(&lost, 1000).len(), 75 - 7);
    is_found_out(&mistaken(lost.root, &saved));
    // … and reading the window again gives one twice.
    let twice = from(window(24, 3, 0));
    assert_eq!(ordinals(&twice, 1000).len(), 75 + 1);
    is_found_out(&mistaken(twice.root, &saved));

    // A buffer that can only be stored is carried, and is not called exact.
    let (buffer, order) = (walk(&saved).take(7).map(Result::unwrap).collect(), Order::Identity);
    let child = Box::new(leaf(Order::Identity, 0, 32));
    let root = Node::StoredShuffle(StoredShuffle { buffer, child, order });
    let stored = Cursor { next: None, root, ..saved };
    let checkpoint = Job::new(&[]).record("train", data(&stored)).save();
    let error = restore(&checkpoint, &place(&[], &[])).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
}

/// huggingface/datasets#8308: the second resume began from 0 again.
#[test]
fn a_cursor_that_is_saved_again_at_once_is_the_same_however_often() {
    let mut saved = cursor(shuffled(1234, 3, 40), 3 * CORPUS + 40);
    for _ in 0..3 {
        let back = resumed(&saved);
        assert_eq!(back, saved);
        assert_eq!(walk(&back).cursor(8).unwrap(), saved);
        // And after some steps it has gone on from there.
        let next = after(&back, 16, 8, &NoTensors, Budget::of_validator()).unwrap();
        assert_eq!(next.consumed, saved.consumed.map(|consumed| consumed + 16));
        assert_eq!(ordinals(&saved, 24)[16..], ordinals(&next, 8));
        saved = next;
    }
    is_found_out(&mistaken(shuffled(1234, 3, 0), &saved));
}

/// A cursor whose global batches of 24 are shared along `dp`.
fn shared(rule: ShareRule) -> Cursor {
    let partition = Partition { axes: vec!["dp".to_owned()], batch: 24, rule };
    Cursor { partition: Some(partition), ..cursor(shuffled(9, 0, 48), 48) }
}

/// The next global batch, as all data-parallel ranks of a topology get it after a restore.
fn shares(cursor: &Cursor, saved: &[(&str, u64)], sizes: &[(&str, u64)]) -> Vec<Vec<u64>> {
    let checkpoint = Job::new(saved).record("train", data(cursor)).save();
    let ranks = (0..sizes[0].1).map(|dp| {
        let others = sizes[1..].iter().map(|(_, size)| size - 1);
        let at: Vec<u64> = std::iter::once(dp).chain(others).collect();
        let restored = restore(&checkpoint, &place(sizes, &at)).unwrap();
        let rank = restored.cursors[0].rank.unwrap();
        assert_eq!(rank, Rank { rank: dp, world: sizes[0].1 });
        let batch = walk(train(&restored)).batch(24).unwrap();
        let rule = cursor.partition.as_ref().unwrap().rule;
        let share = batch.share(rule, rank).unwrap();
        share.iter().map(|item| item.integers()[0]).collect()
    });
    ranks.collect()
}

/// What a framework's loader keeps for itself, with what it depends on.
fn opaque(position: i64, depends_on: &[(&str, i64)]) -> Cursor {
    let node = Opaque {
        fingerprint: fingerprint(depends_on),
        media_type: "application/vnd.loader+json".to_owned(),
        state: Tree::Map(vec![(MapKey::Str("yielded".to_owned()), Tree::Int(position))]),
    };
    Cursor { augment: None, consumed: None, next: None, partition: None, root: Node::Opaque(node) }
}

fn fingerprint(depends_on: &[(&str, i64)]) -> Tree {
    let member = |(name, value): &(&str, i64)| (MapKey::Str((*name).to_owned()), Tree::Int(*value));
    Tree::Map(depends_on.iter().map(member).collect())
}

/// pytorch/torchtitan#811 and #816: on more data-parallel ranks the resume failed, on fewer the
/// state of the ranks that were gone was dropped without a word.
#[test]
fn ranks_come_and_go_and_the_next_global_batch_stays() {
    let cursor = shared(ShareRule::RoundRobin);
    let expected: BTreeSet<u64> = ordinals(&cursor, 24).into_iter().collect();
    for ranks in [1, 2, 3, 4, 5, 8, 24] {
        let shares = shares(&cursor, &[("dp", 4)], &[("dp", ranks)]);
        let items: Vec<u64> = shares.concat();
        assert_eq!(items.len(), 24, "{ranks}");
        assert_eq!(items.into_iter().collect::<BTreeSet<u64>>(), expected, "{ranks}");
    }
    // Iterators of single ranks cannot do that, so they are not handed to other ranks.
    let mut job = Job::new(&[("dp", 4)]);
    for dp in 0..4 {
        job = job.record_at(0, &[("dp", dp)], "train", data(&opaque(dp as i64, &[("dp", 4)])));
    }
    let checkpoint = job.save();
    let mut options = bringing_corpus().with_fingerprint("train", fingerprint(&[("dp", 4)]));
    options.cursors = Grade::OpaqueSameTopology;
    for (ranks, good) in [(2, false), (4, true), (8, false)] {
        let sizes = [("dp", ranks)];
        match checkpoint.restore(&place(&sizes, &[1]), &options) {
            Ok(restored) => {
                assert!(good, "{ranks}");
                assert_eq!(train(&restored), &opaque(1, &[("dp", 4)]));
            }
            Err(error) => {
                let refusal = (error.code(), error.rule_id());
                assert_eq!(refusal, (Code::NotExact, Some(rule::RESTORE_DEMAND)));
                assert!(!good && error.message().contains("\"dp\" had 4"), "{error}");
            }
        }
    }
}

/// NVIDIA-NeMo/Megatron-Bridge#5637: on fewer data-parallel ranks a loader's state was loaded
/// "with success" and gave another stream.
#[test]
fn a_state_that_depends_on_the_ranks_is_refused_when_they_change() {
    let cursor = opaque(7, &[("dp", 4), ("workers", 2)]);
    let checkpoint = Job::new(&[("dp", 4)]).record("train", data(&cursor)).save();
    let resume = |ranks: u64, workers| {
        let depends_on = [("dp", ranks as i64), ("workers", workers)];
        let mut options = bringing_corpus().with_fingerprint("train", fingerprint(&depends_on));
        options.cursors = Grade::OpaqueSameTopology;
        checkpoint.restore(&place(&[("dp", ranks)], &[0]), &options)
    };
    assert_eq!(train(&resume(4, 2).unwrap()), &cursor);
    for changed in [resume(2, 2), resume(4, 3)] {
        assert_eq!(refused(changed), (Code::SourceChanged, rule::CURSOR_OPAQUE));
    }
    // Nor does it pass as exact, or without anything to compare it with.
    assert_eq!(
        refused(restore(&checkpoint, &place(&[("dp", 4)], &[0]))),
        (Code::NotExact, rule::RESTORE_DEMAND)
    );
}

/// NVIDIA-NeMo/Automodel#533: every rank saved a loader of its own that knew nothing of the others.
#[test]
fn loaders_that_stand_at_different_places_are_not_one_cursor() {
    let sizes = [("dp", 2)];
    let save = |second: u64| {
        let at = |position| data(&cursor(shuffled(1, 0, position), position));
        Job::new(&sizes).writers(2).record_at(0, &[], "train", at(20)).record_at(
            1,
            &[],
            "train",
            at(second),
        )
    };
    assert_eq!(refused(save(24).try_save()), (Code::RecordConflict, rule::DERIVE_RECORDS));
    // One place in one order, which all ranks agree on: each takes its share.
    save(20).save();
    let shares = shares(&shared(ShareRule::Contiguous), &sizes, &sizes);
    assert_eq!(shares.concat(), ordinals(&shared(ShareRule::Contiguous), 24));
}

/// bghira/SimpleTuner#2986: rank 0 restored its shard of the data while the others split the data
/// anew: some samples came twice, some never.
#[test]
fn a_shard_of_the_data_is_not_taken_for_the_data() {
    let cursor = shared(ShareRule::RoundRobin);
    let sizes = [("dp", 4)];
    let checkpoint = Job::new(&sizes).record("train", data(&cursor)).save();
    let own_shard = Digest::of(b"the corpus, the quarter of rank 0");
    let options = waystation_reader::restore::RestoreOptions::default();
    let options = options.with_source("train", CORPUS / 4, own_shard);
    assert_eq!(
        refused(checkpoint.restore(&place(&sizes, &[0]), &options)),
        (Code::SourceChanged, rule::CURSOR_SOURCE)
    );
    // From the whole, no two ranks share a sample and none is missing.
    let shares = shares(&cursor, &sizes, &sizes);
    assert!(shares.iter().all(|share| share.len() == 6));
    let items: BTreeSet<u64> = shares.concat().into_iter().collect();
    assert_eq!(items, ordinals(&cursor, 24).into_iter().collect());
}

/// ByteDance-Seed/VeOmni#853: the state had neither seed nor number of samples nor ranks, so that a
/// changed one went unseen and other samples came.
#[test]
fn a_cursor_has_all_that_its_order_depends_on() {
    let saved = cursor(shuffled(1234, 0, 40), 40);
    resumed(&saved);
    for member in ["seed", "n"] {
        let without = edited(&saved, |members| {
            let Some(Value::Object(order)) = members.get_mut("order") else { panic!() };
            order.remove(member).unwrap();
        });
        assert_eq!(refused(without), (Code::BadMember, rule::JSON_UNKNOWN_MEMBER), "{member}");
    }
    is_found_out(&mistaken(shuffled(1235, 0, 40), &saved));
    // More samples than there were: another order, and another source.
    let Node::PermutedIndex(leaf) = saved.root.clone() else { panic!() };
    let grown = PermutedIndex { n: CORPUS - 1, ..leaf };
    is_found_out(&mistaken(Node::PermutedIndex(grown), &saved));
    let checkpoint = Job::new(&[]).record("train", data(&saved)).save();
    let options = waystation_reader::restore::RestoreOptions::default();
    let options = options.with_source("train", CORPUS + 1, corpus().sha256);
    let error = checkpoint.restore(&place(&[], &[]), &options).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::SourceChanged, Some(rule::CURSOR_SOURCE)));
}

/// huggingface/accelerate#4071, #2016, #3242 and #4203: a resume in mid-epoch went on in the order
/// of epoch 0, or in a new one.
#[test]
fn in_mid_epoch_the_order_of_that_epoch_goes_on() {
    let mut run = walk(&cursor(shuffled(1234, 0, 0), 0));
    assert_eq!(run.skip_items(3 * CORPUS + 40).unwrap(), 3 * CORPUS + 40);
    let saved = run.cursor(8).unwrap();
    let uninterrupted: Vec<u64> = run.take(90).map(|item| item.unwrap().integers()[0]).collect();
    assert_eq!(ordinals(&resumed(&saved), 90), uninterrupted);
    assert_eq!(saved.root, shuffled(1234, 3, 40));
    is_found_out(&mistaken(shuffled(1234, 0, 40), &saved));
    is_found_out(&mistaken(shuffled(77, 3, 40), &saved));
}

/// wyim-pgl/transgenic#59: the order was drawn from the stream that the resume had just restored,
/// so that 15 of 20 samples after it were other ones.
#[test]
fn the_order_of_data_does_not_come_from_a_stream_that_is_restored() {
    let begin = cuda(42, 0);
    let seed_from =
        |stream: &waystation_state::rng::StreamState| stream.engine().unwrap().draw(1)[0];
    let in_mid_epoch = drawn(&begin, 400);
    let saved = cursor(shuffled(seed_from(&begin), 0, 40), 40);
    let drawn_again = shuffled(seed_from(&in_mid_epoch), 0, 40);
    let expected: BTreeSet<u64> = ordinals(&saved, 20).into_iter().collect();
    let others = ordinals(&cursor(drawn_again.clone(), 40), 20);
    assert!(others.iter().filter(|sample| !expected.contains(sample)).count() >= 15);
    is_found_out(&mistaken(drawn_again, &saved));
    // The cursor keeps the seed that its epoch began with, whatever the stream has drawn since.
    assert_eq!(ordinals(&resumed(&saved), 20).into_iter().collect::<BTreeSet<_>>(), expected);
}

/// huggingface/accelerate#3034: the loader's state was one batch ahead of training, since it had
/// read ahead.
#[test]
fn what_was_read_ahead_is_not_consumed() {
    let begin = cursor(shuffled(1, 3, 0), 3 * CORPUS);
    let (batch, trained) = (8, 3);
    let mut prefetching = walk(&begin);
    let given: Vec<Vec<u64>> = (0..trained + 1)
        .map(|_| prefetching.batch(batch).unwrap())
        .map(|batch| batch.items().iter().map(|item| item.integers()[0]).collect())
        .collect();
    let committed = after(&begin, batch * trained, 8, &NoTensors, Budget::of_validator()).unwrap();
    // The batch that was read ahead and not trained on comes again.
    assert_eq!(ordinals(&resumed(&committed), 8), given[trained as usize]);
    let ahead = prefetching.cursor(8).unwrap();
    assert_eq!(ahead.consumed, Some(3 * CORPUS + 32));
    is_found_out(&mistaken(ahead.root, &committed));
    // In the first epoch already the count of what was trained on tells.
    let first = edited(&cursor(shuffled(1, 0, 32), 32), |members| {
        members.insert("consumed".to_owned(), Value::Int(24)).unwrap();
    });
    assert_eq!(refused(first), (Code::BadPosition, rule::CURSOR_POSITION));
}

/// mosaicml/streaming#619 and #869: samples were counted once for each replica of a rank, and a run
/// of more than one epoch did not resume.
#[test]
fn replicas_are_not_counted_and_epochs_are() {
    // Four ranks of two tensor-parallel replicas each take 24 items, not 48.
    let sizes = [("dp", 4), ("tp", 2)];
    let cursor = shared(ShareRule::RoundRobin);
    let shares = shares(&cursor, &sizes, &sizes);
    assert_eq!(shares.concat().len(), 24);
    let mut walk = walk(&cursor);
    walk.batch(24).unwrap();
    assert_eq!(walk.cursor(8).unwrap().consumed, Some(48 + 24));
    // Epochs are counted apart from the place in one.
    let later = self::cursor(shuffled(9, 5, 48), 5 * CORPUS + 48);
    assert_eq!(resumed(&later), later);
    for (member, value) in [("position", 5 * CORPUS + 48), ("consumed", 47)] {
        let wrong = edited(&later, |members| {
            members.insert(member.to_owned(), Value::Int(value as i64)).unwrap();
        });
        assert_eq!(refused(wrong), (Code::BadPosition, rule::CURSOR_POSITION), "{member}");
    }
}

/// lancedb/lancedb#3751 and meta-pytorch/data#1437: counters were those of single workers, and a
/// state that was saved again had lost its epoch.
#[test]
fn workers_have_no_place_in_a_cursor_and_the_epoch_has() {
    let saved = cursor(shuffled(1, 2, 40), 2 * CORPUS + 40);
    let with_workers = edited(&saved, |members| {
        members.insert("workers".to_owned(), Value::List(vec![Value::Int(20), Value::Int(20)]));
    });
    assert_eq!(refused(with_workers), (Code::BadMember, rule::JSON_UNKNOWN_MEMBER));
    let without_epoch = edited(&saved, |members| drop(members.remove("epoch").unwrap()));
    assert_eq!(refused(without_epoch), (Code::BadMember, rule::JSON_UNKNOWN_MEMBER));
    // Saved again at once it says the same, its epoch too.
    assert_eq!(resumed(&walk(&resumed(&saved)).cursor(8).unwrap()), saved);
}
