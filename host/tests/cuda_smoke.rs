//! Tests of the CUDA layer on a real GPU. Without a GPU, each test prints that it was skipped, and why.

use std::io::Write;
use std::ops::Deref;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rushmem::Ptx;
use rushmem::cuda::driver_gate::{DRIVER_GATE, JobId};
use rushmem::cuda::{
    CopyEngine, Cuda, CudaMemory, Device, DeviceBuffer, Error, Event, HostKind, Image, Module, PinnedBuffer,
    RegisteredHost, Stream,
};
use rushmem::native::LaunchConfig;
use rushmem_softnic::{AtomicOp, Memory, MemoryAddr, MemoryError, MemoryKind, Width};

/// PTX of three kernels.
///
/// - `add`: computes `c[i] = a[i] + b[i]` for `i < n`.
/// - `answer`: waits for `flags[0]` to become nonzero, for at most `limit` ns, and stores `flags[0] + 41` to
///   `flags[1]`.
/// - `fault`: writes to an unmapped address.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    mul.wide.u32 %rd4, %r5, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    add.u64 %rd7, %rd3, %rd4;
    ld.global.u32 %r6, [%rd5];
    ld.global.u32 %r7, [%rd6];
    add.u32 %r8, %r6, %r7;
    st.global.u32 [%rd7], %r8;
done:
    ret;
}

.visible .entry answer(.param .u64 flags, .param .u64 limit)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [flags];
    ld.param.u64 %rd2, [limit];
    mov.u64 %rd3, %globaltimer;
wait:
    ld.acquire.sys.global.u32 %r1, [%rd1];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra met;
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p2, %rd5, %rd2;
    @%p2 bra wait;
met:
    add.u32 %r2, %r1, 41;
    st.release.sys.global.u32 [%rd1+4], %r2;
    ret;
}

.visible .entry fault()
{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 8;
    st.global.u64 [%rd1], %rd1;
    ret;
}
";

/// Time limit of kernels that wait for the CPU, in nanoseconds. Longer than any test takes.
const KERNEL_LIMIT_NS: u64 = 20_000_000_000;

const DEADLINE: Duration = Duration::from_secs(30);

/// The first GPU, locked by one test at a time: a waiting kernel would delay the allocations of other tests.
struct Gpu {
    device: Arc<Device>,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Gpu {
    type Target = Arc<Device>;

    fn deref(&self) -> &Arc<Device> {
        &self.device
    }
}

/// Opens the first GPU. Without one, prints that `test` is skipped and why, and returns `None`.
fn gpu(test: &str) -> Option<Gpu> {
    const NO_DEVICE: u32 = 100;
    static TURN: Mutex<()> = Mutex::new(());
    let reason = match Cuda::load() {
        Ok(cuda) if cuda.device_count().unwrap() == 0 => "the CUDA driver shows no GPU".to_owned(),
        Ok(cuda) => {
            let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            return Some(Gpu { device: Device::open(cuda, 0).unwrap(), _turn: turn });
        }
        Err(Error::NoDriver { reason, .. }) => format!("no CUDA driver ({reason})"),
        Err(error) if error.code() == Some(NO_DEVICE) => error.to_string(),
        Err(error) => panic!("{error}"),
    };
    // Not `eprintln!`, which the test harness captures.
    std::io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes()).unwrap();
    None
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Returns the two flags at `start` by which a kernel and the CPU communicate.
fn flags(start: NonNull<u8>) -> [&'static AtomicU32; 2] {
    let start = start.as_ptr().cast::<u32>();
    // SAFETY: the tests keep the memory, of at least 8 aligned bytes, while they use the flags; all access is atomic.
    unsafe { [AtomicU32::from_ptr(start), AtomicU32::from_ptr(start.add(1))] }
}

fn add(module: &Arc<Module>, stream: &Stream, n: u32) -> Vec<u32> {
    let len = n as usize * 4;
    let a = DeviceBuffer::new(stream.device(), len).unwrap();
    let b = DeviceBuffer::new(stream.device(), len).unwrap();
    let c = DeviceBuffer::zeroed(stream, len).unwrap();
    a.write(stream, 0, &bytes(0..n)).unwrap();
    b.write(stream, 0, &bytes((0..n).map(|i| i * 10))).unwrap();
    let arguments = [a.address(), b.address(), c.address()].map(u64::to_ne_bytes);
    let [pa, pb, pc] = &arguments;
    let kernel = module.function("add").unwrap();
    // SAFETY: three buffers of `n` words, which live until the stream is waited for.
    unsafe {
        kernel.launch(stream, LaunchConfig::new(n.div_ceil(128), 128), &[pa, pb, pc, &n.to_ne_bytes()])
    }
    .unwrap();
    stream.wait(DEADLINE).unwrap();
    let mut sums = vec![0; len];
    c.read(stream, 0, &mut sums).unwrap();
    words(&sums)
}

#[test]
fn a_gpu_reports_its_attributes() {
    let Some(gpu) = gpu("a_gpu_reports_its_attributes") else { return };
    let cuda = gpu.cuda();
    println!("driver for CUDA {:?}, {:?}: {:#?}", cuda.version(), gpu.device, gpu.attributes());
    let attributes = gpu.attributes();
    assert!(!attributes.name.is_empty() && attributes.multiprocessors > 0);
    assert!(attributes.unified_addressing);
    assert!(gpu.free_memory().unwrap() <= attributes.memory);
    let count = cuda.device_count().unwrap();
    let error = Device::open(cuda, count).unwrap_err();
    assert_eq!(error, Error::NoDevice { ordinal: count, count });
}

#[test]
fn a_kernel_adds_vectors() {
    let Some(gpu) = gpu("a_kernel_adds_vectors") else { return };
    let module = Module::load(&gpu, "smoke", PTX).unwrap();
    let kernel = module.function("add").unwrap();
    println!("{}: {:?}", kernel.name(), kernel.attributes());
    assert!(kernel.attributes().registers > 0 && kernel.attributes().max_threads >= 128);
    let stream = Stream::new(&gpu).unwrap();
    assert!(add(&module, &stream, 1000).into_iter().eq((0..1000).map(|i| i * 11)));
}

#[test]
fn several_threads_use_several_gpus() {
    let Some(gpu) = gpu("several_threads_use_several_gpus") else { return };
    let cuda = gpu.cuda();
    let count = cuda.device_count().unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for ordinal in (0..count).cycle().skip(thread).take(2 * count as usize) {
                    let gpu = Device::open(cuda, ordinal).unwrap();
                    let module = Module::load(&gpu, "smoke", PTX).unwrap();
                    let stream = Stream::new(&gpu).unwrap();
                    assert!(add(&module, &stream, 300).into_iter().eq((0..300).map(|i| i * 11)));
                }
            });
        }
    });
}

/// Launches the kernel `answer` on flags in host memory. Checks that it waits, that copies proceed in the meantime, and
/// that it answers.
fn ping_pong(gpu: &Arc<Device>, start: NonNull<u8>, address: u64) {
    let [ping, pong] = flags(start);
    let module = Module::load(gpu, "smoke", PTX).unwrap();
    let kernel = module.function("answer").unwrap();
    let (work, mark) = (Stream::new(gpu).unwrap(), Event::new(gpu).unwrap());
    let engine = Arc::new(CopyEngine::new(gpu, None).unwrap());
    let buffer = Arc::new(DeviceBuffer::zeroed(&work, 1 << 16).unwrap());
    let memory = CudaMemory::new(buffer, engine);
    kernel.check_resident(LaunchConfig::new(1, 1), 1).unwrap();
    let arguments = [address, KERNEL_LIMIT_NS].map(u64::to_ne_bytes);
    // SAFETY: the flags live until the kernel has exited, which is waited for below.
    unsafe { kernel.launch(&work, LaunchConfig::new(1, 1), &[&arguments[0], &arguments[1]]) }.unwrap();
    mark.record(&work).unwrap();

    let limit = Duration::from_millis(20);
    assert!(matches!(work.wait(limit), Err(Error::Deadline { .. })));
    assert!(!work.query().unwrap() && !mark.query().unwrap());
    let begin = Instant::now();
    for step in 0..100u64 {
        memory.write(step * 8, &step.to_le_bytes()).unwrap();
        memory.flush().unwrap();
    }
    println!("write of 8 bytes and flush beside a kernel: {:?}", begin.elapsed() / 100);
    let mut last = [0; 8];
    memory.read(99 * 8, &mut last).unwrap();
    assert_eq!(u64::from_le_bytes(last), 99);
    assert!(!work.query().unwrap(), "the kernel still waits");

    let begin = Instant::now();
    ping.store(1, Ordering::Release);
    while pong.load(Ordering::Acquire) == 0 {
        assert!(begin.elapsed() < DEADLINE);
        std::hint::spin_loop();
    }
    println!("flag to the GPU and answer back: {:?}", begin.elapsed());
    assert_eq!(pong.load(Ordering::Acquire), 42);
    mark.wait(DEADLINE).unwrap();
    mark.synchronize().unwrap();
    work.synchronize().unwrap();
    assert!(work.query().unwrap());
}

#[test]
fn a_kernel_waits_for_a_flag_in_page_locked_memory() {
    let Some(gpu) = gpu("a_kernel_waits_for_a_flag_in_page_locked_memory") else { return };
    let host = PinnedBuffer::new(&gpu, 4096).unwrap();
    ping_pong(&gpu, host.as_ptr(), host.address());
}

#[test]
fn a_kernel_waits_for_a_flag_in_registered_memory() {
    let Some(gpu) = gpu("a_kernel_waits_for_a_flag_in_registered_memory") else { return };
    let layout = std::alloc::Layout::from_size_align(8192, 4096).unwrap();
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    // SAFETY: two pages that are freed below, after the registration.
    let host = unsafe { RegisteredHost::new(&gpu, start, 8192, HostKind::Memory) }.unwrap();
    assert_eq!((host.as_ptr(), host.len()), (start, 8192));
    ping_pong(&gpu, start, host.address());
    // SAFETY: as above; it fails.
    let again = unsafe { RegisteredHost::new(&gpu, start, 8192, HostKind::Memory) }.err().unwrap();
    assert!(again.to_string().contains("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), "{again}");
    drop(host);
    // SAFETY: allocated above with this layout, and no longer registered.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let Some(gpu) = gpu("a_stream_waits_for_an_event_of_another") else { return };
    let (first, second) = (Stream::new(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    let host = PinnedBuffer::new(&gpu, 4096).unwrap();
    let [ping, pong] = flags(host.as_ptr());
    let module = Module::load(&gpu, "smoke", PTX).unwrap();
    let kernel = module.function("answer").unwrap();
    let mark = Event::new(&gpu).unwrap();
    let arguments = [host.address(), KERNEL_LIMIT_NS].map(u64::to_ne_bytes);
    // SAFETY: the flags live until the streams are waited for below.
    unsafe { kernel.launch(&first, LaunchConfig::new(1, 1), &[&arguments[0], &arguments[1]]) }.unwrap();
    mark.record(&first).unwrap();
    second.wait_event(&mark).unwrap();
    thread::sleep(Duration::from_millis(5));
    assert!(!second.query().unwrap());
    ping.store(2, Ordering::Release);
    second.wait(DEADLINE).unwrap();
    assert_eq!(pong.load(Ordering::Acquire), 43);
}

/// Checks copies and atomics by the software ConnectX on two GPU memories of the same copy engine.
fn check_memory(gpu: &Arc<Device>, a: &CudaMemory, b: &CudaMemory) {
    // More bytes than fit into the staging buffer, at odd offsets.
    let data = bytes((0..1_000_000u32).map(|i| i.wrapping_mul(2_654_435_761)));
    a.write(3, &data).unwrap();
    let mut back = vec![0; data.len()];
    a.read(3, &mut back).unwrap();
    assert!(back == data);

    let place = a.place().unwrap();
    assert_eq!(b.copy_in(16, place.after(3), data.len() as u64), Ok(true));
    b.flush().unwrap();
    b.read(16, &mut back).unwrap();
    assert!(back == data);
    let host = PinnedBuffer::new(gpu, 4096).unwrap();
    let place = place_of(&host);
    assert_eq!(b.copy_out(16, place, 4096), Ok(true));
    b.flush().unwrap();
    // SAFETY: the copy is complete, and nobody writes any more.
    assert!(unsafe { std::slice::from_raw_parts(host.as_ptr().as_ptr(), 4096) } == &data[..4096]);

    let add = AtomicOp::Add { add: 3, boundary: 0 };
    a.write(64, &12u64.to_le_bytes()).unwrap();
    assert_eq!(a.atomic(64, Width::Eight, add), Ok(12));
    assert_eq!(a.atomic(64, Width::Four, add), Ok(15));
    let swap = AtomicOp::CompareSwap { compare: 0, swap: 1, compare_mask: !0, swap_mask: !0 };
    assert_eq!(a.atomic(64, Width::Eight, swap), Ok(18));
    assert_eq!(a.atomic(64, Width::Eight, add), Ok(18));
    assert_eq!(a.atomic(63, Width::Eight, add), Err(MemoryError::Misaligned { offset: 63 }));
    assert_eq!(a.read(a.len(), &mut [0]), Err(MemoryError::OutOfRange { offset: a.len(), len: 1 }));
    let end = a.len() - 1;
    assert_eq!(a.write(end, &[1, 2]), Err(MemoryError::OutOfRange { offset: end, len: 2 }));
}

fn memories(gpu: &Arc<Device>, service: Option<&Image>) -> (Arc<CopyEngine>, [CudaMemory; 2]) {
    let stream = Stream::new(gpu).unwrap();
    let engine = Arc::new(CopyEngine::new(gpu, service).unwrap());
    let new = || {
        let buffer = Arc::new(DeviceBuffer::zeroed(&stream, 5 << 20).unwrap());
        CudaMemory::new(buffer, Arc::clone(&engine))
    };
    let pair = [new(), new()];
    (engine, pair)
}

#[test]
fn the_nic_moves_gpu_memory_by_copies() {
    let Some(gpu) = gpu("the_nic_moves_gpu_memory_by_copies") else { return };
    let (_, [a, b]) = memories(&gpu, None);
    check_memory(&gpu, &a, &b);
    let result = PinnedBuffer::new(&gpu, 4096).unwrap();
    let place = place_of(&result);
    let add = AtomicOp::Add { add: 1, boundary: 0 };
    assert_eq!(a.atomic_to(0, Width::Eight, add, place), Ok(false));
}

fn place_of(buffer: &PinnedBuffer) -> MemoryAddr {
    MemoryAddr { address: buffer.address(), kind: MemoryKind::PageLocked }
}

/// Starts an atomic that the service kernel executes. Retries while that kernel is being launched.
fn add_by_service(memory: &CudaMemory, offset: u64, result: MemoryAddr) {
    let (add, begin) = (AtomicOp::Add { add: 1, boundary: 0 }, Instant::now());
    while memory.atomic_to(offset, Width::Eight, add, result) != Ok(true) {
        assert!(begin.elapsed() < DEADLINE, "the service kernel does not begin");
    }
}

fn service_image() -> Image<'static> {
    let Ptx { name, image: ptx, code, .. } = rushmem::ptx!("rushmem_service");
    Image { name, ptx, code, arch: None }
}

/// A waiting kernel, registered with the driver gate. Dropping it makes the kernel exit.
struct Waiting {
    host: PinnedBuffer,
    stream: Arc<Stream>,
    _module: Arc<Module>,
}

impl Waiting {
    fn launch(gpu: &Arc<Device>) -> Self {
        let (host, stream) = (PinnedBuffer::new(gpu, 4096).unwrap(), Arc::new(Stream::new(gpu).unwrap()));
        let module = Module::load(gpu, "smoke", PTX).unwrap();
        let kernel = module.function("answer").unwrap();
        let arguments = [host.address(), KERNEL_LIMIT_NS].map(u64::to_ne_bytes);
        let launch = DRIVER_GATE.begin_launch(JobId::unique());
        // SAFETY: the flags live until the kernel has exited: see `drop`.
        unsafe { kernel.launch(&stream, LaunchConfig::new(1, 1), &[&arguments[0], &arguments[1]]) }.unwrap();
        launch.watch(&stream);
        Self { host, stream, _module: module }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        flags(self.host.as_ptr())[0].store(1, Ordering::Release);
        self.stream.wait(DEADLINE).unwrap();
    }
}

/// Copies between GPU memories with all alignments, and with lengths for a thread, a warp and a block. Compares the
/// result with a model in host memory.
fn check_copies(a: &CudaMemory, b: &CudaMemory, result: &PinnedBuffer) {
    let mut model = vec![0; 1 << 20];
    for (i, byte) in model.iter_mut().enumerate() {
        *byte = (i * 31 + i / 255) as u8;
    }
    a.write(0, &model).unwrap();
    let mut expected = vec![0; 1 << 20];
    b.write(0, &expected).unwrap();
    let (mut at, mut seed) = (0, 1u64);
    while at < (1 << 20) - 20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (len, from) =
            ([seed % 40, seed % 700, seed % 19_000][at % 3] as usize, (seed >> 40) as usize % 1_000_000);
        let (len, gap) = (len.min((1 << 20) - from), (seed >> 20) as usize % 17);
        at += gap;
        assert_eq!(b.copy_in(at as u64, a.place().unwrap().after(from as u64), len as u64), Ok(true));
        expected[at..at + len].copy_from_slice(&model[from..from + len]);
        at += len;
    }
    assert_eq!(b.copy_out(0, place_of(result), 1 << 20), Ok(true));
    b.flush().unwrap();
    // SAFETY: the copy is complete, and nobody writes any more.
    assert!(unsafe { std::slice::from_raw_parts(result.as_ptr().as_ptr(), 1 << 20) } == expected);
}

/// Calls `work`, which performs `count` steps, and prints the average time of a step.
fn timed(what: &str, count: u32, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    println!("{what}: {:?} each", begin.elapsed() / count);
}

fn time_atomics(a: &CudaMemory, b: &CudaMemory, place: MemoryAddr) {
    let add = AtomicOp::Add { add: 1, boundary: 0 };
    timed("atomic with its result", 1000, || {
        (0..1000).for_each(|_| assert!(a.atomic(4096, Width::Eight, add).is_ok()));
    });
    timed("write of 8 bytes and flush", 1000, || {
        for i in 0..1000u64 {
            a.write(8 * i, &i.to_le_bytes()).unwrap();
            a.flush().unwrap();
        }
    });
    timed("write of 8 bytes, flush after 64", 20_000, || {
        for i in 0..20_000u64 {
            a.write(8 * i, &i.to_le_bytes()).unwrap();
            if i % 64 == 63 {
                a.flush().unwrap();
            }
        }
        a.flush().unwrap();
    });
    timed("atomic with its result in host memory, flush after 64", 20_000, || {
        for i in 0..20_000u64 {
            add_by_service(a, 8 * (i * 7919 % 4096), place.after(8 * (i % 64)));
            if i % 64 == 63 {
                a.flush().unwrap();
            }
        }
        a.flush().unwrap();
    });
    timed("atomic with its result in GPU memory, flush after 64", 20_000, || {
        let place = b.place().unwrap();
        for i in 0..20_000u64 {
            add_by_service(a, 8 * (i * 7919 % 4096), place.after(8 * (i % 64)));
            if i % 64 == 63 {
                a.flush().unwrap();
            }
        }
        a.flush().unwrap();
    });
}

fn time_copies(a: &CudaMemory, b: &CudaMemory, place: MemoryAddr) {
    for len in [64, 1 << 10, 4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        timed(&format!("copy of {len} bytes within the GPU and flush"), 100, || {
            for _ in 0..100 {
                b.copy_in(0, a.place().unwrap(), len).unwrap();
                b.flush().unwrap();
            }
        });
        timed(&format!("copy of {len} bytes to page-locked memory and flush"), 100, || {
            for _ in 0..100 {
                b.copy_out(0, place, len).unwrap();
                b.flush().unwrap();
            }
        });
        timed(&format!("copy of {len} bytes from page-locked memory and flush"), 100, || {
            for _ in 0..100 {
                b.copy_in(0, place, len).unwrap();
                b.flush().unwrap();
            }
        });
    }
}

#[test]
fn the_nic_moves_gpu_memory_by_the_service_kernel() {
    let Some(gpu) = gpu("the_nic_moves_gpu_memory_by_the_service_kernel") else { return };
    let (engine, [a, b]) = memories(&gpu, Some(&service_image()));
    let result = PinnedBuffer::new(&gpu, 1 << 20).unwrap();
    let place = place_of(&result);
    let add = AtomicOp::Add { add: 1, boundary: 0 };
    // No kernel needs the service.
    assert_eq!(a.atomic_to(4096, Width::Eight, add, place), Ok(false));

    let kernel = Waiting::launch(&gpu);
    add_by_service(&a, 4096, place);
    a.flush().unwrap();

    check_copies(&a, &b, &result);
    time_atomics(&a, &b, place);
    time_copies(&a, &b, place);

    // A launch that needs the whole GPU holds the service off until it has exited.
    let bar = engine.bar().unwrap();
    while a.atomic_to(4096, Width::Eight, add, place) == Ok(true) {
        a.flush().unwrap();
    }
    bar.end_after(&kernel.stream).unwrap();
    assert_eq!(a.atomic_to(4096, Width::Eight, add, place), Ok(false));
    drop(kernel);
    check_memory(&gpu, &a, &b);
}

#[test]
fn blocking_call_stops_the_service_kernel() {
    let Some(gpu) = gpu("blocking_call_stops_the_service_kernel") else { return };
    let (_engine, [a, b]) = memories(&gpu, Some(&service_image()));
    let result = PinnedBuffer::new(&gpu, 4096).unwrap();
    let place = place_of(&result);
    for _ in 0..20 {
        let kernel = Waiting::launch(&gpu);
        let add = AtomicOp::Add { add: 1, boundary: 0 };
        add_by_service(&a, 8, place);
        thread::scope(|scope| {
            let allocating = scope.spawn(|| drop(PinnedBuffer::new(&gpu, 4096).unwrap()));
            let begin = Instant::now();
            // The kernel is running, so the service is needed.
            while begin.elapsed() < Duration::from_millis(5) {
                a.atomic(8, Width::Eight, add).unwrap();
            }
            assert!(!allocating.is_finished());
            drop(kernel);
        });
    }
    check_memory(&gpu, &a, &b);
}

#[test]
fn errors_name_the_mistake() {
    let Some(gpu) = gpu("errors_name_the_mistake") else { return };
    let error = Module::load(&gpu, "broken", &PTX.replace("mad.lo.u32", "mad.lo.u99")).err().unwrap();
    println!("{error}");
    assert!(matches!(&error, Error::Ptx { log, .. } if log.contains("u99")), "{error}");

    let module = Module::load(&gpu, "smoke", PTX).unwrap();
    let error = module.function("subtract").err().unwrap();
    assert_eq!(error.to_string(), "smoke has no kernel named subtract");

    let kernel = module.function("add").unwrap();
    let error = kernel.check_resident(LaunchConfig::new(1_000_000, 128), 2).unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::NotResident { sharers: 2, .. }), "{error}");
    assert_eq!(
        kernel.check_resident(LaunchConfig::new(kernel.max_resident_blocks(128, 0).unwrap(), 128), 1),
        Ok(())
    );

    let stream = Stream::new(&gpu).unwrap();
    if gpu.cuda().version() >= (12, 4) {
        // SAFETY: refused before it reaches the GPU.
        let error =
            unsafe { kernel.launch(&stream, LaunchConfig::new(1, 1), &[&[0; 8], &[0; 4]]) }.unwrap_err();
        let expected = "kernel add has parameters of [8, 8, 8, 4] bytes, but the launch passes arguments of [8, 4] bytes";
        assert_eq!(error.to_string(), expected);
    }
    let n = 0u32.to_ne_bytes();
    // SAFETY: with n = 0 the kernel accesses no memory, and 2000 threads are refused anyway.
    let error =
        unsafe { kernel.launch(&stream, LaunchConfig::new(1, 2000), &[&[0; 8], &[0; 8], &[0; 8], &n]) }
            .unwrap_err();
    assert!(error.to_string().contains("cuLaunchKernelEx of add (1 blocks x 2000 threads"), "{error}");

    let error = DeviceBuffer::new(&gpu, 1 << 50).err().unwrap();
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    let attributes = gpu.attributes();
    kernel.set_dynamic_shared(attributes.shared_bytes_per_block).unwrap();
    let error = kernel.set_dynamic_shared(attributes.shared_bytes_per_block + 1024).unwrap_err();
    assert!(error.to_string().contains("bytes of shared memory of add"), "{error}");
}

#[test]
fn kernel_fault_destroys_the_context() {
    if gpu("kernel_fault_destroys_the_context").is_none() {
        return;
    }
    // A fault destroys the process's context, so it happens in a separate process.
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--ignored", "--exact", "fault_in_separate_process"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "loses the GPU's context: kernel_fault_destroys_the_context runs it in another process"]
fn fault_in_separate_process() {
    let Some(gpu) = gpu("fault_in_separate_process") else { return };
    let module = Module::load(&gpu, "smoke", PTX).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let kernel = module.function("fault").unwrap();
    // SAFETY: the fault is confined to the context of this process, which is not used for anything else.
    unsafe { kernel.launch(&stream, LaunchConfig::new(1, 1), &[]) }.unwrap();
    let error = stream.wait(DEADLINE).unwrap_err();
    assert!(error.is_sticky(), "{error}");
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert!(DeviceBuffer::new(&gpu, 64).err().unwrap().is_sticky());
}
