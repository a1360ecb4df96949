//! Walking on from a data cursor.
//!
//! It knows how items look in Python. Which come is `waystation-state`'s business.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use waystation_format::records::Cursor;
use waystation_format::records::cursor::{Item, ShareRule};
use waystation_format::{Code, Error};
use waystation_state::cursor::{NoTensors, Rank, Walk as Live};
use waystation_state::{Budget, Stop};

use crate::errors::{Result, usage};
use crate::{arguments, json, work};

/// Until the walk is looked at again while another thread has it.
const AGAIN: Duration = Duration::from_millis(1);

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

    /// Does `work` with the walk, until somebody wants it to stop; after an error it stands nowhere.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Live) -> waystation_format::Result<T> + Send,
    ) -> Result<T> {
        work::compute(py, |stop| {
            let mut held = self.hold(stop)?;
            let mut live = held.take().ok_or_else(spent)?;
            live.stop_by(stop.clone());
            let done = work(&mut live)?;
            *held = Some(live);
            Ok(done)
        })
    }

    /// Waits for whoever has the walk, who may have it for long.
    fn hold(&self, stop: &Stop) -> waystation_format::Result<MutexGuard<'_, Option<Live>>> {
        loop {
            match self.live.try_lock() {
                Ok(held) => return Ok(held),
                Err(TryLockError::Poisoned(held)) => return Ok(held.into_inner()),
                Err(TryLockError::WouldBlock) => thread::sleep(AGAIN),
            }
            stop.go_on()?;
        }
    }
}

#[pymethods]
impl Walk {
    #[new]
    #[pyo3(signature = (cursor_json, *, budget = None))]
    fn new(
        py: Python<'_>,
        cursor_json: &str,
        #[pyo3(from_py_with = arguments::whole_or_none)] budget: Option<u64>,
    ) -> Result<Self> {
        let budget = self::budget(budget);
        let live = work::compute(py, |stop| {
            Live::new(&start(cursor_json)?, &NoTensors, budget.until(stop.clone()))
        })?;
        Ok(Self::of(live))
    }

    fn take<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::whole)] count: u64,
    ) -> Result<Bound<'py, PyList>> {
        let items = self.with(py, |live| {
            let mut items = Vec::new();
            while counted(&items) < count
                && let Some(item) = live.next().transpose()?
            {
                items.push(item);
            }
            Ok(items)
        })?;
        to_list(py, &items)
    }

    fn batch<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::whole)] count: u64,
    ) -> Result<Bound<'py, PyList>> {
        let batch = self.with(py, |live| live.batch(count))?;
        to_list(py, batch.items())
    }

    fn share<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::whole)] batch: u64,
        rule: &str,
        #[pyo3(from_py_with = arguments::whole)] rank: u64,
        #[pyo3(from_py_with = arguments::whole)] ranks: u64,
    ) -> Result<Bound<'py, PyList>> {
        let known = ShareRule::from_word(rule).ok_or_else(|| {
            usage(format!("expected round-robin, contiguous or by-lane, found {rule:?}"))
        })?;
        let rank = Rank { rank, world: ranks };
        let items = self.with(py, |live| live.batch(batch)?.share(known, rank))?;
        to_list(py, &items)
    }

    fn skip(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::whole)] count: u64,
    ) -> Result<u64> {
        self.with(py, |live| live.skip_items(count))
    }

    fn cursor_json(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::whole)] canary: u64,
    ) -> Result<String> {
        work::compute(py, |stop| {
            let mut held = self.hold(stop)?;
            let live = held.as_mut().ok_or_else(spent)?;
            live.stop_by(stop.clone());
            live.cursor(canary)?.to_value().encode()
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
