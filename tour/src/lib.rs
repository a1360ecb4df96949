//! A tour: how a trainer uses Waystation.

mod math;
mod model;
mod optimizer;
mod params;
mod text;
