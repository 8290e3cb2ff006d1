//! Sets up a rail at the best level that its NIC accepts.
//!
//! [`open_rail`] begins at the best level that the settings allow. Firmware or kernel may refuse any call for queues in GPU
//! memory, and such queues may fail the probe. The rail is then set up again with queues in host memory.

use std::sync::Arc;

use super::level::QueueLocation;
use super::probe::probe;
use super::rail::Rail;
use super::shape::Shape;
use crate::Result;
use crate::config::QueueMemory;
use crate::machine::{Machine, Region};
use crate::provider::{NicKind, Provider};

/// Returns the locations of queues to try, best first.
///
/// Queues of an RDMA device belong into GPU memory. Kernels then poll completions without reading over PCIe, and completions
/// stay in order with data for the GPU. The software ConnectX runs on the CPU, so its queues are in host memory. The GPU memory
/// of native kernels is memory of the emulated GPU.
fn locations(wanted: QueueMemory, kind: NicKind, machine: &dyn Machine) -> &'static [QueueLocation] {
    match wanted {
        _ if kind != NicKind::Hardware => &[QueueLocation::Host],
        QueueMemory::PreferDevice => &[QueueLocation::Gpu, QueueLocation::Host],
        _ if !machine.is_gpu() => &[QueueLocation::Host],
        QueueMemory::Host => &[QueueLocation::Host],
        QueueMemory::Device => &[QueueLocation::Gpu],
        QueueMemory::Auto => &[QueueLocation::Gpu, QueueLocation::Host],
    }
}

/// Sets up a rail at the best level that its NIC accepts, and probes it. `local_pes` PEs of this machine start together.
///
/// # Errors
/// The error of the lowest level: the errors of [`Rail::new`] and [`probe`].
pub(crate) fn open_rail(
    nic: Box<dyn Provider>,
    machine: &dyn Machine,
    heap: &Region,
    shape: Shape,
    wanted: QueueMemory,
    local_pes: u32,
) -> Result<Rail> {
    let nic: Arc<dyn Provider> = nic.into();
    let open = |location| {
        let mut rail = Rail::new(Arc::clone(&nic), machine, heap, shape, location)?;
        if let Some(step) = probe(&rail, heap, local_pes)? {
            rail.step_down(step);
        }
        Ok(rail)
    };
    let [first, others @ ..] = locations(wanted, nic.port().kind, machine) else {
        return open(QueueLocation::Host);
    };
    let mut outcome = open(*first);
    for location in others {
        let Err(error) = outcome else { break };
        tracing::info!("{}: queues in GPU memory failed: {error}", nic.name());
        outcome = open(*location).map(|mut rail| {
            rail.step_down(format!("queues are in host memory, because {error}"));
            rail
        });
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rushmem_device::abi::DevAddr;
    use rushmem_mlx5::prm::qp::{AddressPath, Mtu};
    use rushmem_mlx5::prm::{CmdError, CmdOpcode, CmdStatus, Header};
    use rushmem_softnic::{self as softnic, Nic};

    use super::*;
    use crate::config::Config;
    use crate::machine::LimitedMachine;
    use crate::nic_error::NicError;
    use crate::provider::{NicEvent, Object, Pd, PortAddress, QpDoorbell, Soft, Uar, Umem};

    /// A call that a NIC refuses for queues in GPU memory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum RefusedCall {
        Umem,
        Command(CmdOpcode),
    }

    /// An RDMA device that gets queues in GPU memory first.
    struct Device {
        soft: Soft,
        refused: Option<RefusedCall>,
        umems: Arc<AtomicU32>,
        /// Number of doorbells in use.
        doorbells: Arc<AtomicU32>,
    }

    /// A UAR page that counts its doorbells in use.
    struct CountingUar {
        uar: Box<dyn Uar>,
        in_use: Arc<AtomicU32>,
    }

    struct CountedDoorbell {
        doorbell: Box<dyn QpDoorbell>,
        in_use: Arc<AtomicU32>,
    }

    impl Uar for CountingUar {
        fn page_id(&self) -> u32 {
            self.uar.page_id()
        }
        fn doorbell(&self, machine: &dyn Machine) -> Result<Box<dyn QpDoorbell>> {
            let (doorbell, in_use) = (self.uar.doorbell(machine)?, Arc::clone(&self.in_use));
            Ok(Box::new(CountedDoorbell { doorbell, in_use }))
        }
        fn ring(&self, doorbell: u64) {
            self.uar.ring(doorbell);
        }
    }

    impl QpDoorbell for CountedDoorbell {
        fn register(&self) -> DevAddr {
            self.doorbell.register()
        }
        fn set_in_use(&self, is_used: bool) {
            let step = if is_used { 1 } else { u32::MAX };
            self.in_use.fetch_add(step, Ordering::Relaxed);
        }
    }

    impl Device {
        fn refuse(&self, call: RefusedCall, command: CmdOpcode) -> std::result::Result<(), NicError> {
            if self.umems.load(Ordering::Relaxed) == 1 && self.refused == Some(call) {
                let error = CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0x1234 };
                return Err(NicError::Refused { nic: "mlx5_9".into(), command, error });
            }
            Ok(())
        }
    }

    impl Provider for Device {
        fn name(&self) -> String {
            "mlx5_9 port 1".into()
        }
        fn port(&self) -> PortAddress {
            PortAddress { kind: NicKind::Hardware, ..self.soft.port() }
        }
        fn events(&self) -> Vec<NicEvent> {
            self.soft.events()
        }
        fn path(&self, peer: &PortAddress) -> std::result::Result<(AddressPath, Mtu), NicError> {
            self.soft.path(&PortAddress { kind: NicKind::Software, ..*peer })
        }
        fn execute(&self, input: &[u8], output: &mut [u8]) -> std::result::Result<(), NicError> {
            self.soft.execute(input, output)
        }
        fn create(&self, input: &[u8], output: &mut [u8]) -> std::result::Result<Box<dyn Object>, NicError> {
            let opcode = Header::decode(input).unwrap().opcode;
            self.refuse(RefusedCall::Command(opcode), opcode)?;
            self.soft.create(input, output)
        }
        fn eqn(&self) -> std::result::Result<u8, NicError> {
            self.soft.eqn()
        }
        fn alloc_pd(&self) -> std::result::Result<Box<dyn Pd>, NicError> {
            self.soft.alloc_pd()
        }
        fn umem_reg(&self, memory: &Region) -> std::result::Result<Box<dyn Umem>, NicError> {
            self.umems.fetch_add(1, Ordering::Relaxed);
            self.refuse(RefusedCall::Umem, CmdOpcode::CREATE_MKEY)?;
            self.soft.umem_reg(memory)
        }
        fn alloc_uar(&self, machine: &dyn Machine) -> Result<Box<dyn Uar>> {
            let (uar, in_use) = (self.soft.alloc_uar(machine)?, Arc::clone(&self.doorbells));
            Ok(Box::new(CountingUar { uar, in_use }))
        }
    }

    fn open(wanted: QueueMemory, refused: Option<RefusedCall>) -> (Result<Rail>, u32) {
        let (rail, umems, _) = open_with_doorbells(wanted, refused);
        (rail, umems)
    }

    /// Returns the rail, the number of registered umems, and the number of doorbells in use.
    fn open_with_doorbells(
        wanted: QueueMemory,
        refused: Option<RefusedCall>,
    ) -> (Result<Rail>, u32, Arc<AtomicU32>) {
        let machine = LimitedMachine::like_a_gpu();
        let mut config = Config::default();
        config.set("sq_depth", "4").unwrap();
        let shape = Shape::new(&config, 2);
        let heap = machine.heap(shape.reserved(), false).unwrap();
        let nic = Arc::new(Nic::start(softnic::Config::default()).unwrap());
        let (umems, doorbells) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let soft = Soft::new(nic);
        let device = Device { soft, refused, umems: Arc::clone(&umems), doorbells: Arc::clone(&doorbells) };
        let rail = open_rail(Box::new(device), &machine, &heap, shape, wanted, 1);
        (rail, umems.load(Ordering::Relaxed), doorbells)
    }

    #[test]
    fn a_refused_call_steps_down_to_host_memory() {
        let (rail, umems) = open(QueueMemory::Auto, None);
        let level = rail.unwrap().info().level;
        assert!(level.queues_on_gpu && level.steps.is_empty() && umems == 1, "{level:?}");

        let commands = [CmdOpcode::CREATE_CQ, CmdOpcode::CREATE_QP].map(RefusedCall::Command);
        for refused in [RefusedCall::Umem].into_iter().chain(commands) {
            let (rail, umems) = open(QueueMemory::Auto, Some(refused));
            let level = rail.unwrap_or_else(|error| panic!("{refused:?}: {error}")).info().level;
            assert!(!level.queues_on_gpu && umems == 2, "{refused:?}: {level:?}");
            assert_eq!(level.steps.len(), 1, "{refused:?}: {level:?}");
            assert!(level.steps[0].starts_with("queues are in host memory, because mlx5_9 refused"));
        }
    }

    #[test]
    fn only_doorbells_of_existing_qps_are_in_use() {
        let (rail, _, doorbells) = open_with_doorbells(QueueMemory::Host, None);
        let rail = rail.unwrap();
        let in_use = || doorbells.load(Ordering::Relaxed);
        assert_eq!(in_use(), 0, "the probe has ended");
        let qps = [0, 1].map(|slot| rail.make(slot, slot).unwrap());
        assert_eq!(in_use(), 2);
        drop(qps);
        assert_eq!(in_use(), 0);
    }

    #[test]
    fn a_required_level_is_not_left() {
        let refused = RefusedCall::Command(CmdOpcode::CREATE_CQ);
        let (rail, umems) = open(QueueMemory::Device, Some(refused));
        assert!(rail.err().unwrap().to_string().contains("mlx5_9 refused") && umems == 1);
        let (rail, _) = open(QueueMemory::Host, None);
        assert!(!rail.unwrap().info().level.queues_on_gpu);
    }
}
