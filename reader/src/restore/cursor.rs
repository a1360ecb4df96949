//! Data cursors for a place.
//!
//! It knows what a caller has to bring and how far a cursor is right without it. Which items come
//! is for `waystation-state` to say, which record is for the place the business of `restore`.

use std::collections::BTreeSet;

use waystation_format::record::Record;
use waystation_format::records::cursor::{Augment, Node, Opaque};
use waystation_format::records::{Cursor, Typed};
use waystation_format::{Code, Digest, Error, Grade, Result, rule};
use waystation_state::cursor::Rank;

use super::report::{LEFT_OUT, Report};
use super::{Offer, Place, RestoreOptions, of_record};
use crate::checkpoint::Checkpoint;
use crate::state::{Compared, check_cursor};

/// Sources that a reason names.
const SOURCES_NAMED: usize = 3;

/// A cursor for one place.
#[derive(Clone, Debug)]
pub struct RestoredCursor {
    /// The cursor's name.
    pub name: String,
    /// How good it is.
    pub grade: Grade,
    /// Where to go on; `None` when it is not restored.
    pub cursor: Option<Cursor>,
    /// The place among the ranks that share a batch, when the cursor says along which axes and the
    /// topology has them.
    pub rank: Option<Rank>,
    /// The records and digests of its sources, when it is not restored for want of them.
    pub wanted: Vec<(u64, Digest)>,
}

pub(super) fn restore(
    checkpoint: &Checkpoint,
    group: &[Record],
    place: Option<&Place>,
    options: &RestoreOptions,
    report: &mut Report<'_>,
) -> Result<RestoredCursor> {
    let Some(first) = group.first() else {
        return Err(Error::new(Code::BadArgument, "expected a record of the cursor, found none"));
    };
    let name = first.key.name.clone();
    if place.is_some() && options.leave_out.contains(&name) {
        report.none(&first.key, LEFT_OUT.to_owned());
        let (grade, wanted) = (Grade::None, Vec::new());
        return Ok(RestoredCursor { name, grade, cursor: None, rank: None, wanted });
    }
    let chosen = match checkpoint.choose(group, place, &first.key) {
        Ok(chosen) => chosen,
        Err(unfit) => {
            report.demanded(&first.key, Grade::None, Some(unfit.reason()), options.cursors);
            let (grade, wanted) = (Grade::None, Vec::new());
            return Ok(RestoredCursor { name, grade, cursor: None, rank: None, wanted });
        }
    };
    let of_chosen = |e: Error| of_record(e, &chosen.key);
    let Typed::Cursor(cursor) = chosen.typed().map_err(of_chosen)? else {
        return Err(Error::new(Code::BadArgument, "expected a record of kind cursor"));
    };
    let offer = options.offers.get(&name);
    if let Some(offer) = offer {
        check_offer(&cursor, offer).map_err(of_chosen)?;
    }
    let brought = place.is_some().then_some(offer);
    let wanted = wanted(&cursor, brought);
    // What is not restored is not looked into.
    let misgiving = match not_restored(&cursor, &wanted, brought) {
        Some(reason) => Some((Grade::None, reason)),
        None => {
            let compared = match place {
                Some(_) => check_cursor(checkpoint, &cursor, &mut options.budget.clone()),
                None => report.steps.check_cursor(checkpoint, &cursor),
            };
            misgiving(&cursor, &compared.map_err(of_chosen)?)
        }
    };
    let (grade, reason) = match misgiving {
        Some((grade, reason)) => (grade, Some(reason)),
        None if place.is_none() && !chosen.key.coordinate.is_empty() => {
            let reason = "it is right where its axes keep their sizes".to_owned();
            (Grade::ExactIfAxesUnchanged, Some(reason))
        }
        None => (Grade::Exact, None),
    };
    report.demanded(&chosen.key, grade, reason, options.cursors);
    let rank = cursor.partition.as_ref().zip(place).and_then(|(partition, place)| {
        // What cannot be shared so is refused by who asks for a share.
        Rank::of(partition, place.topology(), place.coordinate()).ok()
    });
    let cursor = (grade != Grade::None).then_some(*cursor);
    Ok(RestoredCursor { name, grade, cursor, rank, wanted })
}

/// Compares what the caller brings with what the cursor was saved with.
fn check_offer(cursor: &Cursor, offer: &Offer) -> Result<()> {
    if !offer.sources.is_empty() {
        for source in cursor.root.sources() {
            if !offer.sources.contains(&(source.records, source.sha256)) {
                let found: Vec<String> = offer
                    .sources
                    .iter()
                    .map(|(records, sha256)| format!("{records} of {sha256}"))
                    .collect();
                let message = format!(
                    "expected a source of {} records of {}, found {}",
                    source.records,
                    source.sha256,
                    found.join(", ")
                );
                return Err(Error::rule(Code::SourceChanged, rule::CURSOR_SOURCE, message));
            }
        }
    }
    if let Some(fingerprint) = &offer.fingerprint {
        for node in opaque(&cursor.root) {
            if node.fingerprint != *fingerprint {
                let message = format!(
                    "expected the fingerprint {}, found {}",
                    node.fingerprint.to_value().encode()?,
                    fingerprint.to_value().encode()?
                );
                return Err(Error::rule(Code::SourceChanged, rule::CURSOR_OPAQUE, message));
            }
        }
    }
    Ok(())
}

/// The opaque nodes of a tree, which is at most `cursor-depth` deep.
fn opaque(node: &Node) -> Vec<&Opaque> {
    match node {
        Node::Opaque(opaque) => vec![opaque],
        _ => node.children().iter().flat_map(opaque).collect(),
    }
}

/// The sources of a cursor for which none was brought, each once; `offer` is `None` where everything
/// counts as offered.
fn wanted(cursor: &Cursor, offer: Option<Option<&Offer>>) -> Vec<(u64, Digest)> {
    if offer.is_none_or(|offer| offer.is_some_and(|offer| !offer.sources.is_empty())) {
        return Vec::new();
    }
    let sources = cursor.root.sources();
    let distinct: BTreeSet<(u64, Digest)> =
        sources.iter().map(|source| (source.records, source.sha256)).collect();
    distinct.into_iter().collect()
}

/// Why a cursor is not restored, whatever its canary; `offer` as for [`wanted`].
fn not_restored(
    cursor: &Cursor,
    wanted: &[(u64, Digest)],
    offer: Option<Option<&Offer>>,
) -> Option<String> {
    let has_opaque = cursor.root.has_opaque();
    let brings = |brought: &dyn Fn(&Offer) -> bool| offer.is_none_or(|o| o.is_some_and(brought));
    if !wanted.is_empty() {
        return Some(not_offered(wanted));
    }
    if has_opaque && !brings(&|offer| offer.fingerprint.is_some()) {
        return Some("its fingerprint was not offered".to_owned());
    }
    if !has_opaque && !cursor.is_computed() {
        return Some("the specification does not compute it".to_owned());
    }
    None
}

/// Says which sources it is that a caller has to bring.
fn not_offered(sources: &[(u64, Digest)]) -> String {
    let named: Vec<String> = sources
        .iter()
        .take(SOURCES_NAMED)
        .map(|(records, sha256)| format!("{records} records of {sha256}"))
        .collect();
    let named = named.join(", ");
    match sources.len().saturating_sub(SOURCES_NAMED) {
        0 if sources.len() == 1 => format!("its source of {named} was not offered"),
        0 => format!("its sources of {named} were not offered"),
        more => format!("its sources of {named} and {more} more were not offered"),
    }
}

/// Why one that may be restored is not exact.
fn misgiving(cursor: &Cursor, compared: &Compared) -> Option<(Grade, String)> {
    if cursor.root.has_opaque() {
        let reason = "its state is a framework's own".to_owned();
        return Some((Grade::OpaqueSameTopology, reason));
    }
    if let Compared::LeftOut(why) = compared {
        return Some((Grade::None, format!("its canary was not compared: {why}")));
    }
    if cursor.augment == Some(Augment::WorkerStream) {
        let reason = "workers draw from streams of their own".to_owned();
        return Some((Grade::OpaqueSameTopology, reason));
    }
    None
}
