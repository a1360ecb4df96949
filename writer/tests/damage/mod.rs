//! A small checkpoint, what each of its bytes is, and doing something to it very often.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

pub mod disk;
pub mod expect;
pub mod places;
pub mod small;
pub mod tally;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use disk::{Disk, How};
use places::Places;
use small::Small;
use tally::Tally;

/// Cases that a thread takes at once.
const BATCH: usize = 64;

/// What everything is compared with.
pub struct Golden {
    pub small: Small,
    pub places: Places,
    pub reads: Vec<disk::Read>,
}

impl Golden {
    /// # Panics
    /// When the undamaged checkpoint is not good.
    pub fn save(variant: u8) -> Self {
        let small = Small::save(variant);
        let disk = Disk::new(&small.files);
        let findings = disk.verify();
        assert!(findings.is_empty(), "{findings:?}");
        let places = Places::of(&small.files, &disk.open().unwrap());
        let reads = disk::reads(&small, &places);
        let golden = Self { small, places, reads };
        for how in [How::Whole, How::Streamed] {
            let read = disk.read(&golden, how).unwrap();
            assert!(read.failed.is_empty(), "{:?}", read.failed);
        }
        golden
    }
}

/// Does every case once, on all cores, each thread with a disk of its own that holds the
/// undamaged checkpoint at the begin of a case.
pub fn sweep(
    title: &str,
    golden: &Golden,
    cases: usize,
    case: impl Fn(&mut Disk, usize, &mut Tally) + Sync,
) -> Tally {
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Tally::default());
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut disk = Disk::new(&golden.small.files);
                let mut tally = Tally::default();
                loop {
                    let from = next.fetch_add(BATCH, Ordering::Relaxed);
                    if from >= cases {
                        break;
                    }
                    for at in from..cases.min(from + BATCH) {
                        case(&mut disk, at, &mut tally);
                    }
                }
                all.lock().unwrap().add(tally);
            });
        }
    });
    let tally = all.into_inner().unwrap();
    tally.print(title);
    let spent = begin.elapsed();
    let each = spent.as_secs_f64() * 1e6 * threads as f64 / cases.max(1) as f64;
    println!("  {:.1} s, {each:.0} us a case and core", spent.as_secs_f64());
    tally
}
