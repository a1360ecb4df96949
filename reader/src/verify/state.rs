//! The rules of depth R and V on resume state (chapters 16 to 19), once root and pages are good.
//!
//! It knows the order of what it reports: by record key, then tensors by identity key. What a
//! record breaks by itself is the business of `state`.

mod doubts;
mod owners;

use std::sync::Arc;

use waystation_format::record::{Record, RecordKey};
use waystation_format::records::cursor::{Node, Numbers, Order};
use waystation_format::records::rng::State;
use waystation_format::records::{Optimizer, Stream, Typed, optimizer};
use waystation_format::{Code, Error, Result, names, rule};
use waystation_state::schedule;
use waystation_store::Store;

use super::Note;
use crate::checkpoint::Checkpoint;
use crate::options::OpenOptions;
use crate::progress::{Progress, go_on};
use crate::state::{CanarySteps, Compared, check_stream};

use doubts::Doubts;
use owners::Owners;

/// What is wrong with the resume state of a checkpoint whose root and pages are good.
///
/// # Errors
/// `interrupted`, and failures of the system.
pub(super) fn check(
    store: &Arc<dyn Store>,
    quick: bool,
    progress: &dyn Progress,
) -> Result<(Vec<Error>, Vec<Note>)> {
    let checkpoint = Checkpoint::open_store(Arc::clone(store), OpenOptions::default())?;
    let mut check = Check {
        checkpoint: &checkpoint,
        quick,
        steps: CanarySteps::of_validator(progress.stop()),
        found: Vec::new(),
        notes: Vec::new(),
    };
    let (mut owners, mut doubts) = (Owners::default(), Doubts::default());
    let mut optimizers: Vec<(Place, Optimizer)> = Vec::new();
    let mut first: Option<(RecordKey, Stream)> = None;
    let mut at = 0_u64;
    for page in 0..checkpoint.record_pages() {
        let file = names::records_page(page);
        for (index, record) in checkpoint.records_in_page(page)?.iter().enumerate() {
            go_on(progress)?;
            let place = Place { at, file: file.clone(), index, key: record.key.clone() };
            at = at.saturating_add(1);
            match record.typed()? {
                Typed::Optimizer(one) => {
                    check.close_unless_of(&record.key, &mut optimizers)?;
                    let found = owners.optimizer(&checkpoint, progress, &one, &place)?;
                    check.found.extend(found);
                    optimizers.push((place, one));
                }
                Typed::Rng(stream) => {
                    check.stream(&stream, &place)?;
                    doubts.stream(&record.key, &stream);
                    match &first {
                        Some((key, first)) if key.name == record.key.name => {
                            check.alike(&stream, first, &place)?;
                        }
                        _ => first = Some((record.key.clone(), *stream)),
                    }
                }
                Typed::Ema(_) => owners.average(&record.key.name),
                other => {
                    match &other {
                        Typed::Progress(progress) => doubts.progress(progress.clone()),
                        Typed::Schedule(schedule) => doubts.schedule(&record.key, schedule),
                        Typed::Cursor(cursor) => doubts.cursor(&record.key, cursor),
                        _ => {}
                    }
                    check.alone(record, other, &place)?;
                }
            }
        }
    }
    check.close(&mut optimizers)?;
    // What bears on several records is found after them.
    check.found.sort_by_key(|(at, _)| *at);
    check.notes.extend(doubts.finish());
    let of_records = check.found.into_iter().map(|(_, error)| error);
    let of_tensors = owners.check(&checkpoint, progress)?;
    Ok((of_records.chain(of_tensors).collect(), check.notes))
}

/// Where a record stands.
#[derive(Clone, Debug)]
struct Place {
    /// Its number in order of record key.
    at: u64,
    file: String,
    index: usize,
    key: RecordKey,
}

impl Place {
    /// Adds the place to an error about the record's value.
    fn of(&self, error: Error) -> Error {
        // What is wrong in another file, such as a damaged tensor, has its own place.
        if error.location().file.is_some() {
            return error.in_record(self.key.key());
        }
        let index = self.index;
        error
            .under_pointer(&format!("/records/{index}/value"))
            .in_file(&*self.file)
            .in_record(self.key.key())
    }
}

struct Check<'c> {
    checkpoint: &'c Checkpoint,
    quick: bool,
    steps: CanarySteps,
    /// What is wrong, with the number of the record.
    found: Vec<(u64, Error)>,
    notes: Vec<Note>,
}

impl Check<'_> {
    /// Records that no other one bears on.
    fn alone(&mut self, record: &Record, typed: Typed, place: &Place) -> Result<()> {
        let checked = match typed {
            Typed::Progress(progress) => progress.check_step(self.checkpoint.step()),
            Typed::Schedule(schedule) => schedule::check(&schedule),
            Typed::Cursor(cursor) if self.quick && names_tensor(&cursor.root) => Ok(()),
            Typed::Cursor(cursor) => {
                self.steps.check_cursor(self.checkpoint, &cursor).map(|compared| {
                    if let Compared::LeftOut(why) = compared {
                        let text = format!("{} canary not compared: {why}", record.key.key());
                        self.notes.push(Note::Unchecked(text));
                    }
                })
            }
            _ => Ok(()),
        };
        self.keep(checked, place)
    }

    fn stream(&mut self, stream: &Stream, place: &Place) -> Result<()> {
        if self.quick && matches!(stream.state, State::Tensor(_)) {
            return Ok(());
        }
        let checked = check_stream(self.checkpoint, stream).map(drop);
        self.keep(checked, place)
    }

    /// Compares a stream with the first of its name.
    fn alike(&mut self, stream: &Stream, first: &Stream, place: &Place) -> Result<()> {
        let differs = [
            ("algorithm", first.algorithm.as_str(), stream.algorithm.as_str()),
            ("on_reshape", first.on_reshape.as_str(), stream.on_reshape.as_str()),
        ];
        for (member, was, is) in differs {
            if was != is {
                let message =
                    format!("expected {member} {was:?} as in the first of its name, found {is:?}");
                let error = Error::rule(Code::StateDisagree, rule::RNG_ALIKE, message);
                self.keep(Err(error.at_pointer(format!("/{member}"))), place)?;
            }
        }
        Ok(())
    }

    /// Joins the optimizer records so far when `next` has another name.
    fn close_unless_of(
        &mut self,
        next: &RecordKey,
        optimizers: &mut Vec<(Place, Optimizer)>,
    ) -> Result<()> {
        if optimizers.first().is_some_and(|(place, _)| place.key.name != next.name) {
            self.close(optimizers)?;
        }
        Ok(())
    }

    fn close(&mut self, optimizers: &mut Vec<(Place, Optimizer)>) -> Result<()> {
        let joined = |count: usize| {
            let first = optimizers.iter().take(count);
            optimizer::join(first.map(|(place, one)| (&place.key.coordinate, one))).map(drop)
        };
        // The first that does not join those before it: with more of them, none joins.
        let (mut good, mut bad) = (0, optimizers.len());
        let mut checked = joined(bad);
        while checked.is_err() && bad.saturating_sub(good) > 1 {
            let middle = good.midpoint(bad);
            match joined(middle) {
                Ok(()) => good = middle,
                wrong => (bad, checked) = (middle, wrong),
            }
        }
        if let Some((place, _)) = optimizers.get(bad.saturating_sub(1)) {
            self.keep(checked, place)?;
        }
        optimizers.clear();
        Ok(())
    }

    /// # Errors
    /// `interrupted`, which says nothing of the checkpoint.
    fn keep(&mut self, checked: Result<()>, place: &Place) -> Result<()> {
        let Err(error) = checked else { return Ok(()) };
        if error.code() == Code::Interrupted {
            return Err(error);
        }
        // A tensor that cannot be read is reported where its bytes are.
        let stored = matches!(
            error.code(),
            Code::CrcMismatch
                | Code::CrcTableMismatch
                | Code::FileMissing
                | Code::LengthMismatch
                | Code::NotRegular
        );
        if !stored {
            self.found.push((place.at, place.of(error)));
        }
        Ok(())
    }
}

/// Whether something of a tree stands in a tensor; it is at most `cursor-depth` deep.
fn names_tensor(node: &Node) -> bool {
    let tensor = |order: &Order| matches!(order, Order::Explicit(Numbers::Tensor(_)));
    let itself = match node {
        Node::PermutedIndex(leaf) => tensor(&leaf.order),
        Node::ShardedLanes(leaf) => {
            tensor(&leaf.order) || matches!(leaf.shards, Numbers::Tensor(_))
        }
        _ => false,
    };
    itself || node.children().iter().any(names_tensor)
}
