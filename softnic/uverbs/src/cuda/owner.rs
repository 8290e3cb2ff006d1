//! The owner of an address: a GPU and one of its contexts.

use super::driver::{Attribute, Context, Driver};
use crate::errno::Errno;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

/// Memory type of GPU memory.
const DEVICE: u32 = 2;

/// The GPU and the context that own some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) ordinal: c_int,
    pub(super) context: Context,
    /// Whether this is the primary context, retained by [`find`] for its caller.
    pub(super) is_retained: bool,
}

/// An allocation or mapped memory.
struct Allocation {
    ordinal: c_int,
    /// CUDA context of the allocation. Mapped memory has none.
    context: Option<Context>,
    end: u64,
}

/// Returns the owner of `len` bytes at a device address, or `None` if the address is not GPU memory. Fails with
/// `EFAULT` if the range exceeds the GPU's memory.
///
/// Managed memory does not count, because the CPU can access it.
pub(super) fn find(driver: &Driver, address: u64, len: u64) -> Result<Option<Owner>, Errno> {
    let Some(first) = allocation(driver, address) else { return Ok(None) };
    let end = address.checked_add(len).ok_or(Errno::EINVAL)?;
    let mut at = first.end;
    while at < end {
        match allocation(driver, at) {
            Some(next) if next.ordinal == first.ordinal && next.end > at => at = next.end,
            _ => {
                tracing::debug!(address, len, end = at, "the range leaves the memory of the GPU");
                return Err(Errno::EFAULT);
            }
        }
    }
    let owner = match first.context {
        Some(context) => Some(Owner { ordinal: first.ordinal, context, is_retained: false }),
        None => current(driver, first.ordinal).or_else(|| primary(driver, first.ordinal)),
    };
    owner.map(Some).ok_or_else(|| {
        tracing::error!(
            "GPU memory at {address:#x} cannot be registered: the thread has no CUDA context of its GPU"
        );
        Errno::EFAULT
    })
}

/// Returns the allocation at an address if it is GPU memory without CPU access.
fn allocation(driver: &Driver, address: u64) -> Option<Allocation> {
    let is_device = driver.attribute::<u32>(Attribute::MemoryType, address)? == DEVICE;
    let is_managed = driver.attribute::<u32>(Attribute::IsManaged, address).unwrap_or(0) != 0;
    if !is_device || is_managed {
        return None;
    }
    let ordinal = driver.attribute(Attribute::DeviceOrdinal, address)?;
    let start: u64 = driver.attribute(Attribute::RangeStart, address)?;
    let size: u64 = driver.attribute(Attribute::RangeSize, address)?;
    let context = driver.attribute::<usize>(Attribute::Context, address).filter(|context| *context != 0);
    Some(Allocation {
        ordinal,
        context: context.map(|context| context as Context),
        end: start.checked_add(size)?,
    })
}

/// Returns the current context of this thread if it is on this GPU.
fn current(driver: &Driver, ordinal: c_int) -> Option<Owner> {
    let (mut context, mut device, mut wanted) = (null_mut(), -1, -1);
    // SAFETY: live variables for the results.
    unsafe {
        driver.current_context(&raw mut context).ok()?;
        if context.is_null() {
            return None;
        }
        driver.current_device(&raw mut device).ok()?;
        driver.device(&raw mut wanted, ordinal).ok()?;
    }
    (device == wanted).then_some(Owner { ordinal, context, is_retained: false })
}

/// Retains the primary context of the GPU if the program uses it. The caller must release it.
fn primary(driver: &Driver, ordinal: c_int) -> Option<Owner> {
    let (mut device, mut flags, mut active, mut context): (c_int, c_uint, c_int, Context) =
        (-1, 0, 0, null_mut());
    // SAFETY: live variables for the results.
    unsafe {
        driver.device(&raw mut device, ordinal).ok()?;
        driver.primary_state(device, &raw mut flags, &raw mut active).ok()?;
        if active == 0 {
            return None;
        }
        driver.retain_primary(&raw mut context, device).ok()?;
    }
    Some(Owner { ordinal, context, is_retained: true })
}
