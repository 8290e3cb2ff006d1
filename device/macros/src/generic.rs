//! Expands a generic kernel into a generic launcher, and a PTX entry for each instance.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{GenericArgument, GenericParam, Generics, Visibility, parse_quote};

use crate::expand::{entry, launcher, run};
use crate::instances::{Instance, param_name, text, words};
use crate::parse::Kernel;

pub(crate) fn expand(kernel: &Kernel) -> TokenStream {
    let instance = trait_name(&kernel.name);
    let (_, arguments, _) = kernel.generics.split_for_impl();
    let entry = quote!(<() as #instance #arguments>::ENTRY);
    let launcher = launcher(kernel, &launcher_generics(kernel, &instance), entry);
    let definition = instance_trait(kernel, &instance);
    let function = gpu_function(kernel);
    let implementations = kernel.instances.iter().map(|each| implementation(kernel, &instance, each));
    quote! {
        #launcher
        #function
        #definition
        #(#implementations)*
    }
}

/// Returns `ScaleAllInstance` for the kernel `scale_all`.
fn trait_name(kernel: &Ident) -> Ident {
    let kernel = kernel.unraw().to_string();
    let words = kernel.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
    });
    format_ident!("{}Instance", words.collect::<String>())
}

/// Returns the kernel's generic parameters, with the additional bounds that its launcher needs.
fn launcher_generics(kernel: &Kernel, instance: &Ident) -> Generics {
    let (_, arguments, _) = kernel.generics.split_for_impl();
    let names: Vec<String> =
        kernel.generics.params.iter().filter_map(param_name).map(Ident::to_string).collect();
    let is_generic = |ty: &&syn::Type| words(ty).iter().any(|word| names.contains(word));
    let types = kernel.args.iter().map(|arg| &arg.ty).filter(is_generic);

    let mut generics = kernel.generics.clone();
    let conditions = &mut generics.make_where_clause().predicates;
    conditions.push(parse_quote!((): #instance #arguments));
    conditions.extend(
        types.map(|ty| -> syn::WherePredicate { parse_quote!(#ty: ::rushmem_device::kernel::KernelArg) }),
    );
    generics
}

/// Returns the trait that all instances implement. The compiler error for a missing instance lists those that exist.
fn instance_trait(kernel: &Kernel, name: &Ident) -> TokenStream {
    let Kernel { vis, generics, instances, .. } = kernel;
    let kernel = kernel.name.unraw().to_string();
    let params = generics.params.iter().map(|param| match param {
        GenericParam::Const(param) => {
            let (name, ty) = (&param.ident, &param.ty);
            quote!(const #name: #ty)
        }
        other => {
            let name = param_name(other);
            quote!(#name)
        }
    });
    let names: Vec<String> = generics.params.iter().filter_map(param_name).map(Ident::to_string).collect();
    let wanted: Vec<String> = names.iter().map(|name| format!("{name} = {{{name}}}")).collect();
    let message = format!("the kernel `{kernel}` has no instance with {}", wanted.join(", "));
    let listed = |instance: &Instance| {
        let arguments: Vec<String> = instance.arguments.iter().map(text).collect();
        format!("`{kernel}::<{}>`", arguments.join(", ")).replace('{', "{{").replace('}', "}}")
    };
    let all: Vec<String> = instances.iter().map(listed).collect();
    let note = format!("its instances are {}: `#[kernel(..)]` lists them", all.join(", "));
    let doc = format!("The instances of the kernel [`{kernel}`].");
    // Clippy does not see documentation written by a macro.
    quote! {
        #[allow(clippy::missing_safety_doc)]
        #[doc = #doc]
        ///
        /// # Safety
        /// `#[kernel]` alone implements it.
        #[diagnostic::on_unimplemented(message = #message, label = "no such instance", note = #note)]
        #vis unsafe trait #name<#(#params),*> {
            /// The name of the PTX entry.
            const ENTRY: &'static str;
        }
    }
}

/// Returns the GPU function with the kernel's name and body, which the entries of all instances call.
fn gpu_function(kernel: &Kernel) -> TokenStream {
    let Kernel { attrs, vis, name, ctx, args, generics, .. } = kernel;
    let ctx = &ctx.name;
    let (names, types) = (args.iter().map(|a| &a.name), args.iter().map(|a| &a.ty));
    let (parameters, _, conditions) = generics.split_for_impl();
    let run = run(kernel, quote!(#ctx));
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #[inline(always)]
        #(#attrs)*
        #vis fn #name #parameters(#ctx: &::rushmem_device::Ctx<'_>, #(#names: #types),*) #conditions {
            #run
        }
    }
}

/// Returns an instance: its entry, and a check that it satisfies the bounds of the kernel. In both, aliases stand for
/// the generic parameters.
fn implementation(kernel: &Kernel, instance: &Ident, each: &Instance) -> TokenStream {
    let Kernel { name, ctx, args, generics, .. } = kernel;
    let ctx = &ctx.name;
    let (names, types) = (args.iter().map(|a| &a.name), args.iter().map(|a| &a.ty));
    let (_, arguments, _) = generics.split_for_impl();
    let turbofish = arguments.as_turbofish();
    let aliases = generics.params.iter().zip(&each.arguments).map(alias);
    let symbol = each.entry.to_string();
    let listed = &each.arguments;
    let call = quote!(#name #turbofish(&#ctx, #(#names),*););
    let entry = entry(kernel, &each.entry, TokenStream::new(), &Visibility::Inherited, call);
    quote! {
        const _: () = {
            #(#aliases)*
            // SAFETY: the entry below has this name.
            unsafe impl #instance #arguments for () {
                const ENTRY: &'static str = #symbol;
            }
            #[cfg(not(target_arch = "nvptx64"))]
            const _: fn(#(#types),*) -> ::rushmem_device::kernel::Call = #name::<#(#listed),*>;
            #entry
        };
    }
}

fn alias((param, value): (&GenericParam, &GenericArgument)) -> TokenStream {
    match param {
        GenericParam::Const(param) => {
            let (name, ty) = (&param.ident, &param.ty);
            quote!(const #name: #ty = #value;)
        }
        other => {
            let name = param_name(other);
            quote!(type #name = #value;)
        }
    }
}
