//! Puts and gets of the host.

use bytemuck::Pod;
use rushmem_device::{Scalar, Strided, Sym, SymSlice};
use rushmem_runtime_kernels::code::Transfer;

use crate::work::Chunk;
use crate::{Error, Pe, Result};

/// # Errors
/// Of all of these: [`Error::Misuse`] for what is wrong with the arguments: no such PE, an object that is not allocated,
/// lengths that differ; [`Error::Operation`] with what the operation met; [`Error::PeerLost`] if a PE died.
impl Pe {
    /// Copies `src` of this PE to `dst` of `pe`; returns once `src` may be reused. Delivery is not implied:
    /// [`Pe::quiet`] does that, [`Pe::fence`] orders it. OpenSHMEM 1.6 section 9.5, `shmem_put`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_transfer("put", Transfer::Put, dst, src, pe)?)
    }

    /// Starts to copy `src` of this PE to `dst` of `pe`; `src` must not change before [`Pe::quiet`]. OpenSHMEM 1.6
    /// section 9.6, `shmem_put_nbi`.
    ///
    /// # Errors
    /// As all of these.
    pub fn put_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_transfer("put_nbi", Transfer::PutNbi, dst, src, pe)?)
    }

    /// Copies `src` of `pe` to `dst` of this PE; the data is there when it returns. OpenSHMEM 1.6 section 9.5,
    /// `shmem_get`.
    ///
    /// # Errors
    /// As all of these.
    pub fn get<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_transfer("get", Transfer::Get, src, dst, pe)?)
    }

    /// Starts to copy `src` of `pe` to `dst` of this PE; [`Pe::quiet`] completes it. OpenSHMEM 1.6 section 9.6,
    /// `shmem_get_nbi`.
    ///
    /// # Errors
    /// As all of these.
    pub fn get_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_transfer("get_nbi", Transfer::GetNbi, src, dst, pe)?)
    }

    /// Copies the blocks of `src` of this PE to those of `dst` of `pe`; otherwise as [`Pe::put`]. OpenSHMEM 1.6 section
    /// 9.5, `shmem_iput`, and `shmem_ibput` with blocks of several elements.
    ///
    /// # Errors
    /// As all of these.
    pub fn iput<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_strided("iput", Transfer::Put, dst, src, pe)?)
    }

    /// Copies the blocks of `src` of `pe` to those of `dst` of this PE; otherwise as [`Pe::get`]. OpenSHMEM 1.6 section
    /// 9.5, `shmem_iget`, and `shmem_ibget` with blocks of several elements.
    ///
    /// # Errors
    /// As all of these.
    pub fn iget<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_strided("iget", Transfer::Get, src, dst, pe)?)
    }

    /// Writes one value to `dst` of `pe`; [`Pe::quiet`] delivers it. OpenSHMEM 1.6 section 9.5, `shmem_p`.
    ///
    /// # Errors
    /// As all of these.
    pub fn p<T: Scalar>(&self, dst: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.initiate(self.op_p("p", dst, value, pe)?)
    }

    /// Reads one value of `pe`. OpenSHMEM 1.6 section 9.5, `shmem_g`.
    ///
    /// # Errors
    /// As all of these.
    pub fn g<T: Scalar>(&self, src: Sym<T>, pe: u32) -> Result<T> {
        self.ask(|word| self.op_transfer("g", Transfer::Get, src.as_slice(), word.as_slice(), pe))
    }

    /// Copies the host's own `data` to `dst` of `pe`, through memory of the runtime's in pieces of 64 KiB; returns once
    /// `data` may be reused. Otherwise as [`Pe::put`].
    ///
    /// # Errors
    /// As all of these.
    pub fn put_from<T: Pod>(&self, dst: SymSlice<T>, data: &[T], pe: u32) -> Result<()> {
        self.pieces("put_from", dst, data.len(), |chunk, at, len| {
            let source = chunk.slice::<T>(len);
            self.heap().write(source.offset(), bytemuck::cast_slice(&data[at..at + len]))?;
            self.initiate(self.op_transfer("put_from", Transfer::Put, dst.slice(at..at + len), source, pe)?)
        })
    }

    /// Copies `src` of `pe` to the host's own `data`, through memory of the runtime's in pieces of 64 KiB; the data is
    /// there when it returns.
    ///
    /// # Errors
    /// As all of these.
    pub fn get_into<T: Pod>(&self, data: &mut [T], src: SymSlice<T>, pe: u32) -> Result<()> {
        self.pieces("get_into", src, data.len(), |chunk, at, len| {
            let target = chunk.slice::<T>(len);
            self.initiate(self.op_transfer(
                "get_into",
                Transfer::Get,
                src.slice(at..at + len),
                target,
                pe,
            )?)?;
            self.heap().read(target.offset(), bytemuck::cast_slice_mut(&mut data[at..at + len]))
        })
    }

    /// Calls `each` with room for a piece, its first element and its length, until all `len` elements are done.
    fn pieces<T: Pod>(
        &self,
        call: &'static str,
        object: SymSlice<T>,
        len: usize,
        mut each: impl FnMut(&Chunk<'_>, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let most = Chunk::room::<T>();
        if len != object.len() {
            let what = format!("{len} elements for an object of {}", object.len());
            return Err(Error::Misuse { call, what });
        }
        if most == 0 {
            let what = format!("an element of {} bytes is larger than a piece", size_of::<T>());
            return Err(Error::Misuse { call, what });
        }
        if len == 0 {
            return Ok(());
        }
        let chunk = self.work().scratch.chunk(self.config().timeout)?;
        let mut at = 0;
        while at < len {
            let piece = most.min(len - at);
            each(&chunk, at, piece)?;
            at += piece;
        }
        Ok(())
    }
}
