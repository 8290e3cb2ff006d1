//! Test kernels that print.

use rushmem_device::prelude::*;

/// Prints `lines` numbered lines from each thread.
#[kernel]
pub fn print_numbers(ctx: &Ctx, lines: u32) {
    let mut i = 0;
    while i < lines {
        kprintln!(ctx, "{} of {}", i, lines);
        i += 1;
    }
}

/// Prints values of all kinds in two lines. The second line takes several slots of the print ring.
#[kernel]
pub fn print_values(ctx: &Ctx, x: f32, y: f64) {
    let (yes, small) = (true, -3i8);
    kprintln!(ctx, "{:?} {:>6} {:+} {:.3} {} {{}}", 'r', yes, small, x, y);
    kprintln!(
        ctx,
        "a line that is longer than one slot of the ring, which has room for twenty-nine words of eight bytes: \
         {:04} {:04} {:04} {:04} {:04} {:04} {:04} {:04} {:#x}",
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        0xfeedu32
    );
}

/// Prints a line, then waits for a word that the host sets after reading that line.
#[kernel]
pub fn print_and_wait(ctx: &Ctx, word: Sym<u64>) -> Result {
    if Thread::index() == 0 {
        kprintln!(ctx, "waiting");
        ctx.wait_until(Thread, word, Cmp::Eq, 1)?;
    }
    Ok(())
}
