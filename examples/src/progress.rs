//! Progress display of the examples: a bar on a terminal, or a line every few seconds elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use rushmem::config;

/// Interval between two lines when there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Displays the progress of a computation with a known number of steps.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    steps: u64,
    work_per_step: u64,
    start: Instant,
    last_line: Instant,
}

impl Progress {
    /// Starts a display for `steps` steps, each of which updates `work_per_step` cells.
    pub fn new(how: config::Progress, steps: u64, work_per_step: u64) -> Self {
        let target = match how {
            config::Progress::Auto => ProgressDrawTarget::stderr(),
            config::Progress::Always => ProgressDrawTarget::term_like_with_hz(Box::new(LauncherTerminal), 10),
            config::Progress::Never => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {msg}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lines = how == config::Progress::Auto && bar.is_hidden();
        let start = Instant::now();
        Self { bar, lines, steps, work_per_step, start, last_line: start }
    }

    /// Reports that `done` steps are complete.
    pub fn at(&mut self, done: u64) {
        let rate = self.rate(done);
        if self.lines && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            eprintln!("{done}/{} steps, {rate}", self.steps);
        }
        self.bar.set_message(rate);
        self.bar.set_position(done);
    }

    /// Removes the progress display and returns the time since [`new`](Self::new).
    pub fn end(&self) -> Duration {
        let took = self.start.elapsed();
        self.bar.finish_and_clear();
        took
    }

    fn rate(&self, done: u64) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let per_second = done as f64 / seconds;
        format!("{per_second:.0} steps/s, {:.1} M cells/s", per_second * self.work_per_step as f64 / 1e6)
    }
}

/// A terminal whose output passes through the launcher, which reads standard error line by line and understands
/// carriage returns.
#[derive(Debug)]
struct LauncherTerminal;

impl TermLike for LauncherTerminal {
    /// Returns a width below that of the narrowest terminal, because the launcher prefixes each line with a label.
    fn width(&self) -> u16 {
        74
    }
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }
    fn clear_line(&self) -> io::Result<()> {
        io::stderr().write_all(b"\r")
    }
    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}
