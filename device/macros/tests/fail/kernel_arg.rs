use rushmem_device::kernel::KernelArg;

#[derive(Clone, Copy, KernelArg)]
struct WithoutLayout {
    n: u32,
}

#[derive(Clone, Copy, KernelArg)]
#[repr(C, packed)]
struct Packed {
    n: u8,
    m: u32,
}

#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
struct Address {
    to: *const u32,
}

#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
struct Borrowed<'a> {
    from: &'a u32,
}

#[derive(Clone, Copy, KernelArg)]
#[repr(u32)]
enum Choice {
    One,
}

#[derive(KernelArg)]
#[repr(C)]
struct NotCopy {
    n: u32,
}

fn main() {}
