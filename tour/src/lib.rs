//! A tour: how a trainer uses Waystation.

mod data;
mod fault;
mod math;
mod model;
mod optimizer;
mod orders;
mod params;
mod reduce;
mod stream;
mod text;
mod trainer;
mod wire;
