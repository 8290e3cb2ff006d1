//! Factors a number of PEs into the extents of a two- or three-dimensional grid.

use rushmem_example_kernels::Extent;

/// Returns the most cubic grid of `n` PEs, or the most square one if flat, like `MPI_Dims_create`.
///
/// The extents ascend from x to z, because faces perpendicular to z are contiguous in memory.
pub(crate) fn balanced(n: u32, is_flat: bool) -> Extent {
    let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let grids = divisors(n).flat_map(|x| divisors(n / x).map(move |y| Extent { x, y, z: n / x / y }));
    let turned = |grid: Extent| if is_flat { Extent { x: grid.y, y: grid.z, z: grid.x } } else { grid };
    let ordered = grids.filter(|grid| grid.x <= grid.y && grid.y <= grid.z && (!is_flat || grid.x == 1));
    let best = ordered.min_by_key(|grid| grid.x + grid.y + grid.z);
    turned(best.unwrap_or(Extent { x: 1, y: 1, z: n }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_as_cubic_as_possible() {
        let wanted = [
            (1, (1, 1, 1)),
            (2, (1, 1, 2)),
            (4, (1, 2, 2)),
            (7, (1, 1, 7)),
            (8, (2, 2, 2)),
            (12, (2, 2, 3)),
            (16, (2, 2, 4)),
            (64, (4, 4, 4)),
        ];
        for (n, (x, y, z)) in wanted {
            assert_eq!(balanced(n, false), Extent { x, y, z });
        }
    }

    #[test]
    fn flat_grids_are_as_square_as_possible() {
        for (n, (x, y)) in [(1, (1, 1)), (2, (1, 2)), (6, (2, 3)), (8, (2, 4)), (16, (4, 4)), (7, (1, 7))] {
            assert_eq!(balanced(n, true), Extent { x, y, z: 1 });
        }
    }
}
