//! The initial temperatures of the Jacobi example, and two references for its result: serial and analytic.

use std::f64::consts::PI;

use rushmem_example_kernels::{Extent, JACOBI_ALPHA, JacobiShape, jacobi_relax};
use rushmem_examples::{Result, pattern};

/// Maximum number of cell updates that PE 0 repeats serially. Larger runs are compared with the analytic solution.
const MAX_UPDATES: u128 = 1 << 28;

/// Bound on the rounding error of a time step. The sum of all terms of a step is below 32 and is rounded to 24 bits;
/// `JACOBI_ALPHA` reduces that error by a factor of 8. A step never amplifies the errors of earlier steps.
const ERROR_PER_STEP: f64 = 4.0 / (1 << 24) as f64;

pub(crate) struct Reference {
    whole: Extent,
    shape: JacobiShape,
    steps: u64,
    content: Content,
}

enum Content {
    /// Pseudo-random temperatures, verified against the serial reference.
    Random,
    /// A product of sines, an eigenmode of the iteration: each time step multiplies the temperatures by `decay`.
    Mode { sines: [Vec<f64>; 3], decay: f64 },
}

impl Reference {
    /// Returns the reference for a run of `steps` steps. It is the serial one, unless that would take too long or
    /// `is_analytic` is set.
    pub(crate) fn new(shape: JacobiShape, steps: u64, is_analytic: bool) -> Self {
        let (pes, cells) = (shape.pes, shape.cells);
        let whole = Extent { x: pes.x * cells.x, y: pes.y * cells.y, z: pes.z * cells.z };
        let is_small = whole.count() as u128 * u128::from(steps) <= MAX_UPDATES;
        let content = match is_small && !is_analytic {
            true => Content::Random,
            false => mode(whole, shape.is_flat, steps),
        };
        Self { whole, shape, steps, content }
    }

    /// Whether the result must match the serial reference bit for bit.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.content, Content::Random)
    }

    pub(crate) fn whole(&self) -> Extent {
        self.whole
    }

    /// Returns the initial temperature of the cell at coordinates `at` of the whole grid.
    pub(crate) fn initial(&self, at: Extent) -> f32 {
        match &self.content {
            // 24 bits are exact in an `f32`.
            Content::Random => (pattern(11, self.whole.index(at).into()) >> 8) as f32 / (1 << 24) as f32,
            Content::Mode { sines, .. } => product(sines, at) as f32,
        }
    }

    /// Converts the coordinates of a cell within a PE's block to those within the whole grid.
    pub(crate) fn global(&self, pe: u32, at: Extent) -> Extent {
        let (corner, cells) = (self.shape.pes.coordinates(pe), self.shape.cells);
        Extent { x: corner.x * cells.x + at.x, y: corner.y * cells.y + at.y, z: corner.z * cells.z + at.z }
    }

    /// Computes the temperatures of the whole grid after all steps, on one thread.
    pub(crate) fn serial(&self) -> Vec<f32> {
        let cells = || (0..self.whole.count() as u32).map(|i| self.whole.coordinates(i));
        let mut old: Vec<f32> = cells().map(|at| self.initial(at)).collect();
        let mut new = old.clone();
        for _ in 0..self.steps {
            for (at, new) in cells().zip(&mut new) {
                let value =
                    |side| self.whole.beside(at, side).map_or(0.0, |at| old[self.whole.index(at) as usize]);
                let pair = |axis: u32| value(2 * axis) + value(2 * axis + 1);
                let z = (!self.shape.is_flat).then(|| pair(2));
                *new = jacobi_relax(old[self.whole.index(at) as usize], pair(0), pair(1), z);
            }
            std::mem::swap(&mut old, &mut new);
        }
        old
    }

    /// Compares a PE's block with the analytic solution after all steps. Returns the largest error.
    pub(crate) fn compare(&self, pe: u32, found: &[f32]) -> Result<f64> {
        let Content::Mode { sines, decay } = &self.content else { return Ok(0.0) };
        let factor = decay.powf(self.steps as f64);
        let tolerance = self.tolerance();
        let mut largest = 0.0f64;
        for (i, &found) in (0..).zip(found) {
            let at = self.global(pe, self.shape.cells.coordinates(i));
            let wanted = factor * product(sines, at);
            let error = (f64::from(found) - wanted).abs();
            // A NaN compares false with any tolerance, so test for it explicitly.
            if error.is_nan() || error > tolerance {
                return Err(format!(
                    "cell {}, {}, {} of PE {pe} is {found}, but the analytic solution is {wanted}",
                    at.x, at.y, at.z
                )
                .into());
            }
            largest = largest.max(error);
        }
        Ok(largest)
    }

    /// Returns the maximum error that rounding can cause in all steps together.
    pub(crate) fn tolerance(&self) -> f64 {
        (self.steps + 1) as f64 * ERROR_PER_STEP
    }
}

/// Returns the product of sines with the shortest waves that have not faded away after `steps` steps.
fn mode(whole: Extent, is_flat: bool, steps: u64) -> Content {
    let alpha = f64::from(JACOBI_ALPHA);
    let lengths = [whole.x, whole.y, whole.z];
    let dimensions = if is_flat { 2 } else { 3 };
    let wave = (1.0 / (alpha * dimensions as f64 * steps as f64)).sqrt();
    let mut decay = 1.0;
    let sines = std::array::from_fn(|axis| {
        if axis >= dimensions {
            return vec![1.0];
        }
        let intervals = f64::from(lengths[axis] + 1);
        let angle = PI * (wave * intervals / PI).round().max(1.0) / intervals;
        decay -= 2.0 * alpha * (1.0 - angle.cos());
        (1..=lengths[axis]).map(|i| (angle * f64::from(i)).sin()).collect()
    });
    Content::Mode { sines, decay }
}

fn product(sines: &[Vec<f64>; 3], at: Extent) -> f64 {
    let [x, y, z] = sines;
    x[at.x as usize] * y[at.y as usize] * z[at.z as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cells: [u32; 3], is_flat: bool) -> JacobiShape {
        let [x, y, z] = cells;
        JacobiShape { pes: Extent { x: 1, y: 1, z: 1 }, cells: Extent { x, y, z }, is_flat }
    }

    #[test]
    fn analytic_solution_matches_the_serial_reference() {
        for (cells, is_flat) in [([20, 17, 12], false), ([40, 31, 1], true), ([9, 16, 20], false)] {
            let shape = shape(cells, is_flat);
            let steps = 50;
            let reference = Reference::new(shape, steps, true);
            let after = reference.serial();
            assert!(after.iter().any(|value| value.abs() > 0.1), "the mode is still there");
            let error = reference.compare(0, &after).unwrap();
            assert!(error > 0.0 && error < reference.tolerance(), "{error}");
        }
    }

    #[test]
    fn comparison_error_names_the_wrong_cell() {
        let shape = shape([20, 17, 12], false);
        let reference = Reference::new(shape, 50, true);
        let mut after = reference.serial();
        after[20 * 17 * 3 + 20 * 2 + 1] += 1e-4;
        let error = reference.compare(0, &after).unwrap_err().to_string();
        assert!(error.contains("cell 1, 2, 3 of PE 0"), "{error}");
        after[20 * 17 * 3 + 20 * 2 + 1] = f32::NAN;
        assert!(reference.compare(0, &after).is_err());
    }
}
