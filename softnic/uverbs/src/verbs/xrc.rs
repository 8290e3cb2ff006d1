//! XRC domains, and the targets of extended connections. Programs of one process share a domain by a file.
//!
//! Linux keeps a target until its last handle is gone, whichever context made it. So targets and domains belong to the
//! driver's own context at the adapter.

use super::{core_in, core_out};
use crate::abi;
use crate::attrs::Call;
use crate::errno::Errno;
use crate::open_device::{OpenDevice, execute_on};
use crate::sys::{self, Identity};
use crate::user;
use rushmem_mlx5::prm::Command;
use rushmem_mlx5::prm::qp::{CreateQp, DestroyQp, QpContext, RqType, ServiceType};
use rushmem_mlx5::prm::xrc::{AllocXrcd, DeallocXrcd};
use rushmem_softnic::Context;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The domains of an adapter that have a file.
#[derive(Default)]
pub(crate) struct Domains(Mutex<BTreeMap<Identity, Weak<Domain>>>);

/// A domain. Dropping it destroys it.
pub(crate) struct Domain {
    /// The adapter's number.
    pub(crate) number: u32,
    driver: Arc<Context>,
    targets: Mutex<BTreeMap<u32, Weak<Target>>>,
}

/// A target. Dropping it destroys it.
pub(crate) struct Target {
    /// The adapter's number.
    pub(crate) qpn: u32,
    domain: Arc<Domain>,
    /// The attributes that programs have set.
    attributes: Mutex<abi::ModifyQp>,
}

/// One opening of a domain. The objects that a program makes with it hold it.
pub(crate) struct Opening(pub(crate) Arc<Domain>);

/// A domain in the table of an opened device.
pub(crate) struct Xrcd(pub(crate) Arc<Opening>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Domain {
    fn new(driver: &Arc<Context>) -> Result<Arc<Domain>, Errno> {
        let number = execute_on(driver, &AllocXrcd::default())?.xrcd;
        Ok(Arc::new(Domain { number, driver: Arc::clone(driver), targets: Mutex::default() }))
    }

    pub(super) fn target(&self, qpn: u32) -> Option<Arc<Target>> {
        locked(&self.targets).get(&qpn).and_then(Weak::upgrade)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let command = DeallocXrcd { xrcd: self.number, ..DeallocXrcd::default() };
        if let Err(error) = execute_on(&self.driver, &command) {
            tracing::warn!(?error, "cannot destroy an XRC domain");
        }
    }
}

impl Target {
    /// Creates a target in RESET.
    pub(super) fn new(opened: &OpenDevice, domain: &Arc<Domain>) -> Result<Arc<Target>, Errno> {
        let context = QpContext {
            st: ServiceType::XRC,
            no_sq: true,
            rq_type: RqType::SRQ,
            pd: opened.session()?.adapter.pd,
            xrcd: domain.number,
            ..QpContext::default()
        };
        let qpn = execute_on(&domain.driver, &CreateQp { context, ..CreateQp::default() })?.qpn;
        let target = Arc::new(Target { qpn, domain: Arc::clone(domain), attributes: Mutex::default() });
        let mut targets = locked(&domain.targets);
        targets.retain(|_, target| target.strong_count() > 0);
        targets.insert(qpn, Arc::downgrade(&target));
        drop(targets);
        Ok(target)
    }

    /// Executes a command about the target.
    pub(super) fn execute<C: Command>(&self, command: &C) -> Result<C::Output, Errno> {
        execute_on(&self.domain.driver, command)
    }

    pub(super) fn attributes(&self) -> MutexGuard<'_, abi::ModifyQp> {
        locked(&self.attributes)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = self.execute(&DestroyQp { qpn: self.qpn, ..DestroyQp::default() }) {
            tracing::warn!(?error, "cannot destroy the target of an extended connection");
        }
    }
}

/// Handles OPEN_XRCD.
pub(super) fn open(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::OpenXrcd = core_in(call)?;
    let adapter = &opened.session()?.adapter;
    let domain = match request.fd {
        // A domain without a file is not shared.
        u32::MAX => Domain::new(&adapter.driver)?,
        fd => {
            let file = sys::identity(user::descriptor(fd as RawFd)?).ok_or(Errno::EBADF)?;
            let mut domains = locked(&adapter.domains.0);
            match domains.get(&file).and_then(Weak::upgrade) {
                Some(_) if request.oflags & libc::O_EXCL as u32 != 0 => return Err(Errno::EINVAL),
                Some(domain) => domain,
                None if request.oflags & libc::O_CREAT as u32 == 0 => return Err(Errno::EAGAIN),
                None => {
                    let domain = Domain::new(&adapter.driver)?;
                    domains.retain(|_, domain| domain.strong_count() > 0);
                    domains.insert(file, Arc::downgrade(&domain));
                    domain
                }
            }
        }
    };
    let handle = opened.handles.insert(Xrcd(Arc::new(Opening(domain))))?;
    core_out(call, &handle)
}

/// Handles XRCD destroy. A domain with objects that were made through this handle stays.
pub(crate) fn close(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    if Arc::strong_count(&opened.handles.get::<Xrcd>(handle)?.0) > 1 {
        return Err(Errno::EBUSY);
    }
    opened.handles.remove::<Xrcd>(handle).map(drop)
}
