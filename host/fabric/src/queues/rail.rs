//! A rail: one NIC with its protection domain, heap key, queue memory, UAR pages and QPs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem_config::{Config, DoorbellRecord};
use rushmem_device::abi::{Connection, qp_flags, reserved};
use rushmem_error::{Error, NicError, Result};
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::CqeWord;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::caps::{AtomicCaps, HcaCap, RoceCap};
use rushmem_mlx5::prm::qp::{AddressPath, ServiceType};
use rushmem_mlx5::prm::{cq, qp};
use rushmem_mlx5::seg::SEGMENT_BYTES;

use super::bond::Bond;
use super::dc::{Parents, Target, TargetAddress};
use super::info::QpInfo;
use super::level::{QueueLocation, RailLevel};
use super::ordering::{RequestedOrder, wants_relaxed_keys};
use super::queue_memory::QueueMemory;
use super::record::doorbell_form;
use super::shape::{CQE_BYTES, Shape, WQEBB_BYTES};
use super::state::StateMap;
use crate::provider::{
    self, DoorbellForm, DoorbellUse, DoorbellWriter, Keys, LinkLayer, NicKind, Object, Pd, PortAddress,
    Provider, QpDoorbell, Uar, WantedUars, create, execute, random,
};

/// UAR pages of a rail. QPs share them in turn.
const UARS: u64 = 16;

/// log2 of the READs and atomics in flight on a QP.
const LOG_READS: u8 = 4;

/// Value of `ts_format` for a NIC that supports only free-running time stamps.
const FREE_RUNNING: u8 = 0;
/// Value of `ts_format` for all other NICs: the format of the NIC's clock.
const DEFAULT: u8 = 1;

/// The QPs that a NIC uses to reach the memory of its own PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// One QP, connected to itself.
    OneQp,
    /// Two QPs of the same port, connected to each other.
    TwoQps,
}

/// A PE's description of one of its NICs for the other PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicInfo {
    pub port: PortAddress,
    /// The rkey of the heap for data.
    pub rkey: u32,
    pub strict_rkey: u32,
    /// Whether the NIC acknowledges WRITEs before they are in memory.
    pub early_acks: bool,
    /// Whether its PE can wait for them: see [`Rail::loopback`].
    pub can_flush: bool,
    /// Its target, if the job uses DC initiators.
    pub target: Option<TargetAddress>,
    pub level: RailLevel,
}

/// The facts about a peer's NIC that connections need.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerNic {
    pub(super) port: PortAddress,
    pub(super) rkey: u32,
    pub(super) strict_rkey: u32,
    pub(super) early_acks: bool,
    pub(super) relaxed_keys: bool,
    pub(super) target: Option<TargetAddress>,
}

impl NicInfo {
    /// Returns the facts that connections need.
    pub(super) fn for_peers(&self) -> PeerNic {
        let NicInfo { port, rkey, strict_rkey, early_acks, target, .. } = *self;
        PeerNic { port, rkey, strict_rkey, early_acks, relaxed_keys: self.level.relaxed_keys, target }
    }
}

/// One NIC of a PE. Fields drop in order: doorbells before pages, keys before domain, registrations before memory.
pub struct Rail {
    /// Doorbell registers, by slot.
    doorbells: Vec<Arc<dyn QpDoorbell>>,
    /// `None` without DC initiators.
    target: Option<Target>,
    uars: Vec<Box<dyn Uar>>,
    keys: Keys,
    pd: Box<dyn Pd>,
    memory: QueueMemory,
    nic: Arc<dyn Provider>,
    level: RailLevel,
    eqn: u8,
    /// Bits of [`qp_flags`] for its QPs.
    flags: u32,
    /// The form of the doorbells of kernels.
    form: DoorbellForm,
    /// `ts_format` of its QPs.
    time_stamps: u8,
    order: RequestedOrder,
    bond: Bond,
    /// The QPs that reach the PE's own memory; `None` unless a probe has found them.
    loopback: Option<Loop>,
}

/// A QP and its CQ. Fields drop in order.
pub(super) struct Qp {
    qp: Box<dyn Object>,
    _cq: Box<dyn Object>,
    /// Number of the CQ.
    pub(super) cqn: u32,
    pub(super) address: QpAddress,
    pub(super) slot: u64,
    /// The form of its doorbells.
    pub(super) form: DoorbellForm,
    /// `None` for a QP to which only the CPU posts.
    _doorbell: Option<DoorbellUse>,
}

/// The QP number and first packet number of a QP, which its peer needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QpAddress {
    pub qpn: u32,
    /// PSN of the first packet that the QP sends. It is random, so that nobody can forge packets blindly.
    pub psn: u32,
    /// Enhanced connection establishment options that the NIC offers, as a bit set. 0 if it offers none.
    pub ece: u32,
}

impl Rail {
    /// Registers the heap and allocates memory for QPs. `kernels_fail` is the failure of doorbells by kernels.
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
        let atomics: AtomicCaps = provider::capabilities(&*nic)?;
        let big_endian = atomics.atomic_req_8b_endianness_mode == 0;
        // A NIC without RoCE lacks this capability, and its time stamps run freely.
        let roce: RoceCap = provider::capabilities(&*nic).unwrap_or_default();
        let bytes = shape.rail_bytes();
        let on_gpu = location == QueueLocation::Gpu;
        let queues = if on_gpu { machine.local(bytes)? } else { machine.shared(bytes)? };
        let memory = QueueMemory::new(&*nic, queues, shape)?;
        let pd = nic.alloc_pd()?;
        let relaxed_keys = wants_relaxed_keys(&*nic, &shape)?;
        let keys = Keys::register(&*pd, heap, relaxed_keys)?;
        // A register of the software ConnectX keeps the last doorbell only, so each QP without a record needs a page.
        let own_pages = port.kind == NicKind::Software && shape.record == DoorbellRecord::Off;
        let count = if own_pages { slots } else { slots.min(UARS) };
        let uars = nic.alloc_uars(machine, &WantedUars { count, on_gpu, kernels_fail })?;
        let form = doorbell_form(&*nic, &shape, &writer_of(&uars))?;
        let uar = |slot| &uars[(slot % count) as usize];
        let doorbell = |slot| uar(slot).doorbell(machine, form).map(Arc::from);
        let doorbells = (0..slots).map(doorbell).collect::<Result<_>>()?;
        let mut flags = if shape.collapsed { qp_flags::COLLAPSED } else { 0 };
        flags |= if big_endian { qp_flags::BIG_ENDIAN_8 } else { 0 };
        let is_late = form == DoorbellForm::NoRecord || port.kind == NicKind::Software;
        flags |= if is_late { qp_flags::LATE_RECORD } else { 0 };
        flags |= if on_gpu { qp_flags::ON_GPU } else { 0 };
        let time_stamps = if roce.qp_ts_format == 0 { FREE_RUNNING } else { DEFAULT };
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
            nic,
            level,
            eqn,
            flags,
            form,
            time_stamps,
            order,
            bond,
            loopback: None,
        };
        rail.clear_ahead(0..slots)?;
        Ok(rail)
    }

    /// Clears slots in GPU memory. The host may be unable to access GPU memory while kernels run, so no kernel may run.
    ///
    /// [`Rail::make`] clears a slot in host memory, because most slots are never used.
    pub(super) fn clear_ahead(&self, mut slots: Range<u64>) -> Result<()> {
        if self.is_on_gpu() { slots.try_for_each(|slot| self.memory.clear(&*self.nic, slot)) } else { Ok(()) }
    }

    /// Returns whether the queues are in GPU memory.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.flags & qp_flags::ON_GPU != 0
    }

    /// Registers memory other than the heap. The keys must be dropped before the rail.
    ///
    /// # Errors
    /// The errors of the NIC.
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

    /// Records that these QPs reach the PE's own memory. A READ by them waits for WRITEs on their way to memory.
    pub(super) fn set_loopback(&mut self, qps: Loop) {
        self.loopback = Some(qps);
    }

    /// Returns the QPs that reach the PE's own memory, if a probe has found them.
    pub(super) fn loopback(&self) -> Option<Loop> {
        self.loopback
    }

    /// Returns the writer of the doorbells.
    pub(super) fn doorbell_writer(&self) -> DoorbellWriter {
        writer_of(&self.uars)
    }

    /// Records a step down from a better level, with its cause.
    pub(super) fn step_down(&mut self, step: String) {
        self.level.steps.push(step);
    }

    /// Returns the keys of the heap.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn flags(&self) -> u32 {
        self.flags
    }

    pub(super) fn shape(&self) -> &Shape {
        self.memory.shape()
    }

    /// Returns the memory of the QPs to which kernels post.
    pub(super) fn memory(&self) -> &QueueMemory {
        &self.memory
    }

    /// Returns the UAR page of a slot.
    pub(super) fn uar(&self, slot: u64) -> &dyn Uar {
        &*self.uars[(slot % self.uars.len() as u64) as usize]
    }

    /// Executes CREATE_CQ and CREATE_QP in slot `slot` for QP number `index` of the PE. A slot in GPU memory must be
    /// cleared.
    ///
    /// # Errors
    /// The errors of the NIC.
    pub(super) fn make(&self, slot: u64, index: u64, service: ServiceType) -> Result<Qp> {
        if !self.is_on_gpu() {
            self.memory.clear(&*self.nic, slot)?;
        }
        let qp = self.make_in(&self.memory, (slot, index), service, self.form)?;
        Ok(Qp { _doorbell: Some(DoorbellUse::new(&self.doorbells[slot as usize])), ..qp })
    }

    /// Executes CREATE_CQ and CREATE_QP in a cleared slot of `memory` for QP number `index` of the PE. Only the CPU posts to it.
    ///
    /// # Errors
    /// The errors of the NIC.
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
                context: qp::QpContext {
                    st: service,
                    pm_state: qp::PmState::MIGRATED,
                    pd: self.pd.number(),
                    log_sq_size: s.log_depth(),
                    ts_format: self.time_stamps,
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
        let address = QpAddress { qpn: created.qpn, psn, ece: created.ece };
        Ok(Qp { qp, _cq: cq, cqn: out.cqn, address, slot, form, _doorbell: None })
    }

    /// Executes RST2INIT, INIT2RTR and RTR2RTS to connect to the QP `remote` behind `peer`.
    ///
    /// # Errors
    /// The errors of the NIC, or an error if there is no path to the peer.
    pub(super) fn connect(
        &self,
        pair: &Qp,
        peer: &PortAddress,
        remote: QpAddress,
        retries: RetryPolicy,
    ) -> Result<(), NicError> {
        let (primary_address_path, mtu) = self.nic.path(peer)?;
        // Options of other firmware may mean something else, so both ends use them only if they are equal.
        let ece = if pair.address.ece == remote.ece { pair.address.ece } else { 0 };
        let context = qp::QpContext {
            mtu,
            remote_qpn: remote.qpn,
            next_rcv_psn: remote.psn,
            log_rra_max: LOG_READS,
            min_rnr_nak: 12,
            primary_address_path,
            ..Default::default()
        };
        self.start(pair, context, ece, retries.on(peer.link))
    }

    /// Executes RST2INIT, INIT2RTR and RTR2RTS for a DC initiator. Its WQEs name their peers.
    ///
    /// # Errors
    /// The errors of the NIC.
    pub(super) fn start_initiator(&self, dci: &Qp, retries: RetryPolicy) -> Result<(), NicError> {
        let port = self.nic.port();
        let (path, mtu) = self.nic.path(&port)?;
        // The rest of a path is in the address vectors.
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
        self.start(dci, context, 0, retries.on(port.link))
    }

    /// Executes RST2INIT, INIT2RTR and RTR2RTS. `context` has the facts about the peer.
    fn start(
        &self,
        pair: &Qp,
        context: qp::QpContext,
        ece: u32,
        (retry_count, ack_timeout): (u8, u8),
    ) -> Result<(), NicError> {
        let vhca_port_num = self.nic.port().number;
        let pkey_index = context.primary_address_path.pkey_index;
        let QpAddress { qpn, psn, .. } = pair.address;
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
        let context = self.order.apply(qp::QpContext { log_msg_max: 30, ..context });
        let mut rtr = qp::Init2Rtr { qpn, ece, context, ..Default::default() };
        self.bond.apply(pair.slot, &mut rtr);
        let rts = qp::Rtr2Rts {
            qpn,
            ece,
            context: qp::QpContext {
                next_send_psn: psn,
                log_sra_max: LOG_READS,
                retry_count,
                rnr_retry: 7,
                primary_address_path: AddressPath { ack_timeout, ..Default::default() },
                ..Default::default()
            },
            ..Default::default()
        };
        execute(&*self.nic, &*pair.qp, &init)?;
        execute(&*self.nic, &*pair.qp, &rtr)?;
        execute(&*self.nic, &*pair.qp, &rts)?;
        Ok(())
    }

    /// Returns whether WRITEs of a connected QP may land out of order.
    ///
    /// # Errors
    /// - [`NicError::Order`] if kernels cannot work with the order.
    /// - The errors of the NIC.
    pub(super) fn is_unordered(&self, pair: &Qp) -> Result<bool, NicError> {
        self.order.unordered(&self.nic.name(), &self.context(pair)?)
    }

    /// Returns the last 8 bytes of CQE `index` of a QP.
    pub(super) fn completion(&self, pair: &Qp, index: u64) -> Result<u64> {
        let at = self.shape().place(pair.slot).cq + index * CQE_BYTES + CqeWord::OFFSET as u64;
        let mut word = 0u64;
        self.memory.region().read(at, bytemuck::bytes_of_mut(&mut word))?;
        Ok(word)
    }

    /// Returns the address vector in the WQE at block `index` of a DC initiator.
    ///
    /// # Errors
    /// The errors of the machine.
    pub(super) fn target_of(&self, dci: &Qp, index: u16) -> Result<AvSeg> {
        let slot = u64::from(index) & (self.shape().depth - 1);
        // The vector follows the control segment.
        let at = self.shape().place(dci.slot).sq + slot * WQEBB_BYTES + SEGMENT_BYTES as u64;
        let mut target = AvSeg::zeroed();
        self.memory.region().read(at, bytemuck::bytes_of_mut(&mut target))?;
        Ok(target)
    }

    /// Executes QUERY_QP for the QP to `peer`. `weak` has the flags of its order.
    ///
    /// # Errors
    /// The errors of the NIC.
    pub(super) fn query(&self, pair: &Qp, peer: u32, weak: u32) -> Result<QpInfo, NicError> {
        Ok(QpInfo::new(peer, self.nic.name(), pair.address.qpn, &self.context(pair)?, weak))
    }

    /// Executes QUERY_QP and returns the context.
    pub(super) fn context(&self, pair: &Qp) -> Result<qp::QpContext, NicError> {
        Ok(self.query_qp(pair)?.context)
    }

    /// Executes QUERY_QP.
    pub(super) fn query_qp(&self, pair: &Qp) -> Result<qp::QueryQpOut, NicError> {
        let command = qp::QueryQp { qpn: pair.address.qpn, ..Default::default() };
        execute(&*self.nic, &*pair.qp, &command)
    }

    /// Returns the description of a connected QP for kernels. Its words are in slot `words` of the PE, and `weak` has the
    /// flags of its order.
    pub(super) fn connection(&self, state: &StateMap, pair: &Qp, words: u64, weak: u32) -> Connection {
        let (at, queues) = (self.shape().place(pair.slot), self.memory.region().addr);
        Connection {
            sq: queues.add(at.sq),
            dbr: queues.add(at.sq_record + Record::SND_OFFSET as u64),
            uar: self.doorbells[pair.slot as usize].register(),
            qpn: pair.address.qpn,
            flags: self.flags | weak,
            cq: queues.add(at.cq),
            ready: state.ready(words),
            fetch_busy: state.fetch_busy(words),
            fetch_slots: reserved::FETCH + words * self.shape().depth * 8,
            reserved_2: [0; 8],
        }
    }
}

/// Makes the target of a rail.
///
/// # Errors
/// [`Error::Unavailable`] if the NIC has no DC transport, and the errors of the NIC.
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

/// Returns the slowest writer of the doorbells of some pages.
fn writer_of(uars: &[Box<dyn Uar>]) -> DoorbellWriter {
    uars.iter().map(|uar| uar.writer()).max().unwrap_or_default()
}

/// Retries of a NIC before it reports a peer as lost, in the units of the QP context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    retry_count: u8,
    /// Exponent v of the timeout 4.096 us * 2^v.
    ack_timeout: u8,
    /// Whether the timeout comes from the setting `ack_timeout`.
    is_set: bool,
}

impl RetryPolicy {
    /// Returns the policy of the settings.
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

    /// Returns a policy that ends all retries of a WQE within half of a kernel's deadline. The NIC's error, which names
    /// the cause, then comes before the deadline.
    pub(super) fn within(deadline: Duration, retry_count: u8) -> RetryPolicy {
        let each = deadline / (2 * (u32::from(retry_count) + 1));
        RetryPolicy { retry_count, ack_timeout: power(each).floor().clamp(8.0, 20.0) as u8, is_set: false }
    }

    /// Returns the retry count and the exponent of the timeout for a path with this link layer.
    ///
    /// On InfiniBand, a NIC waits between one and four timeouts (InfiniBand specification 9.7.6.1.3), so a derived timeout is
    /// divided by four. A timeout of the settings is used unchanged.
    fn on(self, link: LinkLayer) -> (u8, u8) {
        let shorter = link == LinkLayer::InfiniBand && !self.is_set;
        let ack_timeout = if shorter { self.ack_timeout.saturating_sub(2).max(6) } else { self.ack_timeout };
        (self.retry_count, ack_timeout)
    }
}

/// Returns the v for which `time` is 4.096 us * 2^v.
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
        // Eight times 0.54 s fit into half of 10 s.
        assert_eq!(retries(&[]), (7, 17));
        assert_eq!(retries(&[("retries", "0")]), (0, 20));
        assert_eq!(retries(&[("timeout", "1ms")]), (7, 8));
        for (time, power) in [("1us", 1), ("8.192us", 1), ("9us", 2), ("1s", 18), ("10h", 31)] {
            assert_eq!(retries(&[("ack_timeout", time), ("retries", "3")]), (3, power), "{time}");
        }
        // On InfiniBand, eight tries of up to four times 0.134 s fit into half of 10 s.
        let mut config = Config::default();
        let (retry_count, ack_timeout) = RetryPolicy::new(&config).on(LinkLayer::InfiniBand);
        let longest = Duration::from_nanos(4096 << ack_timeout) * 4 * (u32::from(retry_count) + 1);
        assert!(longest <= config.timeout / 2, "{longest:?}");
        config.set("ack_timeout", "1s").unwrap();
        assert_eq!(RetryPolicy::new(&config).on(LinkLayer::InfiniBand), (7, 18));
    }
}
