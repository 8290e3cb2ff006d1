//! Drives the software ConnectX, which executes PRM commands in this process.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_config::Partition;
use rushmem_error::NicError;
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::Syndrome;
use rushmem_mlx5::doorbell::uar;
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};
use rushmem_mlx5::prm::{CmdOpcode, Command, Header, Response, cq, dct, mkey, pd, qp, rmp};
use rushmem_native::WaitChannel;
use rushmem_observe::trace::NicTrace;
use rushmem_softnic::{Context, Event, Nic};

use super::{
    DoorbellForm, Key, KeyOrder, LinkLayer, MappedDoorbell, NicEvent, NicKind, Object, Pd, PortAddress,
    Provider, QpDoorbell, Uar, Umem, WakeNic, WantedUars, page_offset, random, read,
};

/// Index of the only port of the software ConnectX.
const PORT: u8 = 1;

const NAME: &str = "software ConnectX";

/// A PE's context on the software ConnectX. All PEs of the process share the NIC.
pub struct Soft {
    nic: Arc<Nic>,
    context: Arc<Context>,
    /// The timeline on which the NIC's work is recorded and the PE's index in it, if the job is traced.
    trace: Option<(Arc<NicTrace>, u32)>,
    /// Cache of path MTUs to other software NICs, in bytes, by IP address. Each value takes a routing lookup.
    mtus: Mutex<HashMap<Ipv4Addr, u32>>,
}

impl Soft {
    pub fn new(nic: Arc<Nic>) -> Self {
        let context = Arc::new(nic.open());
        Self { nic, context, trace: None, mtus: Mutex::default() }
    }

    /// Records the NIC's work for PE `pe` on the timeline `trace`.
    pub fn traced_by(self, trace: Option<Arc<NicTrace>>, pe: u32) -> Self {
        Self { trace: trace.map(|trace| (trace, pe)), ..self }
    }
}

fn failed(call: &'static str) -> impl FnOnce(rushmem_softnic::Error) -> NicError {
    move |source| NicError::Call { nic: NAME.into(), call, source }
}

impl Provider for Soft {
    fn name(&self) -> String {
        NAME.into()
    }

    fn note_peer(&self, qpn: u32, peer: u32) {
        if let Some((trace, pe)) = &self.trace {
            trace.connect(qpn, *pe, peer);
        }
    }

    fn link(&self, channel: &Arc<WaitChannel>) -> Option<WakeNic> {
        let (channel, waker) = (Arc::clone(channel), self.context.waker());
        self.context.on_change(move || channel.wake());
        Some(Box::new(move || waker.wake()))
    }

    fn port(&self) -> PortAddress {
        let own = self.nic.address();
        PortAddress {
            kind: NicKind::Software,
            link: LinkLayer::Ethernet,
            number: PORT,
            gid: self.nic.gid(),
            mac: self.nic.mac(),
            lid: 0,
            mtu: self.nic.path_mtu(*own.ip()).unwrap_or(0),
            partition: Partition::DEFAULT,
        }
    }

    fn acks_early(&self) -> bool {
        self.nic.acks_early()
    }

    fn events(&self) -> Vec<NicEvent> {
        self.context.failures().into_iter().filter_map(|event| nic_event(event, &self.nic)).collect()
    }

    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError> {
        if peer.kind != NicKind::Software {
            let why =
                "it belongs to an RDMA device; set RUSHMEM_NIC to the same kind of NIC for all PEs".into();
            return Err(NicError::NoPath { nic: NAME.into(), peer: peer.to_string(), why });
        }
        // An unreachable peer is reported by `INIT2RTR_QP`, so an unknown MTU is not an error here.
        let ip = Ipv6Addr::from(peer.gid).to_ipv4_mapped();
        let bytes = ip.map_or(0, |ip| {
            *lock(&self.mtus).entry(ip).or_insert_with(|| self.nic.path_mtu(ip).unwrap_or(0))
        });
        let path = AddressPath {
            rgid_rip: peer.gid,
            rmac: peer.mac,
            hop_limit: 64,
            udp_sport: 0xc000,
            vhca_port_num: PORT,
            ..Default::default()
        };
        Ok((path, Mtu::within(bytes)))
    }

    fn commands(&self) -> u64 {
        self.context.commands()
    }

    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        self.context.command(input, output);
        Ok(())
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, NicError> {
        Ok(Box::new(SoftObject::create(&self.context, input, output)))
    }

    fn eqn(&self) -> Result<u8, NicError> {
        // The software ConnectX generates no EQEs.
        Ok(0)
    }

    fn alloc_pd(&self) -> Result<Box<dyn Pd>, NicError> {
        let (object, out) = create(&self.context, &pd::AllocPd::default())?;
        Ok(Box::new(SoftPd { context: Arc::clone(&self.context), _object: object, number: out.pd }))
    }

    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, NicError> {
        Ok(Box::new(SoftUmem::new(&self.context, memory)?))
    }

    fn alloc_uars(
        &self,
        machine: &dyn Machine,
        wanted: &WantedUars,
    ) -> rushmem_error::Result<Vec<Box<dyn Uar>>> {
        let bytes = wanted.count * uar::PAGE_BYTES as u64;
        let pages = if wanted.on_gpu { machine.local(bytes)? } else { machine.shared(bytes)? };
        let alloc = |i| Ok(Box::new(SoftUar::new(&self.context, &pages, i * uar::PAGE_BYTES as u64)?) as _);
        (0..wanted.count).map(alloc).collect()
    }
}

/// Converts an event of the software ConnectX, or returns `None` for an event that PEs do not handle.
fn nic_event(event: Event, nic: &Nic) -> Option<NicEvent> {
    Some(match event {
        Event::Port { is_up: false } => NicEvent::PortDown,
        Event::Port { is_up: true } => NicEvent::PortUp,
        Event::AddressLost => NicEvent::AddressChanged(format!("it lost its address {}", nic.address().ip())),
        Event::DeviceFailed => NicEvent::DeviceFailed,
        Event::CqError { cqn } => NicEvent::CqFailed { cqn },
        Event::QpError { qpn, syndrome: Syndrome::REMOTE_ACCESS_ERR | Syndrome::REMOTE_INVAL_REQ_ERR } => {
            NicEvent::RequestRefused { qpn }
        }
        Event::QpError { qpn, .. } => NicEvent::QpFailed { qpn },
        _ => return None,
    })
}

/// Returns the PRM command that destroys an object, given the mailboxes of the command that created it.
///
/// Returns `None` if that command created no object.
fn destroy_command(input: &[u8], output: &[u8]) -> Option<[u8; 16]> {
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
        CmdOpcode::CREATE_RMP => {
            let rmpn = rmp::CreateRmpOut::decode(output).ok()?.rmpn;
            rmp::DestroyRmp { rmpn, ..Default::default() }.encode()
        }
        CmdOpcode::CREATE_DCT => {
            let dctn = dct::CreateDctOut::decode(output).ok()?.dctn;
            dct::DestroyDct { dctn, ..Default::default() }.encode()
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

impl SoftObject {
    fn create(context: &Arc<Context>, input: &[u8], output: &mut [u8]) -> Self {
        context.command(input, output);
        Self { context: Arc::clone(context), destroy: destroy_command(input, output) }
    }
}

/// Creates an object, and returns it with the decoded output mailbox of the command.
fn create<C: Command>(context: &Arc<Context>, command: &C) -> Result<(SoftObject, C::Output), NicError> {
    let mut answer = <C::Output as Response>::EMPTY;
    let object = SoftObject::create(context, command.encode().as_ref(), answer.as_mut());
    Ok((object, read::<C>(NAME, answer.as_ref())?))
}

impl Object for SoftObject {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        self.context.command(input, output);
        Ok(())
    }
}

impl Drop for SoftObject {
    fn drop(&mut self) {
        if let Some(destroy) = &self.destroy {
            let mut answer = [0; 16];
            self.context.command(destroy, &mut answer);
            if let Err(error) = rushmem_mlx5::prm::CmdError::check(&answer) {
                tracing::warn!("the software ConnectX cannot destroy an object: {error}");
            }
        }
    }
}

struct SoftPd {
    context: Arc<Context>,
    _object: SoftObject,
    number: u32,
}

impl Pd for SoftPd {
    fn number(&self) -> u32 {
        self.number
    }

    fn register(&self, memory: &Region, order: KeyOrder) -> Result<Box<dyn Key>, NicError> {
        const LOG_PAGE: u8 = 12;
        // The low byte of a key is the owner's choice. A random one makes the key harder to guess.
        let [low, ..] = random()?.to_ne_bytes();
        let umem = SoftUmem::new(&self.context, memory)?;
        let (len, base) = (memory.memory.len(), page_offset(memory));
        let octwords = ((base + len).div_ceil(1 << LOG_PAGE)).div_ceil(2) as u32;
        let command = mkey::CreateMkey {
            umem_valid: true,
            umem_id: umem.id,
            translations_octword_actual_size: octwords,
            context: mkey::MkeyContext {
                a: true,
                rw: true,
                rr: true,
                lw: true,
                lr: true,
                relaxed_ordering_write: order == KeyOrder::Relaxed,
                qpn: mkey::MkeyContext::ANY_QP,
                mkey_7_0: low,
                pd: self.number,
                start_addr: base,
                len,
                translations_octword_size: octwords,
                log_page_size: LOG_PAGE,
                ..Default::default()
            }
            .with_access_mode(mkey::AccessMode::MTT),
            ..Default::default()
        };
        let (object, out) = create(&self.context, &command)?;
        let key = mkey::key(out.mkey_index, low);
        Ok(Box::new(SoftKey { _object: object, _umem: umem, key, base }))
    }
}

/// A memory key. Fields drop in order: the key before the umem it maps.
struct SoftKey {
    _object: SoftObject,
    _umem: SoftUmem,
    key: u32,
    base: u64,
}

impl Key for SoftKey {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn base(&self) -> u64 {
        self.base
    }
}

struct SoftUmem {
    context: Arc<Context>,
    id: u32,
}

impl SoftUmem {
    fn new(context: &Arc<Context>, memory: &Region) -> Result<Self, NicError> {
        let len = memory.memory.len();
        let id = context.umem_reg(Arc::clone(&memory.memory), 0, len).map_err(failed("umem_reg"))?;
        Ok(Self { context: Arc::clone(context), id })
    }
}

impl Umem for SoftUmem {
    fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for SoftUmem {
    fn drop(&mut self) {
        if let Err(error) = self.context.umem_dereg(self.id) {
            tracing::warn!("the software ConnectX cannot deregister a umem: {error}");
        }
    }
}

/// A UAR page in the machine's memory. It is freed on drop.
struct SoftUar {
    context: Arc<Context>,
    page_id: u32,
    /// Memory of all UAR pages of the rail.
    pages: Region,
    /// Offset of this UAR page in `pages`.
    at: u64,
}

impl SoftUar {
    /// Registers the page at offset `at` of `pages` as a UAR page of the software ConnectX.
    fn new(context: &Arc<Context>, pages: &Region, at: u64) -> Result<Self, NicError> {
        let page_id = context.alloc_uar_in(Arc::clone(&pages.memory), at).map_err(failed("alloc_uar_in"))?;
        Ok(Self { context: Arc::clone(context), page_id, pages: pages.clone(), at })
    }

    /// Returns the offset in `pages` of the doorbell register for `form`.
    fn register(&self, form: DoorbellForm) -> u64 {
        let in_page = match form {
            DoorbellForm::Record => uar::DB,
            DoorbellForm::NoRecord => uar::NO_DBR,
        };
        self.at + in_page as u64
    }
}

impl Uar for SoftUar {
    fn page_id(&self) -> u32 {
        self.page_id
    }

    fn doorbell(&self, _: &dyn Machine, form: DoorbellForm) -> rushmem_error::Result<Box<dyn QpDoorbell>> {
        Ok(Box::new(MappedDoorbell(self.pages.addr.add(self.register(form)))))
    }

    fn ring(&self, form: DoorbellForm, doorbell: u64) -> rushmem_error::Result<()> {
        // Release: the NIC must see the WQEs and the record before the doorbell.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.pages.write(self.register(form), &doorbell.to_ne_bytes())?;
        self.context.waker().wake();
        Ok(())
    }
}

impl Drop for SoftUar {
    fn drop(&mut self) {
        if let Err(error) = self.context.free_uar(self.page_id) {
            tracing::warn!("the software ConnectX cannot free a UAR page: {error}");
        }
    }
}
