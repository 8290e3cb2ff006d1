//! Parser for kernels. Returns a valid kernel, or errors with their positions.

use proc_macro2::{Span, TokenStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Error, FnArg, Generics, Ident, ItemFn, Pat, PatType, Result, ReturnType, Signature,
    Type, Visibility,
};

use crate::errors::Errors;
use crate::instances::{self, Instance};
use crate::options::Options;

/// A function with the attribute `#[kernel]`.
pub(crate) struct Kernel {
    /// Maximum number of threads per block, if specified.
    pub(crate) max_threads: Option<u32>,
    /// Whether the kernel may use the per-block queues.
    pub(crate) per_block: bool,
    /// Whether the body runs although an earlier launch of the same launch queue has failed.
    pub(crate) after_failure: bool,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    /// Instances of a generic kernel; empty for other kernels.
    pub(crate) instances: Vec<Instance>,
    pub(crate) ctx: Arg,
    pub(crate) args: Vec<Arg>,
    pub(crate) output: ReturnType,
    pub(crate) body: Block,
}

pub(crate) struct Arg {
    pub(crate) attrs: Vec<Attribute>,
    /// Whether the parameter is declared as `mut`. The body can then modify its copy.
    pub(crate) mutable: bool,
    pub(crate) name: Ident,
    pub(crate) ty: Type,
}

/// Parses a kernel. Reports all errors together.
pub(crate) fn kernel(attr: TokenStream, item: TokenStream) -> Result<Kernel> {
    let Options { max_threads, per_block, after_failure, lists } = Options::parse(attr)?;
    let span = item.span();
    let function: ItemFn =
        syn::parse2(item).map_err(|e| at_or(e, span, "`#[kernel]` needs a function with a body"))?;

    let mut errors = Errors::default();
    refuse_qualifiers(&function.sig, &mut errors);
    let instances = instances::of(&function.sig, &lists, &mut errors);
    let mut params = function.sig.inputs.iter();
    let ctx = match params.next() {
        Some(first) => context(first, &mut errors),
        None => {
            errors.add(&function.sig.ident, "the first parameter of a kernel must be `ctx: &Ctx`");
            None
        }
    };
    let args: Vec<_> = params.filter_map(|p| argument(p, &mut errors)).collect();
    errors.finish()?;

    let Some(ctx) = ctx else {
        return Err(Error::new(span, "the first parameter of a kernel must be `ctx: &Ctx`"));
    };
    let ItemFn { attrs, vis, sig, block } = function;
    Ok(Kernel {
        max_threads,
        per_block,
        after_failure,
        attrs,
        vis,
        name: sig.ident,
        generics: sig.generics,
        instances,
        ctx,
        args,
        output: sig.output,
        body: *block,
    })
}

/// Returns `error` if `syn` found it inside of the function, and otherwise an error with `message`.
fn at_or(error: Error, item: Span, message: &str) -> Error {
    let first = error.to_string();
    if first.starts_with("expected `fn`")
        || first.starts_with("expected one of")
        || first.contains("unexpected end")
    {
        Error::new(item, message)
    } else {
        error
    }
}

fn refuse_qualifiers(sig: &Signature, errors: &mut Errors) {
    if let Some(token) = &sig.asyncness {
        errors.add(token, "a kernel cannot be `async`, because a GPU thread has no executor; remove `async`");
    }
    if let Some(token) = &sig.constness {
        errors.add(token, "a kernel cannot be `const`; remove `const`");
    }
    if let Some(token) = &sig.unsafety {
        errors.add(
            token,
            "a kernel cannot be `unsafe`, because safe code launches it; write `unsafe` blocks in the body",
        );
    }
    if let Some(abi) = &sig.abi {
        errors.add(abi, "a kernel cannot name an ABI, because `#[kernel]` sets it; remove `extern`");
    }
    if let Some(clause) = &sig.generics.where_clause
        && sig.generics.params.is_empty()
    {
        errors.add(clause, "a kernel that is not generic cannot have a `where` clause; remove it");
    }
    if let Some(variadic) = &sig.variadic {
        errors.add(variadic, "a kernel must have a fixed number of parameters; remove `...`");
    }
}

/// Parses the first parameter, which must be `name: &Ctx`.
fn context(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let arg = named(param, errors)?;
    let Type::Reference(reference) = &arg.ty else {
        errors.add(&arg.ty, "the first parameter of a kernel must be `ctx: &Ctx`");
        return None;
    };
    if let Some(lifetime) = &reference.lifetime {
        errors.add(lifetime, "the context has no named lifetime; write `&Ctx`");
    }
    if let Some(token) = &reference.mutability {
        errors.add(token, "all threads share the context; write `&Ctx`");
    }
    match &*reference.elem {
        Type::Path(path)
            if path.path.segments.last().is_some_and(|s| s.ident == "Ctx" && s.arguments.is_empty()) =>
        {
            Some(arg)
        }
        other => {
            errors.add(other, "the first parameter of a kernel must be `ctx: &Ctx`");
            None
        }
    }
}

/// Parses any other parameter: a name and a type, by value.
fn argument(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let arg = named(param, errors)?;
    match &arg.ty {
        Type::Reference(_) | Type::Ptr(_) => {
            errors.add(
                &arg.ty,
                "a kernel argument must be a value; pass memory as `SymSlice<T>` or `Sym<T>`, which are valid on every PE",
            );
            None
        }
        Type::ImplTrait(_) => {
            errors.add(
                &arg.ty,
                "a kernel argument needs a named type; write `T`, and list its types: `#[kernel(T = [f32, f64])]`",
            );
            None
        }
        _ => Some(arg),
    }
}

/// Parses a parameter that is a plain name with a type.
fn named(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let PatType { attrs, pat, ty, .. } = match param {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            errors.add(receiver, "a kernel cannot be a method; write a function without `self`");
            return None;
        }
    };
    match &**pat {
        Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => Some(Arg {
            attrs: attrs.clone(),
            mutable: p.mutability.is_some(),
            name: p.ident.clone(),
            ty: (**ty).clone(),
        }),
        other => {
            errors.add(other, "a kernel parameter must be a plain name; destructure the value in the body");
            None
        }
    }
}
