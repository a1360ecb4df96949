//! Our errors as Python's: everything that fails here raises `waystation.errors.Error`.
//!
//! It knows the members of an error and which function of the package makes an exception of them.
//! It must not know what failed. Exceptions of Python's own (a signal, a callback that raises) pass
//! as they are.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use waystation_format::{Code, Error};

/// What a function that Python calls gives.
pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// An error of ours or an exception of Python's.
#[derive(Debug)]
pub(crate) enum Fault {
    Ours(Error),
    Python(PyErr),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Ours(error) => Python::attach(|py| exception(py, &error)),
            Fault::Python(error) => error,
        }
    }
}

/// What the caller got wrong: what was expected, and what was found.
#[cold]
pub(crate) fn usage(message: impl Into<String>) -> Fault {
    Fault::Ours(Error::new(Code::BadArgument, message))
}

/// As [`usage`], where an exception of Python's says why. What ends a program (`KeyboardInterrupt`,
/// `SystemExit`) stays what it is.
#[cold]
pub(crate) fn usage_because(py: Python<'_>, message: &str, cause: PyErr) -> Fault {
    if !cause.is_instance_of::<PyException>(py) {
        return Fault::Python(cause);
    }
    let message = format!("{message}: {cause}");
    let raised = exception(py, &Error::new(Code::BadArgument, message));
    raised.set_cause(py, Some(cause));
    Fault::Python(raised)
}

/// The exception that says what `error` does.
#[cold]
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    static FROM_PARTS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = || -> PyResult<PyErr> {
        let place = error.location();
        let parts = (
            error.code().as_str(),
            error.class().as_str(),
            error.message(),
            error.code().remedy(),
            place.file.as_deref(),
            place.offset,
            place.pointer.as_deref(),
            place.record.as_deref(),
            place.tensor.as_deref(),
            error.rule_id(),
        );
        let from_parts = FROM_PARTS.import(py, "waystation.errors", "from_parts")?;
        Ok(PyErr::from_value(from_parts.call1(parts)?))
    };
    made().unwrap_or_else(|failed| failed)
}
