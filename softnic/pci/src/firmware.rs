//! The commands that concern the function itself: its life cycle, its pages and its event queues. All others go to the
//! adapter, whose objects also serve libmlx5.

use crate::eq::EventQueues;
use crate::refuse;
use crate::users::{Users, is_of_program};
use rushmem_mlx5::prm::cq::CreateCq;
use rushmem_mlx5::prm::eq::{CreateEq, CreateEqOut, DestroyEq, DestroyEqOut};
use rushmem_mlx5::prm::hca::{
    AdapterParams, DisableHca, DisableHcaOut, EnableHca, EnableHcaOut, InitHca, InitHcaOut, ManagePages,
    ManagePagesOut, PagesFor, PagesMode, QueryAdapter, QueryAdapterOut, QueryIssi, QueryIssiOut, QueryPages,
    QueryPagesOut, SetDriverVersion, SetDriverVersionOut, SetIssi, SetIssiOut, TeardownHca, TeardownHcaOut,
};
use rushmem_mlx5::prm::port::{AccessReg, AccessRegOut, HostEndianness, RegisterId};
use rushmem_mlx5::prm::uctx::{CreateUctx, DestroyUctx};
use rushmem_mlx5::prm::{
    Bytes, CmdError, CmdOpcode, CmdStatus, Command, DecodeError, Header, Response, list_entries,
};
use rushmem_softnic::{Context, FunctionType};

/// Number of pages that the function asks for before other commands, and for INIT_HCA. It keeps nothing in them: its
/// objects are in the memory of this process.
const BOOT_PAGES: usize = 16;
const INIT_PAGES: usize = 64;

/// Maximum number of pages that a driver can give.
const MAX_PAGES: usize = 1 << 16;

/// Version of the interface between software and silicon (ISSI).
const ISSI: u16 = 1;

/// IEEE vendor ID (OUI) of a ConnectX.
const OUI: u32 = 0x02c9;

/// Parameter set ID, which names the board.
const PSID: &[u8; 16] = b"RSH0000000001\0\0\0";

const PAGE: u64 = 4096;

/// How far the driver has brought up the function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Disabled,
    Enabled,
    Initialized,
}

/// The state of the function that its driver has set up by commands.
pub(crate) struct Firmware {
    function: FunctionType,
    stage: Stage,
    /// The byte order of the host, as the driver has declared it. Nothing in the interface of this adapter depends on it.
    byte_order: HostEndianness,
    issi: u16,
    /// Bus addresses of the pages that the driver has given.
    pages: Vec<u64>,
    /// The programs on behalf of which the driver sends commands.
    pub(crate) users: Users,
}

/// What the function does besides answering a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The adapter executes the command.
    Adapter,
    /// All objects are destroyed.
    Teardown,
}

type Outcome<T = Effect> = Result<T, CmdError>;

impl Firmware {
    /// Returns the state of a function after power-on.
    pub(crate) fn new(function: FunctionType) -> Firmware {
        let (stage, byte_order) = (Stage::default(), HostEndianness::default());
        Firmware { function, stage, byte_order, issi: 0, pages: Vec::new(), users: Users::default() }
    }

    /// Executes a command, unless the adapter must do so. `adapter` has the objects of the function. A refused command
    /// has no effect.
    pub(crate) fn execute(
        &mut self,
        adapter: &Context,
        events: &EventQueues,
        input: &[u8],
        output: &mut [u8],
    ) -> Outcome {
        let header = Header::decode(input).map_err(|_| refuse::INPUT_LENGTH)?;
        self.check_stage(header.opcode)?;
        match header.opcode {
            CmdOpcode::ENABLE_HCA => answer(input, output, |command| self.enable(command))?,
            CmdOpcode::DISABLE_HCA => answer(input, output, |command| self.disable(command))?,
            CmdOpcode::QUERY_ISSI => answer(input, output, |_: QueryIssi| {
                Ok(QueryIssiOut { current_issi: self.issi, supported_issi_dw0: 1 << ISSI })
            })?,
            CmdOpcode::SET_ISSI => answer(input, output, |command: SetIssi| {
                self.issi = (command.current_issi == ISSI).then_some(ISSI).ok_or(refuse::ISSI)?;
                Ok(SetIssiOut {})
            })?,
            CmdOpcode::QUERY_PAGES => answer(input, output, |command| self.query_pages(command))?,
            CmdOpcode::MANAGE_PAGES => self.manage_pages(input, output)?,
            CmdOpcode::INIT_HCA => answer(input, output, |_: InitHca| self.initialize())?,
            CmdOpcode::TEARDOWN_HCA => {
                answer(input, output, |_: TeardownHca| Ok(TeardownHcaOut::default()))?;
                self.stage = Stage::Enabled;
                return Ok(Effect::Teardown);
            }
            CmdOpcode::SET_DRIVER_VERSION => answer(input, output, |command: SetDriverVersion| {
                let text = command.driver_version.0;
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                // A guest must not write control sequences to the terminal.
                tracing::info!(driver = %text[..end].escape_ascii(), "driver");
                Ok(SetDriverVersionOut {})
            })?,
            CmdOpcode::QUERY_ADAPTER => answer(input, output, |_: QueryAdapter| {
                let params = AdapterParams { ieee_vendor_id: OUI, vsd_vendor_id: 0x15b3, psid: Bytes(*PSID) };
                Ok(QueryAdapterOut { params })
            })?,
            CmdOpcode::CREATE_UCTX => {
                answer(input, output, |command: CreateUctx| self.users.create(adapter, command))?;
            }
            CmdOpcode::DESTROY_UCTX => {
                answer(input, output, |command: DestroyUctx| self.users.destroy(command))?;
            }
            CmdOpcode::ACCESS_REG
                if decode::<AccessReg>(input)?.register_id == RegisterId::HOST_ENDIANNESS =>
            {
                self.access_byte_order(input, output)?;
            }
            CmdOpcode::CREATE_EQ => {
                let list = input.get(CreateEq::LEN..).unwrap_or_default();
                answer(input, output, |command: CreateEq| {
                    if !adapter.owns_uar(command.context.uar_page) {
                        return Err(refuse::NO_UAR);
                    }
                    Ok(CreateEqOut { eq_number: events.create(&command, list)? })
                })?;
            }
            CmdOpcode::DESTROY_EQ => answer(input, output, |command: DestroyEq| {
                if adapter.uses_event_queue(command.eq_number) {
                    return Err(refuse::EQ_USED);
                }
                events.destroy(command.eq_number)?;
                Ok(DestroyEqOut {})
            })?,
            CmdOpcode::CREATE_CQ => {
                let number = decode::<CreateCq>(input)?.context.c_eqn;
                return if events.serves(number, is_of_program(&header)) {
                    Ok(Effect::Adapter)
                } else {
                    Err(refuse::NO_EQ)
                };
            }
            _ => return Ok(Effect::Adapter),
        }
        Ok(Effect::None)
    }

    /// Checks that the function is in a stage in which it accepts the command.
    fn check_stage(&self, opcode: CmdOpcode) -> Outcome<()> {
        let needed = match opcode {
            CmdOpcode::ENABLE_HCA => Stage::Disabled,
            CmdOpcode::DISABLE_HCA
            | CmdOpcode::QUERY_ISSI
            | CmdOpcode::SET_ISSI
            | CmdOpcode::QUERY_PAGES
            | CmdOpcode::MANAGE_PAGES
            | CmdOpcode::QUERY_HCA_CAP
            | CmdOpcode::SET_HCA_CAP
            | CmdOpcode::ACCESS_REG
            | CmdOpcode::QUERY_ADAPTER
            | CmdOpcode::INIT_HCA => Stage::Enabled,
            _ => Stage::Initialized,
        };
        if self.stage >= needed { Ok(()) } else { Err(refuse::STATE) }
    }

    fn enable(&mut self, command: EnableHca) -> Outcome<EnableHcaOut> {
        own_function(command.function_id)?;
        self.stage = self.stage.max(Stage::Enabled);
        Ok(EnableHcaOut {})
    }

    fn disable(&mut self, command: DisableHca) -> Outcome<DisableHcaOut> {
        own_function(command.function_id)?;
        if self.stage == Stage::Initialized {
            return Err(refuse::STATE);
        }
        self.stage = Stage::Disabled;
        Ok(DisableHcaOut {})
    }

    fn initialize(&mut self) -> Outcome<InitHcaOut> {
        if self.pages.len() < BOOT_PAGES + INIT_PAGES {
            return Err(refuse::PAGE_COUNT);
        }
        self.stage = Stage::Initialized;
        Ok(InitHcaOut {})
    }

    /// Reads or writes the register that holds the byte order of the host, which all functions of a NIC share.
    fn access_byte_order(&mut self, input: &[u8], output: &mut [u8]) -> Outcome<()> {
        if self.function == FunctionType::Virtual {
            return Err(refuse::VIRTUAL);
        }
        let command: AccessReg = decode(input)?;
        let given = input.get(AccessReg::LEN..).and_then(<[u8]>::first_chunk).ok_or(refuse::INPUT_LENGTH)?;
        match command.op_mod {
            AccessReg::READ => {}
            AccessReg::WRITE => self.byte_order = HostEndianness::read(given),
            _ => return Err(refuse::REGISTER),
        }
        let mut register = [0; HostEndianness::LEN];
        self.byte_order.write(&mut register);
        write(output, AccessRegOut {}.encode().into_iter().chain(register));
        Ok(())
    }

    fn query_pages(&self, command: QueryPages) -> Outcome<QueryPagesOut> {
        own_function(command.function_id)?;
        let needed = match command.op_mod {
            PagesFor::BOOT => BOOT_PAGES,
            PagesFor::INIT => BOOT_PAGES + INIT_PAGES,
            // Nothing is returned before the driver takes it.
            PagesFor::REGULAR => 0,
            _ => return Err(refuse::PAGES),
        };
        let num_pages = needed.saturating_sub(self.pages.len()) as u32;
        Ok(QueryPagesOut { function_id: 0, num_pages })
    }

    fn manage_pages(&mut self, input: &[u8], output: &mut [u8]) -> Outcome<()> {
        let command: ManagePages = decode(input)?;
        own_function(command.function_id)?;
        let count = command.input_num_entries as usize;
        match command.op_mod {
            PagesMode::GIVE => {
                let given: Vec<u64> = list_entries(input, ManagePages::LEN).take(count).collect();
                if given.len() != count {
                    return Err(refuse::INPUT_LENGTH);
                }
                if count > MAX_PAGES - self.pages.len() {
                    return Err(refuse::PAGE_COUNT);
                }
                if given.iter().any(|page| !page.is_multiple_of(PAGE)) {
                    return Err(refuse::PAGES);
                }
                self.pages.extend(given);
                write(output, ManagePagesOut::default().encode());
            }
            PagesMode::TAKE => {
                let room = output.len().saturating_sub(ManagePagesOut::LEN) / size_of::<u64>();
                let left = self.pages.len() - self.pages.len().min(count).min(room);
                let taken = self.pages.split_off(left);
                let answer = ManagePagesOut { output_num_entries: taken.len() as u32 }.encode();
                let list = taken.iter().flat_map(|page| page.to_be_bytes());
                write(output, answer.into_iter().chain(list));
            }
            // The driver is out of memory; it does not go on.
            PagesMode::CANNOT_GIVE => write(output, ManagePagesOut::default().encode()),
            _ => return Err(refuse::PAGES),
        }
        Ok(())
    }
}

/// Checks that a command names the function that sends it.
fn own_function(id: u16) -> Outcome<()> {
    if id == 0 { Ok(()) } else { Err(refuse::FUNCTION) }
}

fn decode<C: Command>(input: &[u8]) -> Outcome<C> {
    C::decode(input).map_err(|error| match error {
        DecodeError::Length { .. } => refuse::INPUT_LENGTH,
        _ => CmdError { status: CmdStatus::BAD_OP, syndrome: 0 },
    })
}

/// Decodes a command, executes it by `handler`, and writes its answer.
fn answer<C: Command>(
    input: &[u8],
    output: &mut [u8],
    handler: impl FnOnce(C) -> Outcome<C::Output>,
) -> Outcome<()> {
    let done = handler(decode(input)?)?.encode();
    write(output, done.as_ref().iter().copied());
    Ok(())
}

/// Fills `output` with `bytes`, truncated or padded with zeros.
fn write(output: &mut [u8], bytes: impl IntoIterator<Item = u8>) {
    output.fill(0);
    output.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
}
