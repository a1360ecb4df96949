//! Merges the records of all parts into pages.
//!
//! It knows that equal records merge and unequal ones do not. It must not look into a value.

use super::Derived;
use super::merge::Merge;
use super::pages::{Cutter, Kind};
use crate::common::Common;
use crate::manifest::PageRef;
use crate::part::Part;
use crate::record::{Grid, Record};
use crate::{Code, Error, Result, limits, rule};

pub(super) fn derive(
    parts: &[&Part],
    common: &Common,
    sink: &mut dyn FnMut(Derived<'_>) -> Result<()>,
) -> Result<Vec<PageRef>> {
    let mut merge = Merge::new(parts.iter().map(|part| keyed(part)).collect())?;
    let mut emit = |page, bytes: &[u8]| sink(Derived::RecordsPage { page, bytes });
    let mut pages = Cutter::new(Kind::Records, common.version, &mut emit);
    let mut grid = Grid::new(&common.topology);
    let mut whole = Ok(());
    let mut group = Vec::new();
    let mut count = 0_u64;
    while let Some(key) = merge.next_group(&mut group)? {
        let mut records = group.iter();
        let Some((source, first)) = records.next() else { continue };
        if let Some((other, _)) = records.find(|(_, record)| record.json != first.json) {
            let file =
                |source: usize| parts.get(source).map_or_else(String::new, |p| p.file_name());
            let message =
                format!("expected equal records {key}, found another in {}", file(*source));
            let error = Error::rule(Code::RecordConflict, rule::DERIVE_RECORDS, message);
            return Err(error.in_file(file(*other)));
        }
        // A hole is answered for only when no two records conflict, wherever they stand.
        if whole.is_ok() {
            whole = grid.push(&first.key);
        }
        count = count.saturating_add(1);
        if count > limits::RECORDS {
            let message = format!("expected at most {} records (records)", limits::RECORDS);
            return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message));
        }
        pages.push(&key, first.json.as_bytes())?;
    }
    whole.and_then(|()| grid.finish())?;
    pages.finish()
}

fn keyed(part: &Part) -> impl Iterator<Item = Result<(String, Record)>> {
    part.records().map(|record| record.map(|record| (record.key.key(), record)))
}
