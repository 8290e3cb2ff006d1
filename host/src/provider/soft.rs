//! The software ConnectX as a provider.

use std::net::Ipv6Addr;
use std::sync::Arc;

use rushmem_mlx5::prm::qp::Mtu;
use rushmem_mlx5::prm::{CmdOpcode, Header, cq, mkey, pd, qp};
use rushmem_softnic::{Context, Memory, Nic};

use super::{Error, Object, PortAddress, Provider, Uar, Umem};

/// One PE's handle of the process's software ConnectX.
pub(crate) struct Soft {
    nic: Arc<Nic>,
    context: Arc<Context>,
}

impl Soft {
    pub(crate) fn new(nic: Arc<Nic>) -> Self {
        let context = Arc::new(nic.open());
        Self { nic, context }
    }

    fn failed(&self, call: &'static str) -> impl FnOnce(rushmem_softnic::Error) -> Error {
        let nic = self.name();
        move |source| Error::Call { nic, call, source }
    }
}

impl Provider for Soft {
    fn name(&self) -> String {
        "software ConnectX".into()
    }

    fn port(&self) -> PortAddress {
        PortAddress { gid: self.nic.gid(), mac: self.nic.mac() }
    }

    fn path_mtu(&self, peer: PortAddress) -> Mtu {
        let ip = Ipv6Addr::from(peer.gid).to_ipv4_mapped();
        let bytes = ip.and_then(|ip| self.nic.path_mtu(ip)).unwrap_or(0);
        let mtus = [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512];
        mtus.into_iter().find(|mtu| mtu.bytes().is_some_and(|n| n <= bytes)).unwrap_or(Mtu::B256)
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> Box<dyn Object> {
        self.context.command(input, output);
        Box::new(SoftObject { context: Arc::clone(&self.context), destroy: destroyer(input, output) })
    }

    fn umem_reg(&self, memory: Arc<dyn Memory>) -> Result<Box<dyn Umem>, Error> {
        let len = memory.len();
        let id = self.context.umem_reg(memory, 0, len).map_err(self.failed("umem_reg"))?;
        Ok(Box::new(SoftUmem { context: Arc::clone(&self.context), id }))
    }

    fn alloc_uar(&self) -> Result<Box<dyn Uar>, Error> {
        let uar = self.context.alloc_uar().map_err(self.failed("alloc_uar"))?;
        Ok(Box::new(SoftUar { context: Arc::clone(&self.context), uar }))
    }
}

/// The mailbox that destroys what `input` made according to `output`, if it made anything.
fn destroyer(input: &[u8], output: &[u8]) -> Option<[u8; 16]> {
    Some(match Header::decode(input).ok()?.opcode {
        CmdOpcode::ALLOC_PD => {
            pd::DeallocPd { pd: pd::AllocPdOut::decode(output).ok()?.pd, ..Default::default() }.encode()
        }
        CmdOpcode::CREATE_MKEY => {
            let mkey_index = mkey::CreateMkeyOut::decode(output).ok()?.mkey_index;
            mkey::DestroyMkey { mkey_index, ..Default::default() }.encode()
        }
        CmdOpcode::CREATE_CQ => {
            cq::DestroyCq { cqn: cq::CreateCqOut::decode(output).ok()?.cqn, ..Default::default() }.encode()
        }
        CmdOpcode::CREATE_QP => {
            qp::DestroyQp { qpn: qp::CreateQpOut::decode(output).ok()?.qpn, ..Default::default() }.encode()
        }
        _ => return None,
    })
}

struct SoftObject {
    context: Arc<Context>,
    destroy: Option<[u8; 16]>,
}

impl Object for SoftObject {
    fn execute(&self, input: &[u8], output: &mut [u8]) {
        self.context.command(input, output);
    }
}

impl Drop for SoftObject {
    fn drop(&mut self) {
        if let Some(destroy) = &self.destroy {
            let mut answer = [0; 16];
            self.context.command(destroy, &mut answer);
            if let Err(error) = rushmem_mlx5::prm::CmdError::check(&answer) {
                tracing::warn!("destroying an object of the software ConnectX: {error}");
            }
        }
    }
}

struct SoftUmem {
    context: Arc<Context>,
    id: u32,
}

impl Umem for SoftUmem {
    fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for SoftUmem {
    fn drop(&mut self) {
        if let Err(error) = self.context.umem_dereg(self.id) {
            tracing::warn!("{error}");
        }
    }
}

struct SoftUar {
    context: Arc<Context>,
    uar: rushmem_softnic::Uar,
}

impl Uar for SoftUar {
    fn page_id(&self) -> u32 {
        self.uar.page_id
    }

    fn page(&self) -> *mut u8 {
        self.uar.page
    }

    fn register_offset(&self) -> usize {
        self.uar.reg_addr as usize - self.uar.page as usize
    }
}

impl Drop for SoftUar {
    fn drop(&mut self) {
        if let Err(error) = self.context.free_uar(self.uar.page_id) {
            tracing::warn!("{error}");
        }
    }
}
