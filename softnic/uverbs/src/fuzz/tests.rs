//! The fuzz targets on some hundred random inputs, as part of the ordinary tests.

use super::*;
use proptest::prelude::*;

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
            // Numbers that mean something.
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
    // A region of the arena in the protection domain, handle 0.
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
