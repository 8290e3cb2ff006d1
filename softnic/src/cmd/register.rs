//! ACCESS_REG: access registers, whose contents follow the mailbox and the answer.

use super::refuse::{Reason, refuse};
use super::{CmdResult, require};
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::port::{AccessReg, AccessRegOut, NodeDescription, Pmtu, Ptys, Pvlc};
use rushmem_mlx5::prm::registers::{Paos, Pfcc, Ppcnt};
use rushmem_mlx5::prm::{Bytes, CmdStatus, Layout};

/// Accesses a register. Returns its new contents.
type Access = fn(&mut Datapath, &AccessReg, &[u8]) -> CmdResult<Vec<u8>>;

/// Executes ACCESS_REG. `of_port` has the registers of the port's link layer.
pub(super) fn access(path: &mut Datapath, of_port: Access, input: &[u8], output: &mut [u8]) -> CmdResult<()> {
    let command =
        AccessReg::decode(input).map_err(|_| refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength))?;
    let register = of_port(path, &command, input.get(AccessReg::LEN..).unwrap_or_default())?;
    let answer = AccessRegOut {}.encode();
    output.fill(0);
    output.iter_mut().zip(answer.into_iter().chain(register)).for_each(|(to, from)| *to = from);
    Ok(())
}

pub(super) fn node_description(path: &Datapath, data: &[u8]) -> CmdResult<Vec<u8>> {
    filled(data, |_: NodeDescription| {
        let mut text = [0; 64];
        let name = path.config.name.as_bytes();
        text.iter_mut().zip(name.iter().take(63)).for_each(|(to, from)| *to = *from);
        Ok(NodeDescription { text: Bytes(text) })
    })
}

/// Reads a register from a mailbox, changes it by `fill`, and encodes it again.
pub(super) fn filled<R: Register>(data: &[u8], fill: impl FnOnce(R) -> CmdResult<R>) -> CmdResult<Vec<u8>> {
    let given = R::decode(data).ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength))?;
    Ok(fill(given)?.encode(data))
}

pub(super) fn port_one(port: u8) -> CmdResult<()> {
    require(port == 1, Reason::Port)
}

/// A register of known layout.
pub(super) trait Register: Layout {
    fn decode(data: &[u8]) -> Option<Self>;
    /// Encodes the register over the bytes that it was decoded from.
    fn encode(&self, data: &[u8]) -> Vec<u8>;
}

macro_rules! registers {
    ($($register:ident)*) => {
        $(impl Register for $register {
            fn decode(data: &[u8]) -> Option<Self> {
                data.first_chunk().map(Self::read)
            }

            fn encode(&self, data: &[u8]) -> Vec<u8> {
                let mut bytes = [0; <$register as Layout>::LEN];
                bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
                self.write(&mut bytes);
                bytes.to_vec()
            }
        })*
    };
}

registers!(Ptys Pmtu Pvlc NodeDescription Paos Pfcc Ppcnt);
