//! Orders of records, by themselves. They are `waystation-state`'s.

use pyo3::prelude::*;
use waystation_format::records::cursor::Order as Stated;
use waystation_format::{Code, Error};
use waystation_state::Budget;
use waystation_state::order::Order;

use crate::errors::Result;
use crate::{arguments, json, work};

/// Enough for the orders of a thousand million records.
const MEMORY: u64 = 8 << 30;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(order, module)?)
}

/// Ordinals first … first+count of a computed order, as far as it has such places.
#[pyfunction]
fn order(
    py: Python<'_>,
    order_json: &str,
    #[pyo3(from_py_with = arguments::whole)] n: u64,
    #[pyo3(from_py_with = arguments::whole)] epoch: u64,
    #[pyo3(from_py_with = arguments::whole)] first: u64,
    #[pyo3(from_py_with = arguments::whole)] count: u64,
) -> Result<Vec<u64>> {
    work::compute(py, |stop| {
        let (stated, said) = Stated::parse(&json::value(order_json)?)?;
        if let Some(said) = said.filter(|said| *said != n) {
            let message = format!("expected an order of n = {n}, found one of {said}");
            return Err(Error::new(Code::BadArgument, message));
        }
        let order = Order::of(&stated, n, None)?;
        let range = first..first.saturating_add(count);
        let budget = Budget::new(u64::MAX, MEMORY).until(stop.clone());
        order.ordinals(epoch, range, budget).collect()
    })
}
