//! Symmetric memory of a PE's block of cells and its halos, and the verification of the result.

use rushmem::{Error, Pe, Stream};
use rushmem_device::SymSlice;
use rushmem_example_kernels::{Jacobi, JacobiShape, jacobi};
use rushmem_examples::{Result, largest};

use crate::reference::Reference;

pub(crate) struct Field<'a> {
    pub(crate) pe: &'a Pe,
    pub(crate) reference: Reference,
    state: Jacobi,
}

impl<'a> Field<'a> {
    /// Allocates the block and its halos, and writes their initial temperatures. Collective.
    pub(crate) fn new(pe: &'a Pe, shape: JacobiShape, reference: Reference) -> Result<Self> {
        let (cells, halo_cells) = (shape.cells.count(), shape.halo_cells() as usize);
        let state = Jacobi {
            shape,
            even: pe.alloc(cells)?,
            odd: pe.alloc(cells)?,
            halos: pe.alloc(3 * halo_cells)?,
            outbox: pe.alloc(2 * halo_cells)?,
            received: pe.alloc(shape.sides() as usize)?,
            generation: pe.alloc_one()?,
        };
        let field = Self { pe, reference, state };
        if field.takes_part() {
            field.fill()?;
        }
        pe.host_sync()?;
        Ok(field)
    }

    /// Frees the block and its halos. Collective.
    pub(crate) fn end(self) -> Result<()> {
        let Jacobi { even, odd, halos, outbox, received, generation, .. } = self.state;
        for object in [even, odd, halos, outbox] {
            self.pe.free(object)?;
        }
        self.pe.free(received)?;
        Ok(self.pe.free(generation.as_slice())?)
    }

    /// Whether this PE has a block of cells. PEs outside the grid of PEs only synchronise.
    pub(crate) fn takes_part(&self) -> bool {
        (self.pe.my_pe() as usize) < self.state.shape.pes.count()
    }

    /// Writes the initial temperatures of the block and its halos. Generation 0 is even and uses the first set of
    /// halos.
    fn fill(&self) -> Result<()> {
        let (shape, me) = (self.state.shape, self.pe.my_pe());
        let initial = |pe, at| self.reference.initial(self.reference.global(pe, at));
        let cells = (0..shape.cells.count() as u32).map(|i| initial(me, shape.cells.coordinates(i)));
        self.pe.write(self.state.even, &cells.collect::<Vec<f32>>())?;
        for side in 0..shape.sides() {
            let Some(neighbour) = shape.neighbour(me, side) else { continue };
            let face = (0..shape.face_cells(side)).map(|i| shape.face_cell(side ^ 1, i));
            let halo: Vec<f32> = face.map(|at| initial(neighbour, at)).collect();
            let first = shape.halo(side) as usize;
            self.pe.write(self.state.halos.slice(first..first + halo.len()), &halo)?;
        }
        Ok(())
    }

    /// Queues one kernel that computes `steps` time steps.
    pub(crate) fn launch(&self, stream: &Stream, steps: u64) -> Result<(), Error> {
        stream.launch(self.pe.grid(), jacobi(self.state, steps))
    }

    /// Verifies the temperatures after `steps` time steps. Returns the largest error over all PEs. Collective.
    pub(crate) fn verify(&self, steps: u64) -> Result<f64> {
        let newest = if steps.is_multiple_of(2) { self.state.even } else { self.state.odd };
        let error = if self.reference.is_exact() {
            if self.pe.my_pe() == 0 {
                self.verify_all(newest)?;
            }
            0.0
        } else if self.takes_part() {
            self.reference.compare(self.pe.my_pe(), &self.pe.read(newest)?)?
        } else {
            0.0
        };
        largest(self.pe, error)
    }

    /// Compares the blocks of all PEs with the serial reference, on PE 0.
    fn verify_all(&self, newest: SymSlice<f32>) -> Result<()> {
        let (shape, whole) = (self.state.shape, self.reference.whole());
        let wanted = self.reference.serial();
        let mut found = vec![0.0f32; newest.len()];
        for pe in 0..shape.pes.count() as u32 {
            self.pe.get_into(&mut found, newest, pe)?;
            for (i, found) in (0..).zip(&found) {
                let at = self.reference.global(pe, shape.cells.coordinates(i));
                let wanted = wanted[whole.index(at) as usize];
                if found.to_bits() != wanted.to_bits() {
                    return Err(format!(
                        "cell {}, {}, {} of PE {pe} is {found}, but the serial reference has {wanted}",
                        at.x, at.y, at.z
                    )
                    .into());
                }
            }
        }
        Ok(())
    }
}
