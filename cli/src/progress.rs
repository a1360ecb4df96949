//! Progress bars on a terminal, and Ctrl-C as cancellation. Knows the libraries' `Progress` trait and indicatif.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use waystation_reader::{Progress, Stop};

use crate::operations::Watcher;

/// Set by the first Ctrl-C or SIGTERM; long work sees it at its next step and stops with nothing half done.
static STOP: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once in a process. A second signal ends the process at once, as every
/// terminal user expects.
pub(crate) fn watch_signals() {
    static WATCHED: OnceLock<Result<(), ctrlc::Error>> = OnceLock::new();
    let installed = WATCHED.get_or_init(|| {
        ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })
    });
    // What stopped the work before this is not meant for it.
    STOP.store(false, Ordering::SeqCst);
    if let Err(e) = installed {
        crate::output::note(&format!("waystation: Ctrl-C will end the program at once: {e}"));
    }
}

/// Whether the user asked to stop.
pub(crate) fn stopping() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// One bar on standard error, hidden when that is no terminal or `--quiet` was given.
#[derive(Debug)]
pub(crate) struct Bars {
    bar: Mutex<ProgressBar>,
    hidden: bool,
    stop: Stop,
}

impl Bars {
    pub(crate) fn new(quiet: bool) -> Self {
        let hidden = quiet || !std::io::stderr().is_terminal();
        Self { bar: Mutex::new(ProgressBar::hidden()), hidden, stop: Stop::asking(stopping) }
    }

    /// The user's wish to stop.
    pub(crate) fn wish(&self) -> &Stop {
        &self.stop
    }

    /// Clears the bar, so that what is printed next stands on a clean line.
    pub(crate) fn clear(&self) {
        self.bar().finish_and_clear();
    }

    /// A bar that counts `what`.
    pub(crate) fn begin_count(&self, what: &str, total: u64) {
        self.show("{msg:<18} {bar:32} {pos:>6} of {len} {eta:>4}", what, total);
    }

    /// One more of what is counted.
    pub(crate) fn step(&self) {
        self.bar().inc(1);
    }

    fn show(&self, template: &str, what: &str, total: u64) {
        let mut bar = self.bar();
        bar.finish_and_clear();
        if self.hidden {
            return;
        }
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let fresh = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        fresh.set_style(style);
        fresh.set_message(crate::output::printable(what));
        *bar = fresh;
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Watcher for Bars {
    fn note(&self, line: &str) {
        self.clear();
        crate::output::note(line);
    }
}

impl Progress for Bars {
    fn begin(&self, what: &str, total_bytes: u64) {
        let template = "{msg:<18} {bar:32} {decimal_bytes:>10} of {decimal_total_bytes} \
                        {decimal_bytes_per_sec:>12} {eta:>4}";
        self.show(template, what, total_bytes);
    }

    fn advance(&self, bytes: u64) {
        self.bar().inc(bytes);
    }

    fn stop(&self) -> Option<&Stop> {
        Some(&self.stop)
    }
}
