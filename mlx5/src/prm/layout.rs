//! Macros that declare PRM structures: `layout!` for a plain structure, `command!` for the input mailbox of a command,
//! `response!` for its output mailbox, and `numbers!` for an enumerated value.
//!
//! One line is one field as printed in the manual: `name: type = bit offset, width`. Reading, writing and documentation
//! are generated from that line, so they cannot disagree. Positions are checked at compile time.

/// Declares a structure: plain Rust fields, `read`, `write`, [`Layout`](super::Layout) and [`Value`](super::Value).
macro_rules! layout {
    ($(#[$doc:meta])* pub struct $name:ident[$len:literal] {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal, $width:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[doc = concat!(" (bit `", stringify!($offset), "`, width ", stringify!($width), ")")]
                pub $field: $ty,
            )*
        }

        #[allow(unused_variables, reason = "a table may be empty")]
        impl $name {
            /// Length of the encoded structure, in bytes.
            pub const LEN: usize = $len;

            /// Decodes every known field. Other bits of `bytes` are ignored.
            pub fn read(bytes: &[u8; $len]) -> Self {
                Self { $($field: $crate::prm::Value::read_at(bytes, $offset, $width),)* }
            }

            /// Encodes every known field, truncated to its width. Other bits of `bytes` are unchanged.
            pub fn write(&self, bytes: &mut [u8; $len]) {
                $($crate::prm::Value::write_at(self.$field, bytes, $offset, $width);)*
            }
        }

        /// Prints only the fields that are not zero; `{:x?}` prints them in hexadecimal.
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                #[allow(unused_mut, reason = "a table may be empty")]
                let mut shown = f.debug_struct(stringify!($name));
                $(
                    if self.$field != <$ty>::default() {
                        shown.field(stringify!($field), &self.$field);
                    }
                )*
                shown.finish()
            }
        }

        impl $crate::prm::Layout for $name {
            const LEN: usize = $len;
            const FIELDS: &'static [$crate::prm::FieldInfo] = &[$(
                $crate::prm::FieldInfo { name: stringify!($field), offset: $offset, width: $width },
            )*];
        }

        impl $crate::prm::Value for $name {
            const BITS: $crate::prm::Bits = $crate::prm::Bits::Exactly($len * 8);

            fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
                let own: [u8; $len] = $crate::prm::Value::read_at(bytes, offset, width);
                Self::read(&own)
            }

            fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
                let mut own: [u8; $len] = $crate::prm::Value::read_at(bytes, offset, width);
                Self::write(&self, &mut own);
                $crate::prm::Value::write_at(own, bytes, offset, width);
            }
        }

        const _: () = {
            $(<$ty as $crate::prm::Value>::BITS.check($offset, $width, $len);)*
            $crate::prm::field::check_disjoint(<$name as $crate::prm::Layout>::FIELDS);
        };
    };
}

/// Declares the input mailbox of a command: fields, common header, `encode`, `decode` and [`Command`](super::Command).
macro_rules! command {
    ($opcode:ident -> $output:ty; $(#[$doc:meta])* pub struct $name:ident[$len:literal] { $($fields:tt)* }) => {
        $crate::prm::layout::layout! {
            $(#[$doc])*
            pub struct $name[$len] {
                /// ID of the DevX user context that sends the command. Filled in by the kernel.
                uid: u16 = 0x10, 16;
                $($fields)*
            }
        }

        impl $name {
            /// Encodes the command as its input mailbox.
            pub fn encode(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                self.write(&mut bytes);
                $crate::prm::Value::write_at($crate::prm::CmdOpcode::$opcode, &mut bytes, 0, 16);
                bytes
            }

            /// Parses an input mailbox. A list that follows it is ignored, and so are bits without a known field.
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::prm::DecodeError> {
                let mailbox = $crate::prm::input_mailbox(bytes, $crate::prm::CmdOpcode::$opcode)?;
                Ok(Self::read(mailbox))
            }
        }

        impl $crate::prm::Command for $name {
            const OPCODE: $crate::prm::CmdOpcode = $crate::prm::CmdOpcode::$opcode;
            type Mailbox = [u8; $len];
            type Output = $output;

            fn encode(&self) -> [u8; $len] {
                self.encode()
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::prm::DecodeError> {
                Self::decode(bytes)
            }
        }
    };
}

/// Declares the output mailbox of a command: fields, `encode`, `decode` and [`Response`](super::Response).
macro_rules! response {
    ($(#[$doc:meta])* pub struct $name:ident[$len:literal] { $($fields:tt)* }) => {
        $crate::prm::layout::layout! {
            $(#[$doc])*
            pub struct $name[$len] { $($fields)* }
        }

        impl $name {
            /// Encodes the output mailbox of a command that succeeded.
            pub fn encode(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                self.write(&mut bytes);
                bytes
            }

            /// Parses an output mailbox. A status other than OK is returned as an error.
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::prm::DecodeError> {
                Ok(Self::read($crate::prm::output_mailbox(bytes)?))
            }
        }

        impl $crate::prm::Response for $name {
            type Mailbox = [u8; $len];
            const EMPTY: [u8; $len] = [0; $len];

            fn encode(&self) -> [u8; $len] {
                self.encode()
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::prm::DecodeError> {
                Self::decode(bytes)
            }
        }
    };
}

/// Declares an enumerated value of the PRM as a newtype with named constants. Unknown values are preserved and print as
/// numbers.
macro_rules! numbers {
    ($(#[$doc:meta])* pub struct $name:ident($int:ty) {
        $($(#[$value_doc:meta])* $value:ident = $number:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)*

            /// All values that have a name.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the constant's name, or `None` for an unknown value.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$value => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }

        impl $crate::prm::Value for $name {
            const BITS: $crate::prm::Bits = <$int as $crate::prm::Value>::BITS;

            fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
                Self($crate::prm::Value::read_at(bytes, offset, width))
            }

            fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
                self.0.write_at(bytes, offset, width);
            }
        }
    };
}

pub(crate) use {command, layout, numbers, response};
