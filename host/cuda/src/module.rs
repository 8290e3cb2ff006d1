#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUfunction_attribute, CUjit_option, CUlimit, CUmodule,
    CUresult,
};

use crate::device::ExclusiveContext;
use crate::error::{call_error, check, check_about, log_drop};
use crate::{Device, Error, Stream};
use rushmem_base::Grid;
use rushmem_base::lock;

/// Bytes for what the compiler in the driver has to say.
const LOG_BYTES: usize = 64 * 1024;

/// Kernels that a GPU has loaded.
///
/// Loading and unloading may wait for kernels that run: do it before and after them.
pub struct Module {
    device: Arc<Device>,
    name: String,
    raw: CUmodule,
    /// Its kernels, with how many parameters each has.
    kernels: HashMap<String, usize>,
}

// SAFETY: the driver's modules may be used by any thread, and it locks for itself.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles PTX for this GPU and loads it. `name` tells modules apart in errors.
    ///
    /// # Errors
    /// [`Error::Ptx`] with all that the compiler says, if it refuses the text.
    pub fn load(device: &Arc<Device>, name: &str, ptx: &str) -> Result<Arc<Self>, Error> {
        Self::load_code(&device.alone()?, device, name, ptx, &[])
    }

    /// Loads the machine code `code` if it is not empty, and for this GPU, else the PTX; its kernels by name. Kernels of
    /// this process's PEs are waited for once, and none begins meanwhile.
    ///
    /// # Errors
    /// Those of [`Module::load`] and [`Module::function`].
    pub fn load_kernels(
        device: &Arc<Device>,
        name: &str,
        ptx: &str,
        code: &[u8],
    ) -> Result<HashMap<String, Function>, Error> {
        let alone = device.alone()?;
        let module = Self::load_code(&alone, device, name, ptx, code)?;
        let names = module.kernels.keys();
        names.map(|name| Ok((name.clone(), module.function_of(&alone, name)?))).collect()
    }

    fn load_code(
        _: &ExclusiveContext,
        device: &Arc<Device>,
        name: &str,
        ptx: &str,
        code: &[u8],
    ) -> Result<Arc<Self>, Error> {
        let image = c_string(ptx, || format!("the PTX of {name}"))?;
        let mut loaded = Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, String::new()));
        if !code.is_empty() {
            // SAFETY: a whole file as ptxas made it, which says itself how long it is.
            loaded = unsafe { load_image(code.as_ptr().cast()) };
        }
        if let Err((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, _)) = loaded {
            tracing::debug!("{name}: the driver compiles its PTX");
            // SAFETY: the text ends with a zero.
            loaded = unsafe { load_image(image.as_ptr().cast()) };
        }
        let raw = loaded.map_err(|(result, log)| {
            let cause = call_error("cuModuleLoadDataEx", result, String::new());
            Error::Ptx { module: name.to_owned(), cause, log }
        })?;
        Ok(Arc::new(Self { device: Arc::clone(device), name: name.to_owned(), raw, kernels: kernels(ptx) }))
    }

    /// A kernel of it, loaded to the GPU for good, so that launching it loads nothing.
    ///
    /// # Errors
    /// [`Error::NoFunction`], or what the driver says.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Error> {
        self.function_of(&self.device.alone()?, name)
    }

    fn function_of(self: &Arc<Self>, alone: &ExclusiveContext, name: &str) -> Result<Function, Error> {
        let symbol = c_string(name, || format!("the kernel name {name:?}"))?;
        let mut raw: CUfunction = ptr::null_mut();
        // SAFETY: a live module, a C string, and a live variable.
        match unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, symbol.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => {
                return Err(Error::NoFunction { module: self.name.clone(), name: name.to_owned() });
            }
            result => check_about("cuModuleGetFunction", result, || format!("for {name}"))?,
        }
        let parameters = match self.device.cuda().version() >= (12, 4) {
            true => {
                // SAFETY: a function of this context; the driver is new enough for the call.
                let result = unsafe { sys::cuFuncLoad(raw) };
                check_about("cuFuncLoad", result, || format!("of {name}"))?;
                Some(parameters(raw, self.kernels.get(name).copied().unwrap_or(0))?)
            }
            false => None,
        };
        let attributes = FunctionAttributes::of(raw)?;
        reserve_local(alone, attributes.local_bytes, name)?;
        Ok(Function { module: Arc::clone(self), name: name.to_owned(), raw, attributes, parameters })
    }
}

/// Has the current context keep so much local memory for each thread, if it has less: else the first launch of the kernel
/// would get it, and wait within the driver for all kernels that run, as this does.
fn reserve_local(_: &ExclusiveContext, bytes: u32, kernel: &str) -> Result<(), Error> {
    // Another thread that loads at the same time must not set it back.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = lock(&TURN);
    let limit = CUlimit::CU_LIMIT_STACK_SIZE;
    let mut kept = 0;
    // SAFETY: a live variable.
    check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&mut kept, limit) })?;
    if bytes as usize <= kept {
        return Ok(());
    }
    // SAFETY: a context is current.
    let result = unsafe { sys::cuCtxSetLimit(limit, bytes as usize) };
    check_about("cuCtxSetLimit", result, || format!("for {bytes} bytes of local memory a thread of {kernel}"))
}

/// Loads PTX or machine code into the current context; what the compiler says of an error.
///
/// # Safety
/// `image` leads to PTX that ends with a zero, or to a whole file of machine code.
unsafe fn load_image(image: *const c_void) -> Result<CUmodule, (CUresult, String)> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The second value is a number in a pointer's place, as the driver wants it.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
    let (count, mut raw) = (options.len() as c_uint, ptr::null_mut());
    // SAFETY: the caller's promise; options and values are as many as told, and the log has the length told. Unloaded
    // in `Module::drop`.
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
            let _alone = self.device.alone()?;
            // SAFETY: loaded in `load`, unloaded once; functions hold an Arc of this, so none is left.
            check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.raw) })
        };
        log_drop("a module", unload());
    }
}

/// What the compiler made of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// Registers of each thread.
    pub registers: u32,
    /// Local memory of each thread in bytes: spills and arrays.
    pub local_bytes: u32,
    /// Static shared memory of each block in bytes.
    pub shared_bytes: u32,
    /// The most threads that a block can have.
    pub max_threads: u32,
}

impl FunctionAttributes {
    fn of(function: CUfunction) -> Result<Self, Error> {
        use CUfunction_attribute::*;
        let get = |attribute: CUfunction_attribute| {
            let mut value: c_int = 0;
            // SAFETY: a function of the current context, and a live variable.
            let result = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) };
            check_about("cuFuncGetAttribute", result, || format!("{attribute:?}"))?;
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

/// A kernel.
pub struct Function {
    module: Arc<Module>,
    name: String,
    raw: CUfunction,
    attributes: FunctionAttributes,
    /// Sizes of its parameters, where the driver tells them (from CUDA 12.4 on).
    parameters: Option<Vec<usize>>,
}

// SAFETY: the driver's functions may be used by any thread, and it locks for itself.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the compiler made of it.
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.attributes
    }

    /// Lets launches ask for this much dynamic shared memory for each block; without this 48 KiB are possible.
    ///
    /// # Errors
    /// What the driver says: a GPU has a limit ([`Attributes`](super::Attributes)).
    pub fn set_dynamic_shared(&self, bytes: u32) -> Result<(), Error> {
        let _current = self.module.device.current()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a live function.
        let result = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes as c_int) };
        check_about("cuFuncSetAttribute", result, || {
            format!("for {bytes} bytes of shared memory of {}", self.name)
        })
    }

    /// How many blocks of this shape the whole GPU can run at once, if nothing else runs on it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn room(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        let _current = self.module.device.current()?;
        let mut each: c_int = 0;
        // SAFETY: a live function and a live variable.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut each,
                self.raw,
                threads as c_int,
                shared_bytes as usize,
            )
        };
        check_about("cuOccupancyMaxActiveBlocksPerMultiprocessor", result, || format!("for {}", self.name))?;
        Ok(each.max(0) as u32 * self.module.device.attributes().multiprocessors)
    }

    /// Checks that all blocks of a launch can run at once, as they must if they wait for each other or for other
    /// launches. `sharers` launches of this size share the GPU, this one included.
    ///
    /// # Errors
    /// [`Error::NotResident`], or what the driver says.
    pub fn check_resident(&self, grid: Grid, sharers: u32) -> Result<(), Error> {
        let room = self.room(grid.threads, grid.shared_bytes)? / sharers.max(1);
        if grid.blocks <= room {
            return Ok(());
        }
        let Grid { blocks, threads, .. } = grid;
        Err(Error::NotResident { kernel: self.name.clone(), blocks, threads, room, sharers })
    }

    /// Queues a launch. Each argument is given as its bytes, in the order of the kernel's parameters.
    ///
    /// # Errors
    /// [`Error::Arguments`] where the driver tells the sizes of the parameters, or what the driver says of the
    /// launch. What goes wrong in the kernel is told by the stream.
    ///
    /// # Safety
    /// The arguments are what the kernel expects, and all memory that it reaches through them stays valid until it
    /// has ended.
    pub unsafe fn launch(&self, stream: &Stream, grid: Grid, arguments: &[&[u8]]) -> Result<(), Error> {
        self.check_arguments(arguments)?;
        let mut pointers = pointers(arguments);
        let _current = self.module.device.current()?;
        // SAFETY: a live function and stream; there is a pointer for each parameter, to as many bytes, which the
        // driver copies before it returns; the rest is the caller's promise.
        let launch = || unsafe {
            sys::cuLaunchKernel(
                self.raw,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                grid.shared_bytes,
                stream.raw(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check_about("cuLaunchKernel", stream.in_turn(launch)?, || {
            let Grid { blocks, threads, shared_bytes } = grid;
            format!("of {} ({blocks} blocks x {threads} threads, {shared_bytes} bytes shared)", self.name)
        })
    }
}

impl Function {
    fn check_arguments(&self, arguments: &[&[u8]]) -> Result<(), Error> {
        let given = || arguments.iter().map(|argument| argument.len());
        match &self.parameters {
            Some(expected) if !given().eq(expected.iter().copied()) => {
                let (kernel, expected) = (self.name.clone(), expected.clone());
                Err(Error::Arguments { kernel, expected, given: given().collect() })
            }
            _ => Ok(()),
        }
    }

    /// A launch of it as a node of a graph.
    ///
    /// # Errors
    /// [`Error::Arguments`] as [`Function::launch`].
    pub(crate) fn node<'a>(
        &self,
        grid: Grid,
        arguments: &'a [&'a [u8]],
    ) -> Result<NodeParameters<'a>, Error> {
        self.check_arguments(arguments)?;
        let mut pointers = pointers(arguments);
        let raw = CUDA_KERNEL_NODE_PARAMS {
            func: self.raw,
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        Ok(NodeParameters { raw, _pointers: pointers, _arguments: PhantomData })
    }
}

/// What `cuGraphAddKernelNode` takes, with the memory that it leads to.
pub(crate) struct NodeParameters<'a> {
    raw: CUDA_KERNEL_NODE_PARAMS,
    _pointers: Vec<*mut c_void>,
    _arguments: PhantomData<&'a [u8]>,
}

impl NodeParameters<'_> {
    pub(crate) fn as_driver(&self) -> *const CUDA_KERNEL_NODE_PARAMS {
        &raw const self.raw
    }
}

/// What `cuLaunchKernel` takes: the address of each argument. It only reads through them.
fn pointers(arguments: &[&[u8]]) -> Vec<*mut c_void> {
    arguments.iter().map(|argument| argument.as_ptr().cast_mut().cast()).collect()
}

/// Sizes of the parameters of a function.
fn parameters(function: CUfunction, count: usize) -> Result<Vec<usize>, Error> {
    let size = |i| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a function of the current context, and live variables.
        let result = unsafe { sys::cuFuncGetParamInfo(function, i, &mut offset, &mut size) };
        check("cuFuncGetParamInfo", result).map(|()| size)
    };
    (0..count).map(size).collect()
}

/// The kernels of a PTX text, with how many parameters each has.
pub fn kernels(ptx: &str) -> HashMap<String, usize> {
    ptx.split(".visible .entry ")
        .skip(1)
        .filter_map(|text| {
            let (name, rest) = text.split_once('(')?;
            let (parameters, _) = rest.split_once(')')?;
            Some((name.trim().to_owned(), parameters.matches(".param").count()))
        })
        .collect()
}

fn c_string(text: &str, what: impl FnOnce() -> String) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte { what: what() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_with_their_parameters() {
        let ptx = ".visible .func f(.param .b32 x)\n.visible .entry a()\n{}\n.visible .entry b (\n\t.param .align 8 .b8 \
                   b_param_0[88],\n\t.param .u32 b_param_1\n)\n{}";
        let found = kernels(ptx);
        assert_eq!((found.len(), found["a"], found["b"]), (2, 0, 2));
    }

    #[test]
    fn each_argument_is_passed_by_its_address() {
        let (context, count) = ([7u8; 128], 3u32.to_ne_bytes());
        let arguments: [&[u8]; 3] = [&context, &count, &[]];
        let pointers = pointers(&arguments);
        assert_eq!(pointers.len(), 3);
        assert_eq!(pointers[0].cast_const().cast(), context.as_ptr());
        assert_eq!(pointers[1].cast_const().cast(), count.as_ptr());
    }

    #[test]
    fn text_with_a_zero_byte_is_refused() {
        let error = c_string("a\0b", || "the PTX of x".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "the PTX of x holds a zero byte");
    }

    #[test]
    fn too_large_a_launch_is_told_with_its_room() {
        let error = Error::NotResident {
            kernel: "ring".to_owned(),
            blocks: 300,
            threads: 1024,
            room: 66,
            sharers: 4,
        };
        assert_eq!(
            error.to_string(),
            "kernel ring waits, so all of its 300 blocks must run at once, but the GPU has room for 66 blocks of 1024 \
             threads for each of 4 launches that share it. Launch fewer blocks or smaller ones"
        );
    }
}
