//! What all processes of a job agree on, as Python has it and as text that one of them sends to the others.
//!
//! It knows the calls. What a plan and its text are is the writer's crate's.

use std::path::PathBuf;

use pyo3::prelude::*;
use waystation_cli::operations::{open_or_make_run, open_run};
use waystation_format::{Code, Digest, Error, Topology, limits, names, rule};

use crate::arguments;
use crate::errors::{Result, usage};
use crate::key;
use crate::work;

/// What all processes of a job agree on once.
#[pyclass(frozen, module = "waystation._core")]
#[derive(Debug)]
pub(crate) struct SessionPlan(pub(crate) waystation_writer::SessionPlan);

#[pymethods]
impl SessionPlan {
    #[staticmethod]
    #[pyo3(signature = (run_path, name, *, writers, topology = None, parent = None, block_bytes = None),
        text_signature = "(run_path, name, *, writers, topology=(), parent=None, block_bytes=None)")]
    fn next_in(
        py: Python<'_>,
        run_path: PathBuf,
        name: String,
        #[pyo3(from_py_with = arguments::whole)] writers: u32,
        topology: Option<&Bound<'_, PyAny>>,
        parent: Option<&str>,
        #[pyo3(from_py_with = arguments::whole_or_none)] block_bytes: Option<u64>,
    ) -> Result<Self> {
        let topology = topology.map_or_else(|| Ok(Topology::default()), key::topology)?;
        let parent = parent.map(digest).transpose()?;
        let plan = work::short(py, || {
            let checked = waystation_writer::SessionPlan {
                run: name,
                timeline: 1,
                nonce: [0; 16],
                writers,
                topology,
                parent,
                block_bytes: block_bytes.unwrap_or(limits::BLOCK_BYTES_DEFAULT),
            };
            // What no save could say is refused before a run is made for it.
            checked.check()?;
            let run = open_or_make_run(&run_path)?;
            let next = waystation_writer::SessionPlan::next_in(
                &run,
                checked.run.clone(),
                writers,
                checked.topology.clone(),
            )?;
            let (timeline, nonce) = (next.timeline, next.nonce);
            Ok(waystation_writer::SessionPlan { timeline, nonce, ..checked })
        })?;
        Ok(Self(plan))
    }

    #[staticmethod]
    fn from_json(json: &str) -> Result<Self> {
        Ok(Self(waystation_writer::SessionPlan::from_json(json)?))
    }

    fn to_json(&self) -> String {
        self.0.to_json()
    }

    fn attempt_name(
        &self,
        #[pyo3(from_py_with = arguments::whole)] step: u64,
        #[pyo3(from_py_with = arguments::whole)] counter: u64,
    ) -> Result<String> {
        check_step(step)?;
        Ok(names::attempt_dir(step, &self.0.attempt(step, counter)))
    }

    #[getter]
    fn run(&self) -> &str {
        &self.0.run
    }

    #[getter]
    fn timeline(&self) -> u32 {
        self.0.timeline
    }

    #[getter]
    fn writers(&self) -> u32 {
        self.0.writers
    }

    #[getter]
    fn topology(&self) -> Vec<(String, u64)> {
        self.0.topology.0.clone()
    }

    #[getter]
    fn parent(&self) -> Option<String> {
        self.0.parent.as_ref().map(ToString::to_string)
    }

    #[getter]
    fn block_bytes(&self) -> u64 {
        self.0.block_bytes
    }

    fn __repr__(&self) -> String {
        let plan = &self.0;
        format!(
            "<SessionPlan of run {:?}, timeline {}, {} writers>",
            plan.run, plan.timeline, plan.writers
        )
    }
}

/// Makes the directory of a save, durably, and gives its name.
#[pyfunction]
fn make_attempt(
    py: Python<'_>,
    run_path: PathBuf,
    plan: &SessionPlan,
    #[pyo3(from_py_with = arguments::whole)] step: u64,
    #[pyo3(from_py_with = arguments::whole)] counter: u64,
) -> Result<String> {
    work::short(py, || {
        let run = open_run(&run_path)?;
        waystation_writer::make_attempt(&run, &plan.0, step, counter).map(|(name, _)| name)
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SessionPlan>()?;
    module.add_function(wrap_pyfunction!(make_attempt, module)?)
}

/// The manifest digest of a checkpoint.
///
/// # Errors
/// `bad-argument` for what is none.
pub(crate) fn digest(text: &str) -> Result<Digest> {
    Digest::from_hex(text).ok_or_else(|| {
        usage(format!("expected a digest of 64 lower-case hex digits, found {text:?}"))
    })
}

fn check_step(step: u64) -> Result<()> {
    if step > limits::STEP {
        let message = format!("expected a step up to {}, found {step}", limits::STEP);
        return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message).into());
    }
    Ok(())
}
