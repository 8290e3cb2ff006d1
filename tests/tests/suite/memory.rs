//! Tests of symmetric memory: heap objects, segments and windows, and rejected handles.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rushmem::{Error, Hints, HostRange, Operations, Pages, Pe};
use rushmem_device::kernel::Call;
use rushmem_device::{Error as Code, Local, Signal, Sym, SymSlice};
use rushmem_test_kernels::{fill, gather, put_beyond, reach, reach_from_own, wait_for_ever};
use rushmem_tests::{Setup, grid, without_line};

use super::setups;

/// Returns `len` words that identify their PE and index.
pub(super) fn pattern(pe: u32, len: usize) -> Vec<u64> {
    (0..len as u64).map(|i| (i << 32 | u64::from(pe) << 8) + 0x5a).collect()
}

/// Number of blocks of the kernel [`reach`].
pub(super) const BLOCKS: u32 = 3;

/// Symmetric objects that the kernel [`reach`] accesses on the next PE.
pub(super) struct Reached {
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    back: SymSlice<u64>,
    word: Sym<u64>,
    arrived: Sym<Signal>,
    seen: Sym<u64>,
}

impl Reached {
    /// Runs the kernel [`reach`], then checks all memory that it has written. `dst` has one more element than the other
    /// arrays.
    pub(super) fn check(&self, pe: &Pe) -> Result<(), Error> {
        self.check_with(pe, |call| pe.run(grid(BLOCKS, 33), call))
    }

    /// Does the same with a kernel that `run` runs in a grid of [`BLOCKS`] blocks.
    pub(super) fn check_with(&self, pe: &Pe, run: impl Fn(Call) -> Result<(), Error>) -> Result<(), Error> {
        let Self { dst, src, back, word, arrived, seen } = *self;
        let (me, n, len) = (pe.my_pe(), pe.n_pes(), src.len());
        for object in [dst, back, word.as_slice(), arrived.as_slice(), seen.as_slice()] {
            pe.write(object, &vec![0; object.len()])?;
        }
        pe.write(src, &pattern(me, len))?;
        pe.host_sync()?;
        run(reach(dst, src, back, word, arrived, seen))?;
        pe.host_sync()?;
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        let mut put = pattern(left, len);
        put.push(77);
        assert_eq!(pe.read(dst)?, put, "PE {me} of {n}");
        assert_eq!(pe.read(back)?, pattern(right, len), "PE {me} of {n}");
        assert_eq!(pe.read_one(word)?, 2 * u64::from(BLOCKS));
        assert_eq!(pe.read_one(arrived)?, len as u64);
        assert_eq!(pe.read_one(seen)?, pattern(right, 1)[0]);
        pe.host_sync()
    }

    /// Places all objects in one array of [`ALL`] elements, in separate cache lines.
    pub(super) fn within(all: SymSlice<u64>) -> Self {
        let word = |i: usize| all.at(3 * ROOM + 16 * i);
        Self {
            dst: all.slice(0..LEN + 1),
            src: all.slice(ROOM..ROOM + LEN),
            back: all.slice(2 * ROOM..2 * ROOM + LEN),
            word: word(0),
            arrived: word(1),
            seen: word(2),
        }
    }
}

pub(super) const LEN: usize = 1001;
const ROOM: usize = 1024;
pub(super) const ALL: usize = 3 * ROOM + 3 * 16;

#[test]
fn new_object_is_zeroed_on_every_pe() {
    for setup in setups::all() {
        setup.run(|pe| {
            let into = pe.alloc::<u64>(pe.n_pes() as usize * 500)?;
            for _ in 0..3 {
                let object = pe.alloc::<u64>(500)?;
                // No barrier is needed: the copies of all PEs are already zero.
                pe.run(grid(1, 32), gather(into, object))?;
                assert!(pe.read(into)?.iter().all(|&word| word == 0), "PE {}", pe.my_pe());
                pe.host_sync()?;
                pe.run(grid(2, 32), fill(object, 7))?;
                pe.host_sync()?;
                assert_eq!(pe.read(object)?, [7; 500]);
                pe.free(object)?;
            }
            Ok(())
        });
    }
}

#[test]
fn empty_objects_take_no_space() {
    Setup::new(2).run(|pe| {
        let before = pe.heap_free();
        let (none, nothing) = (pe.alloc::<u64>(0)?, pe.alloc::<()>(5)?);
        assert_eq!((none.len(), nothing.len(), pe.heap_free()), (0, 5, before));
        assert!(pe.read(none)?.is_empty());
        pe.run(grid(1, 32), fill(none, 1))?;
        for _ in 0..2 {
            pe.free(none)?;
            pe.free(nothing)?;
        }
        assert_eq!(pe.heap_free(), before);
        Ok(())
    });
}

#[test]
fn rejects_sizes_that_overflow() {
    const HUGE: usize = usize::MAX / 4;
    let told = Setup::new(2).run(|pe| {
        let errors = [
            pe.alloc::<u64>(HUGE).unwrap_err(),
            pe.alloc_named::<u64>("huge", HUGE).unwrap_err(),
            pe.alloc_aligned::<u64>(HUGE, 64).unwrap_err(),
            pe.alloc_with_hints::<u64>(HUGE, Hints::NONE).unwrap_err(),
        ];
        let before = pe.heap_free();
        let full = pe.alloc::<u64>(usize::MAX / 16).unwrap_err();
        assert!(matches!(full, Error::HeapFull { .. }), "{full}");
        assert_eq!(pe.heap_free(), before);
        Ok(errors.map(|error| without_line(&error)))
    });
    let wanted = ["alloc", "alloc_named", "alloc_aligned", "alloc_with_hints"]
        .map(|call| format!("{call}: the size of {HUGE} x 8 bytes overflows"));
    assert_eq!(told, [wanted.clone(), wanted]);
}

#[test]
fn requested_alignment_holds_on_every_pe() {
    Setup::new(3).with("heap_bytes", "8MiB").run(|pe| {
        let shift = pe.alloc::<u8>(1)?;
        let mut align = 8;
        while align <= 2 << 20 {
            let object = pe.alloc_aligned::<u64>(20, align)?;
            assert_eq!(pe.address(object)? % align, 0, "{align} on PE {}", pe.my_pe());
            pe.run(grid(1, 32), fill(object, align))?;
            pe.host_sync()?;
            assert_eq!(pe.read(object)?, [align; 20]);
            pe.free(object)?;
            align *= 2;
        }
        for wrong in [0, 1, 4, 24, 4 << 20, u64::MAX] {
            let error = pe.alloc_aligned::<u64>(20, wrong).unwrap_err().to_string();
            let wanted = format!("the alignment {wrong} is not a power of two from 8 to 2097152 bytes");
            assert!(error.contains(&*wanted), "{error}");
        }
        pe.free(shift)
    });
}

#[test]
fn memory_with_hints_supports_every_access() {
    Setup::new(2).with("nics_per_pe", 2).run(|pe| {
        for hints in [
            Hints::NONE,
            Hints::ATOMICS_REMOTE,
            Hints::SIGNAL_REMOTE,
            Hints::ATOMICS_REMOTE | Hints::SIGNAL_REMOTE,
        ] {
            let all = pe.alloc_with_hints::<u64>(ALL, hints)?;
            Reached::within(all).check(pe)?;
            pe.free(all)?;
        }
        assert_eq!(Hints::from_bits(3)?, Hints::ATOMICS_REMOTE | Hints::SIGNAL_REMOTE);
        let error = Hints::from_bits(0x15).unwrap_err().to_string();
        assert!(error.contains("0x14 is not a hint"), "{error}");
        Ok(())
    });
}

#[test]
fn realloc_keeps_the_contents() {
    Setup::new(3).run(|pe| {
        let me = pe.my_pe();
        let object = pe.alloc::<u64>(1000)?;
        pe.write(object, &pattern(me, 1000))?;
        // Grow in place; grow by moving, because an object follows; shrink; shrink to nothing.
        let longer = pe.realloc(object, 3000)?;
        assert_eq!(longer.offset(), object.offset());
        let behind = pe.alloc::<u64>(10)?;
        let moved = pe.realloc(longer, 200_000)?;
        assert_ne!(moved.offset(), longer.offset());
        let found = pe.read(moved)?;
        assert_eq!(found[..1000], pattern(me, 1000));
        assert!(found[1000..].iter().all(|&word| word == 0));
        let shorter = pe.realloc(moved, 10)?;
        assert_eq!(pe.read(shorter)?, pattern(me, 10));
        for old in [object, longer, moved] {
            let error = pe.run(grid(1, 32), fill(old, 1)).unwrap_err().to_string();
            assert!(error.contains("is not an object, or has been freed"), "{error}");
        }
        pe.host_sync()?;
        pe.run(grid(1, 32), fill(shorter, 3))?;
        pe.host_sync()?;
        let free = pe.heap_free();
        // If there is not enough space, the object stays unchanged.
        assert!(matches!(pe.realloc(shorter, 1 << 20).unwrap_err(), Error::HeapFull { .. }));
        assert_eq!((pe.read(shorter)?, pe.heap_free()), (vec![3; 10], free));
        let none = pe.realloc(shorter, 0)?;
        assert!(pe.read(shorter).is_err() && none.is_empty() && pe.heap_free() > free);
        let again = pe.realloc(none, 7)?;
        assert_eq!(pe.read(again)?, [0; 7]);
        pe.free(again)?;
        pe.free(behind)
    });
}

#[test]
fn freeing_ten_thousand_objects_in_any_order_restores_the_heap() {
    Setup::new(2).with("heap_bytes", "256KiB").run(|pe| {
        let before = pe.heap_free();
        // The same sequence on all PEs.
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut live, mut made) = (Vec::new(), 0);
        while made < 5000 {
            if next(2) == 0 && !live.is_empty() {
                pe.free(live.swap_remove(next(live.len() as u64) as usize))?;
                continue;
            }
            match pe.alloc::<u8>(next(8000) as usize + 1) {
                Ok(object) => {
                    live.push(object);
                    made += 1;
                }
                Err(Error::HeapFull { .. }) => pe.free(live.swap_remove(0))?,
                Err(error) => return Err(error),
            }
        }
        while !live.is_empty() {
            pe.free(live.swap_remove(next(live.len() as u64) as usize))?;
        }
        assert_eq!(pe.heap_free(), before);
        pe.free(pe.alloc::<u8>(before as usize)?)
    });
}

#[test]
fn memory_is_kept_until_all_pes_free_it() {
    let late = AtomicBool::new(false);
    Setup::new(2).run(|pe| {
        let object = pe.alloc::<u64>(100)?;
        pe.host_sync()?;
        if pe.my_pe() == 1 {
            std::thread::sleep(Duration::from_millis(50));
            pe.run(grid(1, 32), fill(object, 5))?;
            late.store(true, Ordering::SeqCst);
        }
        pe.free(object)?;
        assert!(late.load(Ordering::SeqCst), "PE {} was let go too early", pe.my_pe());
        let again = pe.alloc::<u64>(100)?;
        assert_eq!((again.offset(), pe.read(again)?), (object.offset(), vec![0; 100]));
        Ok(())
    });
}

#[test]
fn object_misuse_errors_name_the_mistake() {
    Setup::new(2).run(|pe| {
        let object = pe.alloc::<u64>(100)?;
        let told = |result: Result<(), Error>, end: &str| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Misuse { .. }) && error.to_string().contains(end), "{error}");
        };
        told(pe.free(object.slice(0..99)), "is only a part of an object");
        told(pe.free(object.slice(1..100)), "is only a part of an object");
        told(pe.realloc(object.slice(1..100), 5).map(drop), "is only a part of an object");
        told(pe.free(object.slice(1..101)), "is not an object, or has been freed");
        pe.free(object)?;
        // Another object now occupies the memory. The old handle must not match it.
        let other = pe.alloc::<u64>(100)?;
        assert_eq!(other.offset(), object.offset());
        let gone = "is not an object, or has been freed";
        told(pe.free(object), gone);
        told(pe.write(object, &[0; 100]), gone);
        told(pe.read(object.slice(3..4)).map(drop), gone);
        told(pe.realloc(object, 5).map(drop), gone);
        told(pe.run(grid(1, 32), fill(object, 1)), gone);
        told(pe.run(grid(1, 32), wait_for_ever(object.at(3), 0, pe.alloc_one()?)), gone);
        pe.free(other)
    });
}

#[test]
fn rejects_a_handle_from_another_job() {
    let theirs = Setup::new(1).run(|pe| pe.alloc::<u64>(10))[0];
    Setup::new(1).run(|pe| {
        let ours = pe.alloc::<u64>(10)?;
        assert_eq!(ours.offset(), theirs.offset());
        for result in [
            pe.run(grid(1, 32), fill(theirs, 1)),
            pe.free(theirs),
            pe.write(theirs, &[0; 10]),
            pe.read(theirs).map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("belongs to another job"), "{error}");
        }
        pe.run(grid(1, 32), fill(ours, 1))
    });
}

#[test]
fn error_names_a_pe_that_frees_another_object() {
    let result = Setup::new(2).try_run(|pe| {
        let (a, b) = (pe.alloc::<u64>(10)?, pe.alloc::<u64>(10)?);
        pe.free(if pe.my_pe() == 1 { b } else { a })
    });
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Mismatch { call, .. } if call == "free"), "{error}");
}

/// Changes a setup to an initial heap with space for the runtime's own words and little more, so allocations add
/// segments.
pub(super) fn growing(setup: Setup) -> Setup {
    setup.with("heap_bytes", "32KiB").with("heap_max", "24MiB")
}

#[test]
fn growing_the_heap_does_not_move_objects() {
    for setup in setups::all().map(growing) {
        setup.run(|pe| {
            let first = pe.alloc::<u64>(ALL)?;
            let (address, size) = (pe.address(first)?, pe.heap_size());
            let second = pe.alloc::<u64>(ALL)?;
            assert_eq!((size, pe.heap_size()), (32 << 10, (32 << 10) + (2 << 20)));
            let larger = pe.alloc::<u64>((3 << 20) / 8)?;
            assert_eq!(pe.heap_size(), size + (2 << 20) + (4 << 20));
            assert_eq!(pe.address(first)?, address);
            for all in [first, second, larger.slice(1000..1000 + ALL)] {
                Reached::within(all).check(pe)?;
            }
            // Between the segments, in all directions.
            let (a, b, c) = (Reached::within(first), Reached::within(second), Reached::within(larger));
            let mixed = Reached {
                dst: a.dst,
                src: b.src,
                back: c.back,
                word: b.word,
                arrived: c.arrived,
                seen: a.seen,
            };
            mixed.check(pe)?;
            let mixed = Reached {
                dst: b.dst,
                src: a.src,
                back: a.back,
                word: c.word,
                arrived: a.arrived,
                seen: c.seen,
            };
            mixed.check(pe)?;
            for object in [second, first, larger] {
                pe.free(object)?;
            }
            assert_eq!(pe.heap_free(), pe.heap_size());
            Ok(())
        });
    }
}

#[test]
fn heap_does_not_grow_beyond_its_limit() {
    let told = Setup::new(2).with("heap_bytes", "64KiB").with("heap_max", "9M").run(|pe| {
        let mut objects = Vec::new();
        let error = loop {
            match pe.alloc::<u8>(1 << 20) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
        };
        assert!(pe.heap_size() <= 9 << 20 && objects.len() >= 7, "{} of {}", objects.len(), pe.heap_size());
        for object in objects {
            pe.free(object)?;
        }
        assert_eq!(pe.heap_free(), pe.heap_size());
        // Freed segments are reused.
        let size = pe.heap_size();
        pe.free(pe.alloc::<u8>(2 << 20)?)?;
        assert_eq!(pe.heap_size(), size);
        Ok(error)
    });
    assert!(told.iter().all(|error| matches!(error, Error::HeapFull { .. })), "{told:?}");
}

#[test]
fn heap_grows_while_a_kernel_runs() {
    growing(Setup::new(2)).run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        let launch = pe.launch(grid(1, 32), wait_for_ever(signal, 1, seen))?;
        let grown = pe.alloc::<u64>(ALL)?;
        let more = pe.alloc::<u64>(1 << 20)?;
        pe.signal_op(signal.set(1), pe.my_pe())?;
        launch.wait()?;
        Reached::within(grown).check(pe)?;
        Reached::within(more).check(pe)
    });
}

#[test]
fn window_shares_the_users_memory() {
    for setup in setups::with_host_windows() {
        setup.run(|pe| {
            let me = pe.my_pe();
            let before = pe.heap_free();
            // Use a different page offset on each PE, which a NIC must handle.
            let mut own = vec![0u64; ALL + 16];
            let start = std::ptr::NonNull::from(&mut own[2 * (me as usize % 7)]);
            let address = start.as_ptr() as u64;
            // SAFETY: the range lies in `own`, which outlives its use by the job and is only read afterwards.
            let range = unsafe { HostRange::new(start, ALL) };
            let window = pe.register_symmetric(range)?;
            let all = window.handle();
            assert_eq!((pe.address(all)?, all.len(), pe.heap_free()), (address, ALL, before), "not copied");
            Reached::within(all).check(pe)?;
            // Mix it with parts in the heap and in a later window.
            let (heap, pages) = (pe.alloc::<u64>(ALL)?, pe.register_symmetric(Pages::<u64>::zeroed(ALL))?);
            let (a, b, c) = (Reached::within(all), Reached::within(heap), Reached::within(pages.handle()));
            let mixed = Reached {
                dst: a.dst,
                src: b.src,
                back: c.back,
                word: c.word,
                arrived: a.arrived,
                seen: b.seen,
            };
            mixed.check(pe)?;
            let mixed = Reached {
                dst: c.dst,
                src: a.src,
                back: b.back,
                word: b.word,
                arrived: c.arrived,
                seen: a.seen,
            };
            mixed.check(pe)?;
            // The peers' puts went to the user's memory.
            let left = (me + pe.n_pes() - 1) % pe.n_pes();
            let theirs = pe.unregister_symmetric(pages)?;
            assert_eq!(theirs[..LEN], pattern(left, LEN));
            // A new registration works, while the first handle stays invalid forever.
            let _: HostRange<u64> = pe.unregister_symmetric(window)?;
            let window = pe.register_symmetric(own)?;
            Reached::within(window.handle()).check(pe)?;
            let error = pe.run(grid(1, 32), fill(all, 1)).unwrap_err().to_string();
            assert!(error.contains("is not an object, or has been freed"), "{error}");
            let own = pe.unregister_symmetric(window)?;
            assert_eq!(own[..LEN], pattern(left, LEN));
            pe.free(heap)?;
            assert_eq!(pe.heap_free(), before);
            Ok(())
        });
    }
}

#[test]
fn window_addresses_convert_to_handles_and_back() {
    Setup::new(2).run(|pe| {
        let window = pe.register_symmetric(vec![0u64; 100])?;
        let (all, other) = (window.handle(), pe.alloc::<u64>(100)?);
        for object in [all, other] {
            for i in [0, 1, 50, 99] {
                let place = object.at(i);
                let address = pe.address(place.as_slice())?;
                let back = pe.element_at(object, address)?.expect("an element");
                assert_eq!((back.offset(), address), (place.offset(), pe.address(object)? + 8 * i as u64));
                assert!(pe.element_at(object, address + 4)?.is_none());
            }
            assert!(pe.element_at(object, pe.address(object)? + 800)?.is_none());
            assert!(pe.element_at(object, pe.address(object)? - 8)?.is_none());
            assert!(pe.element_at(object, 0)?.is_none());
        }
        // Nothing is registered past the window, neither for the host nor for kernels.
        assert!(pe.read(all.slice(90..101)).is_err());
        // SAFETY: the memory is never accessed.
        let beyond = unsafe { SymSlice::<u64>::from_raw(all.offset() + 8 * 99, 2) };
        let error = pe.run(grid(1, 1), fill(beyond, 1)).unwrap_err();
        let Error::Device { first, .. } = &error else { panic!("{error}") };
        assert_eq!(first.code(), Some(Code::OutOfRange));
        assert!(error.to_string().contains("where no buffer is registered now"), "{error}");
        pe.unregister_symmetric(window).map(drop)?;
        pe.host_sync()
    });
}

#[test]
fn error_names_windows_of_different_lengths() {
    let result = Setup::new(3).try_run(|pe| {
        let len = if pe.my_pe() == 1 { 11 } else { 10 };
        pe.register_symmetric(vec![0u32; len]).map(drop)
    });
    let error = result.unwrap_err();
    let told = "register_symmetric with register_symmetric(11 x 4 bytes), this PE with register_symmetric(10 x 4 bytes)";
    let other = "register_symmetric with register_symmetric(10 x 4 bytes), this PE with register_symmetric(11 x 4 bytes)";
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(told) || text.contains(other), "{text}");
}

#[test]
fn failed_window_registration_fails_on_all_pes() {
    Setup::new(3).run(|pe| {
        // Each buffer has separate pages, as GPUs require.
        let mut own = Pages::<u64>::zeroed(100);
        let start = std::ptr::NonNull::from(&mut own[0]);
        // SAFETY: `own` lives until all windows are gone.
        let range = || unsafe { HostRange::new(start, 100) };
        let window = pe.register_symmetric(range())?;
        // PE 1 registers the same memory twice.
        let error = match pe.my_pe() {
            1 => pe.register_symmetric(range()).map(drop).unwrap_err(),
            _ => pe.register_symmetric(Pages::<u64>::zeroed(100)).map(drop).unwrap_err(),
        };
        let text = error.to_string();
        match (pe.my_pe(), &error) {
            (1, Error::Misuse { .. }) => {
                assert!(text.contains("overlap the heap or a registered buffer"), "{text}")
            }
            (_, Error::Elsewhere { pe: 1, .. }) => {
                assert!(text.starts_with("register_symmetric failed on PE 1: "), "{text}");
            }
            (me, _) => panic!("PE {me}: {text}"),
        }
        // Failed registrations leave nothing registered.
        let next = pe.register_symmetric(Pages::<u64>::zeroed(ALL))?;
        Reached::within(next.handle()).check(pe)?;
        let _ = pe.unregister_symmetric(next)?;
        let _ = pe.unregister_symmetric(window)?;
        Ok(())
    });
}

#[test]
fn window_cannot_be_unregistered_during_a_launch() {
    let ended = AtomicU64::new(0);
    Setup::new(2).run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        let window = pe.register_symmetric(vec![0u64; 100])?;
        let launch = match pe.my_pe() {
            0 => Some(pe.launch(grid(1, 32), wait_for_ever(signal, 1, seen))?),
            _ => None,
        };
        let kept = pe.unregister_symmetric(window).expect_err("a kernel of PE 0 runs");
        let text = kept.error.to_string();
        assert!(text.contains("wait for the end of all launches first"), "{text}");
        assert_eq!(matches!(*kept.error, Error::Elsewhere { pe: 0, .. }), pe.my_pe() == 1, "{text}");
        pe.signal_op(signal.set(1), pe.my_pe())?;
        launch.map_or(Ok(()), |launch| launch.wait())?;
        ended.fetch_add(1, Ordering::SeqCst);
        assert_eq!(pe.unregister_symmetric(*kept.registration)?, [0; 100]);
        Ok(())
    });
    assert_eq!(ended.into_inner(), 2);
}

#[test]
fn window_cannot_be_freed_as_a_heap_object() {
    Setup::new(1).run(|pe| {
        let window = pe.register_symmetric(vec![0u64; 100])?;
        let error = pe.free(window.handle()).unwrap_err().to_string();
        assert!(error.contains("is a registered buffer: return it with `unregister_symmetric`"), "{error}");
        let empty = pe.register_symmetric(Vec::<u64>::new()).map(drop).unwrap_err().to_string();
        assert!(empty.contains("the buffer has no bytes"), "{empty}");
        // A window that is never unregistered lives until its PE is dropped.
        drop(window);
        Ok(())
    });
}

/// Puts from the local buffer `mine`, gets into the local buffer `back`, and checks the memory.
fn from_own(pe: &Pe, mine: Local<u64>, back: Local<u64>) -> Result<(), Error> {
    let (me, n, len) = (pe.my_pe(), pe.n_pes(), mine.len());
    let (dst, theirs) = (pe.alloc::<u64>(2 * len)?, pe.alloc::<u64>(len)?);
    let arrived = pe.alloc_one::<Signal>()?;
    pe.write(mine, &pattern(me, len))?;
    pe.write(back, &vec![0; len])?;
    pe.write(theirs, &pattern(100 + me, len))?;
    pe.host_sync()?;
    pe.run(grid(3, 33), reach_from_own(dst, mine, theirs, back, arrived))?;
    pe.host_sync()?;
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    assert_eq!(pe.read(dst)?, pattern(left, len).repeat(2), "PE {me} of {n}");
    assert_eq!(pe.read(back)?, pattern(100 + right, len), "PE {me} of {n}");
    let added: Vec<u64> = pattern(me, len).iter().map(|word| word + 1).collect();
    assert_eq!(pe.read(mine)?, added);
    pe.free(dst)?;
    pe.free(theirs)?;
    pe.free(arrived.as_slice())
}

#[test]
fn local_buffers_serve_as_sources_and_destinations() {
    for setup in setups::all() {
        setup.run(|pe| {
            // Registering a local buffer is not collective, so lengths and addresses may differ between PEs.
            let len = LEN + pe.my_pe() as usize;
            // A GPU registers whole pages, and two vectors may share a page.
            let spare = pe.register(Pages::<u32>::zeroed(len))?;
            let (mine, back) = (pe.register(vec![0u64; LEN])?, pe.register(Pages::<u64>::zeroed(LEN))?);
            from_own(pe, mine.handle(), back.handle())?;
            let returned = pe.unregister(back)?;
            assert_eq!(returned[..], pattern(100 + (pe.my_pe() + 1) % pe.n_pes(), LEN));
            // Register it again, with a new handle.
            let back = pe.register(returned)?;
            from_own(pe, mine.handle(), back.handle())?;
            assert_eq!(pe.unregister(spare)?[..], vec![0; len]);
            assert_eq!(pe.unregister_all()?, 2);
            Ok(())
        });
    }
}

#[test]
fn local_buffer_misuse_errors_name_the_mistake() {
    Setup::new(2).run(|pe| {
        let dst = pe.alloc::<u64>(100)?;
        // Only native PEs can register two buffers in the same page.
        const PAGE: usize = 1024;
        let mut own = vec![0u64; 3 * PAGE];
        let start = std::ptr::NonNull::from(&mut own[PAGE]);
        // SAFETY: the range lies in `own`, which outlives all registrations.
        let part = |from: usize, len| unsafe { HostRange::new(start.add(from), len) };
        let mine = pe.register(part(10, 50))?;
        let overlap = "overlap the heap or a registered buffer";
        for (from, len) in [(10, 50), (0, 11), (59, 1), (20, 5), (0, 100)] {
            let error = pe.register(part(from, len)).map(drop).unwrap_err();
            assert!(matches!(error, Error::Misuse { .. }) && error.to_string().contains(overlap), "{error}");
        }
        // SAFETY: as above.
        let before = pe.register(unsafe { HostRange::new(start.sub(PAGE), 10) })?;
        let after = pe.register(part(PAGE + 60, 40))?;
        // Memory of the heap cannot be registered.
        let inside = std::ptr::NonNull::new(pe.address(dst)? as *mut u64).unwrap();
        // SAFETY: the call is rejected before any access.
        let error = pe.register(unsafe { HostRange::new(inside, 8) }).map(drop).unwrap_err();
        assert!(Setup::on_gpu() || error.to_string().contains(overlap), "{error}");

        let error = pe.run(grid(1, 1), put_beyond(dst.slice(0..50), mine.handle())).unwrap_err();
        let Error::Device { first, .. } = &error else { panic!("{error}") };
        assert_eq!(first.code(), Some(Code::OutOfRange));

        let handle = mine.handle();
        let _: HostRange<u64> = pe.unregister(mine)?;
        let gone = "is not registered with this PE, or no longer registered";
        for result in [
            pe.run(grid(1, 1), put_beyond(dst.slice(0..50), handle)),
            pe.read(handle).map(drop),
            pe.write(handle.slice(0..1), &[1]),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Misuse { .. }) && error.to_string().contains(gone), "{error}");
        }
        // A new registration at the same address does not revive the old handle.
        let again = pe.register(part(10, 50))?;
        assert!(pe.read(handle).is_err() && pe.read(again.handle()).is_ok());
        assert_eq!(pe.unregister_all()?, 3);
        for twice in [before, after, again] {
            let kept = pe.unregister(twice).map(drop).unwrap_err();
            assert!(kept.error.to_string().contains(gone), "{kept:?}");
        }
        Ok(())
    });
}

#[test]
fn local_buffer_belongs_to_one_pe() {
    let others = std::sync::Mutex::new(Vec::new());
    Setup::new(2).run(|pe| {
        let mine = pe.register(vec![u64::from(pe.my_pe()); 50])?;
        others.lock().unwrap().push((pe.my_pe(), mine.handle()));
        pe.host_sync()?;
        for &(owner, handle) in others.lock().unwrap().iter() {
            match pe.read(handle) {
                Ok(found) => assert_eq!((owner, found), (pe.my_pe(), vec![u64::from(owner); 50])),
                Err(error) => {
                    assert!(owner != pe.my_pe() && error.to_string().contains("with this PE"), "{error}")
                }
            }
        }
        pe.host_sync()?;
        pe.unregister(mine).map(drop)?;
        Ok(())
    });
}

#[test]
fn buffer_cannot_be_unregistered_during_a_launch() {
    Setup::new(1).run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        let mine = pe.register(vec![0u64; 100])?;
        let launch = pe.launch(grid(1, 32), wait_for_ever(signal, 1, seen))?;
        let kept = pe.unregister(mine).expect_err("a kernel runs");
        assert!(kept.error.to_string().contains("wait for the end of all launches first"), "{kept:?}");
        assert!(pe.unregister_all().is_err());
        pe.signal_op(signal.set(1), pe.my_pe())?;
        launch.wait()?;
        assert_eq!(pe.unregister(*kept.registration)?, [0; 100]);
        Ok(())
    });
}
