//! Walking on from a data cursor.
//!
//! It knows how items look in Python. Which come is `waystation-state`'s business.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;
use waystation_format::records::Cursor;
use waystation_format::records::cursor::{Item, ShareRule};
use waystation_format::{Code, Error};
use waystation_reader::Progress;
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Rank, Walk as Live};

use crate::errors::{Result, usage};
use crate::{json, work};

/// Items that are stepped over between two looks whether to stop.
const STEP: u64 = 1 << 18;

/// Fewer are there at once.
const SHORT: u64 = 1 << 14;

/// The items of a computed data cursor, from the one that comes next.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
pub(crate) struct Walk {
    /// Nothing after an error: what was consumed until then is not known.
    live: Mutex<Option<Live>>,
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Walk>()
}

/// Steps that may be taken; memory is the caller's own concern, who walks on from a cursor that a
/// restore has compared.
pub(crate) fn budget(steps: Option<u64>) -> Budget {
    steps.map_or_else(Budget::unlimited, |steps| Budget::new(steps, u64::MAX))
}

/// The value of a record of kind `cursor`.
///
/// # Errors
/// `bad-member`, `bad-position`.
pub(crate) fn cursor(text: &str) -> waystation_format::Result<Cursor> {
    Cursor::parse(&json::value(text)?, None)
}

/// The same, which need not have its canary yet.
///
/// # Errors
/// As [`cursor`].
fn start(text: &str) -> waystation_format::Result<Cursor> {
    Cursor::parse_start(&json::value(text)?)
}

impl Walk {
    pub(crate) fn of(live: Live) -> Self {
        Self { live: Mutex::new(Some(live)) }
    }

    /// Does `work` with the walk, on a thread that can be stopped where it is about many items.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        items: u64,
        work: impl FnOnce(&mut Live, &dyn Progress) -> waystation_format::Result<T> + Send,
    ) -> Result<T> {
        // Nobody waits for this lock while attached to the interpreter, so its holder can go on.
        let whole = |progress: &dyn Progress| {
            let mut held = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let mut live = held.take().ok_or_else(spent)?;
            let done = work(&mut live, progress)?;
            *held = Some(live);
            Ok(done)
        };
        if items <= SHORT {
            return work::short(py, || whole(&waystation_reader::NoProgress));
        }
        work::run(py, None, whole)
    }
}

#[pymethods]
impl Walk {
    #[new]
    #[pyo3(signature = (cursor_json, *, budget = None))]
    fn new(py: Python<'_>, cursor_json: &str, budget: Option<u64>) -> Result<Self> {
        let budget = self::budget(budget);
        let live = work::run(py, None, |_| Live::new(&start(cursor_json)?, &NoTensors, budget))?;
        Ok(Self::of(live))
    }

    fn take<'py>(&self, py: Python<'py>, count: u64) -> Result<Bound<'py, PyList>> {
        let items = self.with(py, count, |live, progress| {
            let mut items = Vec::new();
            while counted(&items) < count
                && let Some(item) = live.next().transpose()?
            {
                items.push(item);
                if counted(&items).is_multiple_of(STEP) {
                    go_on(progress)?;
                }
            }
            Ok(items)
        })?;
        to_list(py, &items)
    }

    fn batch<'py>(&self, py: Python<'py>, count: u64) -> Result<Bound<'py, PyList>> {
        let batch = self.with(py, count, |live, _| live.batch(count))?;
        to_list(py, batch.items())
    }

    fn share<'py>(
        &self,
        py: Python<'py>,
        batch: u64,
        rule: &str,
        rank: u64,
        ranks: u64,
    ) -> Result<Bound<'py, PyList>> {
        let known = ShareRule::from_word(rule).ok_or_else(|| {
            usage(format!("expected round-robin, contiguous or by-lane, found {rule:?}"))
        })?;
        let rank = Rank { rank, world: ranks };
        let items = self.with(py, batch, |live, _| live.batch(batch)?.share(known, rank))?;
        to_list(py, &items)
    }

    fn skip(&self, py: Python<'_>, count: u64) -> Result<u64> {
        self.with(py, count, |live, progress| {
            let mut skipped = 0_u64;
            while skipped < count {
                go_on(progress)?;
                let wanted = count.saturating_sub(skipped).min(STEP);
                let found = live.skip_items(wanted)?;
                skipped = skipped.saturating_add(found);
                if found < wanted {
                    break;
                }
            }
            Ok(skipped)
        })
    }

    fn cursor_json(&self, py: Python<'_>, canary: u64) -> Result<String> {
        work::short(py, || {
            let held = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_ref().ok_or_else(spent)?.cursor(canary)?.to_value().encode()
        })
    }
}

#[cold]
fn spent() -> Error {
    let message =
        "expected a walk that stands somewhere, found one that failed or was stopped before";
    Error::new(Code::BadArgument, message)
}

fn counted(items: &[Item]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

fn to_list<'py>(py: Python<'py>, items: &[Item]) -> Result<Bound<'py, PyList>> {
    let items: PyResult<Vec<_>> = items.iter().map(|item| to_python(py, item.integers())).collect();
    Ok(PyList::new(py, items?)?)
}

/// An ordinal, or `(child, item)` of a mixture.
fn to_python<'py>(py: Python<'py>, integers: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    match integers {
        [ordinal] => Ok(ordinal.into_pyobject(py)?.into_any()),
        [child, item @ ..] => Ok((*child, to_python(py, item)?).into_pyobject(py)?.into_any()),
        [] => Ok(py.None().into_bound(py)),
    }
}

/// # Errors
/// `interrupted` when the work is to stop.
pub(crate) fn go_on(progress: &dyn Progress) -> waystation_format::Result<()> {
    if progress.cancelled() {
        return Err(Error::new(Code::Interrupted, "stopped before the work was done"));
    }
    Ok(())
}
