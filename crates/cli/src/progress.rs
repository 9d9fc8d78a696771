//! A progress line on standard error for runs that take a while.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Shows nothing before this time.
const QUIET: Duration = Duration::from_secs(1);

/// The bar, which stays hidden unless standard error is a terminal and the
/// run is long enough.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that may appear.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let b = Bar { bar };
        b.on_interrupt();
        if !quiet && std::io::stderr().is_terminal() {
            b.appear_later();
        }
        b
    }

    /// Shows the line once the run is long; phases may be longer than that.
    fn appear_later(&self) {
        let bar = self.bar.downgrade();
        // Without a thread there is no line; nothing else depends on it.
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(QUIET);
            if let Some(bar) = bar.upgrade().filter(|b| !b.is_finished()) {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
                bar.enable_steady_tick(Duration::from_millis(200));
            }
        });
    }

    /// Ctrl-C takes the line away before the program ends.
    fn on_interrupt(&self) {
        let bar = self.bar.clone();
        // A second handler in one process is refused; the first one serves.
        let _ = ctrlc::set_handler(move || {
            bar.finish_and_clear();
            crate::output::stderr("interrupted\n");
            std::process::exit(130);
        });
    }

    /// What is being done now.
    pub(crate) fn note(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Takes the line away.
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

impl scalify_prove::Progress for Bar {
    fn phase(&self, name: &str, total: Option<u64>) {
        let template = match total {
            Some(_) => "{msg} {bar:30} {pos}/{len} {elapsed}",
            None => "{spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        match total {
            Some(n) => self.bar.set_length(n),
            None => self.bar.unset_length(),
        }
        self.bar.set_position(0);
        self.bar.set_message(name.to_string());
    }

    fn advance(&self, n: u64) {
        self.bar.inc(n);
    }
}
