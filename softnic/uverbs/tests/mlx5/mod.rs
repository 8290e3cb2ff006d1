//! Bindings to the installed libibverbs and libmlx5. They are loaded at run time, because they may be missing.
#![allow(dead_code, reason = "each suite uses some of it")]

use rushmem_mlx5::prm::{CmdError, Command, Response};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

use crate::common::{Running, built, output_text, skip, softnic};

/// A pointer to an `ibv_context`, `ibv_device` or other object of the libraries.
pub(crate) type Handle = *mut c_void;

/// Attributes of a context to open: C's `mlx5dv_context_attr`.
#[repr(C)]
struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

/// Memory to register through DevX: C's `mlx5dv_devx_umem_in`.
#[repr(C)]
struct UmemIn {
    addr: *mut c_void,
    size: usize,
    access: u32,
    page_sizes: u64,
    comp_mask: u64,
    dmabuf_fd: c_int,
}

/// A doorbell page: C's `mlx5dv_devx_uar`.
#[repr(C)]
pub(crate) struct Uar {
    pub(crate) reg_addr: *mut c_void,
    pub(crate) base_addr: *mut c_void,
    pub(crate) page_id: u32,
    pub(crate) mmap_off: libc::off_t,
    pub(crate) comp_mask: u64,
}

macro_rules! functions {
    ($($library:ident . $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the two libraries.
        #[allow(non_snake_case)]
        pub(crate) struct Mlx5 {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Mlx5 {
            #[allow(clippy::missing_transmute_annotations, reason = "the field's type says it")]
            fn load() -> Result<Mlx5, String> {
                let verbs = library(c"libibverbs.so.1")?;
                let mlx5 = library(c"libmlx5.so.1")?;
                let of = |name: &str| if name == "verbs" { verbs } else { mlx5 };
                // SAFETY: the libraries' headers declare the functions so.
                Ok(Mlx5 { $($name: unsafe { std::mem::transmute::<Handle, _>(
                    symbol(of(stringify!($library)), stringify!($name))?) },)* })
            }
        }
    };
}

functions! {
    verbs.ibv_get_device_list(*mut c_int) -> *mut Handle;
    verbs.ibv_free_device_list(*mut Handle);
    verbs.ibv_get_device_name(Handle) -> *const c_char;
    verbs.ibv_open_device(Handle) -> Handle;
    verbs.ibv_close_device(Handle) -> c_int;
    verbs.ibv_alloc_pd(Handle) -> Handle;
    verbs.ibv_dealloc_pd(Handle) -> c_int;
    verbs.ibv_reg_mr_iova2(Handle, *mut c_void, usize, u64, u32) -> Handle;
    verbs.ibv_reg_dmabuf_mr(Handle, u64, usize, u64, c_int, c_int) -> Handle;
    verbs.ibv_dereg_mr(Handle) -> c_int;
    mlx5.mlx5dv_open_device(Handle, *const ContextAttr) -> Handle;
    mlx5.mlx5dv_devx_general_cmd(Handle, *const c_void, usize, *mut c_void, usize) -> c_int;
    mlx5.mlx5dv_devx_obj_create(Handle, *const c_void, usize, *mut c_void, usize) -> Handle;
    mlx5.mlx5dv_devx_obj_modify(Handle, *const c_void, usize, *mut c_void, usize) -> c_int;
    mlx5.mlx5dv_devx_obj_query(Handle, *const c_void, usize, *mut c_void, usize) -> c_int;
    mlx5.mlx5dv_devx_obj_destroy(Handle) -> c_int;
    mlx5.mlx5dv_devx_umem_reg(Handle, *mut c_void, usize, u32) -> *mut u32;
    mlx5.mlx5dv_devx_umem_reg_ex(Handle, *mut UmemIn) -> *mut u32;
    mlx5.mlx5dv_devx_umem_dereg(*mut u32) -> c_int;
    mlx5.mlx5dv_devx_alloc_uar(Handle, u32) -> *mut Uar;
    mlx5.mlx5dv_devx_free_uar(*mut Uar);
    mlx5.mlx5dv_devx_query_eqn(Handle, u32, *mut u32) -> c_int;
    mlx5.mlx5dv_devx_create_event_channel(Handle, u32) -> Handle;
    mlx5.mlx5dv_devx_subscribe_devx_event(Handle, Handle, u16, *mut u16, u64) -> c_int;
    mlx5.mlx5dv_devx_get_event(Handle, *mut c_void, usize) -> isize;
    mlx5.mlx5dv_devx_create_cmd_comp(Handle) -> Handle;
    mlx5.mlx5dv_devx_obj_query_async(Handle, *const c_void, usize, usize, u64, Handle) -> c_int;
    mlx5.mlx5dv_devx_get_async_cmd_comp(Handle, *mut c_void, usize) -> c_int;
}

fn library(name: &CStr) -> Result<Handle, String> {
    // SAFETY: a C string; the library's initialisers are its own business.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() { Err(format!("{name:?} of the package ibverbs-providers")) } else { Ok(handle) }
}

fn symbol(library: Handle, name: &str) -> Result<Handle, String> {
    let text = CString::new(name).unwrap();
    // SAFETY: a library that `dlopen` gave, and a C string.
    let found = unsafe { libc::dlsym(library, text.as_ptr()) };
    if found.is_null() { Err(format!("the function {name}")) } else { Ok(found) }
}

/// Environment variable that is set in a test process that has a device: inside `rushmem softnic`, or in a virtual
/// machine whose kernel drives one.
const INSIDE: &str = "TEST_HAS_DEVICE";

/// Runs `body` with both libraries in a separate process that has the device, unless this one has it.
pub(crate) fn inside(test: &str, options: &[&str], body: impl FnOnce(&Mlx5)) {
    let libraries = match Mlx5::load() {
        Ok(libraries) => libraries,
        Err(missing) => return skip(test, &missing),
    };
    if std::env::var_os(INSIDE).is_some() {
        return body(&libraries);
    }
    built();
    let own = std::env::current_exe().unwrap();
    let program = [own.to_str().unwrap(), "--exact", test, "--nocapture", "--test-threads=1"];
    let mut command = softnic(options, &program);
    command.env(INSIDE, "1");
    let output = Running::start(command).end();
    assert!(output.status.success(), "{}\n{}", output.status, output_text(&output));
    assert!(output_text(&output).contains("1 passed"), "{}", output_text(&output));
}

/// Returns the `errno` of a call that returned null or -1.
fn failed() -> io::Error {
    io::Error::last_os_error()
}

fn made<T>(pointer: *mut T) -> io::Result<*mut T> {
    if pointer.is_null() { Err(failed()) } else { Ok(pointer) }
}

/// Converts a library call's return code: 0 is success, -1 an error in `errno`, any other value an error number.
fn done(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(failed()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

// SAFETY of all calls below: arguments are what the libraries' headers ask for, and objects are alive because tests
// destroy them last, if at all.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all, above")]
impl Mlx5 {
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.each(|device| {
            let name = unsafe { CStr::from_ptr((self.ibv_get_device_name)(device)) };
            names.push(name.to_str().unwrap().to_owned());
        });
        names
    }

    fn each(&self, mut visit: impl FnMut(Handle)) {
        let mut count = 0;
        let list = unsafe { (self.ibv_get_device_list)(&raw mut count) };
        assert!(!list.is_null(), "{}", failed());
        for i in 0..count as usize {
            visit(unsafe { *list.add(i) });
        }
        unsafe { (self.ibv_free_device_list)(list) };
    }

    /// Opens the device `index`, with DevX if `devx`.
    pub(crate) fn open(&self, index: usize, devx: bool) -> io::Result<Handle> {
        let mut opened = Err(io::Error::other("no such device"));
        let mut at = 0;
        self.each(|device| {
            if at == index {
                let attr = ContextAttr { flags: devx.into(), comp_mask: 0 };
                opened = made(unsafe {
                    match devx {
                        true => (self.mlx5dv_open_device)(device, &raw const attr),
                        false => (self.ibv_open_device)(device),
                    }
                });
            }
            at += 1;
        });
        opened
    }

    pub(crate) fn close(&self, context: Handle) -> io::Result<()> {
        done(unsafe { (self.ibv_close_device)(context) })
    }

    pub(crate) fn alloc_pd(&self, context: Handle) -> io::Result<Handle> {
        made(unsafe { (self.ibv_alloc_pd)(context) })
    }

    pub(crate) fn dealloc_pd(&self, pd: Handle) -> io::Result<()> {
        done(unsafe { (self.ibv_dealloc_pd)(pd) })
    }

    pub(crate) fn reg_mr(
        &self,
        pd: Handle,
        at: u64,
        len: usize,
        iova: u64,
        access: u32,
    ) -> io::Result<Handle> {
        made(unsafe { (self.ibv_reg_mr_iova2)(pd, at as *mut c_void, len, iova, access) })
    }

    pub(crate) fn reg_dmabuf(&self, pd: Handle, offset: u64, len: usize, fd: c_int) -> io::Result<Handle> {
        made(unsafe { (self.ibv_reg_dmabuf_mr)(pd, offset, len, offset, fd, 1) })
    }

    pub(crate) fn dereg_mr(&self, mr: Handle) -> io::Result<()> {
        done(unsafe { (self.ibv_dereg_mr)(mr) })
    }

    /// Registers memory for reads and writes. Returns the object and the umem ID.
    pub(crate) fn umem(&self, context: Handle, at: u64, len: usize) -> io::Result<(*mut u32, u32)> {
        self.umem_with(context, at, len, 1)
    }

    /// Registers memory with these access rights. Returns the object and the umem ID.
    pub(crate) fn umem_with(
        &self,
        context: Handle,
        at: u64,
        len: usize,
        rights: u32,
    ) -> io::Result<(*mut u32, u32)> {
        let umem = made(unsafe { (self.mlx5dv_devx_umem_reg)(context, at as *mut c_void, len, rights) })?;
        Ok((umem, unsafe { *umem }))
    }

    /// Registers part of a dma-buf.
    pub(crate) fn umem_dmabuf(
        &self,
        context: Handle,
        offset: u64,
        len: usize,
        fd: c_int,
    ) -> io::Result<*mut u32> {
        let mut input = UmemIn {
            addr: offset as *mut c_void,
            size: len,
            access: 1,
            page_sizes: 4096,
            comp_mask: 1,
            dmabuf_fd: fd,
        };
        made(unsafe { (self.mlx5dv_devx_umem_reg_ex)(context, &raw mut input) })
    }

    pub(crate) fn umem_dereg(&self, umem: *mut u32) -> io::Result<()> {
        done(unsafe { (self.mlx5dv_devx_umem_dereg)(umem) })
    }

    /// Allocates a doorbell page. Type 0 is BlueFlame, 1 is non-cached.
    pub(crate) fn alloc_uar(&self, context: Handle, kind: u32) -> io::Result<&Uar> {
        made(unsafe { (self.mlx5dv_devx_alloc_uar)(context, kind) }).map(|uar| unsafe { &*uar })
    }

    pub(crate) fn free_uar(&self, uar: &Uar) {
        unsafe { (self.mlx5dv_devx_free_uar)((&raw const *uar).cast_mut()) };
    }

    pub(crate) fn eqn(&self, context: Handle, vector: u32) -> io::Result<u32> {
        let mut eqn = 0;
        done(unsafe { (self.mlx5dv_devx_query_eqn)(context, vector, &raw mut eqn) })?;
        Ok(eqn)
    }

    /// Creates an event channel. `omit_data` leaves out the events' contents.
    pub(crate) fn event_channel(&self, context: Handle, omit_data: bool) -> io::Result<Handle> {
        made(unsafe { (self.mlx5dv_devx_create_event_channel)(context, omit_data.into()) })
    }

    pub(crate) fn subscribe(
        &self,
        channel: Handle,
        object: Handle,
        events: &mut [u16],
        cookie: u64,
    ) -> io::Result<()> {
        let bytes = size_of_val(events) as u16;
        done(unsafe {
            (self.mlx5dv_devx_subscribe_devx_event)(channel, object, bytes, events.as_mut_ptr(), cookie)
        })
    }

    /// Waits for the next event. Returns its cookie and its contents.
    pub(crate) fn event(&self, channel: Handle) -> io::Result<(u64, Vec<u8>)> {
        let mut buffer = [0; 256];
        let got = unsafe { (self.mlx5dv_devx_get_event)(channel, buffer.as_mut_ptr().cast(), buffer.len()) };
        let got = usize::try_from(got).map_err(|_| failed())?;
        let (cookie, data) = buffer[..got].split_at(8);
        Ok((u64::from_ne_bytes(cookie.try_into().unwrap()), data.to_vec()))
    }

    /// Queries an object asynchronously. Returns the request's ID and the response.
    pub(crate) fn query_async<C: Command>(
        &self,
        context: Handle,
        object: Handle,
        command: &C,
        name: u64,
    ) -> io::Result<(u64, C::Output)> {
        let (input, mut output) = (command.encode(), C::Output::EMPTY);
        let (input, output) = (input.as_ref(), output.as_mut());
        let file = made(unsafe { (self.mlx5dv_devx_create_cmd_comp)(context) })?;
        let len = output.len();
        done(unsafe {
            (self.mlx5dv_devx_obj_query_async)(object, input.as_ptr().cast(), input.len(), len, name, file)
        })?;
        let mut buffer = vec![0; 8 + len];
        done(unsafe {
            (self.mlx5dv_devx_get_async_cmd_comp)(file, buffer.as_mut_ptr().cast(), buffer.len())
        })?;
        let (name, answer) = buffer.split_at(8);
        Ok((u64::from_ne_bytes(name.try_into().unwrap()), C::Output::decode(answer).unwrap()))
    }

    /// Executes a general command, without an object.
    pub(crate) fn general<C: Command>(&self, context: Handle, command: &C) -> io::Result<C::Output> {
        let (input, mut output) = (command.encode(), C::Output::EMPTY);
        let (input, output) = (input.as_ref(), output.as_mut());
        let rc = unsafe {
            let (to, room) = (output.as_mut_ptr().cast(), output.len());
            (self.mlx5dv_devx_general_cmd)(context, input.as_ptr().cast(), input.len(), to, room)
        };
        done(rc)?;
        Ok(C::Output::decode(output).unwrap())
    }

    /// Creates an object. An error includes the status of the output mailbox.
    pub(crate) fn create<C: Command>(
        &self,
        context: Handle,
        command: &C,
    ) -> Result<(Handle, C::Output), (io::Error, Option<CmdError>)> {
        let (input, mut output) = (command.encode(), C::Output::EMPTY);
        let (input, output) = (input.as_ref(), output.as_mut());
        let object = made(unsafe {
            let (to, room) = (output.as_mut_ptr().cast(), output.len());
            (self.mlx5dv_devx_obj_create)(context, input.as_ptr().cast(), input.len(), to, room)
        });
        match object {
            Ok(object) => Ok((object, C::Output::decode(output).unwrap())),
            Err(error) => Err((error, refusal(output))),
        }
    }

    pub(crate) fn modify<C: Command>(&self, object: Handle, command: &C) -> io::Result<C::Output> {
        let (input, mut output) = (command.encode(), C::Output::EMPTY);
        let (input, output) = (input.as_ref(), output.as_mut());
        let rc = unsafe {
            let (to, room) = (output.as_mut_ptr().cast(), output.len());
            (self.mlx5dv_devx_obj_modify)(object, input.as_ptr().cast(), input.len(), to, room)
        };
        done(rc)?;
        Ok(C::Output::decode(output).unwrap())
    }

    pub(crate) fn query<C: Command>(&self, object: Handle, command: &C) -> io::Result<C::Output> {
        let (input, mut output) = (command.encode(), C::Output::EMPTY);
        let (input, output) = (input.as_ref(), output.as_mut());
        let rc = unsafe {
            let (to, room) = (output.as_mut_ptr().cast(), output.len());
            (self.mlx5dv_devx_obj_query)(object, input.as_ptr().cast(), input.len(), to, room)
        };
        done(rc)?;
        Ok(C::Output::decode(output).unwrap())
    }

    pub(crate) fn destroy(&self, object: Handle) -> io::Result<()> {
        done(unsafe { (self.mlx5dv_devx_obj_destroy)(object) })
    }
}

fn refusal(output: &[u8]) -> Option<CmdError> {
    match CmdError::check(output) {
        Err(rushmem_mlx5::prm::DecodeError::Refused(error)) => Some(error),
        _ => None,
    }
}
