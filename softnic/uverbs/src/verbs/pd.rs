//! Protection domains.

use super::core_out;
use crate::abi::driver_data;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::handles::Object;
use crate::inventory::{Kind, Record};
use crate::open_device::OpenDevice;
use rushmem_mlx5::prm::pd::{AllocPd, DeallocPd};

pub(crate) struct Pd {
    pub(crate) number: u32,
}

impl Object for Pd {
    fn record(&self) -> Option<Record> {
        Some(Record::new(Kind::Pd, self.number))
    }
}

/// Handles ALLOC_PD.
pub(super) fn alloc(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let number = opened.execute(&AllocPd::default())?.pd;
    let handle = opened.handles.insert(Pd { number })?;
    core_out(call, &handle)?;
    call.output(driver_data::OUT, &number)
}

/// Handles the driver's PD QUERY, for an importing context.
pub(crate) fn query(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let pd = opened.handles.get::<Pd>(call.handle(driver_data::IN)?)?;
    call.output(driver_data::OUT, &pd.number)
}

/// Handles PD destroy.
pub(crate) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    let pd = opened.handles.get::<Pd>(handle)?.number;
    opened.execute(&DeallocPd { pd, ..DeallocPd::default() })?;
    opened.handles.remove::<Pd>(handle)?;
    Ok(())
}
