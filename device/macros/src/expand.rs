//! Expands a kernel into a PTX entry, and a launcher for the host.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Generics, Ident, Visibility};

use crate::parse::{Arg, Kernel};

/// Returns the items that replace a kernel function that is not generic.
pub(crate) fn expand(kernel: &Kernel) -> TokenStream {
    let Kernel { attrs, vis, name, ctx, .. } = kernel;
    let ctx = &ctx.name;
    let run = run(kernel, quote!(&#ctx));
    let entry = entry(kernel, name, quote!(#(#attrs)*), vis, run);
    let symbol = name.unraw().to_string();
    let launcher = launcher(kernel, &kernel.generics, quote!(#symbol));
    quote! {
        #entry
        #launcher
    }
}

/// Returns the GPU entry `name`. It takes everything by value and executes `run`.
///
/// A context passed by value stays in constant memory, as long as all functions that use it are inlined.
pub(crate) fn entry(
    kernel: &Kernel,
    name: &Ident,
    attrs: TokenStream,
    vis: &Visibility,
    run: TokenStream,
) -> TokenStream {
    let Kernel { ctx, args, .. } = kernel;
    let ctx = &ctx.name;
    let (names, types) = (args.iter().map(|a| &a.name), args.iter().map(|a| &a.ty));
    // `Call::with_arg` checks this for the launcher. An entry would accept any type with a C layout.
    let checks = args.iter().map(|arg| {
        let ty = &arg.ty;
        quote_spanned!(ty.span() => ::rushmem_device::kernel::is_arg::<#ty>();)
    });
    // `rushmem-ptx` turns this symbol into a directive.
    let bound = kernel.max_threads.map(|threads| {
        let word = format_ident!("rushmem_max_threads_{threads}_{}", name.unraw());
        quote! {
            #[cfg(target_arch = "nvptx64")]
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            static #word: u8 = 0;
        }
    });
    quote! {
        #bound
        #attrs
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        #vis extern "ptx-kernel" fn #name(#ctx: ::rushmem_device::Ctx<'_>, #(#names: #types),*) {
            const { #(#checks)* }
            #run
        }
    }
}

/// Returns the host function that binds the kernel's arguments to a `Call`. `entry` is an expression for the name of
/// the PTX entry.
pub(crate) fn launcher(kernel: &Kernel, generics: &Generics, entry: TokenStream) -> TokenStream {
    let Kernel { attrs, vis, name, ctx, args, .. } = kernel;
    let ctx = &ctx.name;
    let (parameters, _, conditions) = generics.split_for_impl();
    let (names, types) = (args.iter().map(|a| &a.name), args.iter().map(|a| &a.ty));
    let bound = args.iter().map(|a| &a.name);
    let run = run(kernel, quote!(#ctx));
    let bounded = kernel.max_threads.map(|threads| quote!(.with_max_threads(#threads)));
    let per_block = kernel.per_block.then(|| quote!(.with_per_block()));
    quote! {
        #(#attrs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #vis fn #name #parameters(#(#names: #types),*) -> ::rushmem_device::kernel::Call #conditions {
            let rushmem_kernel_native = move |#ctx: &::rushmem_device::Ctx<'_>| { #run };
            // SAFETY: this function has this name, this limit and these arguments.
            unsafe { ::rushmem_device::kernel::Call::new(#entry, rushmem_kernel_native) #bounded #per_block #(.with_arg(#bound))* }
        }
    }
}

/// Returns the kernel's body as an inner function, and a call of it between `enter` and `finish`. `ctx` evaluates to a
/// reference to the context.
pub(crate) fn run(kernel: &Kernel, ctx: TokenStream) -> TokenStream {
    let Kernel { args, output, body, generics, after_failure, .. } = kernel;
    let params = std::iter::once(&kernel.ctx).chain(args).map(param);
    let names = args.iter().map(|a| &a.name);
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let arguments = arguments.as_turbofish();
    // The span of the return type is where a wrong type is reported.
    let call = quote_spanned!(output.span() => rushmem_kernel_body #arguments(#ctx, #(#names),*));
    let enter = if *after_failure { quote!(enter_after_failure) } else { quote!(enter) };
    quote! {
        #[inline(always)]
        fn rushmem_kernel_body #parameters(#(#params),*) #output #conditions #body

        if ::rushmem_device::kernel::#enter(#ctx) {
            ::rushmem_device::kernel::finish(#ctx, #call);
        }
    }
}

fn param(arg: &Arg) -> TokenStream {
    let Arg { attrs, mutable, name, ty } = arg;
    let mutable = mutable.then(|| quote!(mut));
    quote!(#(#attrs)* #mutable #name: #ty)
}
