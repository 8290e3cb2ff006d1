//! Reasons why the function refuses commands that concern the function itself. The adapter refuses others.

use rushmem_mlx5::prm::{CmdError, CmdStatus};

const fn refusal(status: CmdStatus, number: u32) -> CmdError {
    CmdError { status, syndrome: 0x60_0000 | number }
}

/// The mailbox is too short for its command, or for the list in it.
pub(crate) const INPUT_LENGTH: CmdError = refusal(CmdStatus::BAD_INP_LEN, 1);
/// The function is not enabled, or not initialized.
pub(crate) const STATE: CmdError = refusal(CmdStatus::BAD_SYS_STATE, 2);
/// The command names another function.
pub(crate) const FUNCTION: CmdError = refusal(CmdStatus::BAD_PARAM, 3);
/// The version of the interface is not supported.
pub(crate) const ISSI: CmdError = refusal(CmdStatus::BAD_PARAM, 4);
/// The direction of MANAGE_PAGES or the purpose of QUERY_PAGES is unknown, or a page is not aligned.
pub(crate) const PAGES: CmdError = refusal(CmdStatus::BAD_PARAM, 5);
/// The firmware has fewer pages than it needs, or more than it can hold.
pub(crate) const PAGE_COUNT: CmdError = refusal(CmdStatus::NO_RES, 6);
/// The event queue's size, page size or interrupt is out of range.
pub(crate) const EQ: CmdError = refusal(CmdStatus::BAD_PARAM, 7);
/// No such event queue.
pub(crate) const NO_EQ: CmdError = refusal(CmdStatus::BAD_RES, 8);
/// No event queue is left.
pub(crate) const FULL: CmdError = refusal(CmdStatus::NO_RES, 9);
/// The event queue's UAR page does not exist.
pub(crate) const NO_UAR: CmdError = refusal(CmdStatus::BAD_RES, 10);
/// A user context cannot have these rights.
pub(crate) const USER_RIGHTS: CmdError = refusal(CmdStatus::BAD_PARAM, 12);
/// No user context is left.
pub(crate) const USERS: CmdError = refusal(CmdStatus::NO_RES, 13);
/// No such user context.
pub(crate) const NO_USER: CmdError = refusal(CmdStatus::BAD_RES, 14);
/// The user context still has objects.
pub(crate) const USER_BUSY: CmdError = refusal(CmdStatus::RES_BUSY, 15);
/// Only the driver may send this command.
pub(crate) const PRIVILEGED: CmdError = refusal(CmdStatus::BAD_PARAM, 16);
/// The event queue still has completion queues.
pub(crate) const EQ_USED: CmdError = refusal(CmdStatus::RES_BUSY, 11);
/// Only a physical function has the register.
pub(crate) const VIRTUAL: CmdError = refusal(CmdStatus::BAD_PARAM, 12);
/// A register is neither read nor written.
pub(crate) const REGISTER: CmdError = refusal(CmdStatus::BAD_PARAM, 13);
