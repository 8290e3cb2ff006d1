//! Modules and kernels: loading, checks and launches.
//!
//! Loading and unloading are blocking driver calls, so they pass the driver gate. Launches must never block inside the
//! driver, so everything that a first launch would trigger happens at load time.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUfunction_attribute, CUjit_option, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUlimit, CUmodule, CUresult,
};

use crate::device::ExclusiveContext;
use crate::error::{call_error, check, check_with, log_drop};
use crate::ptx::{Image, PtxKernel, ptx_kernels};
use crate::{Device, Error, Stream};
use rushmem_base::LaunchConfig;
use rushmem_base::lock;

/// Size of the buffer for messages of the driver's compiler.
const LOG_BYTES: usize = 64 * 1024;

/// A set of kernels, loaded to a GPU.
///
/// Loading and unloading block until no PE of this process runs a kernel.
pub struct Module {
    device: Arc<Device>,
    name: String,
    raw: CUmodule,
    kernels: HashMap<String, PtxKernel>,
}

// SAFETY: any thread may use the driver's modules. The driver does its own locking.
unsafe impl Send for Module {}
// SAFETY: see above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles PTX for this GPU and loads it. `name` refers to the module in errors.
    ///
    /// # Errors
    /// - [`Error::OldGpu`] if the PTX is for newer GPUs only
    /// - [`Error::Ptx`] if the driver rejects the PTX; the error has all messages of its compiler
    /// - [`Error::ZeroByte`] if the PTX contains a zero byte
    /// - [`Error::Call`] if the context is lost
    pub fn load(device: &Arc<Device>, name: &str, ptx: &str) -> Result<Arc<Self>, Error> {
        Self::load_image(&device.exclusive()?, device, &Image { name, ptx, code: &[], arch: None })
    }

    /// Loads a module and returns all its kernels by name.
    ///
    /// The machine code is used if it matches this GPU; otherwise, the driver compiles the PTX. The call passes the
    /// driver gate once for the module and all its kernels.
    ///
    /// # Errors
    /// - [`Error::OldGpu`] if the PTX is for newer GPUs only
    /// - [`Error::Ptx`] if the driver rejects the code or the PTX
    /// - [`Error::ZeroByte`] if the PTX contains a zero byte
    /// - [`Error::Call`] if the driver refuses to load a kernel, or cannot reserve its local memory
    pub fn load_kernels(device: &Arc<Device>, image: &Image) -> Result<HashMap<String, Function>, Error> {
        let exclusive = device.exclusive()?;
        let module = Self::load_image(&exclusive, device, image)?;
        let names = module.kernels.keys();
        names.map(|name| Ok((name.clone(), module.load_function(&exclusive, name)?))).collect()
    }

    /// Loads the machine code or, if it does not match this GPU, the PTX.
    fn load_image(_: &ExclusiveContext, device: &Arc<Device>, image: &Image) -> Result<Arc<Self>, Error> {
        let (name, code) = (image.name, image.code());
        let text = image.text(device.attributes().compute_capability)?;
        let kernels = ptx_kernels(&text);
        let text = c_string(&text, || format!("the PTX of {name}"))?;
        let mut loaded = Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, String::new()));
        if !code.is_empty() {
            // SAFETY: a whole file from ptxas. Its header contains its length.
            loaded = unsafe { load_data(code.as_ptr().cast()) };
        }
        if let Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, _)) = loaded {
            tracing::debug!("the driver compiles the PTX of {name}");
            // SAFETY: the text is zero-terminated.
            loaded = unsafe { load_data(text.as_ptr().cast()) };
        }
        let raw = loaded.map_err(|(result, log)| {
            let cause = call_error("cuModuleLoadDataEx", result, String::new());
            Error::Ptx { module: name.to_owned(), cause, log }
        })?;
        Ok(Arc::new(Self { device: Arc::clone(device), name: name.to_owned(), raw, kernels }))
    }

    /// Returns a kernel of the module, loaded completely, which leaves nothing to load for its first launch.
    ///
    /// # Errors
    /// - [`Error::NoFunction`] if the module has no kernel of this name
    /// - [`Error::ZeroByte`] if the name contains a zero byte
    /// - [`Error::Call`] if the driver refuses, or cannot reserve the kernel's local memory
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Error> {
        self.load_function(&self.device.exclusive()?, name)
    }

    /// Loads the kernel `name`. The guard `exclusive` proves that the caller has passed the driver gate.
    fn load_function(self: &Arc<Self>, exclusive: &ExclusiveContext, name: &str) -> Result<Function, Error> {
        let symbol = c_string(name, || format!("the kernel name {name:?}"))?;
        let mut raw: CUfunction = ptr::null_mut();
        // SAFETY: a live module, a C string, and a live variable.
        match unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, symbol.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => {
                return Err(Error::NoFunction { module: self.name.clone(), name: name.to_owned() });
            }
            result => check_with("cuModuleGetFunction", result, || format!("for {name}"))?,
        }
        let known = self.kernels.get(name).copied();
        let parameter_sizes = match self.device.cuda().version() >= (12, 4) {
            true => {
                // SAFETY: a function of this context. The driver is new enough for the call.
                let result = unsafe { sys::cuFuncLoad(raw) };
                check_with("cuFuncLoad", result, || format!("of {name}"))?;
                Some(parameter_sizes(raw, known.map_or(0, |kernel| kernel.parameters))?)
            }
            // Older drivers rely on CUDA_MODULE_LOADING=EAGER, see `environment`.
            false => None,
        };
        let attributes = FunctionAttributes::of(raw)?;
        reserve_local_memory(exclusive, attributes.local_bytes, name)?;
        let awaits_stream = known.is_some_and(|kernel| kernel.awaits_stream);
        let (module, name) = (Arc::clone(self), name.to_owned());
        Ok(Function { module, name, raw, attributes, parameter_sizes, awaits_stream })
    }
}

/// Reserves at least `bytes` of local memory per thread in the current context.
///
/// Otherwise the first launch of the kernel would reserve it, and block in the driver until all running kernels have
/// completed.
fn reserve_local_memory(_: &ExclusiveContext, bytes: u32, kernel: &str) -> Result<(), Error> {
    // The limit only ever grows. Without the lock, two loading threads could overwrite each other's limit with a
    // smaller one.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = lock(&TURN);
    let limit = CUlimit::CU_LIMIT_STACK_SIZE;
    let mut reserved = 0;
    // SAFETY: a live variable.
    check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&mut reserved, limit) })?;
    if bytes as usize <= reserved {
        return Ok(());
    }
    // SAFETY: a context is current.
    let result = unsafe { sys::cuCtxSetLimit(limit, bytes as usize) };
    check_with("cuCtxSetLimit", result, || {
        format!("for {bytes} bytes of local memory per thread of {kernel}")
    })
}

/// Loads PTX or machine code into the current context. An error includes the messages of the driver's compiler.
///
/// # Safety
/// `image` points to zero-terminated PTX, or to a complete file of machine code.
unsafe fn load_data(image: *const c_void) -> Result<CUmodule, (CUresult, String)> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The size is passed in place of a pointer.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
    let (count, mut raw) = (options.len() as c_uint, ptr::null_mut());
    // SAFETY: the caller vouches for `image`. There are `count` options and values, and the log has the given length.
    // The module is unloaded in `Module::drop`.
    let result =
        unsafe { sys::cuModuleLoadDataEx(&mut raw, image, count, options.as_mut_ptr(), values.as_mut_ptr()) };
    if result == CUresult::CUDA_SUCCESS {
        return Ok(raw);
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG_BYTES);
    Err((result, String::from_utf8_lossy(&log[..end]).trim_end().to_owned()))
}

impl Drop for Module {
    fn drop(&mut self) {
        let unload = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: loaded in `load_image`, unloaded once. Functions hold an `Arc` of the module, so none is left.
            check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.raw) })
        };
        log_drop("a module", unload());
    }
}

/// Resources that a compiled kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// Number of registers per thread.
    pub registers: u32,
    /// Local memory per thread in bytes, for spilled registers and arrays.
    pub local_bytes: u32,
    /// Static shared memory per block in bytes.
    pub shared_bytes: u32,
    /// Largest possible number of threads per block.
    pub max_threads: u32,
}

impl FunctionAttributes {
    fn of(function: CUfunction) -> Result<Self, Error> {
        use CUfunction_attribute::*;
        let get = |attribute: CUfunction_attribute| {
            let mut value: c_int = 0;
            // SAFETY: a function of the current context, and a live variable.
            let result = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) };
            check_with("cuFuncGetAttribute", result, || format!("{attribute:?}"))?;
            Ok::<u32, Error>(value.max(0) as u32)
        };
        Ok(Self {
            registers: get(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }
}

/// A kernel of a [`Module`].
pub struct Function {
    module: Arc<Module>,
    name: String,
    raw: CUfunction,
    attributes: FunctionAttributes,
    /// Sizes of the parameters in bytes, if the driver reports them (CUDA 12.4 and newer).
    parameter_sizes: Option<Vec<usize>>,
    /// Whether the kernel itself waits for the earlier work of its stream. If it does, it may start before that completes.
    awaits_stream: bool,
}

// SAFETY: any thread may use the driver's functions. The driver does its own locking.
unsafe impl Send for Function {}
// SAFETY: see above.
unsafe impl Sync for Function {}

impl Function {
    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the resources that the kernel uses.
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.attributes
    }

    /// Permits launches with up to `bytes` of dynamic shared memory per block. The default limit is 48 KiB.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has less: see
    ///   [`Attributes::shared_bytes_per_block`](super::Attributes::shared_bytes_per_block)
    pub fn set_dynamic_shared(&self, bytes: u32) -> Result<(), Error> {
        let _current = self.module.device.make_current()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a live function.
        let result = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes as c_int) };
        check_with("cuFuncSetAttribute", result, || {
            format!("for {bytes} bytes of shared memory of {}", self.name)
        })
    }

    /// Returns how many blocks can be resident on the whole GPU if it runs nothing else.
    ///
    /// Each block has `threads` threads and `shared_bytes` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn max_resident_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        let _current = self.module.device.make_current()?;
        let mut per_multiprocessor: c_int = 0;
        // SAFETY: a live function and a live variable.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut per_multiprocessor,
                self.raw,
                threads as c_int,
                shared_bytes as usize,
            )
        };
        check_with("cuOccupancyMaxActiveBlocksPerMultiprocessor", result, || format!("for {}", self.name))?;
        Ok(per_multiprocessor.max(0) as u32 * self.module.device.attributes().multiprocessors)
    }

    /// Returns whether launches of this size occupy all multiprocessors, leaving none for another kernel.
    ///
    /// `sharers` launches of this size share the GPU, including this one.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn fills_gpu(&self, grid: LaunchConfig, sharers: u32) -> Result<bool, Error> {
        let multiprocessors = self.module.device.attributes().multiprocessors;
        let (wanted, others) = (u64::from(grid.blocks()) * u64::from(sharers.max(1)), multiprocessors - 1);
        // Cheap case without a driver call: with at most one block per multiprocessor, one multiprocessor stays free.
        if wanted <= u64::from(others) {
            return Ok(false);
        }
        let room = self.max_resident_blocks(grid.threads(), grid.shared_bytes())? / multiprocessors;
        Ok(wanted > u64::from(others) * u64::from(room))
    }

    /// Checks that all blocks of a launch can be resident together.
    ///
    /// This is necessary if they wait for each other or for other launches. `sharers` launches of this size share the
    /// GPU, including this one.
    ///
    /// # Errors
    /// - [`Error::NotResident`] if the GPU has room for fewer blocks
    /// - [`Error::Call`] if the driver refuses
    pub fn check_resident(&self, grid: LaunchConfig, sharers: u32) -> Result<(), Error> {
        let room = self.max_resident_blocks(grid.threads(), grid.shared_bytes())? / sharers.max(1);
        if grid.blocks() <= room {
            return Ok(());
        }
        let (blocks, threads) = (grid.blocks(), grid.threads());
        Err(Error::NotResident { kernel: self.name.clone(), blocks, threads, room, sharers })
    }

    /// Queues a launch of the kernel in `stream`. `arguments` are the bytes of each argument, in the order of the
    /// parameters.
    ///
    /// The call returns before the kernel has run. Errors of the kernel itself surface in later calls on the stream.
    ///
    /// # Errors
    /// - [`Error::WrongArguments`] if the sizes differ from the parameters' (checked from CUDA 12.4 on)
    /// - [`Error::Call`] if the driver refuses the launch, or if earlier work in `stream` failed
    ///
    /// # Safety
    /// The arguments have the types of the parameters. All memory that the kernel accesses through them stays valid
    /// until it has completed.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: LaunchConfig,
        arguments: &[&[u8]],
    ) -> Result<(), Error> {
        self.check_arguments(arguments)?;
        let mut pointers = argument_pointers(arguments);
        let _current = self.module.device.make_current()?;
        // The blocks start while the previous kernel of the stream exits, rather than half a microsecond later. A foreign
        // kernel may let the next one start when it has just begun itself, and then wait for one that needs the room.
        let starts_early = self.awaits_stream && stream.is_own();
        let mut early_start = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: grid.blocks(),
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes(),
            hStream: stream.raw(),
            attrs: &raw mut early_start,
            numAttrs: starts_early.into(),
        };
        // SAFETY: a live function and stream. Each pointer leads to the bytes of one argument, which the driver copies
        // before it returns. The caller vouches for types and memory. A kernel that starts early waits itself.
        let launch =
            || unsafe { sys::cuLaunchKernelEx(&config, self.raw, pointers.as_mut_ptr(), ptr::null_mut()) };
        check_with("cuLaunchKernelEx", stream.launch_in_turn(launch)?, || {
            let (blocks, threads, shared_bytes) = (grid.blocks(), grid.threads(), grid.shared_bytes());
            format!("of {} ({blocks} blocks x {threads} threads, {shared_bytes} bytes shared)", self.name)
        })
    }
}

impl Function {
    /// Compares the sizes of the arguments with those of the parameters, if the driver reports them.
    fn check_arguments(&self, arguments: &[&[u8]]) -> Result<(), Error> {
        let given = || arguments.iter().map(|argument| argument.len());
        match &self.parameter_sizes {
            Some(expected) if !given().eq(expected.iter().copied()) => {
                let (kernel, expected) = (self.name.clone(), expected.clone());
                Err(Error::WrongArguments { kernel, expected, given: given().collect() })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the kernel itself waits for the earlier work of its stream.
    pub(crate) fn awaits_stream(&self) -> bool {
        self.awaits_stream
    }

    /// Returns the parameters of a graph node that launches the kernel.
    ///
    /// # Errors
    /// - [`Error::WrongArguments`] if the sizes differ from the parameters' (checked from CUDA 12.4 on)
    pub(crate) fn node_parameters<'a>(
        &self,
        grid: LaunchConfig,
        arguments: &'a [&'a [u8]],
    ) -> Result<NodeParameters<'a>, Error> {
        self.check_arguments(arguments)?;
        let mut pointers = argument_pointers(arguments);
        let raw = CUDA_KERNEL_NODE_PARAMS {
            func: self.raw,
            gridDimX: grid.blocks(),
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes(),
            kernelParams: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        Ok(NodeParameters { raw, _pointers: pointers, _arguments: PhantomData })
    }
}

/// Input of `cuGraphAddKernelNode`, with the memory that it points to.
pub(crate) struct NodeParameters<'a> {
    raw: CUDA_KERNEL_NODE_PARAMS,
    _pointers: Vec<*mut c_void>,
    _arguments: PhantomData<&'a [u8]>,
}

impl NodeParameters<'_> {
    /// Returns the pointer for the driver, valid while `self` exists.
    pub(crate) fn as_driver(&self) -> *const CUDA_KERNEL_NODE_PARAMS {
        &raw const self.raw
    }
}

/// Returns pointers to the arguments, as `cuLaunchKernel` expects them. The driver only reads through them.
fn argument_pointers(arguments: &[&[u8]]) -> Vec<*mut c_void> {
    arguments.iter().map(|argument| argument.as_ptr().cast_mut().cast()).collect()
}

/// Returns the sizes of the `count` parameters of a function, in bytes.
fn parameter_sizes(function: CUfunction, count: usize) -> Result<Vec<usize>, Error> {
    let size = |i| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a function of the current context, and live variables.
        let result = unsafe { sys::cuFuncGetParamInfo(function, i, &mut offset, &mut size) };
        check("cuFuncGetParamInfo", result).map(|()| size)
    };
    (0..count).map(size).collect()
}

/// Converts `text` to a zero-terminated string for the driver. `description` names it in the error.
fn c_string(text: &str, description: impl FnOnce() -> String) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte { text: description() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_each_argument_by_its_address() {
        let (context, count) = ([7u8; 128], 3u32.to_ne_bytes());
        let arguments: [&[u8]; 3] = [&context, &count, &[]];
        let pointers = argument_pointers(&arguments);
        assert_eq!(pointers.len(), 3);
        assert_eq!(pointers[0].cast_const().cast(), context.as_ptr());
        assert_eq!(pointers[1].cast_const().cast(), count.as_ptr());
    }

    #[test]
    fn rejects_text_with_a_zero_byte() {
        let error = c_string("a\0b", || "the PTX of x".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "the PTX of x contains a zero byte");
    }

    #[test]
    fn reports_the_room_for_a_launch_that_is_too_large() {
        let error = Error::NotResident {
            kernel: "ring".to_owned(),
            blocks: 300,
            threads: 1024,
            room: 66,
            sharers: 4,
        };
        assert_eq!(
            error.to_string(),
            "all 300 blocks of kernel ring must run at once, but the GPU has room for 66 blocks of 1024 threads for \
             each of the 4 launches that share it. Launch fewer or smaller blocks"
        );
    }
}
