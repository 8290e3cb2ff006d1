//! Tests of puts and gets.

use rushmem::{Error, LaunchConfig, Pe};
use rushmem_device::{Bf16, F16, Scalar, Signal, SymSlice};
use rushmem_test_kernels::{
    GroupKind, QueueSharing, Transfer, move_pieces, no_elements, ready_pieces, scalars, small_puts,
};
use rushmem_tests::{Setup, grid};

use super::setups;

/// Returns `len` bytes that identify their PE and index.
fn pattern(pe: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(31).wrapping_add(pe.wrapping_mul(101)) as u8 | 1).collect()
}

/// Test of an array of `len` bytes that is transferred in pieces.
#[derive(Clone, Copy, Debug)]
struct Moved {
    call: Transfer,
    group_kind: GroupKind,
    sharing: QueueSharing,
    grid: LaunchConfig,
    len: usize,
    piece: usize,
    /// Misalignment of the source and of the destinations, in bytes.
    off: (usize, usize),
}

impl Moved {
    const fn new(
        call: Transfer,
        group_kind: GroupKind,
        grid: LaunchConfig,
        len: usize,
        piece: usize,
    ) -> Self {
        Self { call, group_kind, sharing: QueueSharing::Gpu, grid, len, piece, off: (0, 0) }
    }

    /// Returns the indices of the pieces that PE `pe` receives from PE `from`.
    fn pieces(&self, n_pes: u32, from: u32, pe: u32) -> impl Iterator<Item = usize> {
        let count = self.len.div_ceil(self.piece);
        (0..count).filter(move |&k| (k + from as usize) % n_pes as usize == pe as usize)
    }

    fn expected(&self, n_pes: u32, me: u32) -> Vec<u8> {
        let mut all = vec![0; n_pes as usize * self.len];
        for pe in 0..n_pes {
            let source = pattern(pe, self.len);
            let pieces: Vec<_> = match self.call {
                Transfer::Get | Transfer::GetNbi => self.pieces(n_pes, me, pe).collect(),
                _ => self.pieces(n_pes, pe, me).collect(),
            };
            for k in pieces {
                let range = k * self.piece..(k * self.piece + self.piece).min(self.len);
                let at = pe as usize * self.len;
                all[at + range.start..at + range.end].copy_from_slice(&source[range]);
            }
        }
        all
    }

    fn check(&self, pe: &Pe) -> Result<(), Error> {
        let (me, n) = (pe.my_pe(), pe.n_pes());
        let whole_source = pe.alloc::<u8>(self.off.0 + self.len)?;
        let whole_landing = pe.alloc::<u8>(self.off.1 + n as usize * self.len)?;
        let arrived = pe.alloc_one::<Signal>()?;
        let source = whole_source.slice(self.off.0..whole_source.len());
        let landing = whole_landing.slice(self.off.1..whole_landing.len());
        pe.write(source, &pattern(me, self.len))?;
        pe.host_sync()?;
        let expected = match self.call {
            Transfer::PutSignal | Transfer::PutSignalNbi => {
                (0..n).map(|from| self.pieces(n, from, me).count()).sum()
            }
            _ => 0,
        };
        let call = move_pieces(
            self.call as u32,
            self.group_kind as u32,
            self.sharing as u32,
            landing,
            source,
            self.piece as u32,
            arrived,
            expected as u64,
        );
        pe.run(self.grid, call)?;
        pe.host_sync()?;
        let found = pe.read(landing)?;
        let wanted = self.expected(n, me);
        if let Some(at) = (0..wanted.len()).find(|&i| found[i] != wanted[i]) {
            panic!("PE {me}: byte {at} is {} and not {}: {self:?}", found[at], wanted[at]);
        }
        assert_eq!(pe.read_one(arrived)?, expected as u64);
        pe.free(whole_source)?;
        pe.free(whole_landing)?;
        pe.free(arrived.as_slice())
    }
}

const CALLS: [Transfer; 6] = [
    Transfer::Put,
    Transfer::PutNbi,
    Transfer::Get,
    Transfer::GetNbi,
    Transfer::PutSignal,
    Transfer::PutSignalNbi,
];

#[test]
fn every_call_by_every_group() {
    for setup in setups::all() {
        setup.run(|pe| {
            for call in CALLS {
                Moved::new(call, GroupKind::Thread, grid(2, 33), 997, 13).check(pe)?;
                Moved::new(call, GroupKind::Warp, grid(2, 33), 1000, 50).check(pe)?;
                Moved::new(call, GroupKind::Block, grid(3, 32), 3001, 250).check(pe)?;
            }
            Ok(())
        });
    }
}

#[test]
fn blocks_of_every_size() {
    for setup in
        [Setup::new(3).with("sq_depth", 8), Setup::new(2).with("sq_depth", 2).with("qps_per_peer", 3)]
    {
        setup.run(|pe| {
            for threads in [1, 32, 33, 256] {
                for call in [Transfer::PutNbi, Transfer::Get, Transfer::PutSignal] {
                    Moved::new(call, GroupKind::Thread, grid(2, threads), 2 * threads as usize + 5, 1)
                        .check(pe)?;
                    Moved::new(call, GroupKind::Block, grid(2, threads), 4096, 1000).check(pe)?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn odd_sizes_and_offsets() {
    Setup::new(2).run(|pe| {
        for (len, off) in
            [(1, (1, 2)), (2, (3, 0)), (3, (0, 1)), (31, (5, 9)), (4097, (1, 15)), (65_537, (7, 7))]
        {
            for call in CALLS {
                let moved = Moved::new(call, GroupKind::Block, grid(1, 64), len, len.div_ceil(2));
                Moved { off, ..moved }.check(pe)?;
            }
        }
        Ok(())
    });
}

#[test]
fn large_transfers() {
    Setup::new(2).with("heap_bytes", "16MiB").run(|pe| {
        for call in [Transfer::Put, Transfer::GetNbi, Transfer::PutSignalNbi] {
            Moved::new(call, GroupKind::Block, grid(2, 32), 3_000_001, 1_000_000).check(pe)?;
        }
        Ok(())
    });
}

#[test]
fn queues_of_a_block_and_of_a_thread() {
    for (pes, depth) in [(1, 8), (2, 2), (3, 1024)] {
        let setup = Setup::new(pes).with("sq_depth", depth).with("block_qps", 3).with("exclusive_qps", 6);
        setup.run(|pe| {
            for call in [Transfer::PutNbi, Transfer::GetNbi] {
                let moved = Moved::new(call, GroupKind::Thread, grid(3, 40), 500, 3);
                Moved { sharing: QueueSharing::Block, ..moved }.check(pe)?;
                let moved = Moved::new(call, GroupKind::Block, grid(3, 40), 5000, 100);
                Moved { sharing: QueueSharing::Block, ..moved }.check(pe)?;
            }
            for call in CALLS {
                let moved = Moved::new(call, GroupKind::Thread, grid(2, 3), 300, 7);
                Moved { sharing: QueueSharing::Exclusive, ..moved }.check(pe)?;
            }
            Ok(())
        });
    }
}

#[test]
fn empty_transfers_still_signal() {
    for setup in setups::all() {
        let seen = setup.run(|pe| {
            let (data, arrived) = (pe.alloc::<u32>(8)?, pe.alloc_one::<Signal>()?);
            pe.run(grid(1, 32), no_elements(data, arrived))?;
            pe.host_sync()?;
            assert_eq!(pe.read(data)?, [0; 8]);
            pe.read_one(arrived)
        });
        // 32 single threads and one block.
        assert_eq!(seen, vec![1032; seen.len()], "{setup}");
    }
}

#[test]
fn wqe_index_wraps_at_16_bits() {
    const TIMES: usize = 280;
    for (depth, cq) in [(8, "ring"), (1024, "collapsed")] {
        let setup = Setup::new(2).with("sq_depth", depth).with("cq", cq);
        let found = setup.run(|pe| {
            let n = 256;
            let (dst, src) = (pe.alloc::<u32>(TIMES * n)?, pe.alloc::<u32>(n)?);
            pe.write(src, &(0..n as u32).map(|i| i * 3 + pe.my_pe()).collect::<Vec<_>>())?;
            pe.host_sync()?;
            // More than 70 000 WQEs on the single QP to the peer.
            pe.run(grid(2, 128), small_puts(dst, src, TIMES as u32, 1))?;
            pe.host_sync()?;
            pe.read(dst)
        });
        for (pe, found) in found.iter().enumerate() {
            let wanted: Vec<u32> = (0..256).map(|i| i * 3 + (1 - pe as u32)).collect();
            assert!(*found == wanted.repeat(TIMES), "{setup}, PE {pe}");
        }
    }
}

/// Uses pieces for few threads and for many, with any remainder, over P2P and over the NIC.
#[test]
fn groups_without_barrier_transfer_correctly() {
    for setup in setups::all() {
        setup.run(|pe| {
            let n = 3001;
            let (dst, back, src) = (pe.alloc::<u32>(n)?, pe.alloc(n)?, pe.alloc(n)?);
            let data =
                |pe: u32| (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ pe << 7).collect::<Vec<_>>();
            let from = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
            pe.write(src, &data(pe.my_pe()))?;
            for (group_kind, grid) in [(GroupKind::Block, grid(1, 96)), (GroupKind::Warp, grid(1, 32))] {
                for piece in [1000, 129, 40, 2] {
                    pe.write(dst, &vec![0; n])?;
                    pe.write(back, &vec![0; n])?;
                    pe.host_sync()?;
                    pe.run(grid, ready_pieces(group_kind as u32, dst, back, src, piece))?;
                    pe.host_sync()?;
                    assert_eq!(pe.read(dst)?, data(from), "{setup}, {group_kind:?}, {piece}");
                    assert_eq!(pe.read(back)?, data(pe.my_pe()), "{setup}, {group_kind:?}, {piece}");
                    pe.host_sync()?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn thread_can_put_to_its_own_pe_through_the_nic() {
    Setup::new(1).with("peer_path", "nic").with("sq_depth", 2).run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(2 * 64)?, pe.alloc::<u32>(64)?);
        pe.write(src, &[7; 64])?;
        pe.run(grid(2, 32), small_puts(dst, src, 2, 0))?;
        assert_eq!(pe.read(dst)?, [7; 2 * 64]);
        Ok(())
    });
}

#[test]
fn single_values_of_every_type() {
    for setup in setups::all() {
        let n = 40;
        setup.run(|pe| {
            let all = Scalars::new(pe, n)?;
            pe.run(grid(1, n as u32), all.call())?;
            pe.host_sync()?;
            all.check(pe, n)
        });
    }
}

struct Scalars {
    u8s: SymSlice<u8>,
    i8s: SymSlice<i8>,
    u16s: SymSlice<u16>,
    i16s: SymSlice<i16>,
    u32s: SymSlice<u32>,
    i32s: SymSlice<i32>,
    f32s: SymSlice<f32>,
    u64s: SymSlice<u64>,
    i64s: SymSlice<i64>,
    f64s: SymSlice<f64>,
    usizes: SymSlice<usize>,
    isizes: SymSlice<isize>,
    halves: SymSlice<F16>,
    brains: SymSlice<Bf16>,
}

impl Scalars {
    fn new(pe: &Pe, n: usize) -> Result<Self, Error> {
        Ok(Self {
            u8s: pe.alloc(2 * n)?,
            i8s: pe.alloc(2 * n)?,
            u16s: pe.alloc(2 * n)?,
            i16s: pe.alloc(2 * n)?,
            u32s: pe.alloc(2 * n)?,
            i32s: pe.alloc(2 * n)?,
            f32s: pe.alloc(2 * n)?,
            u64s: pe.alloc(2 * n)?,
            i64s: pe.alloc(2 * n)?,
            f64s: pe.alloc(2 * n)?,
            usizes: pe.alloc(2 * n)?,
            isizes: pe.alloc(2 * n)?,
            halves: pe.alloc(2 * n)?,
            brains: pe.alloc(2 * n)?,
        })
    }

    fn call(&self) -> rushmem_device::kernel::Call {
        scalars(
            self.u8s,
            self.i8s,
            self.u16s,
            self.i16s,
            self.u32s,
            self.i32s,
            self.f32s,
            self.u64s,
            self.i64s,
            self.f64s,
            self.usizes,
            self.isizes,
            self.halves,
            self.brains,
        )
    }

    fn check(&self, pe: &Pe, n: usize) -> Result<(), Error> {
        same(pe, self.u8s, n, |value, _| value as u8)?;
        same(pe, self.i8s, n, |value, _| value as i8)?;
        same(pe, self.u16s, n, |value, _| value as u16)?;
        same(pe, self.i16s, n, |value, _| value as i16)?;
        same(pe, self.u32s, n, |value, _| value)?;
        same(pe, self.i32s, n, |value, _| value as i32)?;
        same(pe, self.f32s, n, |value, _| value as f32)?;
        same(pe, self.u64s, n, |_, wide| wide)?;
        same(pe, self.i64s, n, |_, wide| wide as i64)?;
        same(pe, self.f64s, n, |_, wide| wide as f64)?;
        same(pe, self.usizes, n, |_, wide| wide as usize)?;
        same(pe, self.isizes, n, |_, wide| wide as isize)?;
        same(pe, self.halves, n, |value, _| F16(value as u16))?;
        same(pe, self.brains, n, |value, _| Bf16(value as u16))
    }
}

/// Asserts that the first half of the array holds the previous PE's put, and the second half this PE's own value.
fn same<T: Scalar + PartialEq + std::fmt::Debug>(
    pe: &Pe,
    all: SymSlice<T>,
    n: usize,
    value: impl Fn(u32, u64) -> T,
) -> Result<(), Error> {
    let from = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
    let of = |pe: u32| {
        let value = &value;
        (0..n as u32).map(move |i| {
            let narrow = i.wrapping_mul(0x9e37_79b9) ^ pe;
            value(narrow, u64::from(narrow) << 31 | u64::from(i))
        })
    };
    let wanted: Vec<T> = of(from).chain(of(pe.my_pe())).collect();
    assert_eq!(pe.read(all)?, wanted, "{}", std::any::type_name::<T>());
    Ok(())
}
