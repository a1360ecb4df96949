//! Random streams between frameworks' own forms and records.
//!
//! It knows that a form comes as raw bytes or as JSON text, and the object that says what a form
//! leaves unsaid. Forms and engines are `waystation-state`'s.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use waystation_cli::plain_json;
use waystation_format::records::Stream;
use waystation_format::records::rng::{OnReshape, State};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, RngAlgorithm};
use waystation_state::rng::StreamState;
use waystation_state::rng::native::{Form, Native, Unsaid};

use crate::errors::{Result, usage};
use crate::{arguments, json, work};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(stream_from_native, module)?)?;
    module.add_function(wrap_pyfunction!(stream_to_native, module)?)
}

#[pyfunction]
#[pyo3(signature = (form, native, *, on_reshape, framework, initial_seed = None))]
fn stream_from_native(
    py: Python<'_>,
    form: &str,
    native: &[u8],
    on_reshape: &str,
    framework: &str,
    #[pyo3(from_py_with = arguments::whole_or_none)] initial_seed: Option<u64>,
) -> Result<String> {
    let form = Form::named(form)?;
    let on_reshape = OnReshape::from_word(on_reshape).ok_or_else(|| {
        usage(format!("expected require, fork or reinit on reshape, found {on_reshape:?}"))
    })?;
    work::short(py, || {
        let mut stream = read(form, native)?;
        if initial_seed.is_some() {
            stream.initial_seed = initial_seed;
        }
        stream.to_record(on_reshape, framework)?.to_value().encode()
    })
}

#[pyfunction]
fn stream_to_native<'py>(
    py: Python<'py>,
    form: &str,
    value_json: &str,
) -> Result<Bound<'py, PyBytes>> {
    let form = Form::named(form)?;
    let written = work::short(py, || {
        let record = Stream::parse(&json::value(value_json)?)?;
        let State::Inline(state) = &record.state else {
            let message = "expected a state that stands in the record, found one in a tensor";
            return Err(bad(message));
        };
        let stream =
            StreamState::of_record(&record, state.clone()).map_err(|reason| bad(&reason))?;
        match form.write(&stream)? {
            Native::Bytes(bytes) => Ok(bytes),
            Native::Tree(tree) => {
                let tree = with_unsaid(form, tree, form.unsaid(&stream)?);
                Ok(plain_json::print(&tree)?.into_bytes())
            }
        }
    })?;
    Ok(PyBytes::new(py, &written))
}

fn read(form: Form, native: &[u8]) -> waystation_format::Result<StreamState> {
    if form.is_bytes() {
        return form.read(&Native::Bytes(native.to_vec()), &Unsaid::default());
    }
    let (tree, unsaid) = split_unsaid(form, plain_json::parse(native)?)?;
    form.read(&Native::Tree(tree), &unsaid)
}

/// Forms that do not say all stand in an object beside what they leave unsaid, under the names that
/// the program prints: `{"impl","partitionable"?,"value"}` for jax, `{"algorithm","value"}` for
/// rust.
fn with_unsaid(form: Form, tree: Tree, unsaid: Unsaid) -> Tree {
    let mut members = Vec::new();
    let mut push = |name: &str, value| members.push((MapKey::Str(name.to_owned()), value));
    if let Some(algorithm) = unsaid.algorithm {
        push("algorithm", Tree::Str(algorithm.as_str().to_owned()));
    }
    if let Some(implementation) = unsaid.implementation {
        push("impl", Tree::Str(implementation));
    }
    if let Some(partitionable) = unsaid.partitionable {
        push("partitionable", Tree::Bool(partitionable));
    }
    match form {
        Form::Jax | Form::Rust => {
            push("value", tree);
            Tree::Map(members)
        }
        _ => tree,
    }
}

fn split_unsaid(form: Form, tree: Tree) -> waystation_format::Result<(Tree, Unsaid)> {
    if !matches!(form, Form::Jax | Form::Rust) {
        return Ok((tree, Unsaid::default()));
    }
    let Tree::Map(members) = tree else {
        let message = format!("{form}: expected an object with a value and what it leaves unsaid");
        return Err(bad(&message));
    };
    let (mut value, mut unsaid) = (None, Unsaid::default());
    for (name, member) in members {
        match (name, member) {
            (MapKey::Str(name), member) if name == "value" => value = Some(member),
            (MapKey::Str(name), Tree::Str(id)) if name == "algorithm" => {
                let known = RngAlgorithm::from_id(&id);
                let unknown = || bad(&format!("{form}: expected a known algorithm, found {id:?}"));
                unsaid.algorithm = Some(known.ok_or_else(unknown)?);
            }
            (MapKey::Str(name), Tree::Str(id)) if name == "impl" => {
                unsaid.implementation = Some(id);
            }
            (MapKey::Str(name), Tree::Bool(flag)) if name == "partitionable" => {
                unsaid.partitionable = Some(flag);
            }
            (MapKey::Str(name), Tree::Null) if name == "partitionable" => {}
            (name, _) => {
                return Err(bad(&format!("{form}: expected no member {name:?} of this form")));
            }
        }
    }
    let value =
        value.ok_or_else(|| bad(&format!("{form}: expected a member value, found none")))?;
    Ok((value, unsaid))
}

#[cold]
fn bad(message: &str) -> Error {
    Error::new(Code::BadArgument, message)
}
