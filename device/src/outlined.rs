//! Macro for outlined functions that take a struct without passing it through memory.
//!
//! Rust passes a struct of more than two words through memory. On a GPU, that is the local memory of each thread: the
//! call has to wait for stores and loads, and the kernel needs a stack. Single words and pairs of words stay in
//! registers.

/// Defines an inlined function that takes a struct, and the outlined function that it calls with the fields.
///
/// The outlined function reassembles the struct, which costs nothing. Type parameters go in brackets, constant ones
/// after a semicolon. The struct is the last argument, after a semicolon, with a list of all its fields. Both functions
/// get the attributes.
macro_rules! outlined {
    ($(#[$attr:meta])* $vis:vis unsafe fn $($rest:tt)*) => {
        $crate::outlined::outlined! { @define { $(#[$attr])* } { $vis unsafe } $($rest)* }
    };
    ($(#[$attr:meta])* $vis:vis fn $($rest:tt)*) => {
        $crate::outlined::outlined! { @define { $(#[$attr])* } { $vis } $($rest)* }
    };
    (
        @define { $($attrs:tt)* } { $($head:tt)* }
        $name:ident $([$($generic:ident: $bound:path),* $(; const $constant:ident: $constant_type:ty)?])?
        (
            $($argument:ident: $type:ty),*;
            $struct:ident: $Struct:ident { $($field:ident: $field_type:ty),* $(,)? }
        ) $(-> $result:ty)? $body:block
    ) => {
        $($attrs)*
        #[inline(always)]
        $($head)* fn $name $(<$($generic: $bound),* $(, const $constant: $constant_type)?>)? (
            $($argument: $type,)*
            $struct: $Struct
        ) $(-> $result)? {
            $($attrs)*
            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "words stay in registers, a struct does not")]
            fn in_registers $(<$($generic: $bound),* $(, const $constant: $constant_type)?>)? (
                $($argument: $type,)*
                $($field: $field_type,)*
            ) $(-> $result)? {
                let $struct = $Struct { $($field),* };
                $body
            }
            in_registers $(::<$($generic),* $(, $constant)?>)? ($($argument,)* $($struct.$field),*)
        }
    };
}

pub(crate) use outlined;
