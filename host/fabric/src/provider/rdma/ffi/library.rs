//! libibverbs and libmlx5, which are loaded when devices are looked for. A program starts on machines without them.
#![allow(unsafe_code, reason = "calls functions of libibverbs and libmlx5")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry,
    ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use rushmem_base::root_cause;
use rushmem_error::RdmaError;

use super::{AsyncEvent, ContextAttr, DevxEvent, DevxObj, DevxUar, DevxUmem, DvObj, EventChannel, UmemIn};

/// Declares functions of libraries, which call through a table of their addresses.
macro_rules! functions {
    ($($library:ident { $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $returns:ty)?;)* })*) => {
        struct Functions {
            $($($name: unsafe extern "C" fn($($type),*) $(-> $returns)?,)*)*
        }

        impl Functions {
            fn find(libraries: &Libraries) -> Result<Functions, RdmaError> {
                let missing = |error: libloading::Error| RdmaError::NoLibrary {
                    why: root_cause(&error),
                    remedy: "update rdma-core to 44 or newer",
                };
                // SAFETY: the headers declare functions with these names and types.
                Ok(Functions { $($($name: *unsafe { libraries.$library.get(stringify!($name)) }.map_err(missing)?,)*)* })
            }
        }

        $($(
            pub(in super::super) unsafe fn $name($($arg: $type),*) $(-> $returns)? {
                // SAFETY: the caller keeps the contract of this function.
                unsafe { (functions().$name)($($arg),*) }
            }
        )*)*
    };
}

functions! {
    ibverbs {
        fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
        fn ibv_free_device_list(list: *mut *mut ibv_device);
        fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        fn ibv_close_device(context: *mut ibv_context) -> c_int;
        fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int;
        fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int;
        fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16) -> c_int;
        fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
        fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr;
        fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
        fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
        fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
        fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        fn ibv_get_async_event(context: *mut ibv_context, event: *mut AsyncEvent) -> c_int;
        fn ibv_ack_async_event(event: *mut AsyncEvent);
        fn _ibv_query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) -> isize;
    }
    mlx5 {
        fn mlx5dv_is_supported(device: *mut ibv_device) -> bool;
        fn mlx5dv_open_device(device: *mut ibv_device, attr: *mut ContextAttr) -> *mut ibv_context;
        fn mlx5dv_init_obj(obj: *mut DvObj, obj_type: u64) -> c_int;
        fn mlx5dv_devx_general_cmd(context: *mut ibv_context, input: *const c_void, in_len: usize, output: *mut c_void, out_len: usize) -> c_int;
        fn mlx5dv_devx_obj_create(context: *mut ibv_context, input: *const c_void, in_len: usize, output: *mut c_void, out_len: usize) -> *mut DevxObj;
        fn mlx5dv_devx_obj_modify(object: *mut DevxObj, input: *const c_void, in_len: usize, output: *mut c_void, out_len: usize) -> c_int;
        fn mlx5dv_devx_obj_query(object: *mut DevxObj, input: *const c_void, in_len: usize, output: *mut c_void, out_len: usize) -> c_int;
        fn mlx5dv_devx_qp_query(qp: *mut ibv_qp, input: *const c_void, in_len: usize, output: *mut c_void, out_len: usize) -> c_int;
        fn mlx5dv_devx_obj_destroy(object: *mut DevxObj) -> c_int;
        fn mlx5dv_devx_umem_reg_ex(context: *mut ibv_context, input: *mut UmemIn) -> *mut DevxUmem;
        fn mlx5dv_devx_umem_dereg(umem: *mut DevxUmem) -> c_int;
        fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut DevxUar;
        fn mlx5dv_devx_free_uar(uar: *mut DevxUar);
        fn mlx5dv_devx_create_event_channel(context: *mut ibv_context, flags: c_int) -> *mut EventChannel;
        fn mlx5dv_devx_destroy_event_channel(channel: *mut EventChannel);
        fn mlx5dv_devx_subscribe_devx_event(channel: *mut EventChannel, object: *mut DevxObj, events_sz: u16, events_num: *mut u16, cookie: u64) -> c_int;
        fn mlx5dv_devx_get_event(channel: *mut EventChannel, event: *mut DevxEvent, len: usize) -> isize;
        fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> c_int;
    }
}

/// Functions that libmlx5 has since rdma-core 54.
#[derive(Clone, Copy)]
pub(in super::super) struct DataDirectFunctions {
    /// `mlx5dv_get_data_direct_sysfs_path`
    pub(in super::super) sysfs_path: unsafe extern "C" fn(*mut ibv_context, *mut c_char, usize) -> c_int,
    /// `mlx5dv_reg_dmabuf_mr`, whose last argument is [`REG_DMABUF_DATA_DIRECT`](super::REG_DMABUF_DATA_DIRECT) or 0
    pub(in super::super) reg_dmabuf_mr:
        unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int, c_int) -> *mut ibv_mr,
}

impl DataDirectFunctions {
    fn find(mlx5: &Library) -> Option<Self> {
        // SAFETY: the headers of rdma-core 54 declare functions with these names and types.
        unsafe {
            Some(Self {
                sysfs_path: *mlx5.get("mlx5dv_get_data_direct_sysfs_path").ok()?,
                reg_dmabuf_mr: *mlx5.get("mlx5dv_reg_dmabuf_mr").ok()?,
            })
        }
    }
}

struct Libraries {
    ibverbs: Library,
    mlx5: Library,
}

static FUNCTIONS: OnceLock<(Functions, Option<DataDirectFunctions>)> = OnceLock::new();

/// Loads the libraries. They stay loaded.
pub(in super::super) fn load() -> Result<(), RdmaError> {
    if FUNCTIONS.get().is_some() {
        return Ok(());
    }
    let open = |name: &str| {
        // SAFETY: the initializers of these libraries have no requirements.
        unsafe { Library::new(name) }.map_err(|error| RdmaError::NoLibrary {
            why: root_cause(&error),
            remedy: "install rdma-core (Debian: ibverbs-providers)",
        })
    };
    // libmlx5 registers with the libibverbs that is loaded before it.
    let libraries = Libraries { ibverbs: open("libibverbs.so.1")?, mlx5: open("libmlx5.so.1")? };
    let functions = (Functions::find(&libraries)?, DataDirectFunctions::find(&libraries.mlx5));
    // The functions and their threads live as long as the process.
    std::mem::forget(libraries);
    FUNCTIONS.get_or_init(|| functions);
    Ok(())
}

/// Returns the functions for data direct, or `None` if libmlx5 is older.
pub(in super::super) fn data_direct() -> Option<DataDirectFunctions> {
    loaded().1
}

fn functions() -> &'static Functions {
    &loaded().0
}

fn loaded() -> &'static (Functions, Option<DataDirectFunctions>) {
    FUNCTIONS.get().expect("devices are found first, which loads the libraries")
}
