//! Stencil example: simulates heat that spreads in a picture.

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rushmem::config::Membership;
use rushmem::{Checkpoint, Job, LaunchConfig, Operations, Pe};
use rushmem_device::{Signal, Sym, SymSlice, Team};
use rushmem_example_kernels::{Band, bands, collect, heat, relax};
use rushmem_examples::{Image, JobArgs, Output, Progress, Result, exit_code, n_pes, need_heap};

/// Number of time steps per kernel launch. The progress bar advances between launches.
const STEPS_PER_LAUNCH: u64 = 50;

/// Maximum time for which PEs wait until a lost one is replaced.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum deviation of a value from the serial reference. Values range from 0 to 1.
const TOLERANCE: f32 = 1e-4;

/// Simulates heat that spreads in a picture, and compares the result with a serial computation.
///
/// Each value of a pixel is a temperature, and the picture is an insulated plate. Each PE owns a band of its rows.
#[derive(Parser)]
#[command(name = "stencil")]
struct Args {
    /// The picture, a PNG file
    input: PathBuf,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "heat.png")]
    output: PathBuf,
    /// Number of time steps
    #[arg(long, value_name = "N", default_value_t = 1000)]
    steps: u64,
    /// Folder of a checkpoint, which is saved every N steps. With `--set membership=live`, all PEs go back to it once
    /// another process has replaced a lost one (`rushmem run --respawn`)
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Number of time steps between checkpoints
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Goes on from the checkpoint, which a job of any number of PEs has saved
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("stencil", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let image = Image::read(&args.input)?;
    let n_pes = n_pes(&config)? as usize;
    if image.height < n_pes {
        return Err(format!(
            "{} has {} rows, too few for {n_pes} PEs: each needs at least one",
            args.input.display(),
            image.height
        )
        .into());
    }
    let output = if config.pe.is_none_or(|pe| pe == 0) { Some(Output::new(&args.output)?) } else { None };
    // The whole plate on PE 0, two buffers, and one of a job that had other PEs.
    let saved = if args.resume { image.height + 2 } else { 0 };
    let rows = image.height + 2 * buffer_rows(&image, n_pes as u32) + saved;
    need_heap(&mut config, (rows * image.row() * size_of::<f32>()) as u64, 7);
    let job = Job::with_config(config).kernels(rushmem::ptx!("rushmem_example_kernels"));
    let results = job.run(|pe| app(pe, &image, args))?;

    if let (Some(result), Some(output)) = (results.into_iter().flatten().next(), output) {
        output.write(&image.with_values(result.values).to_png()?)?;
        println!("PASS stencil: {}; {} written", result.report, args.output.display());
    }
    Ok(())
}

struct Heated {
    values: Vec<f32>,
    report: String,
}

fn app(pe: &Pe, image: &Image, args: &Args) -> Result<Option<Heated>> {
    let steps = args.steps;
    let mut plate = Plate::new(pe, image, args)?;
    let first = match &args.checkpoint {
        _ if pe.is_replacement() => plate.go_back()?,
        Some(path) if args.resume => plate.load(path)?,
        _ => 0,
    };
    let (mut start, mut returns) = (first, 0);
    let (took, values) = loop {
        match plate.spread(start).and_then(|took| Ok((took, plate.collect()?))) {
            Err(error) if is_survivable(pe, args, &*error) => {
                start = plate.go_back()?;
                returns += 1;
            }
            outcome => break outcome?,
        }
    };
    let Some(values) = values else { return Ok(None) };

    let error = largest_difference(&values, &serial(image, steps));
    if error > TOLERANCE {
        return Err(format!("the result differs by {error} from the serial reference").into());
    }
    let (before, after) = (mean(&image.values), mean(&values));
    let (width, height, channels) = (image.width, image.height, image.channels);
    let rate = (image.values.len() as u64 * (steps - start)) as f64 / took.as_secs_f64() / 1e6;
    let resumed = if first > 0 { format!(" (from step {first})") } else { String::new() };
    let returned =
        if returns > 0 { format!(", went back to a checkpoint {returns} times,") } else { String::new() };
    let report = format!(
        "{width} x {height} pixels x {channels}, {steps} steps{resumed}{returned} on {} PEs ({}) in {:.2} s: {rate:.0} M cell updates/s; \
         largest error {error:e} against the serial reference; mean {before:.6} before, {after:.6} after",
        pe.n_pes(),
        pe.machine(),
        took.as_secs_f64(),
    );
    Ok(Some(Heated { values, report }))
}

/// Returns whether all PEs can go back to a checkpoint after this error.
fn is_survivable(pe: &Pe, args: &Args, error: &(dyn Error + 'static)) -> bool {
    let is_loss = matches!(error.downcast_ref(), Some(rushmem::Error::PeerLost(_)));
    is_loss && args.checkpoint.is_some() && pe.config().membership == Membership::Live
}

/// Returns the number of rows of a buffer if there are `n_pes` PEs. A symmetric object has the same size on all PEs, so it
/// must fit the tallest band, with a row above and below.
fn buffer_rows(image: &Image, n_pes: u32) -> usize {
    image.height.div_ceil(n_pes as usize) + 2
}

/// This PE's band of the plate.
struct Plate<'a> {
    pe: &'a Pe,
    image: &'a Image,
    args: &'a Args,
    /// The team of all PEs, which changes when one is replaced.
    team: Team,
    /// Whether the checkpoint is of this job.
    is_saved: bool,
    buffers: [SymSlice<f32>; 2],
    whole: SymSlice<f32>,
    halos: SymSlice<Signal>,
    arrived: SymSlice<Signal>,
    /// Number of time steps in the checkpoint.
    done: Sym<u64>,
    grid: LaunchConfig,
}

impl<'a> Plate<'a> {
    /// Allocates the plate's buffers, and fills the first one with this PE's band of the picture and the adjacent rows.
    fn new(pe: &'a Pe, image: &'a Image, args: &'a Args) -> Result<Self> {
        let (n_pes, row) = (pe.n_pes(), image.row());
        let values = buffer_rows(image, n_pes) * row;
        let buffers = [pe.alloc(values)?, pe.alloc(values)?];
        let whole = pe.alloc(image.height * row)?;
        let (halos, arrived) = (pe.alloc(2)?, pe.alloc(1)?);
        let done = pe.alloc_one()?;
        // More blocks than rows would leave blocks without a row, which the kernel does not support.
        let grid = pe.grid();
        let blocks = grid.blocks().min(image.height as u32 / n_pes);
        let (team, is_saved, grid) = (Team::WORLD, false, grid.with_blocks(blocks));
        let plate = Self { pe, image, args, team, is_saved, buffers, whole, halos, arrived, done, grid };
        plate.load_picture()?;
        Ok(plate)
    }

    /// Fills the first buffer with this PE's band of the picture and the adjacent rows.
    fn load_picture(&self) -> Result<()> {
        let (rows, row) = (self.rows(), self.image.row());
        self.pe.write(self.halos, &[0; 2])?;
        self.fill(self.buffers[0], rows.clone(), &self.image.values[rows.start * row..rows.end * row])
    }

    /// Waits until other processes have replaced all lost PEs, and loads the last checkpoint. Returns the number of its time
    /// steps.
    fn go_back(&mut self) -> Result<u64> {
        let begin = Instant::now();
        loop {
            let outcome = self.join().and_then(
                |is_complete| {
                    if is_complete { self.restart().map(Some) } else { Ok(None) }
                },
            );
            match outcome {
                Ok(Some(done)) => return Ok(done),
                Ok(None) if begin.elapsed() > REPLACEMENT_TIMEOUT => {
                    return Err(
                        format!("no process has replaced a lost PE within {REPLACEMENT_TIMEOUT:?}").into()
                    );
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) if is_survivable(self.pe, self.args, &*error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Forms a team of the living PEs. Returns whether it has all.
    fn join(&mut self) -> Result<bool> {
        let members = self.pe.grow()?;
        if members != self.team {
            self.pe.team_destroy(std::mem::replace(&mut self.team, members))?;
        }
        Ok(self.pe.team_n_pes(members) == Some(self.pe.n_pes()))
    }

    /// Loads the last checkpoint of this job, or the picture if there is none. Returns the number of time steps.
    fn restart(&mut self) -> Result<u64> {
        match self.pe.quiet() {
            // What went to the others has arrived.
            Err(rushmem::Error::PeerLost(_)) => {}
            outcome => outcome?,
        }
        // A process that has just joined does not know whether the others have saved one. Nobody resets signals before the last
        // rows of all others have arrived.
        self.is_saved = self.pe.allgather(&[self.is_saved.into()])?.iter().any(|saved| saved == &[1]);
        self.pe.write(self.arrived, &[0])?;
        match &self.args.checkpoint {
            Some(path) if self.is_saved => self.load(path),
            _ => self.load_picture().map(|()| 0),
        }
    }

    fn band(&self) -> Band {
        bands(self.image.height, self.pe.my_pe(), self.pe.n_pes())
    }

    /// Returns the rows of the plate that this PE has in its buffers: its band and the adjacent rows.
    fn rows(&self) -> Range<usize> {
        let band = self.band();
        band.first.saturating_sub(1)..(band.first + band.rows + 1).min(self.image.height)
    }

    /// Writes the values of some of these rows to a buffer.
    fn fill(&self, buffer: SymSlice<f32>, rows: Range<usize>, values: &[f32]) -> Result<()> {
        Ok(self.pe.write(buffer.slice(self.values_of(rows, self.band().first)), values)?)
    }

    /// Returns the position of rows of the plate in the buffer of a PE whose band begins with row `first`.
    fn values_of(&self, rows: Range<usize>, first: usize) -> Range<usize> {
        (rows.start + 1 - first) * self.image.row()..(rows.end + 1 - first) * self.image.row()
    }

    /// What must be saved between two time steps.
    fn state(&self) -> Checkpoint {
        let [even, odd] = self.buffers;
        Checkpoint::new().with("even", even).with("odd", odd).with("done", self.done.as_slice())
    }

    /// Loads the checkpoint at `path`, and returns the number of its time steps.
    fn load(&mut self, path: &Path) -> Result<u64> {
        let parts = Checkpoint::parts(path)?;
        if parts == self.pe.n_pes() {
            self.pe.restore(path, &self.state())?;
        } else {
            self.load_bands(path, parts)?;
        }
        let done = self.pe.read_one(self.done)?;
        if done > self.args.steps {
            let steps = self.args.steps;
            return Err(format!("{} is after step {done} of {steps}", path.display()).into());
        }
        self.is_saved = true;
        // The neighbours' rows have arrived.
        self.pe.write(self.halos, &[done; 2])?;
        Ok(done)
    }

    /// Loads this PE's rows from a checkpoint of `parts` bands.
    fn load_bands(&self, path: &Path, parts: u32) -> Result<()> {
        let (pe, height) = (self.pe, self.image.height);
        pe.restore_part(path, 0, &Checkpoint::new().with("done", self.done.as_slice()))?;
        let newest = (pe.read_one(self.done)? % 2) as usize;
        let saved = pe.alloc(buffer_rows(self.image, parts) * self.image.row())?;
        let state = Checkpoint::new().with(["even", "odd"][newest], saved);
        let mine = self.rows();
        for part in 0..parts {
            let band = bands(height, part, parts);
            let rows = mine.start.max(band.first)..mine.end.min(band.first + band.rows);
            if !rows.is_empty() {
                pe.restore_part(path, part, &state)?;
                let values = pe.read(saved.slice(self.values_of(rows.clone(), band.first)))?;
                self.fill(self.buffers[newest], rows, &values)?;
            }
        }
        Ok(pe.free(saved)?)
    }

    /// Computes all time steps after the first `done` and returns their duration. Saves checkpoints.
    fn spread(&mut self, mut done: u64) -> Result<Duration> {
        let (pe, steps, every) = (self.pe, self.args.steps, self.args.every);
        pe.host_sync()?;
        let cells = self.image.values.len() as u64;
        let mut progress = (pe.my_pe() == 0).then(|| Progress::new(pe.config().progress, steps, cells));
        let (row, height, channels) = self.shape();
        while done < steps {
            let until_save = if self.args.checkpoint.is_some() { every - done % every } else { u64::MAX };
            let now = STEPS_PER_LAUNCH.min(steps - done).min(until_save);
            let [even, odd] = self.buffers;
            let kernel = heat(self.team, even, odd, self.halos, row, height, channels, done, now);
            pe.run(self.grid, kernel)?;
            done += now;
            if let Some(path) = self.args.checkpoint.as_ref().filter(|_| now == until_save) {
                pe.write(self.done.as_slice(), &[done])?;
                pe.save(path, &self.state())?;
                self.is_saved = true;
            }
            if let Some(progress) = &mut progress {
                progress.at(done);
            }
        }
        pe.host_sync()?;
        Ok(progress.map_or(Duration::ZERO, |progress| progress.end()))
    }

    /// Gathers the whole plate on PE 0 after the last time step. Returns it on PE 0, and `None` on other PEs.
    fn collect(&self) -> Result<Option<Vec<f32>>> {
        let newest = self.buffers[(self.args.steps % 2) as usize];
        let (row, height, _) = self.shape();
        self.pe.run(self.grid, collect(self.team, self.whole, newest, self.arrived, row, height))?;
        // Nobody leaves while others may have to go back.
        self.pe.host_sync()?;
        Ok(if self.pe.my_pe() == 0 { Some(self.pe.read(self.whole)?) } else { None })
    }

    /// Returns the plate's width in values, its height in rows, and the number of channels.
    fn shape(&self) -> (u64, u64, u64) {
        (self.image.row() as u64, self.image.height as u64, self.image.channels as u64)
    }
}

/// Computes the plate after `steps` time steps on one thread, without Rushmem.
fn serial(image: &Image, steps: u64) -> Vec<f32> {
    let (row, height, channels) = (image.row(), image.height, image.channels);
    let mut old = image.values.clone();
    let mut new = old.clone();
    for _ in 0..steps {
        for y in 0..height {
            let at = |y: usize| &old[y * row..(y + 1) * row];
            let (here, above, below) = (at(y), at(y.saturating_sub(1)), at((y + 1).min(height - 1)));
            let next = &mut new[y * row..(y + 1) * row];
            let cell = |x: usize, left: usize, right: usize| {
                relax(here[x], above[x], below[x], here[left], here[right])
            };
            let inner = channels..row.saturating_sub(channels);
            for x in (0..row).filter(|x| !inner.contains(x)) {
                let left = if x < channels { x } else { x - channels };
                let right = if x + channels < row { x + channels } else { x };
                next[x] = cell(x, left, right);
            }
            for x in inner {
                next[x] = cell(x, x - channels, x + channels);
            }
        }
        std::mem::swap(&mut old, &mut new);
    }
    old
}

/// Returns the largest absolute difference between corresponding values. A NaN counts as an infinite difference.
fn largest_difference(found: &[f32], wanted: &[f32]) -> f32 {
    let differences = found.iter().zip(wanted).map(|(f, w)| (f - w).abs());
    differences.fold(0.0, |most, d| if d.is_nan() { f32::INFINITY } else { most.max(d) })
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_reference_conserves_and_evens_out_heat() {
        let values: Vec<f32> =
            (0..7 * 5 * 2).map(|i| rushmem_examples::pattern(3, i) as f32 / 4.3e9).collect();
        let image = Image { width: 7, height: 5, channels: 2, values };
        let after = serial(&image, 2000);
        assert!((mean(&image.values) - mean(&after)).abs() < 1e-5);
        // Heat does not cross channels, so each channel levels out independently.
        for channel in 0..2 {
            let of = |v: &[f32]| -> Vec<f32> { v.iter().skip(channel).step_by(2).copied().collect() };
            let level = mean(&of(&image.values)) as f32;
            assert!(of(&after).iter().all(|v| (v - level).abs() < 1e-3), "{level} {after:?}");
        }
    }

    #[test]
    fn largest_difference_detects_deviations_and_nan() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.5]), 0.5);
        assert_eq!(largest_difference(&[f32::NAN, 2.0], &[1.0, 2.0]), f32::INFINITY);
        assert_eq!(largest_difference(&[1.0, f32::NAN], &[f32::NAN, 2.0]), f32::INFINITY);
    }
}
