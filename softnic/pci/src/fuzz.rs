//! Bodies of the fuzz targets: a driver that does anything to a function, and a client that sends anything.
//!
//! No input may cause a panic, or make the adapter fail.

use crate::Interrupts;
use crate::config_space::Identity;
use crate::driver::{Driver, MEMORY, MEMORY_BYTES, QUEUE};
use crate::function::Region;
use crate::vfio_user::hostile_client;
use rushmem_mlx5::prm::CmdOpcode;
use rushmem_softnic::{FunctionType, HostBuffer, Rule};
use std::sync::Arc;

/// Executes actions of a driver. Each has a header of four bytes and a payload: kind, two bytes that the kind
/// interprets, and length of the payload.
pub fn registers(data: &[u8]) {
    let function = match data.first() {
        Some(kind) if kind & 0x80 != 0 => FunctionType::Physical,
        _ => FunctionType::Virtual,
    };
    let identity = Identity { function, infiniband: true, ..Identity::default() };
    let mut driver = Driver::of(identity, Arc::new(NoInterrupts));
    // An odd length leaves the function as it is after power-on.
    if data.len().is_multiple_of(2) {
        driver.bring_up();
    }
    let mut rest = data;
    while let Some(([kind, high, low, len], tail)) = rest.split_first_chunk() {
        let (payload, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        act(&mut driver, *kind, [*high, *low], payload);
    }
    let violations = driver.nic.violations();
    assert!(violations.iter().all(|violation| violation.rule != Rule::Engine), "{violations:?}");
}

struct NoInterrupts;

impl Interrupts for NoInterrupts {
    fn raise(&self, _: u16) {}
}

fn act(driver: &mut Driver, kind: u8, argument: [u8; 2], payload: &[u8]) {
    let offset = u64::from(u16::from_be_bytes(argument));
    match kind % 8 {
        // Registers, and those of the first doorbell pages.
        0 => driver.function.write(Region::Bar0, offset << 2, payload),
        1 => driver.function.write(Region::Config, offset, payload),
        2 => {
            let mut bytes = [0; 16];
            driver.function.read(
                if kind & 8 == 0 { Region::Bar0 } else { Region::Config },
                offset,
                &mut bytes,
            );
        }
        3 => command(driver, argument, payload),
        // Raw bytes in the command queue and its blocks.
        4 => {
            // Without memory there is nothing to write.
            let _ = rushmem_softnic::Memory::write(&*driver.memory, QUEUE + offset, payload);
            driver.set_register(0x18, u32::MAX);
        }
        5 => {
            driver.function.reset();
            driver.set_queue();
        }
        // The last page goes and comes.
        _ => {
            let (at, len) = (MEMORY + MEMORY_BYTES as u64, 1 << 16);
            if driver.memory.unmap(at, len).is_err() {
                driver.memory.insert(at, HostBuffer::new(len as usize)).expect("nothing else is there");
            }
        }
    }
}

/// Executes a known command with a mailbox of any contents. The second byte of `argument` is the length of the output, in
/// units of 8 bytes.
fn command(driver: &mut Driver, [choice, output]: [u8; 2], payload: &[u8]) {
    let opcode = CmdOpcode::ALL[usize::from(choice) % CmdOpcode::ALL.len()];
    let mut input = vec![0; 512.max(payload.len() + 2)];
    input[..2].copy_from_slice(&opcode.0.to_be_bytes());
    input[2..2 + payload.len()].copy_from_slice(payload);
    driver.prepare(&input, usize::from(output) * 8);
    driver.set_register(0x18, 1);
}

/// Serves a client that sends `data`.
pub fn messages(data: &[u8]) {
    let nic = crate::driver::adapter();
    hostile_client(&nic, Identity { infiniband: true, ..Identity::default() }, data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::valid_messages;
    use proptest::prelude::*;
    use rushmem_corpus::target;
    use rushmem_mlx5::prm::Command;
    use rushmem_mlx5::prm::eq::CreateEq;
    use rushmem_mlx5::prm::hca::{EnableHca, ManagePages, PagesMode, QueryPages, TeardownHca};
    use rushmem_mlx5::prm::mkey::CreateMkey;
    use rushmem_mlx5::prm::port::{AccessReg, RegisterId};
    use rushmem_mlx5::prm::uar::AllocUar;

    fn action(kind: u8, argument: u16, payload: &[u8]) -> Vec<u8> {
        let [high, low] = argument.to_be_bytes();
        [&[kind, high, low, payload.len() as u8], payload].concat()
    }

    /// Encodes a command as an action. The payload has no opcode, and trailing zeros are left out.
    fn execution<C: Command>(command: &C) -> Vec<u8> {
        let choice = CmdOpcode::ALL.iter().position(|opcode| *opcode == C::OPCODE).expect("it is listed");
        let mailbox = command.encode();
        let body = &mailbox.as_ref()[2..];
        let used = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        action(3, (choice as u16) << 8 | 4, &body[..used.min(255)])
    }

    fn actions() -> Vec<Vec<u8>> {
        let give = ManagePages { op_mod: PagesMode::GIVE, input_num_entries: 2, ..ManagePages::default() };
        vec![
            action(0, 0x14 >> 2, &[0; 4]),
            action(0, 0x18 >> 2, &[0xff; 4]),
            action(0, 0xf040 >> 2, &[1, 0, 0, 0]),
            action(1, 0x10, &[0xff; 8]),
            action(2, 0x1000, &[]),
            action(4, 0, &[7; 64]),
            action(5, 0, &[]),
            action(6, 0, &[]),
            execution(&EnableHca::default()),
            execution(&QueryPages::default()),
            execution(&give),
            execution(&CreateEq::default()),
            execution(&CreateMkey::default()),
            [execution(&AllocUar::default()), execution(&TeardownHca::default())].concat(),
            action(0x81, 0xac, &[1, 0, 0, 0]),
            execution(&AccessReg { register_id: RegisterId::HOST_ENDIANNESS, ..AccessReg::default() }),
        ]
    }

    #[test]
    fn fuzz_corpus() {
        target!("registers").messages(actions()).run(500, registers);
        target!("messages").messages(valid_messages()).run(200, messages);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_actions(data in proptest::collection::vec(any::<u8>(), 0..1000)) {
            registers(&data);
        }

        #[test]
        fn any_messages(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            messages(&data);
        }
    }
}
