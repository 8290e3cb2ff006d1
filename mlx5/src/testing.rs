//! Code shared by the unit tests of this crate.

pub(crate) fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut digits =
        text.bytes().filter(|b| !b.is_ascii_whitespace()).map(|b| (b as char).to_digit(16).unwrap());
    let bytes = core::array::from_fn(|_| (digits.next().unwrap() * 16 + digits.next().unwrap()) as u8);
    assert_eq!(digits.next(), None, "more than {N} bytes: {text}");
    bytes
}
