//! Sets up a rail at the best level that its NIC and the kernels support.
//!
//! [`open_rail`] tries the highest level that the settings allow first, and falls back:
//!
//! - Firmware or kernel driver may refuse any call for queues in GPU memory, and such queues may fail the probe. The
//!   rail is then set up again with queues in host memory.
//! - Firmware that offers QPs without doorbell records may refuse them, or they may fail the probe. The rail is then set up
//!   again with records.
//! - Doorbells written by kernels may not arrive even though their register is mapped. A CPU thread then writes them.

use std::sync::Arc;

use rushmem_config::{DoorbellKind, QueueMemory};
use rushmem_error::{Error, Result};
use rushmem_machine::{Machine, Region};

use super::kernel_probe::probe_kernel;
use super::level::QueueLocation;
use super::probe::{Loopback, probe};
use super::rail::{Loop, Rail};
use super::record::may_omit;
use super::shape::Shape;
use crate::provider::{DoorbellWriter, NicKind, Provider};

/// The parameters for setting up a rail, except its NIC.
#[derive(Clone, Copy)]
pub struct RailSetup<'a> {
    pub machine: &'a dyn Machine,
    pub heap: &'a Region,
    pub shape: Shape,
    /// Where the settings request the queues: in GPU or host memory.
    pub queues: QueueMemory,
    /// Who writes doorbells according to the settings: kernels or a CPU thread.
    pub doorbell: DoorbellKind,
    /// Number of PEs on this machine, which start at the same time.
    pub local_pes: u32,
}

/// Returns where to try to place the queues of a NIC, best first.
///
/// Queues of an RDMA device belong in GPU memory: kernels then poll completions without reading across PCIe, and
/// completions stay ordered with data for the GPU. The software ConnectX runs on the CPU, so its queues are in host
/// memory by default. The GPU memory of native kernels is that of the emulated GPU.
fn locations(wanted: QueueMemory, kind: NicKind, machine: &dyn Machine) -> &'static [QueueLocation] {
    match wanted {
        QueueMemory::PreferDevice => &[QueueLocation::Gpu, QueueLocation::Host],
        _ if !machine.is_gpu() => &[QueueLocation::Host],
        QueueMemory::Host => &[QueueLocation::Host],
        QueueMemory::Device => &[QueueLocation::Gpu],
        QueueMemory::Auto if kind == NicKind::Software => &[QueueLocation::Host],
        QueueMemory::Auto => &[QueueLocation::Gpu, QueueLocation::Host],
    }
}

/// Sets up a rail at the highest level that its NIC supports, and probes it.
///
/// # Errors
/// The error of the lowest level tried: an error of [`Rail::new`], [`probe`] or [`probe_kernel`].
pub fn open_rail(nic: Box<dyn Provider>, setup: RailSetup<'_>) -> Result<Rail> {
    let nic: Arc<dyn Provider> = nic.into();
    let [first, others @ ..] = locations(setup.queues, nic.port().kind, setup.machine) else {
        return open_at(&nic, setup, QueueLocation::Host);
    };
    let mut outcome = open_at(&nic, setup, *first);
    for location in others {
        let Err(error) = outcome else { break };
        tracing::info!("{}: queues in GPU memory failed: {error}", nic.name());
        outcome = open_at(&nic, setup, *location).map(|mut rail| {
            rail.step_down(format!("queues are in host memory, because {error}"));
            rail
        });
    }
    outcome
}

/// Sets up a rail with queues at `location`. If it does not work without doorbell records, tries again with them.
fn open_at(nic: &Arc<dyn Provider>, setup: RailSetup<'_>, location: QueueLocation) -> Result<Rail> {
    if !may_omit(&**nic, &setup.shape)? {
        return open_written(nic, setup, location);
    }
    // Before a CPU thread writes the doorbells, kernels must have tried it with records.
    let error = match open_written(nic, RailSetup { doorbell: DoorbellKind::Gpu, ..setup }, location) {
        Err(error) => error,
        opened => return opened,
    };
    tracing::info!("{}: doorbells without records failed: {error}", nic.name());
    let shape = setup.shape.with_records();
    let mut rail = open_written(nic, RailSetup { shape, ..setup }, location)?;
    rail.step_down(format!("doorbells have records, because {error}"));
    Ok(rail)
}

/// Sets up a rail with queues at `location`. If kernels cannot use it, tries again with a CPU thread that writes their
/// doorbells.
fn open_written(nic: &Arc<dyn Provider>, setup: RailSetup<'_>, location: QueueLocation) -> Result<Rail> {
    let (rail, works) = open_probed(nic, setup, location, None)?;
    // Without loopback, a kernel has no QP to post to. The level stays unproven.
    let Some(qps) = works else { return Ok(rail) };
    let Err(error) = try_kernel(&rail, setup, qps) else { return Ok(rail) };
    // A CPU thread can help only if kernels wrote the doorbells themselves, and only the setting `auto` leaves us the
    // choice.
    let is_written_by_cpu = matches!(rail.doorbell_writer(), DoorbellWriter::CpuThread { .. });
    let is_hardware = nic.port().kind == NicKind::Hardware;
    if is_written_by_cpu || !is_hardware || setup.doorbell != DoorbellKind::Auto {
        return Err(error);
    }
    tracing::info!("{}: doorbells of kernels failed: {error}", nic.name());
    // Return the UAR pages and the queue memory before allocating them again.
    drop(rail);
    let (rail, works) = open_probed(nic, setup, location, Some(error))?;
    works.map_or(Ok(()), |qps| try_kernel(&rail, setup, qps))?;
    Ok(rail)
}

/// Sets up a rail and probes its NIC from the CPU. Returns the rail, and the QPs for which the probe succeeded, or
/// `None` if the NIC refuses loopback. `kernels_fail` is the reason why kernels cannot write doorbells, if that is
/// known.
fn open_probed(
    nic: &Arc<dyn Provider>,
    setup: RailSetup<'_>,
    location: QueueLocation,
    kernels_fail: Option<Error>,
) -> Result<(Rail, Option<Loop>)> {
    let RailSetup { machine, heap, shape, local_pes, .. } = setup;
    let kernels_fail = kernels_fail.map(|error| error.to_string());
    let mut rail = Rail::new(Arc::clone(nic), machine, heap, shape, location, kernels_fail)?;
    match probe(&rail, heap, local_pes)? {
        Loopback::Works(qps) => {
            rail.set_loopback(qps);
            Ok((rail, Some(qps)))
        }
        // Virtual functions, bonds and switches may refuse loopback although other nodes are reachable. So go on, but
        // report what is lost.
        Loopback::Refused(why) => {
            rail.step_down(format!(
                "{} is used without a probe, because it refuses loopback ({why}); PEs that share it cannot use it among \
                 themselves",
                nic.name()
            ));
            if nic.acks_early() {
                rail.step_down(format!(
                    "`quiet` reads back from the NICs of peers, because {} refuses loopback, so that its host cannot wait for \
                     acknowledged data",
                    nic.name()
                ));
            }
            Ok((rail, None))
        }
    }
}

/// Checks with a kernel that kernels can use the rail. Skips native kernels with the software ConnectX: they access it
/// just as the CPU does, so the check would find nothing new.
fn try_kernel(rail: &Rail, setup: RailSetup<'_>, qps: Loop) -> Result<()> {
    let RailSetup { machine, heap, local_pes, .. } = setup;
    if machine.is_gpu() || rail.is_on_gpu() || rail.nic().port().kind == NicKind::Hardware {
        probe_kernel(rail, machine, heap, qps, local_pes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rushmem_device::abi::DevAddr;
    use rushmem_mlx5::prm::qp::{AddressPath, Mtu, ServiceType};
    use rushmem_mlx5::prm::{CmdError, CmdOpcode, CmdStatus, Header};
    use rushmem_softnic::{self as softnic, Nic};

    use super::*;
    use crate::provider::{
        DoorbellForm, MappedDoorbell, NicEvent, Object, Pd, PortAddress, QpDoorbell, Soft, Uar, Umem,
        WantedUars,
    };
    use rushmem_config::Config;
    use rushmem_error::NicError;
    use rushmem_machine::LimitedMachine;

    /// A call that the NIC refuses for queues in GPU memory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum RefusedCall {
        Umem,
        Command(CmdOpcode),
    }

    /// A software NIC that poses as an RDMA device, so its queues are tried in GPU memory first.
    struct Device {
        soft: Soft,
        refused: Option<RefusedCall>,
        umems: Arc<AtomicU32>,
        /// Number of doorbells that are in use by QPs.
        doorbells: Arc<AtomicU32>,
        /// Whether doorbells of kernels get lost although a register is mapped for them.
        is_deaf: bool,
    }

    /// A UAR page that counts the doorbells in use.
    struct CountingUar {
        uar: Box<dyn Uar>,
        in_use: Arc<AtomicU32>,
        /// Memory to which kernels' doorbells are written instead, so they get lost.
        nowhere: Option<Region>,
        writer: DoorbellWriter,
    }

    struct CountedDoorbell {
        doorbell: Box<dyn QpDoorbell>,
        in_use: Arc<AtomicU32>,
    }

    impl Uar for CountingUar {
        fn page_id(&self) -> u32 {
            self.uar.page_id()
        }
        fn writer(&self) -> DoorbellWriter {
            self.writer.clone()
        }
        fn doorbell(&self, machine: &dyn Machine, form: DoorbellForm) -> Result<Box<dyn QpDoorbell>> {
            let doorbell = match &self.nowhere {
                Some(nowhere) => Box::new(MappedDoorbell(nowhere.addr)),
                None => self.uar.doorbell(machine, form)?,
            };
            let in_use = Arc::clone(&self.in_use);
            Ok(Box::new(CountedDoorbell { doorbell, in_use }))
        }
        fn ring(&self, form: DoorbellForm, doorbell: u64) -> Result<()> {
            self.uar.ring(form, doorbell)
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
        fn commands(&self) -> u64 {
            self.soft.commands()
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
        fn alloc_uars(&self, machine: &dyn Machine, wanted: &WantedUars) -> Result<Vec<Box<dyn Uar>>> {
            let count = |uar| {
                let in_use = Arc::clone(&self.doorbells);
                let writer = match &wanted.kernels_fail {
                    None => DoorbellWriter::Kernels,
                    cause => DoorbellWriter::CpuThread { cause: cause.clone() },
                };
                let is_deaf = self.is_deaf && writer == DoorbellWriter::Kernels;
                let nowhere = if is_deaf { Some(Region::host(8)?) } else { None };
                Ok(Box::new(CountingUar { uar, in_use, nowhere, writer }) as _)
            };
            self.soft.alloc_uars(machine, wanted)?.into_iter().map(count).collect()
        }
    }

    fn open(wanted: QueueMemory, refused: Option<RefusedCall>) -> (Result<Rail>, u32) {
        let (rail, umems, _) = open_device(refused, false, wanted, &[]);
        (rail, umems)
    }

    /// Opens a rail on a fake RDMA [`Device`]. Returns the rail, the number of registered umems, and the number of
    /// doorbells in use.
    fn open_device(
        refused: Option<RefusedCall>,
        is_deaf: bool,
        queues: QueueMemory,
        settings: &[(&str, &str)],
    ) -> (Result<Rail>, u32, Arc<AtomicU32>) {
        let machine = LimitedMachine::like_a_gpu();
        let mut config = Config::default();
        config.set("sq_depth", "4").unwrap();
        settings.iter().for_each(|(key, text)| config.set(key, text).unwrap());
        let shape = Shape::new(&config, 2);
        let heap = machine.heap(shape.reserved(), false).unwrap();
        let nic = softnic::Config { no_record: true, ..softnic::Config::default() };
        let nic = Arc::new(Nic::start(nic).unwrap());
        let (umems, doorbells) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let soft = Soft::new(nic);
        let device =
            Device { soft, refused, umems: Arc::clone(&umems), doorbells: Arc::clone(&doorbells), is_deaf };
        let setup = RailSetup {
            machine: &machine,
            heap: &heap,
            shape,
            queues,
            doorbell: config.doorbell,
            local_pes: 1,
        };
        let rail = open_rail(Box::new(device), setup);
        (rail, umems.load(Ordering::Relaxed), doorbells)
    }

    #[test]
    fn refused_call_falls_back_to_host_memory() {
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
    fn doorbells_get_records_before_queues_leave_gpu_memory() {
        let auto = &[("doorbell_record", "auto")];
        for (refused, settings, no_record, steps) in [
            (None, &[][..], false, 0),
            (None, auto, true, 0),
            (Some(RefusedCall::Command(CmdOpcode::CREATE_QP)), auto, false, 1),
        ] {
            let (rail, umems, _) = open_device(refused, false, QueueMemory::Auto, settings);
            let level = rail.unwrap_or_else(|error| panic!("{settings:?}: {error}")).info().level;
            assert!(level.queues_on_gpu && level.no_record == no_record, "{settings:?}: {level:?}");
            assert_eq!((level.steps.len(), umems), (steps, 1 + steps as u32), "{level:?}");
            let told = level
                .steps
                .iter()
                .all(|step| step.starts_with("doorbells have records, because mlx5_9 refused"));
            assert!(told, "{level:?}");
        }
    }

    #[test]
    #[ignore = "slow: runs with --ignored"]
    fn cpu_thread_rings_if_kernel_doorbells_get_lost() {
        let (rail, umems, _) = open_device(None, true, QueueMemory::Auto, &[]);
        let level = rail.unwrap().info().level;
        assert!(level.queues_on_gpu && level.cpu_rings && umems == 2, "{level:?}");
        assert_eq!(level.steps.len(), 1, "{level:?}");
        let step = &level.steps[0];
        assert!(step.starts_with("a CPU thread writes the doorbells, because"), "{step}");
        assert!(step.ends_with("the operations of a kernel did not complete within 1s"), "{step}");

        let (rail, umems, _) = open_device(None, true, QueueMemory::Auto, &[("doorbell", "gpu")]);
        assert!(rail.is_err() && umems == 2, "kernels must ring, so only the queues move");
    }

    #[test]
    fn only_doorbells_of_existing_qps_are_in_use() {
        let (rail, _, doorbells) = open_device(None, false, QueueMemory::Host, &[]);
        let rail = rail.unwrap();
        let in_use = || doorbells.load(Ordering::Relaxed);
        assert_eq!(in_use(), 0, "the probe has ended");
        let qps = [0, 1].map(|slot| rail.make(slot, slot, ServiceType::RC).unwrap());
        assert_eq!(in_use(), 2);
        drop(qps);
        assert_eq!(in_use(), 0);
    }

    #[test]
    fn required_level_never_falls_back() {
        let refused = RefusedCall::Command(CmdOpcode::CREATE_CQ);
        let (rail, umems) = open(QueueMemory::Device, Some(refused));
        assert!(rail.err().unwrap().to_string().contains("mlx5_9 refused") && umems == 1);
        let (rail, _) = open(QueueMemory::Host, None);
        assert!(!rail.unwrap().info().level.queues_on_gpu);
    }
}
