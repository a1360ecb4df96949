//! The life of a rank: start or resume, step, save, until it has done what it was told.
//!
//! It runs in a process of its own and knows the others only through its pipe.

use std::io::{Read, Write};

use waystation_format::{Error, Location, Result};
use waystation_store::open_path;

use crate::orders::{Event, Orders, digest};
use crate::reduce::Place;
use crate::resume::resume;
use crate::save::Saver;
use crate::trainer::Trainer;
use crate::wire::Wire;

/// Lives as a rank of the tour. `input` and `output` are the ends of the pipes to the process that
/// started this one, which says over them what to do.
///
/// # Errors
///
/// `interrupted` when that process is gone; whatever went wrong, after it was told.
pub fn rank(input: impl Read, output: impl Write) -> Result<()> {
    let mut wire = Wire::new(input, output);
    let orders: Orders = wire.told()?;
    let rank = orders.rank;
    match train(&orders, &mut wire) {
        Ok(()) => wire.tell(&Event::Done { rank }),
        Err(e) => {
            wire.tell(&failed(rank, &e))?;
            Err(e)
        }
    }
}

/// What went wrong, without the advice that goes with the code: whoever hears it adds that.
fn failed(rank: usize, e: &Error) -> Event {
    let (code, place, message) = (e.code().as_str().to_owned(), e.location(), e.message());
    let message = if *place == Location::default() {
        message.to_owned()
    } else {
        format!("{place}: {message}")
    };
    Event::Failed { rank, code, message }
}

fn train<R: Read, W: Write>(orders: &Orders, wire: &mut Wire<R, W>) -> Result<()> {
    let Orders { rank, ranks, .. } = *orders;
    let place = Place { rank, ranks };
    let run = open_path(&orders.run)?;
    let mut trainer = match &orders.resume {
        None => Trainer::new(place)?,
        Some((name, expected)) => {
            let (mut trainer, numbers) = resume(&run, name, digest(expected)?, place)?;
            let dropout = trainer.dropout.canary()?.into_iter().next().unwrap_or_default();
            let sample = trainer.data.peek()?;
            wire.tell(&Event::Resumed { rank, numbers, dropout, sample })?;
            if let Some(fault) = orders.fault {
                fault.apply(&mut trainer)?;
            }
            trainer
        }
    };
    let mut saver = Saver::new(run, orders.plan.session()?);
    while trainer.step < orders.until {
        let loss = trainer.step(wire)?.to_bits();
        let step = trainer.step;
        if rank == 0 {
            wire.tell(&Event::Step { step, loss })?;
        }
        if !step.is_multiple_of(orders.save_every) && step < orders.until {
            continue;
        }
        let mut halfway = |wire: &mut Wire<R, W>, name: &str| {
            if orders.hold_at != Some(step) {
                return Ok(());
            }
            wire.tell(&Event::Holding { rank, name: name.to_owned() })?;
            // Nobody ever answers: this ends with the process.
            wire.told()
        };
        if let Some((name, committed)) = saver.save(&trainer, wire, &mut halfway)? {
            let digest = committed.digest.to_string();
            wire.tell(&Event::Saved { step, name, digest })?;
        }
    }
    Ok(())
}
