//! Identities, regions and coordinates as Python has them.
//!
//! It knows tuples. What an identity may be is the business of `waystation-format`.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use waystation_format::{Coordinate, Identity, Region, Role, Topology};

use crate::errors::{Result, usage, usage_because};

/// `(component, role, name, slot, owner, scope)`.
type Parts = (String, String, String, Option<String>, Option<String>, Vec<(String, u64)>);

/// Reads a key. Names are not looked at: whoever writes checks them, and nothing of a bad name is
/// ever found.
///
/// # Errors
/// `bad-argument` for what is no key, or has a role that the registry lacks.
pub(crate) fn identity(key: &Bound<'_, PyAny>) -> Result<Identity> {
    let parts: PyResult<Parts> = key.extract();
    let (component, role, name, slot, owner, scope) = parts.map_err(|cause| {
        const FORM: &str = "expected a key (component, role, name, slot, owner, scope)";
        usage_because(key.py(), &format!("{FORM}, found {}", shown(key)), cause)
    })?;
    let (slot, owner) = (slot.unwrap_or_default(), owner.unwrap_or_default());
    Ok(Identity { component, role: self::role(&role)?, name, slot, owner, scope })
}

/// # Errors
/// `bad-argument` for a role that the registry lacks.
pub(crate) fn role(id: &str) -> Result<Role> {
    Role::from_id(id).ok_or_else(|| {
        let all: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        let message = format!("expected one of the roles {}, found {id:?}", all.join(", "));
        usage(message)
    })
}

/// A key as a tuple, `None` where an identity has no slot or owner.
pub(crate) fn to_tuple<'py>(py: Python<'py>, identity: &Identity) -> PyResult<Bound<'py, PyTuple>> {
    let role = PyString::intern(py, identity.role.as_str());
    let scope = PyTuple::new(py, &identity.scope)?;
    let (slot, owner) = (given(&identity.slot), given(&identity.owner));
    (&identity.component, role, &identity.name, slot, owner, scope).into_pyobject(py)
}

/// Reads `(start, extent)`.
///
/// # Errors
/// `bad-argument` for what is none.
pub(crate) fn region(region: &Bound<'_, PyAny>) -> Result<Region> {
    let parts: PyResult<(Vec<u64>, Vec<u64>)> = region.extract();
    let (start, extent) = parts.map_err(|cause| {
        let message = format!("expected a region (start, extent), found {}", shown(region));
        usage_because(region.py(), &message, cause)
    })?;
    Ok(Region::new(&start, &extent))
}

/// Reads non-negative integers, such as a shape.
///
/// # Errors
/// `bad-argument` for what is none.
pub(crate) fn dims(dims: &Bound<'_, PyAny>, what: &str) -> Result<Vec<u64>> {
    dims.extract().map_err(|cause| {
        let message = format!("expected {what} of integers from 0, found {}", shown(dims));
        usage_because(dims.py(), &message, cause)
    })
}

/// Reads `((axis, index), …)`.
///
/// # Errors
/// `bad-argument` for what is none.
pub(crate) fn coordinate(coordinate: &Bound<'_, PyAny>) -> Result<Coordinate> {
    coordinate.extract().map_err(|cause| {
        let message =
            format!("expected pairs of an axis and a number, found {}", shown(coordinate));
        usage_because(coordinate.py(), &message, cause)
    })
}

/// Reads `((axis, size), …)`. That sizes are above 0 and axes differ is for whoever uses it.
///
/// # Errors
/// `bad-argument` for what is none.
pub(crate) fn topology(topology: &Bound<'_, PyAny>) -> Result<Topology> {
    coordinate(topology).map(Topology)
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A value as Python prints it, cut short.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 120;
    let Ok(text) = value.repr() else { return "what has no repr".to_owned() };
    let text = text.to_string_lossy();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}
