//! Chapters 16 to 19: what a trainer needs beside tensors. Every case here is the checkpoint `bare` with records of its own, so
//! that what is wrong can only be wrong in them.
//!
//! Forms (depth O) are read, agreement (depth V) is validated, and what a loader checks (depth R) is restored.

mod asking;
mod epochs;
mod forks;
mod held;
mod items;
mod lanes;
mod nodes;
mod offered;
mod optimizers;
mod orders;
mod progress;
mod restoring;
mod schedules;
mod shares;
mod stream_forms;
mod streams;
mod trees;
mod vectors;

use super::Cases;

pub(super) fn add(cases: &mut Cases) {
    streams::add(cases);
    stream_forms::add(cases);
    forks::add(cases);
    orders::add(cases);
    epochs::add(cases);
    lanes::add(cases);
    shares::add(cases);
    nodes::add(cases);
    trees::add(cases);
    offered::add(cases);
    restoring::add(cases);
    progress::add(cases);
    optimizers::add(cases);
    schedules::add(cases);
}
