//! The rules of depth R and V on resume state (chapters 16 to 19), once root and pages are good.
//!
//! It knows the order of what it reports: by record key, then tensors by identity key. What a record
//! breaks by itself is the business of `state`.

mod doubts;
mod owners;

use std::sync::Arc;

use waystation_format::record::{Record, RecordKey};
use waystation_format::records::cursor::{Node, Numbers, Order};
use waystation_format::records::rng::State;
use waystation_format::records::{Optimizer, Stream, Typed, optimizer};
use waystation_format::{Code, Coordinate, Error, Result, names, rule};
use waystation_state::Budget;
use waystation_store::Store;

use super::Note;
use crate::checkpoint::Checkpoint;
use crate::options::OpenOptions;
use crate::progress::{Progress, go_on};
use crate::state::{Compared, check_cursor, check_schedule, check_stream};

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
    let mut check = Check { checkpoint: &checkpoint, quick, found: Vec::new(), notes: Vec::new() };
    let (mut owners, mut doubts) = (Owners::default(), Doubts::default());
    let mut optimizers: Vec<(Place, Optimizer)> = Vec::new();
    let mut last: Option<(RecordKey, Stream)> = None;
    for page in 0..checkpoint.record_pages() {
        let file = names::records_page(page);
        for (index, record) in checkpoint.records_in_page(page)?.iter().enumerate() {
            go_on(progress)?;
            let place = Place { file: file.clone(), index, key: record.key.clone() };
            match record.typed()? {
                Typed::Optimizer(one) => {
                    owners.optimizer(&record.key.name, &one, &place);
                    check.close_unless_of(&record.key, &mut optimizers);
                    optimizers.push((place, one));
                }
                Typed::Rng(stream) => {
                    check.alike(&record.key, &stream, last.as_ref(), &place);
                    check.stream(&stream, &place);
                    doubts.stream(&record.key, &stream);
                    last = Some((record.key.clone(), *stream));
                }
                Typed::Ema(_) => owners.average(&record.key.name),
                other => {
                    match &other {
                        Typed::Progress(progress) => doubts.progress(progress.clone()),
                        Typed::Schedule(schedule) => doubts.schedule(&record.key, schedule),
                        Typed::Cursor(cursor) => doubts.cursor(&record.key, cursor),
                        _ => {}
                    }
                    check.alone(record, other, &place);
                }
            }
        }
    }
    check.close(&mut optimizers);
    check.found.extend(owners.check(&checkpoint, progress)?);
    check.notes.extend(doubts.finish());
    Ok((check.found, check.notes))
}

/// Where a record stands.
#[derive(Clone, Debug)]
struct Place {
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
    found: Vec<Error>,
    notes: Vec<Note>,
}

impl Check<'_> {
    /// Records that no other one bears on.
    fn alone(&mut self, record: &Record, typed: Typed, place: &Place) {
        let checked = match typed {
            Typed::Progress(progress) if progress.optimizer_step != self.checkpoint.step() => {
                let message = format!(
                    "expected the checkpoint's step {}, found {}",
                    self.checkpoint.step(),
                    progress.optimizer_step
                );
                Err(Error::rule(Code::StateDisagree, rule::PROGRESS_STEP, message)
                    .at_pointer("/optimizer_step"))
            }
            Typed::Schedule(schedule) => check_schedule(&schedule),
            Typed::Cursor(cursor) if self.quick && names_tensor(&cursor.root) => Ok(()),
            Typed::Cursor(cursor) => check_cursor(self.checkpoint, &cursor, Budget::of_validator())
                .map(|compared| {
                    if let Compared::LeftOut(why) = compared {
                        let text = format!("{} canary not compared: {why}", record.key.key());
                        self.notes.push(Note::Unchecked(text));
                    }
                }),
            _ => Ok(()),
        };
        self.keep(checked, place);
    }

    fn stream(&mut self, stream: &Stream, place: &Place) {
        if self.quick && matches!(stream.state, State::Tensor(_)) {
            return;
        }
        let checked = check_stream(self.checkpoint, stream).map(drop);
        self.keep(checked, place);
    }

    /// Compares a stream with the one before it, when they have one name.
    fn alike(
        &mut self,
        key: &RecordKey,
        stream: &Stream,
        before: Option<&(RecordKey, Stream)>,
        place: &Place,
    ) {
        let Some((_, before)) = before.filter(|(before, _)| before.name == key.name) else {
            return;
        };
        let differs = [
            ("algorithm", before.algorithm.as_str(), stream.algorithm.as_str()),
            ("on_reshape", before.on_reshape.as_str(), stream.on_reshape.as_str()),
        ];
        for (member, was, is) in differs {
            if was != is {
                let message =
                    format!("expected {member} {was:?} as in the record before, found {is:?}");
                let error = Error::rule(Code::StateDisagree, rule::RNG_ALIKE, message);
                self.keep(Err(error.at_pointer(format!("/{member}"))), place);
            }
        }
    }

    /// Joins the optimizer records so far when `next` has another name.
    fn close_unless_of(&mut self, next: &RecordKey, optimizers: &mut Vec<(Place, Optimizer)>) {
        if optimizers.first().is_some_and(|(place, _)| place.key.name != next.name) {
            self.close(optimizers);
        }
    }

    fn close(&mut self, optimizers: &mut Vec<(Place, Optimizer)>) {
        let pairs: Vec<(&Coordinate, &Optimizer)> =
            optimizers.iter().map(|(place, one)| (&place.key.coordinate, one)).collect();
        let joined = optimizer::join(pairs).map(drop);
        if let Some((place, _)) = optimizers.first() {
            let place = place.clone();
            self.keep(joined, &place);
        }
        optimizers.clear();
    }

    fn keep(&mut self, checked: Result<()>, place: &Place) {
        let Err(error) = checked else { return };
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
            self.found.push(place.of(error));
        }
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
