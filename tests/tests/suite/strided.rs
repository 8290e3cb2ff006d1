//! Tests of strided puts and gets.

use rushmem::{Error, Pe};
use rushmem_test_kernels::{GroupKind, StridedCall, move_strided, thread_strides};
use rushmem_tests::grid;

use super::setups;

/// Value of elements that no transfer may write.
const GUARD: u16 = 0x5a5a;

/// A strided transfer: strides and block length in elements, and the number of blocks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    dst_stride: usize,
    src_stride: usize,
    block: usize,
    n: usize,
}

impl Blocks {
    fn extent(&self, stride: usize) -> usize {
        self.n.checked_sub(1).map_or(0, |last| last * stride + self.block)
    }

    fn check(&self, pe: &Pe, call: StridedCall, group_kind: GroupKind) -> Result<(), Error> {
        let (me, n_pes) = (pe.my_pe(), pe.n_pes());
        // Guard elements before, between and after the blocks.
        let off = 3;
        let (dst_len, src_len) = (self.extent(self.dst_stride), self.extent(self.src_stride));
        let (dst, src) = (pe.alloc::<u16>(dst_len + 2 * off)?, pe.alloc::<u16>(src_len + 2 * off)?);
        let source = |pe: u32| {
            (0..src.len()).map(|i| (i as u16).wrapping_mul(31) ^ (pe as u16) << 8 | 1).collect::<Vec<_>>()
        };
        pe.write(src, &source(me))?;
        pe.write(dst, &vec![GUARD; dst.len()])?;
        pe.host_sync()?;
        let call_of = move_strided(
            call as u32,
            group_kind as u32,
            dst.slice(off..off + dst_len),
            src.slice(off..off + src_len),
            self.dst_stride as u32,
            self.src_stride as u32,
            self.block as u32,
            self.n as u32,
        );
        pe.run(grid(2, 70), call_of)?;
        pe.host_sync()?;
        let from = match call {
            StridedCall::Put | StridedCall::PutNbi => (me + n_pes - 1) % n_pes,
            StridedCall::Get | StridedCall::GetNbi => (me + 1) % n_pes,
        };
        let from = source(from);
        let mut wanted = vec![GUARD; dst.len()];
        for i in 0..self.n {
            for k in 0..self.block {
                wanted[off + i * self.dst_stride + k] = from[off + i * self.src_stride + k];
            }
        }
        assert_eq!(pe.read(dst)?, wanted, "{self:?}, {call:?}, {group_kind:?}, PE {me}");
        assert_eq!(pe.read(src)?, source(me));
        pe.free(dst)?;
        pe.free(src)
    }
}

#[test]
fn strided_blocks_arrive_in_place_and_gaps_stay_unchanged() {
    let elements = |dst_stride, src_stride, n| Blocks { dst_stride, src_stride, block: 1, n };
    let cases = [
        elements(1, 1, 40),
        elements(1, 3, 33),
        elements(3, 1, 40),
        elements(5, 2, 17),
        elements(100, 64, 5),
        elements(2, 2, 1),
        elements(1, 1, 0),
        Blocks { dst_stride: 4, src_stride: 4, block: 4, n: 9 },
        Blocks { dst_stride: 7, src_stride: 5, block: 3, n: 11 },
        Blocks { dst_stride: 90, src_stride: 80, block: 70, n: 3 },
    ];
    for setup in setups::all() {
        setup.run(|pe| {
            for what in cases {
                for call in [StridedCall::Put, StridedCall::PutNbi, StridedCall::Get, StridedCall::GetNbi] {
                    for group_kind in [GroupKind::Thread, GroupKind::Warp, GroupKind::Block] {
                        // Combine all groups with all calls for a few shapes only, and half of the combinations for the
                        // others.
                        if what.n < 12 || (call as usize + group_kind as usize).is_multiple_of(2) {
                            what.check(pe, call, group_kind)?;
                        }
                    }
                }
            }
            Ok(())
        });
    }
}

#[test]
fn every_thread_has_its_own_strides() {
    for setup in setups::all() {
        let (threads, each) = (2 * 40, 6);
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u64>(threads * each * 2)?, pe.alloc::<u64>(threads * each * 3)?);
            let source =
                |pe: u32| (0..threads * each * 3).map(move |i| (i as u64) << 8 | u64::from(pe) | 1 << 60);
            pe.write(src, &source(pe.my_pe()).collect::<Vec<_>>())?;
            pe.host_sync()?;
            pe.run(grid(2, 40), thread_strides(dst, src, each as u32))?;
            pe.host_sync()?;
            let from = source((pe.my_pe() + pe.n_pes() - 1) % pe.n_pes());
            let wanted: Vec<u64> = from.step_by(3).flat_map(|value| [value, 0]).collect();
            assert_eq!(pe.read(dst)?, wanted, "{setup}");
            Ok(())
        });
    }
}
