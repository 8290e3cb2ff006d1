//! Position of a block and a thread in a launch with two or three dimensions.

use super::Ctx;
use crate::arch;

/// # Position in the launch
///
/// Coordinates of `LaunchConfig::new_2d` and `new_3d`, in the order `x`, `y`, `z`; `x` varies fastest. To the GPU,
/// every launch is one-dimensional, which lets a rank in a group cost a single register. These methods compute the
/// coordinates by division.
impl<S> Ctx<'_, S> {
    /// Returns the index of this block in the grid, per dimension. CUDA: `blockIdx`.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Inverts an image, one pixel per thread of the launch.
    /// #[kernel]
    /// pub fn invert(ctx: &Ctx, image: SymSlice<u8>, width: u32, height: u32) {
    ///     let ([block_x, block_y, _], [size_x, size_y, _]) = (ctx.block_idx(), ctx.block_dim());
    ///     let [thread_x, thread_y, _] = ctx.thread_idx();
    ///     let (x, y) = (block_x * size_x + thread_x, block_y * size_y + thread_y);
    ///     if x < width && y < height {
    ///         let (pixels, at) = (ctx.local(image), (y * width + x) as usize);
    ///         pixels.store(at, 255 - pixels.load(at));
    ///     }
    /// }
    /// # fn main() {}
    /// ```
    #[inline(always)]
    pub fn block_idx(&self) -> [u32; 3] {
        split(arch::block(), self.parts.grid_dim)
    }

    /// Returns the index of this thread in its block, per dimension. CUDA: `threadIdx`.
    #[inline(always)]
    pub fn thread_idx(&self) -> [u32; 3] {
        split(arch::thread(), self.parts.block_dim)
    }

    /// Returns the number of blocks per dimension. CUDA: `gridDim`.
    #[inline(always)]
    pub fn grid_dim(&self) -> [u32; 3] {
        extents(arch::blocks(), self.parts.grid_dim)
    }

    /// Returns the number of threads of a block per dimension. CUDA: `blockDim`.
    #[inline(always)]
    pub fn block_dim(&self) -> [u32; 3] {
        extents(arch::threads(), self.parts.block_dim)
    }
}

/// Splits a linear index into coordinates. If both extents are 0, because the application launched the kernel itself,
/// the launch has one dimension.
#[inline(always)]
fn split(index: u32, [width, height]: [u32; 2]) -> [u32; 3] {
    match (index.checked_div(width), index.checked_rem(width)) {
        (Some(row), Some(x)) => {
            [x, row.checked_rem(height).unwrap_or(0), row.checked_div(height).unwrap_or(0)]
        }
        _ => [index, 0, 0],
    }
}

#[inline(always)]
fn extents(count: u32, [width, height]: [u32; 2]) -> [u32; 3] {
    match count.checked_div(width.wrapping_mul(height)) {
        Some(depth) => [width, height, depth],
        None => [count, 1, 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_cover_the_launch_with_x_fastest() {
        let (shape, mut index) = ([3, 2], 0);
        for z in 0..4 {
            for y in 0..2 {
                for x in 0..3 {
                    assert_eq!(split(index, shape), [x, y, z]);
                    index += 1;
                }
            }
        }
        assert_eq!(extents(24, shape), [3, 2, 4]);
    }

    #[test]
    fn a_launch_without_extents_has_one_dimension() {
        assert_eq!(split(7, [0, 0]), [7, 0, 0]);
        assert_eq!(extents(9, [0, 0]), [9, 1, 1]);
    }
}
