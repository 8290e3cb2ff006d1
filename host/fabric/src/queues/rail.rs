//! A rail: one NIC with its protection domain, heap key, queue memory, UAR pages and QPs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem_config::{Config, DoorbellRecord};
use rushmem_device::abi::{Connection, MovedKey, qp_flags, reserved};
use rushmem_error::{Error, NicError, Result};
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::CqeWord;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::caps::{AtomicCaps, HcaCap};
use rushmem_mlx5::prm::qp::{AddressPath, ServiceType};
use rushmem_mlx5::prm::{cq, qp};
use rushmem_mlx5::seg::SEGMENT_BYTES;

use super::bond::Bond;
use super::dc::{Parents, Target, TargetAddress};
use super::info::QpInfo;
use super::level::{QueueLocation, RailLevel};
use super::limits::QpLimits;
use super::ordering::{RequestedOrder, wants_relaxed_keys};
use super::queue_memory::QueueMemory;
use super::record::doorbell_form;
use super::shape::{CQE_BYTES, Shape, WQEBB_BYTES};
use super::state::StateMap;
use crate::provider::{
    self, DoorbellForm, DoorbellUse, DoorbellWriter, Keys, LinkLayer, NicKind, Object, Pd, PortAddress,
    Provider, QpDoorbell, Uar, WantedUars, create, execute, random,
};

/// Number of doorbell registers per rail. QPs use them in rotation. A UAR page has several.
const REGISTERS: u64 = 16;

/// The kind of loopback connection over which a NIC reaches its own PE's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// A single QP, connected to itself.
    OneQp,
    /// Two QPs on the same port, connected to each other.
    TwoQps,
}

/// Description of one NIC of a PE, which the PE sends to all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicInfo {
    pub port: PortAddress,
    /// The heap's rkey for the data of puts and gets. Through it, writes may be reordered on the PCIe bus.
    pub rkey: u32,
    pub strict_rkey: u32,
    /// Whether the NIC acknowledges WRITEs before they are in memory.
    pub early_acks: bool,
    /// Whether the PE can wait until acknowledged WRITEs are in memory. See [`Rail::loopback`].
    pub can_flush: bool,
    /// The NIC's DC target, if the job uses DC initiators.
    pub target: Option<TargetAddress>,
    pub level: RailLevel,
}

/// The part of a peer's [`NicInfo`] that is needed to connect QPs to that NIC.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerNic {
    pub(super) port: PortAddress,
    pub(super) rkey: u32,
    pub(super) strict_rkey: u32,
    pub(super) early_acks: bool,
    pub(super) relaxed_keys: bool,
    /// Whether a probe has reached the PE's own memory through the NIC.
    pub(super) has_loopback: bool,
    pub(super) target: Option<TargetAddress>,
}

impl NicInfo {
    /// Returns the part of the description that is needed to connect QPs to the NIC.
    pub(super) fn for_peers(&self) -> PeerNic {
        let NicInfo { port, rkey, strict_rkey, early_acks, can_flush: has_loopback, target, .. } = *self;
        let relaxed_keys = self.level.relaxed_keys;
        PeerNic { port, rkey, strict_rkey, early_acks, relaxed_keys, has_loopback, target }
    }
}

/// One NIC of a PE, with the queues and keys on it. Fields drop in order: doorbells before UAR pages, keys before the
/// PD, registrations before memory.
pub struct Rail {
    /// The doorbell of each QP slot.
    doorbells: Vec<Arc<dyn QpDoorbell>>,
    /// DC target of this NIC. `None` unless the job uses DC initiators.
    target: Option<Target>,
    uars: Vec<Box<dyn Uar>>,
    keys: Keys,
    pd: Box<dyn Pd>,
    memory: QueueMemory,
    /// Queues of replaced connections, in host memory, which the host can access while kernels run. `None` without
    /// failover.
    spares: Option<QueueMemory>,
    heap: Region,
    nic: Arc<dyn Provider>,
    level: RailLevel,
    eqn: u8,
    /// [`qp_flags`] bits common to all QPs of the rail.
    flags: u32,
    /// Whether kernels' doorbells update a doorbell record.
    form: DoorbellForm,
    limits: QpLimits,
    order: RequestedOrder,
    bond: Bond,
    /// The kind of loopback connection with which a probe has reached the PE's own memory. `None` if none works.
    loopback: Option<Loop>,
}

/// A QP and its CQ, destroyed on drop. Fields drop in order.
pub(super) struct Qp {
    qp: Box<dyn Object>,
    _cq: Box<dyn Object>,
    pub(super) cqn: u32,
    pub(super) address: QpAddress,
    pub(super) slot: u64,
    /// Whether the slot is in the memory for replaced connections.
    is_spare: bool,
    pub(super) form: DoorbellForm,
    /// Marks the QP's doorbell as in use. `None` for a QP to which only the CPU posts.
    _doorbell: Option<DoorbellUse>,
}

/// The numbers that a peer needs to connect its QP to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QpAddress {
    pub qpn: u32,
    /// PSN of the first packet that the QP sends. Random, to keep other hosts from forging packets.
    pub psn: u32,
    /// Options for enhanced connection establishment (ECE) that the NIC offers, as a bit set. 0 if there are none.
    pub ece: u32,
    /// log2 of the READs and atomics in flight that the QP answers.
    pub log_responses: u8,
}

impl Qp {
    /// Returns the QP's slot in the queues for replaced connections, if it is there.
    pub(super) fn spare_slot(&self) -> Option<u64> {
        self.is_spare.then_some(self.slot)
    }
}

impl Rail {
    /// Registers the heap with a NIC, and allocates memory for the queues. `kernels_fail` is the reason why kernels
    /// cannot write doorbells, if that is known.
    ///
    /// # Errors
    /// The errors of the machine and of the NIC.
    pub fn new(
        nic: Arc<dyn Provider>,
        machine: &dyn Machine,
        heap: &Region,
        shape: Shape,
        location: QueueLocation,
        kernels_fail: Option<String>,
    ) -> Result<Self> {
        let (slots, port) = (shape.rail_queues(), nic.port());
        let eqn = nic.eqn()?;
        let order = RequestedOrder::new(&*nic, shape.ordering)?;
        let bond = Bond::of(&*nic);
        let limits = QpLimits::of(&*nic)?;
        let atomics: AtomicCaps = provider::capabilities(&*nic)?;
        let big_endian = atomics.atomic_req_8b_endianness_mode == 0;
        let bytes = shape.rail_bytes();
        let on_gpu = location == QueueLocation::Gpu;
        let queues = if on_gpu { machine.local(bytes)? } else { machine.shared(bytes)? };
        let memory = QueueMemory::new(&*nic, queues, shape)?;
        let spares = shape.failover.then(|| make_spares(&*nic, machine, shape.of_spares())).transpose()?;
        let pd = nic.alloc_pd()?;
        let relaxed_keys = wants_relaxed_keys(&*nic, &shape)?;
        let keys = Keys::register(&*pd, heap, relaxed_keys)?;
        // A register of the software ConnectX holds only the last doorbell, so QPs without a record cannot share one.
        let own_pages = port.kind == NicKind::Software && shape.record == DoorbellRecord::Off;
        let count = if own_pages { slots } else { slots.min(REGISTERS) };
        let uars = nic.alloc_uars(machine, &WantedUars { count, on_gpu, kernels_fail })?;
        let form = doorbell_form(&*nic, &shape, &writer_of(&uars))?;
        let uar = |slot| &uars[(slot % count) as usize];
        let doorbell = |slot| uar(slot).doorbell(machine, form).map(Arc::from);
        let doorbells = (0..slots).map(doorbell).collect::<Result<_>>()?;
        let mut flags = if shape.collapsed { qp_flags::COLLAPSED } else { 0 };
        flags |= if big_endian { qp_flags::BIG_ENDIAN_8 } else { 0 };
        // Late records are fine if they are not read (no record) or if the software ConnectX reads them.
        let is_late = form == DoorbellForm::NoRecord || port.kind == NicKind::Software;
        flags |= if is_late { qp_flags::LATE_RECORD } else { 0 };
        flags |= if on_gpu { qp_flags::ON_GPU } else { 0 };
        let level = RailLevel::new(&*nic, location, heap, (&writer_of(&uars), form), relaxed_keys);
        let parents = Parents { pd: pd.number(), uar_page: uar(0).page_id(), eqn };
        let target = shape.is_dc().then(|| make_target(&*nic, parents)).transpose()?;
        let rail = Self {
            doorbells,
            target,
            uars,
            keys,
            pd,
            memory,
            spares,
            heap: heap.clone(),
            nic,
            level,
            eqn,
            flags,
            form,
            limits,
            order,
            bond,
            loopback: None,
        };
        // Before any kernel runs: afterwards the host may be unable to reach GPU memory.
        rail.clear_ahead(0..slots)?;
        Ok(rail)
    }

    /// Resets queue slots in GPU memory for new QPs. No kernel may be running: the host may be unable to access GPU
    /// memory while one is.
    ///
    /// Slots in host memory are reset by [`Rail::make`] instead, because most of them are never used.
    pub(super) fn clear_ahead(&self, mut slots: Range<u64>) -> Result<()> {
        if self.is_on_gpu() { slots.try_for_each(|slot| self.memory.clear(&*self.nic, slot)) } else { Ok(()) }
    }

    pub(super) fn is_on_gpu(&self) -> bool {
        self.flags & qp_flags::ON_GPU != 0
    }

    /// Registers memory other than the heap with the rail's NIC. The keys must be dropped before the rail is.
    ///
    /// # Errors
    /// Fails if the NIC refuses the registration.
    pub(super) fn register(&self, memory: &Region) -> Result<Keys> {
        Ok(Keys::register(&*self.pd, memory, self.level.relaxed_keys)?)
    }

    pub fn nic(&self) -> &dyn Provider {
        &*self.nic
    }

    pub fn info(&self) -> NicInfo {
        NicInfo {
            port: self.nic.port(),
            rkey: self.keys.data().rkey(),
            strict_rkey: self.keys.strict().rkey(),
            early_acks: self.nic.acks_early(),
            can_flush: self.loopback.is_some(),
            target: self.target.as_ref().map(|target| target.address),
            level: self.level.clone(),
        }
    }

    /// Records the kind of loopback connection with which the probe has reached the PE's own memory. Flushes use it
    /// from now on.
    pub(super) fn set_loopback(&mut self, qps: Loop) {
        self.loopback = Some(qps);
    }

    /// Returns the kind of loopback connection that flushes use, or `None` if the NIC cannot reach its own PE's memory.
    pub(super) fn loopback(&self) -> Option<Loop> {
        self.loopback
    }

    /// Returns who writes the doorbells of the rail's QPs: kernels or a CPU thread.
    pub(super) fn doorbell_writer(&self) -> DoorbellWriter {
        writer_of(&self.uars)
    }

    /// Records a feature that the rail gave up, with the reason.
    pub(super) fn step_down(&mut self, step: String) {
        self.level.steps.push(step);
    }

    pub(super) fn heap(&self) -> &Region {
        &self.heap
    }

    /// Returns the keys of the heap on this NIC.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn flags(&self) -> u32 {
        self.flags
    }

    pub(super) fn shape(&self) -> &Shape {
        self.memory.shape()
    }

    /// Returns the memory that holds the queues to which kernels post.
    pub(super) fn memory(&self) -> &QueueMemory {
        &self.memory
    }

    pub(super) fn uar(&self, slot: u64) -> &dyn Uar {
        &*self.uars[(slot % self.uars.len() as u64) as usize]
    }

    /// Creates a CQ and a QP in queue slot `slot`. `index` is the QP's index in the QP table. A slot in GPU memory must
    /// have been reset.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn make(&self, slot: u64, index: u64, service: ServiceType) -> Result<Qp> {
        if !self.is_on_gpu() {
            self.memory.clear(&*self.nic, slot)?;
        }
        let qp = self.make_in(&self.memory, (slot, index), service, self.form)?;
        Ok(Qp { _doorbell: Some(DoorbellUse::new(self.doorbell(slot))), ..qp })
    }

    /// Creates a CQ and a QP like [`Rail::make`], in slot `slot` of the queues for replaced connections.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] without failover.
    /// - Fails if the NIC refuses a command.
    pub(super) fn make_spare(&self, slot: u64, index: u64) -> Result<Qp> {
        let memory = self.spares()?;
        memory.clear(&*self.nic, slot)?;
        let qp = self.make_in(memory, (slot, index), ServiceType::RC, DoorbellForm::Record)?;
        Ok(Qp { is_spare: true, _doorbell: Some(DoorbellUse::new(self.doorbell(slot))), ..qp })
    }

    /// Returns the queues for replaced connections.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without failover.
    pub(super) fn spares(&self) -> Result<&QueueMemory> {
        let why = || "RUSHMEM_FAILOVER is off".into();
        self.spares
            .as_ref()
            .ok_or_else(|| Error::Unavailable { what: "another connection".into(), why: why() })
    }

    fn doorbell(&self, slot: u64) -> &Arc<dyn QpDoorbell> {
        // A register with the same index belongs to the same UAR page: see `uar`.
        let count = self.uars.len() as u64;
        &self.doorbells[if slot < self.doorbells.len() as u64 { slot } else { slot % count } as usize]
    }

    /// Moves a QP to the error state, in which it stops sending, refuses requests, and flushes whatever is posted to it.
    ///
    /// # Errors
    /// Fails if the NIC refuses the command.
    pub(super) fn stop(&self, pair: &Qp) -> Result<(), NicError> {
        execute(&*self.nic, &*pair.qp, &qp::ToErr { qpn: pair.address.qpn, ..Default::default() })?;
        Ok(())
    }

    /// Creates a CQ and a QP in a slot of `memory` that has been reset, given the slot and the QP's index. Only the CPU
    /// may post to the QP.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn make_in(
        &self,
        memory: &QueueMemory,
        (slot, index): (u64, u64),
        service: ServiceType,
        form: DoorbellForm,
    ) -> Result<Qp> {
        let (s, at, umem) = (memory.shape(), memory.shape().place(slot), memory.umem());
        let uar_page = self.uar(slot).page_id();
        let (cq, out) = create(
            &*self.nic,
            &cq::CreateCq {
                context: cq::CqContext {
                    dbr_umem_valid: true,
                    dbr_umem_id: umem,
                    dbr_addr: at.cq_record,
                    cc: s.collapsed,
                    // Overruns are ignored: a collapsed CQ overwrites its entry on purpose, and any other has an entry
                    // for every block of the queue.
                    oi: true,
                    c_eqn: self.eqn,
                    log_cq_size: s.cqes().trailing_zeros() as u8,
                    uar_page,
                    ..Default::default()
                },
                umem_offset: at.cq,
                umem_id: umem,
                umem_valid: true,
                ..Default::default()
            },
        )?;
        let (qp, created) = create(
            &*self.nic,
            &qp::CreateQp {
                ece: self.limits.ece(service),
                context: qp::QpContext {
                    st: service,
                    pm_state: qp::PmState::MIGRATED,
                    pd: self.pd.number(),
                    log_sq_size: s.log_depth(),
                    // Every NIC has it, whether its clock runs free or shows real time.
                    ts_format: qp::TS_DEFAULT,
                    // Peers write directly to memory, so nothing is ever received.
                    rq_type: qp::RqType::ZERO_SIZE,
                    uar_page,
                    send_dbr_mode: form.mode(),
                    user_index: index as u32,
                    cqn_snd: out.cqn,
                    dbr_umem_valid: true,
                    dbr_umem_id: umem,
                    dbr_addr: at.sq_record,
                    ..Default::default()
                },
                wq_umem_offset: at.sq,
                wq_umem_id: umem,
                wq_umem_valid: true,
                ..Default::default()
            },
        )?;
        let psn = random()? & 0xff_ffff;
        let log_responses = self.limits.log_responses;
        let address = QpAddress { qpn: created.qpn, psn, ece: created.ece, log_responses };
        Ok(Qp { qp, _cq: cq, cqn: out.cqn, address, slot, is_spare: false, form, _doorbell: None })
    }

    /// Connects a QP to the QP `remote` at port `peer`, and moves it to RTS (RST2INIT, INIT2RTR, RTR2RTS).
    ///
    /// # Errors
    /// The errors of the NIC, including a missing path to the peer.
    pub(super) fn connect(
        &self,
        pair: &Qp,
        peer: &PortAddress,
        remote: QpAddress,
        retries: RetryPolicy,
    ) -> Result<(), NicError> {
        let (primary_address_path, mtu) = self.nic.path(peer)?;
        // The same bit may mean something else to different firmware, so options are used only if both QPs offer the
        // same set.
        let ece = if pair.address.ece == remote.ece { pair.address.ece } else { 0 };
        let context = qp::QpContext {
            remote_qpn: remote.qpn,
            next_rcv_psn: remote.psn,
            primary_address_path,
            ..self.towards(mtu)
        };
        let log_requests = self.limits.log_requests(remote.log_responses);
        self.start(pair, context, ece, log_requests, retries.on(peer.link))
    }

    /// Returns the attributes of INIT2RTR for every peer over a path with this MTU.
    fn towards(&self, mtu: qp::Mtu) -> qp::QpContext {
        qp::QpContext { mtu, log_rra_max: self.limits.log_responses, min_rnr_nak: 12, ..Default::default() }
    }

    /// Moves a new QP to RTR, as if it were connected to a QP and a port that do not exist. Sends no packet.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn connect_elsewhere(&self, pair: &Qp) -> Result<(), NicError> {
        let port = self.nic.port();
        let (mut path, mtu) = self.nic.path(&port)?;
        // Host or LID 1 or 2 of the same network.
        match port.link {
            LinkLayer::InfiniBand => path.rlid = if path.rlid == 1 { 2 } else { 1 },
            LinkLayer::Ethernet => {
                let other = |own| if own == 1 { 2 } else { 1 };
                path.rgid_rip[15] = other(path.rgid_rip[15]);
                path.rmac[5] = other(path.rmac[5]);
            }
        }
        let context = qp::QpContext {
            remote_qpn: pair.address.qpn ^ 1,
            primary_address_path: path,
            ..self.towards(mtu)
        };
        self.make_ready(pair, context, 0)
    }

    /// Moves a DC initiator to RTS. It is not connected to a peer: each of its WQEs contains the address of a DC
    /// target.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn start_initiator(&self, dci: &Qp, retries: RetryPolicy) -> Result<(), NicError> {
        let port = self.nic.port();
        let (path, mtu) = self.nic.path(&port)?;
        // The rest of the path is in the address vectors.
        let primary_address_path = AddressPath {
            vhca_port_num: path.vhca_port_num,
            pkey_index: path.pkey_index,
            sl: path.sl,
            eth_prio: path.eth_prio,
            dscp: path.dscp,
            ecn: path.ecn,
            ..Default::default()
        };
        let context = qp::QpContext { mtu, primary_address_path, ..Default::default() };
        self.start(dci, context, 0, self.limits.log_dc_requests(), retries.on(port.link))
    }

    /// Executes RST2INIT, INIT2RTR and RTR2RTS. `context` contains the attributes of the peer, for INIT2RTR, and
    /// `log_sra_max` is log2 of the READs and atomics in flight.
    fn start(
        &self,
        pair: &Qp,
        context: qp::QpContext,
        ece: u32,
        log_sra_max: u8,
        (retry_count, ack_timeout): (u8, u8),
    ) -> Result<(), NicError> {
        self.make_ready(pair, context, ece)?;
        let QpAddress { qpn, psn, .. } = pair.address;
        let rts = qp::Rtr2Rts {
            qpn,
            ece,
            context: qp::QpContext {
                next_send_psn: psn,
                log_sra_max,
                retry_count,
                // Irrelevant: WRITEs, READs and atomics need no receive WQE, so RNR NAKs do not occur.
                rnr_retry: 7,
                primary_address_path: AddressPath { ack_timeout, ..Default::default() },
                ..Default::default()
            },
            ..Default::default()
        };
        execute(&*self.nic, &*pair.qp, &rts)?;
        Ok(())
    }

    /// Executes RST2INIT and INIT2RTR. `context` contains the attributes of the peer, for INIT2RTR.
    fn make_ready(&self, pair: &Qp, context: qp::QpContext, ece: u32) -> Result<(), NicError> {
        let vhca_port_num = self.nic.port().number;
        let pkey_index = context.primary_address_path.pkey_index;
        let qpn = pair.address.qpn;
        let init = qp::Rst2Init {
            qpn,
            context: qp::QpContext {
                pm_state: qp::PmState::MIGRATED,
                counter_set_id: self.nic.counter_set(),
                primary_address_path: AddressPath { vhca_port_num, pkey_index, ..Default::default() },
                atomic_mode: qp::AtomicMode::UP_TO_8B,
                rre: true,
                rwe: true,
                rae: true,
                ..Default::default()
            },
            ..Default::default()
        };
        // Messages of up to 1 GiB.
        let context = self.order.apply(qp::QpContext { log_msg_max: 30, ..context });
        let mut rtr = qp::Init2Rtr { qpn, ece, context, ..Default::default() };
        self.bond.apply(pair.slot, &mut rtr);
        execute(&*self.nic, &*pair.qp, &init)?;
        execute(&*self.nic, &*pair.qp, &rtr)?;
        Ok(())
    }

    /// Returns whether WRITEs of a connected QP may land out of order.
    ///
    /// # Errors
    /// - [`NicError::Order`] if kernels cannot work with the QP's ordering.
    /// - The error of the query, if the NIC refuses it.
    pub(super) fn is_unordered(&self, pair: &Qp) -> Result<bool, NicError> {
        self.order.unordered(&self.nic.name(), &self.context(pair)?)
    }

    /// Returns the memory that holds the queues of a QP.
    pub(super) fn memory_of(&self, pair: &Qp) -> &QueueMemory {
        self.spares.as_ref().filter(|_| pair.is_spare).unwrap_or(&self.memory)
    }

    /// Returns the last 8 bytes of CQE `index` in a QP's CQ.
    pub(super) fn completion(&self, pair: &Qp, index: u64) -> Result<u64> {
        let memory = self.memory_of(pair);
        let at = memory.shape().place(pair.slot).cq + index * CQE_BYTES + CqeWord::OFFSET as u64;
        let mut word = 0u64;
        memory.region().read(at, bytemuck::bytes_of_mut(&mut word))?;
        Ok(word)
    }

    /// Returns the address vector in the WQE that starts at block `index` of a DC initiator's send queue.
    ///
    /// # Errors
    /// Fails if the machine cannot read the queue.
    pub(super) fn target_of(&self, dci: &Qp, index: u16) -> Result<AvSeg> {
        let slot = u64::from(index) & (self.shape().depth - 1);
        // The vector follows the control segment.
        let at = self.shape().place(dci.slot).sq + slot * WQEBB_BYTES + SEGMENT_BYTES as u64;
        let mut target = AvSeg::zeroed();
        self.memory.region().read(at, bytemuck::bytes_of_mut(&mut target))?;
        Ok(target)
    }

    /// Queries the NIC for the state of the QP to `peer`. `weak` contains the QP's [`qp_flags::WEAK`] bits.
    ///
    /// # Errors
    /// Fails if the NIC refuses the query.
    pub(super) fn query(&self, pair: &Qp, peer: u32, weak: u32) -> Result<QpInfo, NicError> {
        Ok(QpInfo::new(peer, self.nic.name(), pair.address.qpn, &self.context(pair)?, weak))
    }

    /// Queries the NIC for the context of a QP.
    pub(super) fn context(&self, pair: &Qp) -> Result<qp::QpContext, NicError> {
        Ok(self.query_qp(pair)?.context)
    }

    pub(super) fn query_qp(&self, pair: &Qp) -> Result<qp::QueryQpOut, NicError> {
        let command = qp::QueryQp { qpn: pair.address.qpn, ..Default::default() };
        execute(&*self.nic, &*pair.qp, &command)
    }

    /// Returns the description of a connected QP for kernels. `words` is the slot of its ready entries and busy words,
    /// and `weak` contains its [`qp_flags::WEAK`] bits.
    pub(super) fn connection(&self, state: &StateMap, pair: &Qp, words: u64, weak: u32) -> Connection {
        let memory = self.memory_of(pair);
        let (at, queues) = (memory.shape().place(pair.slot), memory.region().addr);
        Connection {
            sq: queues.add(at.sq),
            dbr: queues.add(at.sq_record + Record::SND_OFFSET as u64),
            uar: self.doorbell(pair.slot).register(),
            qpn: pair.address.qpn,
            flags: if pair.is_spare { self.flags & !qp_flags::ON_GPU } else { self.flags } | weak,
            cq: queues.add(at.cq),
            ready: state.ready(words),
            fetch_busy: state.fetch_busy(words),
            fetch_slots: reserved::FETCH + words * self.shape().depth * 8,
            keys: [MovedKey::default(); 4],
            reserved_2: [0; 4],
        }
    }
}

/// Allocates the queues for replaced connections.
fn make_spares(nic: &dyn Provider, machine: &dyn Machine, shape: Shape) -> Result<QueueMemory> {
    Ok(QueueMemory::new(nic, machine.shared(shape.rail_bytes())?, shape)?)
}

/// Creates the DC target of a rail.
///
/// # Errors
/// [`Error::Unavailable`] if the NIC has no DC transport, or the error of a command that the NIC refuses.
fn make_target(nic: &dyn Provider, parents: Parents) -> Result<Target> {
    let caps: HcaCap = provider::capabilities(nic)?;
    if !caps.dct {
        let why = "the NIC lacks it; set RUSHMEM_DC_ABOVE to the number of PEs, for one QP to each peer";
        return Err(Error::Unavailable {
            what: format!("the DC transport of {}", nic.name()),
            why: why.into(),
        });
    }
    Target::new(nic, parents)
}

/// Returns the worst of the doorbell writers of several UAR pages.
fn writer_of(uars: &[Box<dyn Uar>]) -> DoorbellWriter {
    uars.iter().map(|uar| uar.writer()).max().unwrap_or_default()
}

/// How often and how fast a NIC resends a packet before it reports a peer as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    retry_count: u8,
    /// Time to wait for an ACK before a packet is resent, encoded as the exponent v in 4.096 us * 2^v.
    ack_timeout: u8,
    /// Whether the timeout was given by the setting `ack_timeout`.
    is_set: bool,
}

impl RetryPolicy {
    /// Returns the retry policy of the settings. By default, the timeout depends on the deadline of kernels.
    pub fn new(config: &Config) -> RetryPolicy {
        let retry_count = config.retries.get();
        match config.ack_timeout.0 {
            None => RetryPolicy::within(config.timeout, retry_count),
            Some(each) => {
                let ack_timeout = power(each).ceil().clamp(1.0, 31.0) as u8;
                RetryPolicy { retry_count, ack_timeout, is_set: true }
            }
        }
    }

    /// Returns a policy that exhausts all retries within half of a kernel's `deadline`. The NIC's error, which names
    /// the cause, then comes before the kernel's.
    pub(super) fn within(deadline: Duration, retry_count: u8) -> RetryPolicy {
        let each = deadline / (2 * (u32::from(retry_count) + 1));
        // From 1 ms to 4.3 s per try.
        RetryPolicy { retry_count, ack_timeout: power(each).floor().clamp(8.0, 20.0) as u8, is_set: false }
    }

    /// Returns the retry count and the timeout's exponent for a path with this link layer.
    ///
    /// On InfiniBand, a NIC may wait up to four times the timeout (InfiniBand specification, 9.7.6.1.3), so a derived
    /// timeout is divided by four. A timeout from the settings is used as it is.
    fn on(self, link: LinkLayer) -> (u8, u8) {
        let shorter = link == LinkLayer::InfiniBand && !self.is_set;
        let ack_timeout = if shorter { self.ack_timeout.saturating_sub(2).max(6) } else { self.ack_timeout };
        (self.retry_count, ack_timeout)
    }
}

/// Returns the exponent v for which `time` is 4.096 us * 2^v.
fn power(time: Duration) -> f64 {
    (time.as_secs_f64() / 4.096e-6).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_follow_the_settings() {
        let retries = |settings: &[(&str, &str)]| {
            let mut config = Config::default();
            settings.iter().for_each(|(key, text)| config.set(key, text).unwrap());
            RetryPolicy::new(&config).on(LinkLayer::Ethernet)
        };
        // 8 timeouts of 0.54 s fit into half of 10 s.
        assert_eq!(retries(&[]), (7, 17));
        assert_eq!(retries(&[("retries", "0")]), (0, 20));
        assert_eq!(retries(&[("timeout", "1ms")]), (7, 8));
        for (time, power) in [("1us", 1), ("8.192us", 1), ("9us", 2), ("1s", 18), ("10h", 31)] {
            assert_eq!(retries(&[("ack_timeout", time), ("retries", "3")]), (3, power), "{time}");
        }
        // On InfiniBand, 8 timeouts of up to 4 * 0.134 s fit into half of 10 s.
        let mut config = Config::default();
        let (retry_count, ack_timeout) = RetryPolicy::new(&config).on(LinkLayer::InfiniBand);
        let longest = Duration::from_nanos(4096 << ack_timeout) * 4 * (u32::from(retry_count) + 1);
        assert!(longest <= config.timeout / 2, "{longest:?}");
        config.set("ack_timeout", "1s").unwrap();
        assert_eq!(RetryPolicy::new(&config).on(LinkLayer::InfiniBand), (7, 18));
    }
}
