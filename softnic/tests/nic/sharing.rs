//! Tests of memory that kernels access concurrently, and of memory that the CPU cannot access.

use crate::script::{Pe, Setup, both, call, loopback_nic, pair, pattern, wire_nic};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Syndrome, Wqe};
use rushmem_softnic::{AtomicOp, Config, Memory, MemoryAddr, MemoryError, MemoryKind, Nic, Rule, Width};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn atomics_work_with_atomics_of_threads() {
    const THREADS: u64 = 2;
    const EACH: u64 = 5_000;
    both(Setup::default(), |a, b| {
        b.heap.store_u64(8, 0);
        let adds = std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        b.heap.atomic(8, Width::Eight, AtomicOp::Add { add: 1, boundary: 0 }).unwrap();
                    }
                });
            }
            let mut adds = 0;
            for _ in 0..40 {
                for _ in 0..16 {
                    // A plain add, and one that the adapter executes by a compare-and-swap loop.
                    let wqe = Wqe::FetchAdd { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, add: 1 };
                    a.write(&wqe, Flags::NONE);
                    let (raddr, rkey, laddr, lkey) = (8, b.key, 0, a.key);
                    let boundary = 1 << 63;
                    a.write(
                        &Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: 1, boundary },
                        Flags::NONE,
                    );
                    adds += 2;
                }
                a.run(&Wqe::Nop);
            }
            adds
        });
        assert_eq!(b.heap.load_u64(8), THREADS * EACH + adds);
    });
}

#[test]
fn aligned_words_are_never_torn() {
    both(Setup::default(), |a, b| {
        let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let word = b.heap.load_u64(64);
                    let byte = word & 0xff;
                    assert_eq!(word, byte * 0x0101_0101_0101_0101, "torn");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
            for i in 0..1_000u64 {
                if i % 100 == 0 {
                    // On a busy machine, the watcher may not run for a while.
                    let before = seen.load(Ordering::Relaxed);
                    crate::script::until("the watcher", || seen.load(Ordering::Relaxed) != before);
                }
                let word = (i & 0xff) * 0x0101_0101_0101_0101;
                // Inline data is offset by four bytes, and the second source has an odd address.
                a.write(
                    &Wqe::WriteInline { raddr: 64, rkey: b.key, data: Inline::from_u64(word) },
                    Flags::NONE,
                );
                a.fill(1, &word.to_le_bytes());
                a.run(&Wqe::Write { raddr: 64, rkey: b.key, laddr: 1, lkey: a.key, len: 8 });
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_flag_follows_its_data() {
    both(Setup::default(), |a, b| {
        for round in 1..=300u64 {
            a.fill(4096, &vec![round as u8; 3000]);
            a.write(
                &Wqe::Write { raddr: 4096, rkey: b.key, laddr: 4096, lkey: a.key, len: 3000 },
                Flags::NONE,
            );
            a.write(&Wqe::WriteInline { raddr: 8, rkey: b.key, data: Inline::from_u64(round) }, Flags::NONE);
            a.ring();
            crate::script::until("flag", || b.heap.load_u64(8) == round);
            assert!(b.bytes(4096, 3000).iter().all(|byte| *byte == round as u8));
        }
        a.run(&Wqe::Nop);
    });
}

/// Memory like that of a GPU: no host pointer, and writes that are only complete after a flush.
#[derive(Default)]
struct FarMemory {
    bytes: Mutex<Far>,
    flushes: AtomicU32,
    broken: AtomicBool,
    /// Whether the memory copies directly from host addresses, and stores the old values of atomics there.
    direct: bool,
    queue: Option<u64>,
}

#[derive(Default)]
struct Far {
    landed: Vec<u8>,
    under_way: VecDeque<(usize, Vec<u8>)>,
    /// Old values of atomics, each with the CPU address to store it at.
    results: Vec<(u64, Vec<u8>)>,
}

impl Far {
    fn land(&mut self) {
        for (at, data) in std::mem::take(&mut self.under_way) {
            self.landed[at..at + data.len()].copy_from_slice(&data);
        }
        for (to, old) in std::mem::take(&mut self.results) {
            // SAFETY: the adapter passes addresses of host memory that it has checked.
            unsafe { std::ptr::copy_nonoverlapping(old.as_ptr(), to as *mut u8, old.len()) };
        }
    }
}

impl FarMemory {
    fn new(len: usize, direct: bool) -> FarMemory {
        let bytes = Mutex::new(Far { landed: vec![0; len], ..Far::default() });
        FarMemory { bytes, direct, ..FarMemory::default() }
    }

    /// Returns the bytes that a GPU kernel would see now.
    fn landed(&self, at: usize, len: usize) -> Vec<u8> {
        self.bytes.lock().unwrap().landed[at..at + len].to_vec()
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.landed(at, 8).try_into().unwrap())
    }
}

// SAFETY: it returns no host pointer.
unsafe impl Memory for FarMemory {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().landed.len() as u64
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let mut far = self.bytes.lock().unwrap();
        far.land();
        buf.copy_from_slice(&far.landed[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.bytes.lock().unwrap().under_way.push_back((offset as usize, data.to_vec()));
        Ok(())
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        let mut far = self.bytes.lock().unwrap();
        far.land();
        let at = offset as usize;
        let word = &mut far.landed[at..at + width.bytes() as usize];
        let mut old = [0; 8];
        old[..word.len()].copy_from_slice(word);
        let old = u64::from_le_bytes(old);
        if let Some(new) = op.apply(old, width) {
            let len = word.len();
            word.copy_from_slice(&new.to_le_bytes()[..len]);
        }
        Ok(old)
    }

    fn queue(&self) -> Option<u64> {
        self.queue
    }

    fn atomic_to(
        &self,
        offset: u64,
        width: Width,
        op: AtomicOp,
        result: MemoryAddr,
    ) -> Result<bool, MemoryError> {
        if self.direct && result.kind == MemoryKind::Host {
            let old = self.atomic(offset, width, op)?;
            let old = match width {
                Width::Eight => old.to_le_bytes().to_vec(),
                Width::Four => (old as u32).to_be_bytes().to_vec(),
            };
            self.bytes.lock().unwrap().results.push((result.address, old));
        }
        Ok(self.direct && result.kind == MemoryKind::Host)
    }

    fn copy_in(&self, offset: u64, src: MemoryAddr, len: u64) -> Result<bool, MemoryError> {
        if self.direct {
            let src = src.address;
            let mut data = vec![0u8; len as usize];
            // SAFETY: the adapter passes addresses of host memory that it has checked.
            unsafe { std::ptr::copy_nonoverlapping(src as *const u8, data.as_mut_ptr(), data.len()) };
            self.write(offset, &data)?;
        }
        Ok(self.direct)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            return Err(MemoryError::Device(700));
        }
        self.bytes.lock().unwrap().land();
        Ok(())
    }
}

/// Creates a memory key for `memory` in the context of `pe`.
fn far_key(pe: &Pe, memory: &Arc<FarMemory>) -> u32 {
    let len = memory.len();
    let umem_id = pe.context.umem_reg(Arc::clone(memory) as _, 0, len).unwrap();
    let context = MkeyContext {
        a: true,
        rw: true,
        rr: true,
        lw: true,
        lr: true,
        qpn: MkeyContext::ANY_QP,
        pd: pe.pd,
        len,
        ..MkeyContext::default()
    };
    let context = context.with_access_mode(AccessMode::MTT);
    let create = CreateMkey { umem_valid: true, umem_id, context, ..CreateMkey::default() };
    key(call(&pe.context, &create).unwrap().mkey_index, 0)
}

fn with_far(direct: bool, body: impl Fn(&mut Pe, &mut Pe, &Arc<FarMemory>, &Arc<FarMemory>, [u32; 2])) {
    let run = |x: &Nic, y: &Nic| {
        let (mut a, mut b) = pair(x, y, Setup::default());
        let (near, far) =
            (Arc::new(FarMemory::new(300_000, direct)), Arc::new(FarMemory::new(300_000, direct)));
        let keys = [far_key(&a, &near), far_key(&b, &far)];
        body(&mut a, &mut b, &near, &far, keys);
    };
    let nic = loopback_nic();
    run(&nic, &nic);
    run(&wire_nic(Config::default()), &wire_nic(Config::default()));
}

#[test]
fn device_memory_is_complete_at_the_completion() {
    for direct in [false, true] {
        with_far(direct, |a, b, near, far, [lkey, rkey]| {
            let data = pattern(200_000, 1);
            a.fill(0, &data);
            // Host to device, device to device, device to host.
            a.run(&Wqe::Write { raddr: 8, rkey, laddr: 0, lkey: a.key, len: 200_000 });
            assert!(far.landed(8, 200_000) == data);
            a.run(&Wqe::Read { raddr: 8, rkey, laddr: 16, lkey, len: 200_000 });
            assert!(near.landed(16, 200_000) == data);
            a.run(&Wqe::Write { raddr: 24, rkey: b.key, laddr: 16, lkey, len: 200_000 });
            assert!(b.bytes(24, 200_000) == data);
            a.run(&Wqe::Read { raddr: 24, rkey: b.key, laddr: 0, lkey, len: 1000 });
            assert!(near.landed(0, 1000) == data[..1000]);
        });
    }
}

#[test]
fn device_memory_is_flushed_once_per_batch() {
    with_far(false, |a, _, _, far, [_, rkey]| {
        let before = far.flushes.load(Ordering::Relaxed);
        for i in 0..32 {
            a.write(&Wqe::WriteInline { raddr: 8 * i, rkey, data: Inline::from_u64(i) }, Flags::NONE);
        }
        a.run(&Wqe::Nop);
        assert_eq!(far.word(8 * 31), 31);
        let flushes = far.flushes.load(Ordering::Relaxed) - before;
        assert!(flushes <= 4, "{flushes} flushes for 32 writes that nobody waits for one by one");
    });
}

#[test]
fn signalled_wqes_to_device_memory_share_a_flush() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let far = Arc::new(FarMemory::new(4096, false));
    let rkey = far_key(&b, &far);
    let expected: Vec<u16> = (0..32)
        .map(|i| {
            a.write(&Wqe::WriteInline { raddr: 8 * i, rkey, data: Inline::from_u64(i) }, Flags::SIGNALED)
        })
        .collect();
    a.ring();
    for (i, index) in expected.into_iter().enumerate() {
        let cqe = a.cq.wait();
        assert_eq!((cqe.as_error().is_none(), cqe.tail.wqe_counter.get()), (true, index));
        assert_eq!(far.word(8 * i), i as u64, "landed before its completion");
    }
    let flushes = far.flushes.load(Ordering::Relaxed);
    assert!(flushes <= 4, "{flushes} flushes");
}

#[test]
fn device_memory_arrives_without_a_completion() {
    with_far(false, |a, _, _, far, [_, rkey]| {
        a.write(&Wqe::WriteInline { raddr: 0, rkey, data: Inline::from_u64(5) }, Flags::NONE);
        a.ring();
        crate::script::until("bytes in far memory", || far.word(0) == 5);
        a.run(&Wqe::Nop);
    });
}

#[test]
fn atomics_on_device_memory_follow_earlier_writes() {
    with_far(false, |a, _, near, far, [lkey, rkey]| {
        a.write(&Wqe::WriteInline { raddr: 64, rkey, data: Inline::from_u64(40) }, Flags::NONE);
        a.run(&Wqe::FetchAdd { raddr: 64, rkey, laddr: 0, lkey, add: 2 });
        assert_eq!((near.word(0), far.word(64)), (40, 42));
        a.run(&Wqe::MaskedFetchAdd32 { raddr: 68, rkey, laddr: 8, lkey, add: 7, boundary: 0 });
        assert_eq!(far.word(64), 42 | 7 << 32);
    });
}

#[test]
fn data_in_one_memory_lands_before_the_flag_in_another() {
    with_far(false, |a, b, _, far, [_, rkey]| {
        for round in 1..50u64 {
            a.fill(0, &[round as u8; 512]);
            a.write(&Wqe::Write { raddr: 0, rkey, laddr: 0, lkey: a.key, len: 512 }, Flags::NONE);
            a.write(&Wqe::WriteInline { raddr: 8, rkey: b.key, data: Inline::from_u64(round) }, Flags::NONE);
            a.ring();
            crate::script::until("flag", || b.heap.load_u64(8) == round);
            assert!(far.landed(0, 512) == [round as u8; 512]);
        }
        a.run(&Wqe::Nop);
    });
}

#[test]
fn old_values_of_far_atomics_arrive_with_the_completions_of_a_batch() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let far = Arc::new(FarMemory::new(4096, true));
    let (lkey, rkey) = (a.key, far_key(&b, &far));
    for i in 0..16 {
        a.write(&Wqe::FetchAdd { raddr: 8, rkey, laddr: 8 * i, lkey, add: 1 }, Flags::NONE);
    }
    a.run(&Wqe::MaskedFetchAdd32 { raddr: 8, rkey, laddr: 128, lkey, add: 1, boundary: 0 });
    let olds: Vec<u64> = (0..16).map(|i| a.heap.load_u64(8 * i)).collect();
    assert_eq!(olds, (0..16).collect::<Vec<u64>>());
    assert_eq!((a.heap.load_u32(128), far.word(8)), (16u32.swap_bytes(), 17));
    let flushes = far.flushes.load(Ordering::Relaxed);
    assert!(flushes <= 3, "{flushes} flushes for 17 atomics");
}

#[test]
fn memories_of_one_queue_are_flushed_together() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let far = [(); 2].map(|()| Arc::new(FarMemory { queue: Some(1), ..FarMemory::new(4096, false) }));
    let keys = [0, 1].map(|i| far_key(&b, &far[i]));
    for i in 0..32 {
        let (raddr, rkey) = (8 * i, keys[i as usize % 2]);
        a.write(&Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(i) }, Flags::NONE);
    }
    a.run(&Wqe::Nop);
    let flushes: u32 = far.iter().map(|far| far.flushes.load(Ordering::Relaxed)).sum();
    assert!(flushes <= 3, "{flushes} flushes for 32 writes to one queue");
}

#[test]
fn failing_memory_causes_an_error() {
    with_far(false, |a, _, _, far, [_, rkey]| {
        far.broken.store(true, Ordering::Relaxed);
        let syndrome = a.fail(&Wqe::WriteInline { raddr: 0, rkey, data: Inline::from_u64(5) });
        assert_eq!(syndrome, Syndrome::REMOTE_OP_ERR);
    });
}

#[test]
fn wqes_waiting_for_failing_memory_fail_in_order() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let far = Arc::new(FarMemory::new(4096, false));
    far.broken.store(true, Ordering::Relaxed);
    let rkey = far_key(&b, &far);
    for i in 0..3 {
        a.write(&Wqe::WriteInline { raddr: 8 * i, rkey, data: Inline::from_u64(i) }, Flags::SIGNALED);
    }
    a.ring();
    let got = [a.cq.wait(), a.cq.wait(), a.cq.wait()];
    let syndromes = got.map(|cqe| cqe.as_error().map(|error| error.syndrome));
    let flushed = Some(Syndrome::WR_FLUSH_ERR);
    assert_eq!(syndromes, [Some(Syndrome::REMOTE_OP_ERR), flushed, flushed]);
    assert_eq!(got.map(|cqe| cqe.tail.wqe_counter.get()), [0, 1, 2]);
}

/// Memory whose implementation panics.
struct Panics;

// SAFETY: it returns no host pointer.
unsafe impl Memory for Panics {
    fn len(&self) -> u64 {
        4096
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        panic!("this memory cannot be read")
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), MemoryError> {
        panic!("this memory cannot be written")
    }

    fn atomic(&self, _: u64, _: Width, _: AtomicOp) -> Result<u64, MemoryError> {
        panic!("this memory has no atomics")
    }
}

#[test]
fn a_panic_causes_error_completions() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let (mut c, d) = pair(&nic, &nic, Setup::default());
    let umem_id = b.context.umem_reg(Arc::new(Panics), 0, 4096).unwrap();
    let context =
        MkeyContext { rw: true, qpn: MkeyContext::ANY_QP, pd: b.pd, len: 4096, ..MkeyContext::default() };
    let context = context.with_access_mode(AccessMode::MTT);
    let create = CreateMkey { umem_valid: true, umem_id, context, ..CreateMkey::default() };
    let rkey = key(call(&b.context, &create).unwrap().mkey_index, 0);
    let wqe = Wqe::WriteInline { raddr: 0, rkey, data: Inline::from_u32(1) };
    assert_eq!(a.fail(&wqe), Syndrome::WR_FLUSH_ERR);
    let found = nic.violations();
    assert!(found[0].rule == Rule::Engine && found[0].detail.contains("cannot be written"), "{found:?}");
    // The engine continues, so the other QPs get their errors too.
    let wqe = Wqe::WriteInline { raddr: 0, rkey: d.key, data: Inline::from_u32(1) };
    assert_eq!(c.fail(&wqe), Syndrome::WR_FLUSH_ERR);
}
