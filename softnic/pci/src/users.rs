//! User contexts of a function: the programs on behalf of which its driver executes commands.

use crate::refuse;
use rushmem_mlx5::prm::uctx::{CreateUctx, CreateUctxOut, DestroyUctx, DestroyUctxOut};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, Header};
use rushmem_softnic::{Context, MAX_USERS};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ID in commands by which the driver creates objects that every program may use.
const SHARED: u16 = 0xffff;

/// Whether a command comes from a program, rather than from the driver.
pub(crate) fn is_of_program(header: &Header) -> bool {
    ![0, SHARED].contains(&header.uid)
}

/// The adapter, opened for each program, by the ID of its user context.
#[derive(Default)]
pub(crate) struct Users(BTreeMap<u16, Arc<Context>>);

impl Users {
    pub(crate) fn create(
        &mut self,
        function: &Context,
        command: CreateUctx,
    ) -> Result<CreateUctxOut, CmdError> {
        if command.cap != 0 {
            return Err(refuse::USER_RIGHTS);
        }
        let free = (1..=MAX_USERS).find(|uid| !self.0.contains_key(uid)).ok_or(refuse::USERS)?;
        self.0.insert(free, Arc::new(function.open_user().ok_or(refuse::USERS)?));
        Ok(CreateUctxOut { uid: free })
    }

    pub(crate) fn destroy(&mut self, command: DestroyUctx) -> Result<DestroyUctxOut, CmdError> {
        let uid = command.destroyed;
        if self.0.get(&uid).ok_or(refuse::NO_USER)?.has_objects() {
            return Err(refuse::USER_BUSY);
        }
        self.0.remove(&uid);
        Ok(DestroyUctxOut {})
    }

    /// Returns the adapter as opened for the program that sends a command, or for the driver. A program must not send
    /// commands that concern the function.
    pub(crate) fn sender(&self, function: &Arc<Context>, header: &Header) -> Result<Arc<Context>, CmdError> {
        if !is_of_program(header) {
            return Ok(Arc::clone(function));
        }
        if is_privileged(header.opcode) {
            return Err(refuse::PRIVILEGED);
        }
        self.0.get(&header.uid).map(Arc::clone).ok_or(refuse::NO_USER)
    }
}

/// Whether only a function's driver may send a command.
fn is_privileged(opcode: CmdOpcode) -> bool {
    matches!(
        opcode,
        CmdOpcode::ENABLE_HCA
            | CmdOpcode::DISABLE_HCA
            | CmdOpcode::INIT_HCA
            | CmdOpcode::TEARDOWN_HCA
            | CmdOpcode::QUERY_PAGES
            | CmdOpcode::MANAGE_PAGES
            | CmdOpcode::SET_HCA_CAP
            | CmdOpcode::SET_ISSI
            | CmdOpcode::SET_DRIVER_VERSION
            | CmdOpcode::CREATE_EQ
            | CmdOpcode::DESTROY_EQ
            | CmdOpcode::CREATE_UCTX
            | CmdOpcode::DESTROY_UCTX
            | CmdOpcode::ACCESS_REG
            | CmdOpcode::MAD_IFC
    )
}
