//! XRC domains and XRC target QPs, which programs in a process can share. A domain is identified by a file.
//!
//! Linux keeps a target QP until its last handle is closed, whichever context created it. So targets and domains belong
//! to the simulated kernel driver's context at the adapter.

use crate::abi;
use crate::command::execute_on;
use crate::errno::Errno;
use crate::handles::Object;
use crate::sys::Identity;
use rushmem_mlx5::prm::Command;
use rushmem_mlx5::prm::qp::{CreateQp, DestroyQp, QpContext, RqType, ServiceType};
use rushmem_mlx5::prm::xrc::{AllocXrcd, DeallocXrcd};
use rushmem_softnic::Context;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// XRC domains of an adapter that are identified by a file.
#[derive(Default)]
pub(crate) struct Domains(Mutex<BTreeMap<Identity, Weak<Domain>>>);

/// An XRC domain of the adapter, which is destroyed on drop.
pub(crate) struct Domain {
    /// XRC domain number (XRCD) in firmware commands.
    pub(crate) number: u32,
    driver: Arc<Context>,
    targets: Mutex<BTreeMap<u32, Weak<Target>>>,
}

/// An XRC target QP of the adapter, which is destroyed on drop.
pub(crate) struct Target {
    pub(crate) qpn: u32,
    domain: Arc<Domain>,
    /// Attributes set by programs.
    attributes: Mutex<abi::ModifyQp>,
}

/// An open XRC domain. The objects created through it keep it open.
pub(crate) struct Opening(pub(crate) Arc<Domain>);

/// Handle of an open XRC domain in a program's object table.
pub(crate) struct Xrcd(pub(crate) Arc<Opening>);

impl Object for Xrcd {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Domains {
    /// Returns the domain of a file. If there is none and `flags` of `open` allow it, creates one by `make`.
    pub(crate) fn open(
        &self,
        file: Identity,
        flags: u32,
        make: impl FnOnce() -> Result<Arc<Domain>, Errno>,
    ) -> Result<Arc<Domain>, Errno> {
        let mut domains = locked(&self.0);
        match domains.get(&file).and_then(Weak::upgrade) {
            Some(_) if flags & libc::O_EXCL as u32 != 0 => Err(Errno::EINVAL),
            Some(domain) => Ok(domain),
            None if flags & libc::O_CREAT as u32 == 0 => Err(Errno::EAGAIN),
            None => {
                let domain = make()?;
                domains.retain(|_, domain| domain.strong_count() > 0);
                domains.insert(file, Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }
}

impl Domain {
    pub(crate) fn new(driver: &Arc<Context>) -> Result<Arc<Domain>, Errno> {
        let number = execute_on(driver, &AllocXrcd::default())?.xrcd;
        Ok(Arc::new(Domain { number, driver: Arc::clone(driver), targets: Mutex::default() }))
    }

    pub(crate) fn target(&self, qpn: u32) -> Option<Arc<Target>> {
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
    /// Creates an XRC target QP in state RESET.
    pub(crate) fn new(pd: u32, domain: &Arc<Domain>) -> Result<Arc<Target>, Errno> {
        let context = QpContext {
            st: ServiceType::XRC,
            no_sq: true,
            rq_type: RqType::SRQ,
            pd,
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

    /// Executes a command on the target.
    pub(crate) fn execute<C: Command>(&self, command: &C) -> Result<C::Output, Errno> {
        execute_on(&self.domain.driver, command)
    }

    pub(crate) fn attributes(&self) -> MutexGuard<'_, abi::ModifyQp> {
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
