//! Declarations of libmlx5 and libibverbs, from the headers `infiniband/mlx5dv.h` and `infiniband/verbs.h` of
//! rdma-core 44: types that `rdma-sys` lacks, and the functions, which are loaded at run time.
//!
//! A test compares sizes, offsets and constants with those of a C compiler.
use std::ffi::{c_int, c_void};

use rdma_sys::{ibv_ah, ibv_pd};

/// [`ContextAttr::flags`]: the context may issue DevX commands.
pub(super) const CONTEXT_DEVX: u32 = 1;
/// [`UmemIn::comp_mask`]: registers the dma-buf `dmabuf_fd`.
pub(super) const UMEM_DMABUF: u64 = 1;
/// Flag of `mlx5dv_reg_dmabuf_mr`: the NIC accesses the memory through its data-direct device.
pub(super) const REG_DMABUF_DATA_DIRECT: c_int = 1;
/// Type of `mlx5dv_init_obj`: an address handle.
pub(super) const OBJ_AH: u64 = 1 << 5;
/// Type of `mlx5dv_init_obj`: a protection domain.
pub(super) const OBJ_PD: u64 = 1 << 6;

/// Flags of `mlx5dv_devx_alloc_uar`.
pub(super) mod uar_type {
    /// A dedicated page, mapped for write combining.
    pub(in super::super) const BF: u32 = 0;
    /// The uncached page shared within the context.
    pub(in super::super) const NC: u32 = 1;
    /// A dedicated uncached page. Requires rdma-core 47.
    pub(in super::super) const NC_DEDICATED: u32 = 1 << 31;
}

/// C layout of `struct mlx5dv_context_attr`.
#[repr(C)]
pub(super) struct ContextAttr {
    pub(super) flags: u32,
    pub(super) comp_mask: u64,
}

/// `struct mlx5dv_devx_obj`, opaque outside libmlx5.
#[repr(C)]
pub(super) struct DevxObj {
    _opaque: [u8; 0],
}

/// C layout of `struct mlx5dv_devx_umem`.
#[repr(C)]
pub(super) struct DevxUmem {
    pub(super) umem_id: u32,
}

/// C layout of `struct mlx5dv_devx_umem_in`.
#[repr(C)]
pub(super) struct UmemIn {
    pub(super) addr: *mut c_void,
    pub(super) size: usize,
    pub(super) access: u32,
    pub(super) pgsz_bitmap: u64,
    pub(super) comp_mask: u64,
    pub(super) dmabuf_fd: c_int,
}

/// C layout of `struct mlx5dv_devx_uar`.
#[repr(C)]
pub(super) struct DevxUar {
    pub(super) reg_addr: *mut c_void,
    pub(super) base_addr: *mut c_void,
    pub(super) page_id: u32,
    pub(super) mmap_off: libc::off_t,
    pub(super) comp_mask: u64,
}

/// C layout of `struct ibv_async_event`, which starts with a union that includes pointers, hence the alignment.
#[repr(C, align(8))]
pub(super) struct AsyncEvent {
    /// Index of the port, valid only for port events.
    pub(super) port: c_int,
    rest: u32,
    pub(super) event_type: u32,
}

impl AsyncEvent {
    pub(super) const EMPTY: Self = Self { port: 0, rest: 0, event_type: 0 };
}

/// Event types: values of `enum ibv_event_type`.
pub(super) mod event_type {
    pub(in super::super) const DEVICE_FATAL: u32 = 8;
    pub(in super::super) const PORT_ACTIVE: u32 = 9;
    pub(in super::super) const PORT_ERR: u32 = 10;
    pub(in super::super) const LID_CHANGE: u32 = 11;
    pub(in super::super) const PKEY_CHANGE: u32 = 12;
    pub(in super::super) const GID_CHANGE: u32 = 18;
}

/// C layout of `struct mlx5dv_devx_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct mlx5dv_devx_async_event_hdr`, followed by the event queue entry.
#[repr(C)]
pub(super) struct DevxEvent {
    pub(super) cookie: u64,
    pub(super) entry: [u8; 64],
}

impl DevxEvent {
    pub(super) const EMPTY: Self = Self { cookie: 0, entry: [0; 64] };
}

/// C layout of `struct mlx5dv_pd`.
#[repr(C)]
pub(super) struct DvPd {
    pub(super) pdn: u32,
    pub(super) comp_mask: u64,
}

/// C layout of `struct mlx5dv_ah`.
#[repr(C)]
pub(super) struct DvAh {
    pub(super) av: *mut Av,
    pub(super) comp_mask: u64,
}

/// C layout of `struct mlx5_wqe_av`. Integers are big-endian.
#[repr(C)]
pub(super) struct Av {
    pub(super) key: u64,
    pub(super) dqp_dct: u32,
    pub(super) stat_rate_sl: u8,
    pub(super) fl_mlid: u8,
    pub(super) rlid: u16,
    pub(super) reserved0: [u8; 4],
    pub(super) rmac: [u8; 6],
    pub(super) tclass: u8,
    pub(super) hop_limit: u8,
    pub(super) grh_gid_fl: u32,
    pub(super) rgid: [u8; 16],
}

/// Input and output for one kind of object in `struct mlx5dv_obj`.
#[repr(C)]
pub(super) struct InOut {
    pub(super) input: *mut c_void,
    pub(super) output: *mut c_void,
}

impl InOut {
    const NONE: Self = Self { input: std::ptr::null_mut(), output: std::ptr::null_mut() };
}

/// C layout of `struct mlx5dv_obj`, the argument of `mlx5dv_init_obj`.
#[repr(C)]
pub(super) struct DvObj {
    pub(super) qp: InOut,
    pub(super) cq: InOut,
    pub(super) srq: InOut,
    pub(super) rwq: InOut,
    pub(super) dm: InOut,
    pub(super) ah: InOut,
    pub(super) pd: InOut,
}

impl DvObj {
    /// An empty entry, for a kind of object that is not queried.
    const NONE: Self = Self {
        qp: InOut::NONE,
        cq: InOut::NONE,
        srq: InOut::NONE,
        rwq: InOut::NONE,
        dm: InOut::NONE,
        ah: InOut::NONE,
        pd: InOut::NONE,
    };

    /// Creates a query of a protection domain. `mlx5dv_init_obj` writes the result to `answer`.
    pub(super) fn pd(pd: *mut ibv_pd, answer: &mut DvPd) -> Self {
        Self { pd: InOut { input: pd.cast(), output: (&raw mut *answer).cast() }, ..Self::NONE }
    }

    /// Creates a query of an address handle. `mlx5dv_init_obj` writes the result to `answer`.
    pub(super) fn ah(ah: *mut ibv_ah, answer: &mut DvAh) -> Self {
        Self { ah: InOut { input: ah.cast(), output: (&raw mut *answer).cast() }, ..Self::NONE }
    }
}

mod library;

pub(super) use self::library::*;

#[cfg(test)]
mod tests;
