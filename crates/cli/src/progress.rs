//! A progress line on standard error for runs that take a while.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Shows nothing before this time.
const QUIET: Duration = Duration::from_secs(1);

/// The bar, which stays hidden unless standard error is a terminal and the
/// run is long enough.
pub(crate) struct Bar {
    bar: ProgressBar,
    start: Instant,
    shown: OnceLock<()>,
}

impl Bar {
    /// A bar that may appear.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let shown = OnceLock::new();
        if quiet || !std::io::stderr().is_terminal() {
            let _ = shown.set(());
        }
        let b = Bar { bar, start: Instant::now(), shown };
        b.on_interrupt();
        b
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

    fn appear(&self) {
        if self.start.elapsed() < QUIET {
            return;
        }
        self.shown.get_or_init(|| {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.bar.enable_steady_tick(Duration::from_millis(200));
        });
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
        self.appear();
    }

    fn advance(&self, n: u64) {
        self.bar.inc(n);
        self.appear();
    }
}
