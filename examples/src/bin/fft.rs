//! Fourier transform example: transforms a cube of complex numbers, distributed over the PEs by planes, and back.

use std::f64::consts::TAU;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rushmem::{Job, LaunchConfig, Pe, Stream};
use rushmem_device::{Signal, Sym, SymSlice};
use rushmem_example_kernels::{Complex, FftPass, bands, fft_lines, fft_post, fft_store};
use rushmem_examples::{JobArgs, Result, exit_code, median, n_pes, need_heap, pattern};

/// Side of the largest cube whose frequencies the program verifies against a serial transform.
const LARGEST_SERIAL: usize = 64;

/// Maximum error of a result, relative to the typical magnitude of the numbers.
const TOLERANCE: f64 = 1e-5;

/// Transforms a cube of complex numbers in three dimensions and back, and verifies every number.
///
/// Each PE owns some of its planes. Between the second and the third dimension, all PEs transpose the cube.
#[derive(Parser)]
#[command(name = "fft")]
struct Args {
    /// Side of the cube, as log2
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=11))]
    log2_n: u32,
    /// Number of transforms and inverse transforms; the medians of their times are reported
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("fft", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let (n, n_pes) = (1u32 << args.log2_n, n_pes(&config)?);
    if n < n_pes {
        return Err(
            format!("a cube of {n} planes is too small for {n_pes} PEs: each needs at least one").into()
        );
    }
    let numbers = 2 * u64::from(n) * u64::from(n) * u64::from(n.div_ceil(n_pes)) + u64::from(n);
    need_heap(&mut config, 8 * numbers, 4);
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| app(pe, args.log2_n, args.iterations))?;
    Ok(())
}

fn app(pe: &Pe, log2_n: u32, iterations: u32) -> Result<()> {
    let mut cube = Cube::new(pe, log2_n)?;
    let (mut ffts, mut transposes) = (Vec::new(), Vec::new());
    for iteration in 0..iterations {
        cube.write(iteration)?;
        let mut times = Seconds::default();
        cube.forward(&mut times)?;
        if cube.n <= LARGEST_SERIAL {
            let wanted = frequencies(cube.n, iteration, cube.planes());
            cube.verify("the transform", cube.transposed, &wanted)?;
        }
        cube.clear()?;
        cube.inverse(&mut times)?;
        let wanted: Vec<Number> = cube.numbers().map(|i| number(iteration, i)).collect();
        cube.verify("the inverse transform", cube.data, &wanted)?;
        ffts.push(times.ffts);
        transposes.push(times.transposes);
    }
    if pe.my_pe() == 0 {
        let (ffts, transposes) = (median(ffts), median(transposes));
        let bytes = 2.0 * 8.0 * (cube.n as f64).powi(3);
        let verified = if cube.n <= LARGEST_SERIAL { "after both" } else { "after the inverse" };
        println!(
            "PASS fft: {n} x {n} x {n} numbers on {} PEs ({}), transform and inverse in {:.2} ms: FFTs {:.2} ms, \
             transposes {:.2} ms, {:.3} GB/s; every number verified {verified}",
            pe.n_pes(),
            pe.machine(),
            (ffts + transposes) * 1e3,
            ffts * 1e3,
            transposes * 1e3,
            bytes / transposes / 1e9,
            n = cube.n
        );
    }
    Ok(())
}

/// Durations of all steps of one kind, in seconds. A step lasts until the slowest PE has finished it.
#[derive(Default)]
struct Seconds {
    ffts: f64,
    transposes: f64,
}

struct Cube<'a> {
    pe: &'a Pe,
    stream: Stream<'a>,
    log2_n: u32,
    n: usize,
    /// This PE's planes before a transpose, in the layout `[z of this PE][y][x]`.
    data: SymSlice<u64>,
    /// This PE's planes after a transpose, in the layout `[y of this PE][z][x]`.
    transposed: SymSlice<u64>,
    twiddles: SymSlice<u64>,
    arrived: Sym<Signal>,
    /// Number of transposes performed so far.
    round: u64,
}

impl<'a> Cube<'a> {
    /// Allocates the cube and writes the table of twiddle factors. Collective.
    fn new(pe: &'a Pe, log2_n: u32) -> Result<Self> {
        let n = 1usize << log2_n;
        // A symmetric object has the same size on all PEs, so it must fit the thickest slab.
        let most = n * n * n.div_ceil(pe.n_pes() as usize);
        let (data, transposed) = (pe.alloc(most)?, pe.alloc(most)?);
        let (twiddles, arrived) = (pe.alloc(n / 2)?, pe.alloc_one()?);
        let table: Vec<u64> = (0..n / 2).map(|k| word(unit(k, n))).collect();
        pe.write(twiddles, &table)?;
        Ok(Self { pe, stream: pe.stream()?, log2_n, n, data, transposed, twiddles, arrived, round: 0 })
    }

    fn planes(&self) -> Range<usize> {
        let band = bands(self.n, self.pe.my_pe(), self.pe.n_pes());
        band.first..band.first + band.rows
    }

    /// Returns the range of indices in the whole cube whose numbers this PE owns.
    fn numbers(&self) -> Range<usize> {
        let planes = self.planes();
        planes.start * self.n * self.n..planes.end * self.n * self.n
    }

    fn write(&self, iteration: u32) -> Result<()> {
        let words: Vec<u64> = self.numbers().map(|i| word(number(iteration, i))).collect();
        Ok(self.pe.write(self.data.slice(0..words.len()), &words)?)
    }

    /// Clears `data`. Otherwise the result that the inverse transform should compute would already be there, and a
    /// missing store would go unnoticed.
    fn clear(&self) -> Result<()> {
        Ok(self.pe.write(self.data, &vec![0; self.data.len()])?)
    }

    /// Transforms `data` to frequencies, which it stores in `transposed`. Collective.
    fn forward(&mut self, times: &mut Seconds) -> Result<()> {
        let pass = self.pass();
        times.ffts += self.ffts(self.data, &[pass, FftPass { columns: 1, ..pass }])?;
        times.transposes += self.transpose(self.transposed, self.data)?;
        times.ffts += self.ffts(self.transposed, &[FftPass { columns: 1, ..pass }])?;
        Ok(())
    }

    /// Transforms the frequencies in `transposed` back to numbers in `data`. Collective.
    fn inverse(&mut self, times: &mut Seconds) -> Result<()> {
        let pass = FftPass { inverse: 1, ..self.pass() };
        times.ffts += self.ffts(self.transposed, &[FftPass { columns: 1, ..pass }])?;
        times.transposes += self.transpose(self.data, self.transposed)?;
        times.ffts += self.ffts(self.data, &[FftPass { columns: 1, ..pass }, pass])?;
        Ok(())
    }

    fn pass(&self) -> FftPass {
        FftPass { log2_n: self.log2_n, planes: self.planes().len() as u32, columns: 0, inverse: 0 }
    }

    /// Returns a launch configuration with `shared_bytes` of shared memory, and `gpu_threads` threads per block on a
    /// GPU.
    fn grid(&self, gpu_threads: u32, shared_bytes: u32) -> LaunchConfig {
        let grid = self.pe.grid();
        // A GPU needs many loads in flight to hide memory latency.
        let threads = if self.pe.is_gpu() { gpu_threads } else { grid.threads() };
        grid.with_threads(threads).with_shared_bytes(shared_bytes)
    }

    /// Transforms the lines of this PE's planes in place by the given passes, and returns the time in seconds.
    /// Collective.
    fn ffts(&self, data: SymSlice<u64>, passes: &[FftPass]) -> Result<f64> {
        self.seconds(|| {
            for &pass in passes {
                self.stream
                    .launch(self.grid(1024, pass.shared_bytes()), fft_lines(data, self.twiddles, pass))?;
            }
            Ok(self.stream.wait()?)
        })
    }

    /// Transposes the whole cube between the PEs, and returns the time in seconds. Collective.
    fn transpose(&mut self, to: SymSlice<u64>, from: SymSlice<u64>) -> Result<f64> {
        self.round += 1;
        let one_block = LaunchConfig::new(1, 128);
        self.seconds(|| {
            self.stream.launch(self.grid(512, 0), fft_store(to, from, self.log2_n))?;
            self.stream.launch(one_block, fft_post(to, from, self.arrived, self.log2_n, self.round))?;
            Ok(self.stream.wait()?)
        })
    }

    /// Runs a step, and returns the seconds until the slowest PE has finished it. Collective.
    fn seconds(&self, step: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.pe.host_sync()?;
        let start = Instant::now();
        step()?;
        self.pe.host_sync()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Compares this PE's part of the cube with `wanted`. `step` names the step that computed it. Collective.
    fn verify(&self, step: &str, data: SymSlice<u64>, wanted: &[Number]) -> Result<()> {
        let typical =
            (wanted.iter().map(|&(re, im)| re * re + im * im).sum::<f64>() / wanted.len() as f64).sqrt();
        for (i, (word, wanted)) in
            self.pe.read(data.slice(0..wanted.len()))?.into_iter().zip(wanted).enumerate()
        {
            let Complex { re, im } = Complex::from_word(word);
            let error = (f64::from(re) - wanted.0).hypot(f64::from(im) - wanted.1);
            if error.is_nan() || error > TOLERANCE * typical {
                return Err(format!(
                    "after {step}, number {i} of PE {} is ({re}, {im}), not ({}, {})",
                    self.pe.my_pe(),
                    wanted.0,
                    wanted.1
                )
                .into());
            }
        }
        // Keep the memory alive until all PEs have verified their numbers.
        Ok(self.pe.host_sync()?)
    }
}

/// A complex number in the serial computation: real and imaginary part.
type Number = (f64, f64);

/// Converts a complex number to the word that represents it in symmetric memory.
fn word((re, im): Number) -> u64 {
    Complex { re: re as f32, im: im as f32 }.word()
}

/// Returns element `i` of the input cube for an iteration. Both parts are in -1..1.
fn number(iteration: u32, i: usize) -> Number {
    let part = |seed| f64::from(pattern(seed, i as u64) as i32) / f64::from(1u32 << 31);
    let seed = 2 * u64::from(iteration);
    (part(seed), part(seed + 1))
}

/// Returns the root of unity `exp(-2 pi i k / n)`.
fn unit(k: usize, n: usize) -> Number {
    let (sine, cosine) = (-TAU * (k % n) as f64 / n as f64).sin_cos();
    (cosine, sine)
}

/// Computes the frequencies of a range of planes serially, in the layout `[y][z][x]`.
fn frequencies(n: usize, iteration: u32, planes: Range<usize>) -> Vec<Number> {
    let mut cube: Vec<Number> = (0..n * n * n).map(|i| number(iteration, i)).collect();
    for stride in [1, n, n * n] {
        for first in (0..n * n * n).filter(|i| (i / stride).is_multiple_of(n)) {
            let line: Vec<Number> = (0..n).map(|k| cube[first + k * stride]).collect();
            for (k, number) in transform(&line).into_iter().enumerate() {
                cube[first + k * stride] = number;
            }
        }
    }
    let rows = planes.flat_map(|y| (0..n).map(move |z| (z * n + y) * n));
    rows.flat_map(|row| cube[row..row + n].iter().copied()).collect()
}

/// Transforms a line of numbers serially and recursively (radix 2, decimation in time).
fn transform(line: &[Number]) -> Vec<Number> {
    let n = line.len();
    if n == 1 {
        return line.to_vec();
    }
    let half = |first| transform(&line.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
    let (even, odd) = (half(0), half(1));
    let add = |k: usize| {
        let (a, b, c) = (even[k % (n / 2)], odd[k % (n / 2)], unit(k, n));
        (a.0 + b.0 * c.0 - b.1 * c.1, a.1 + b.0 * c.1 + b.1 * c.0)
    };
    (0..n).map(add).collect()
}
