//! `#[export]`: the `extern "C"` functions of a device call, one for each scope and type.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, FnArg, ItemFn, Pat, PatType, Result, ReturnType, Token, Type, bracketed};

/// The list in the attribute: scopes, the types of `T` with their names in C, and the condition of the direct path.
struct Exports {
    scopes: Vec<Scope>,
    types: Vec<(Ident, Type)>,
    /// Condition under which the call takes its direct path.
    direct: Option<Expr>,
}

struct Scope {
    /// Suffix of the function's name.
    suffix: &'static str,
    /// Expression for the group of the calling threads.
    group: TokenStream,
}

impl Scope {
    fn new(name: &Ident) -> Result<Self> {
        let (suffix, group) = match name.to_string().as_str() {
            "thread" => ("", quote!(::rushmem_device::Thread)),
            "warp" => ("_warp", quote!(::rushmem_device::Warp::current())),
            "block" => ("_block", quote!(::rushmem_device::Block::current())),
            _ => return Err(Error::new_spanned(name, "a scope is `thread`, `warp` or `block`")),
        };
        Ok(Self { suffix, group })
    }
}

impl Parse for Exports {
    fn parse(input: ParseStream) -> Result<Self> {
        let (mut scopes, mut types, mut direct) = (Vec::new(), Vec::new(), None);
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let has_value = input.parse::<Option<Token![=]>>()?.is_some();
            if has_value && name == "direct" {
                direct = Some(input.parse()?);
            } else if has_value {
                let list;
                bracketed!(list in input);
                let list = Punctuated::<NamedType, Token![,]>::parse_terminated(&list)?;
                types = list.into_iter().map(|each| (each.name, each.ty)).collect();
            } else {
                scopes.push(Scope::new(&name)?);
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Self { scopes, types, direct })
    }
}

struct NamedType {
    name: Ident,
    ty: Type,
}

impl Parse for NamedType {
    fn parse(input: ParseStream) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self { name, ty: input.parse()? })
    }
}

pub(crate) fn expand(list: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let exports: Exports = syn::parse2(list)?;
    let function: ItemFn = syn::parse2(item)?;
    let mut expanded =
        quote!(#[inline(always)] #[track_caller] #[allow(clippy::too_many_arguments)] #function);
    for scope in &exports.scopes {
        if exports.types.is_empty() {
            expanded.extend(exported(&function, scope, None, exports.direct.as_ref())?);
        }
        for named in &exports.types {
            expanded.extend(exported(&function, scope, Some(named), exports.direct.as_ref())?);
        }
    }
    Ok(expanded)
}

/// Returns the exported function of `function` for a scope, and for a type if it is generic.
fn exported(
    function: &ItemFn,
    scope: &Scope,
    named: Option<&(Ident, Type)>,
    direct: Option<&Expr>,
) -> Result<TokenStream> {
    let Scope { suffix, group } = scope;
    let call = &function.sig.ident;
    let name = match named {
        Some((prefix, _)) => format!("{prefix}_{call}{suffix}"),
        None => format!("{call}{suffix}"),
    };
    let symbol = format_ident!("rushmem_device_{name}");
    let parameters = arguments(function)?;
    let has_group = parameters.first().is_some_and(|first| matches!(&*first.ty, Type::ImplTrait(_)));
    let parameters = &parameters[usize::from(has_group)..];
    let (declared, passed): (Vec<_>, Vec<_>) = parameters.iter().map(|parameter| of_word(parameter)).unzip();
    let alias = named.map(|(_, ty)| quote!(type T = #ty;));
    let (run, run_directly) = if has_group {
        let run =
            quote!(crate::call::by_group(ctx, #name, #group, |ctx, group| #call(ctx, group, #(#passed),*)));
        (run.clone(), run)
    } else {
        let call = quote!(|ctx| #call(ctx, #(#passed),*));
        (
            quote!(crate::call::by_leader(ctx, #name, #group, #call)),
            quote!(crate::call::by_leader_directly(ctx, #group, #call)),
        )
    };
    let (result, outcome) = match value(&function.sig.output) {
        Some(ty) => (quote!(<#ty as crate::call::Value>::Word), quote!(crate::call::value)),
        None => (quote!(i32), quote!(crate::call::status)),
    };
    let kernel = format_ident!("rushmem_kernel_{name}");
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.pat).collect();
    let body = match direct {
        None => quote!(#outcome(#run)),
        Some(direct) => quote! {
            #[inline(never)]
            #[cold]
            #[allow(clippy::too_many_arguments)]
            unsafe fn otherwise(ctx: u64, #(#declared),*) -> #result {
                // SAFETY: by the contract of the caller.
                unsafe { #outcome(#run) }
            }
            if crate::call::is_direct(ctx, |ctx| #direct) {
                return #outcome(#run_directly);
            }
            otherwise(ctx, #(#names),*)
        },
    };
    Ok(quote! {
        const _: () = {
            #alias
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn #symbol(ctx: u64, #(#declared),*) -> #result {
                // SAFETY: the kernel passes the address of a context.
                unsafe { #body }
            }
            #[cfg(all(feature = "kernels", target_arch = "nvptx64"))]
            #[unsafe(no_mangle)]
            unsafe extern "ptx-kernel" fn #kernel(ctx: u64, #(#declared,)* out: u64) {
                // SAFETY: the launch passes the address of a context, and a word for each thread of its block.
                unsafe { crate::kernels::store(out, #symbol(ctx, #(#names),*) as i64) }
            }
        };
    })
}

/// Returns the parameter as the exported function declares it, and the expression with its value. Addresses are integers,
/// because the functions have to have the types that every language's compiler declares them with, and not all of
/// these have pointers.
fn of_word(parameter: &PatType) -> (TokenStream, TokenStream) {
    let (name, ty) = (&parameter.pat, &parameter.ty);
    match &**ty {
        Type::Ptr(_) => (quote!(#name: u64), quote!(#name as #ty)),
        _ => (quote!(#parameter), quote!(#name)),
    }
}

/// Returns the parameters after the context.
fn arguments(function: &ItemFn) -> Result<Vec<&PatType>> {
    let mut typed = Vec::new();
    for argument in function.sig.inputs.iter().skip(1) {
        match argument {
            FnArg::Typed(one) if matches!(&*one.pat, Pat::Ident(_)) => typed.push(one),
            other => return Err(Error::new_spanned(other, "an exported call has plain parameters")),
        }
    }
    Ok(typed)
}

/// Returns the type of the value that a call returns: `T` of `Result<T>`, or `None` for `Result`.
fn value(output: &ReturnType) -> Option<TokenStream> {
    let ReturnType::Type(_, ty) = output else { return None };
    let Type::Path(path) = &**ty else { return None };
    match &path.path.segments.last()?.arguments {
        syn::PathArguments::AngleBracketed(list) => Some(list.args.to_token_stream()),
        _ => None,
    }
}
