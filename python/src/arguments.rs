//! Arguments that pyo3's own readings would refuse without saying what was expected.
//!
//! It knows forms. Which argument it was pyo3 adds itself, as a note. What a value may be beyond its
//! form is for whoever uses it.

use std::fmt::Display;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyIterator, PyString};

use crate::key::shown;

/// A kind of integers from 0.
pub(crate) trait Whole: for<'a, 'py> FromPyObject<'a, 'py> + Display {
    const MOST: Self;
}

impl Whole for u8 {
    const MOST: Self = Self::MAX;
}

impl Whole for u32 {
    const MOST: Self = Self::MAX;
}

impl Whole for u64 {
    const MOST: Self = Self::MAX;
}

impl Whole for usize {
    const MOST: Self = Self::MAX;
}

/// An integer from 0.
///
/// # Errors
/// `TypeError` for what is none, `ValueError` for one beyond its kind.
pub(crate) fn whole<T: Whole>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    value.extract().map_err(|_| {
        let message = format!("expected an integer from 0 to {}, found {}", T::MOST, shown(value));
        if value.is_instance_of::<PyInt>() {
            PyValueError::new_err(message)
        } else {
            PyTypeError::new_err(message)
        }
    })
}

/// As [`whole`], or `None`.
///
/// # Errors
/// As [`whole`].
pub(crate) fn whole_or_none<T: Whole>(value: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { whole(value).map(Some) }
}

/// Axis numbers, `None` for an axis that follows none; or `None` for no list of them.
///
/// # Errors
/// `TypeError` for another form, `ValueError` for numbers of no axis.
pub(crate) fn axes(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Option<u8>>>> {
    if value.is_none() {
        return Ok(None);
    }
    listed(value, "axis numbers", |item| whole_or_none(item)).map(Some)
}

/// A list of texts.
///
/// # Errors
/// `TypeError` for another form.
pub(crate) fn texts(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    listed(value, "str", |item| item.extract())
}

/// A list of things that pyo3 reads.
///
/// # Errors
/// `TypeError` for no list, and with what is wrong for things of another type; else those of the things.
pub(crate) fn items<'py, T: for<'a> FromPyObject<'a, 'py>>(
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<T>> {
    let refused = || PyTypeError::new_err(format!("expected a list, found {}", shown(value)));
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(refused());
    }
    let read = |found: PyResult<Bound<'py, PyAny>>| {
        let found = found?;
        let extracted: PyResult<T> = found.extract().map_err(Into::into);
        extracted.map_err(|error| {
            let py = found.py();
            if !error.is_instance_of::<PyTypeError>(py) {
                return error;
            }
            let (found, cause) = (shown(&found), error.value(py).to_string());
            PyTypeError::new_err(format!("expected items of another form than {found}: {cause}"))
        })
    };
    value.try_iter().map_err(|_| refused())?.map(read).collect()
}

/// The things of any iterable but a text, each asked for when it is needed.
///
/// # Errors
/// `TypeError` for what cannot be iterated over.
pub(crate) fn iterator<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let refused = || PyTypeError::new_err(format!("expected an iterable, found {}", shown(value)));
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(refused());
    }
    value.try_iter().map_err(|_| refused())
}

/// Pairs of a number and an array.
///
/// # Errors
/// `TypeError` for another form, `ValueError` for a number that is none from 0.
pub(crate) fn numbered<'py>(
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
    listed(value, "pairs of a number and an array", |item| {
        let (number, array): (Bound<'py, PyAny>, Bound<'py, PyAny>) = item.extract()?;
        Ok((whole(&number)?, array))
    })
}

/// Something to call, or `None`.
///
/// # Errors
/// `TypeError` for what cannot be called.
pub(crate) fn callback(value: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    if value.is_none() {
        return Ok(None);
    }
    if !value.is_callable() {
        let message = format!("expected a callable or None, found {}", shown(value));
        return Err(PyTypeError::new_err(message));
    }
    Ok(Some(value.clone().unbind()))
}

/// The items of any iterable but a text, which would be one of its letters.
fn listed<'py, T>(
    value: &Bound<'py, PyAny>,
    of: &str,
    item: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let refused = |found: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!("expected a list of {of}, found {}", shown(found)))
    };
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(refused(value));
    }
    let items = value.try_iter().map_err(|_| refused(value))?;
    let read = |found: PyResult<Bound<'py, PyAny>>| {
        let found = found?;
        item(&found).map_err(|error| {
            if error.is_instance_of::<PyValueError>(value.py()) { error } else { refused(&found) }
        })
    };
    items.map(read).collect()
}
