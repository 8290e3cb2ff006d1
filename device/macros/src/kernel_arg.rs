//! `#[derive(KernelArg)]`: a struct of kernel arguments as a single argument.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Member, Result};

pub(crate) fn derive(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "only a structure can be a kernel argument"));
    };
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(lifetime.span(), "a kernel argument cannot borrow memory of the host"));
    }
    check_repr(&input)?;
    let name = &input.ident;
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let members: Vec<Member> = data.fields.members().collect();
    let (parameters, arguments, conditions) = input.generics.split_for_impl();
    let conditions = match conditions {
        Some(conditions) if conditions.predicates.trailing_punct() => quote!(#conditions),
        Some(conditions) => quote!(#conditions,),
        None => quote!(where),
    };
    Ok(quote! {
        // SAFETY: the structure has the layout of C, all fields are kernel arguments, and `write` leaves the padding out.
        unsafe impl #parameters ::rushmem_device::kernel::KernelArg for #name #arguments
        #conditions #(#types: ::rushmem_device::kernel::KernelArg,)*
        {
            fn handles(&self, see: &mut dyn ::core::ops::FnMut(::rushmem_device::Handle)) {
                #(::rushmem_device::kernel::KernelArg::handles(&self.#members, see);)*
            }

            fn write(&self, bytes: &mut [u8]) {
                #(::rushmem_device::kernel::write_field(
                    &self.#members,
                    ::core::mem::offset_of!(Self, #members),
                    bytes,
                );)*
            }
        }
    })
}

/// Checks that the struct is `#[repr(C)]`.
fn check_repr(input: &DeriveInput) -> Result<()> {
    let mut is_fixed = false;
    for attr in input.attrs.iter().filter(|attr: &&Attribute| attr.path().is_ident("repr")) {
        attr.parse_nested_meta(|meta| {
            is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.path.is_ident("packed") {
                return Err(meta.error("a kernel argument cannot be packed"));
            }
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if is_fixed {
        return Ok(());
    }
    let text =
        "a kernel argument needs `#[repr(C)]`, so that the GPU finds each field where the host puts it";
    Err(Error::new(input.ident.span(), text))
}
