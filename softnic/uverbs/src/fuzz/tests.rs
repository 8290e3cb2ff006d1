//! Runs the fuzz targets on a few hundred random inputs as part of the ordinary tests.

use super::*;
use crate::fault::Fault;
use proptest::prelude::*;
use rushmem_corpus::target;
use std::os::fd::AsRawFd;

fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_calls_break_the_device(data in bytes(3000)) {
        calls(&data);
    }

    #[test]
    fn no_header_breaks_the_device(data in bytes(400)) {
        headers(&data);
    }

    #[test]
    fn no_message_breaks_the_connection_manager(data in bytes(300)) {
        messages(&data);
    }

    #[test]
    fn no_attributes_break_the_device(
        object in 0usize..METHODS.len(),
        attrs in proptest::collection::vec(any::<[u8; 16]>(), 0..12),
    ) {
        let (object, method) = METHODS[object];
        let count = attrs.len() as u16;
        let header = [24 + 16 * count, object, method, count];
        let mut data: Vec<u8> = header.iter().flat_map(|half| half.to_ne_bytes()).collect();
        data.extend([0; 16]);
        for mut attr in attrs {
            // Restrict to IDs that exist.
            attr[0] &= 0x0f;
            attr[1] &= 0x10;
            data.extend(attr);
        }
        headers(&data);
    }
}

#[test]
fn fuzz_calls_reach_the_handlers() {
    let mut bed = Bed::new();
    assert_eq!(bed.port_state(), Err(Errno::EINVAL), "there is no context yet");
    bed.prepare().unwrap();
    assert_eq!(bed.prepare(), Err(Errno::EINVAL), "one context for each opened device");
    // An MR of the arena in the PD, handle 0.
    let request = abi::RegMr {
        start: bed.address(DATA),
        length: 4096,
        hca_va: bed.address(DATA),
        access_flags: 1,
        ..Default::default()
    };
    let request = bytemuck::bytes_of(&request).to_owned();
    let region = [
        (2, 8, Value::Number(command::REG_MR)),
        (0, request.len() as u16, Value::At(DATA, &request)),
        (1, 12, Value::Room(DATA + 64)),
    ];
    bed.call(object::DEVICE, 0, &region).unwrap();
    let mut response = abi::RegMrResponse::default();
    bed.arena.read(DATA as u64 + 64, bytemuck::bytes_of_mut(&mut response)).unwrap();
    let handle = |handle| [(0, 0, Value::Number(handle))];
    assert_eq!(bed.call(object::PD, 0, &handle(0)), Err(Errno::EBUSY));
    assert_eq!(
        bed.call(object::PD, 0, &handle(response.mr_handle.into())),
        Err(Errno::EINVAL),
        "another kind"
    );
    assert_eq!(bed.call(object::MR, 1, &handle(999)), Err(Errno::ENOENT));
    assert_eq!(bed.call(object::MR, 1, &handle(u64::MAX)), Err(Errno::EINVAL));
    bed.call(object::MR, 1, &handle(response.mr_handle.into())).unwrap();
    bed.call(object::PD, 0, &handle(0)).unwrap();
}

/// Encodes a call with attributes (ID, length, value).
fn header(object: u16, method: u16, attrs: &[(u16, u16, u64)]) -> Vec<u8> {
    let count = attrs.len() as u16;
    let head = [24 + 16 * count, object, method, count];
    let mut bytes: Vec<u8> = head.iter().flat_map(|half| half.to_ne_bytes()).chain([0; 16]).collect();
    for (id, len, value) in attrs {
        bytes.extend([*id, *len, 1, 0].iter().flat_map(|half| half.to_ne_bytes()));
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

/// Encodes the bytes from which `calls` builds a call: method and attributes (ID, length, value).
fn call(object: u16, method: u16, attrs: &[(u8, u8, Value)]) -> Vec<u8> {
    let at = METHODS.iter().position(|known| *known == (object, method)).unwrap();
    let mut bytes = vec![at as u8, attrs.len() as u8];
    for (id, len, value) in attrs {
        bytes.extend([*id, *len]);
        match *value {
            Value::Number(number) => bytes.extend([0, 0, 0, number as u8]),
            Value::Room(offset) | Value::At(offset, _) => {
                bytes.extend(((offset - DATA) as u16).to_ne_bytes());
                bytes.push(5);
            }
        }
    }
    bytes
}

#[test]
fn fuzz_corpus() {
    let write = |code| {
        let attrs =
            [(2, 8, Value::Number(code)), (0, 48, Value::Room(DATA)), (1, 12, Value::Room(DATA + 64))];
        call(object::DEVICE, 0, &attrs)
    };
    let destroy = |object, method| call(object, method, &[(0, 0, Value::Number(1))]);
    let registered =
        [write(command::ALLOC_PD), write(command::REG_MR), destroy(object::MR, 1), destroy(object::PD, 0)];
    let page = [(0x10, 0, Value::Number(0)), (0x11, 8, Value::Number(1)), (0x12, 8, Value::Room(DATA))];
    let devx = [
        call(object::UAR, 0x1000, &page),
        call(object::DEVX, 0x1000, &page),
        destroy(object::DEVX_OBJ, 0x1001),
    ];
    let input = |calls: &[Vec<u8>]| [vec![1], calls.concat()].concat();
    target!("calls").messages([input(&registered), input(&devx)]).run(500, calls);

    let headers_of = [
        header(object::DEVICE, 0, &[(2, 8, command::ALLOC_PD), (0, 8, 0), (1, 4, 0)]),
        header(object::DEVICE, 2, &[(0, 8, 1), (1, 48, 0)]),
        header(object::MR, 1, &[(0, 0, 1)]),
        header(object::DEVX, 0x1000, &[(0x1000, 16, 0), (0x1001, 16, 0)]),
    ];
    target!("headers").messages(headers_of).run(500, headers);

    target!("netlink").messages(crate::netlink::examples()).run(2000, netlink);

    target!("messages").messages(crate::cm::fuzz::examples()).run(2000, messages);
}

/// Asks an opened device for the path of its data-direct device, in a buffer of this length.
fn data_direct_path(bed: &mut Bed, room: u16) -> Result<(), Errno> {
    bed.call(object::DEVICE, abi::DATA_DIRECT_PATH, &[(driver_data::IN, room, Value::Room(DATA))])
}

/// Registers a memory file as a dma-buf with these flags of the driver.
fn register_dma_buf(bed: &mut Bed, flags: u64) -> Result<(), Errno> {
    let file = sys::memory_file(true).unwrap();
    sys::set_len(&file, 4096).unwrap();
    let attrs = [
        (0, 0, Value::Number(0)),
        (1, 0, Value::Number(0)),
        (2, 8, Value::Number(0)),
        (3, 8, Value::Number(4096)),
        (4, 8, Value::Number(0)),
        (5, 4, Value::Number(file.as_raw_fd() as u64)),
        (6, 4, Value::Number(1)),
        (7, 4, Value::Room(DATA)),
        (8, 4, Value::Room(DATA + 4)),
        (driver_data::IN, 4, Value::Number(flags)),
    ];
    bed.call(object::MR, 4, &attrs)
}

#[test]
fn dma_bufs_are_registered_by_data_direct_where_there_is_one() {
    for (faults, registered) in [
        (&[][..], Err(Errno::EINVAL)),
        (&[Fault::DataDirect], Ok(())),
        (&[Fault::DataDirect, Fault::DataDirectMemory], Err(Errno::EOPNOTSUPP)),
    ] {
        let settings = Settings { faults: faults.to_vec(), ..Settings::default() };
        let mut bed = Bed::with(Arc::new(Device::new(0, Arc::new(settings))));
        bed.prepare().unwrap();
        assert_eq!(register_dma_buf(&mut bed, 1), registered, "{faults:?}");
        assert_eq!(register_dma_buf(&mut bed, 0), Ok(()), "{faults:?}");
        assert_eq!(register_dma_buf(&mut bed, 2), Err(Errno::EINVAL), "{faults:?}: an unknown flag");
        // The tree of a launcher, with the path, is not here.
        assert_eq!(data_direct_path(&mut bed, 512), Err(Errno::ENODEV), "{faults:?}");
    }
}
