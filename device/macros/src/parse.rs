//! From tokens to a kernel that is known to be one, or to errors that say where it is not.

use proc_macro2::{Span, TokenStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, MetaNameValue, Pat, PatType, Result,
    ReturnType, Signature, Type, Visibility,
};

/// What `#[kernel]` was put on.
pub(crate) struct Kernel {
    /// Threads of a block at most, if it says so.
    pub(crate) max_threads: Option<u32>,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) ctx: Arg,
    pub(crate) args: Vec<Arg>,
    pub(crate) output: ReturnType,
    pub(crate) body: Block,
}

/// One parameter.
pub(crate) struct Arg {
    pub(crate) attrs: Vec<Attribute>,
    /// `mut n`: the body may change its copy.
    pub(crate) mutable: bool,
    pub(crate) name: Ident,
    pub(crate) ty: Type,
}

/// Reads a kernel; reports everything that is wrong with it at once.
pub(crate) fn kernel(attr: TokenStream, item: TokenStream) -> Result<Kernel> {
    let max_threads = max_threads(attr)?;
    let span = item.span();
    let function: ItemFn =
        syn::parse2(item).map_err(|e| at_or(e, span, "`#[kernel]` goes on a function with a body"))?;

    let mut errors = Errors::default();
    refuse_qualifiers(&function.sig, &mut errors);
    let mut params = function.sig.inputs.iter();
    let ctx = match params.next() {
        Some(first) => context(first, &mut errors),
        None => {
            errors
                .add(&function.sig.ident, "a kernel's first parameter is `ctx: &Ctx`, its place in the job");
            None
        }
    };
    let args: Vec<_> = params.filter_map(|p| argument(p, &mut errors)).collect();
    errors.finish()?;

    let Some(ctx) = ctx else {
        return Err(Error::new(span, "a kernel's first parameter is `ctx: &Ctx`"));
    };
    let ItemFn { attrs, vis, sig, block } = function;
    Ok(Kernel { max_threads, attrs, vis, name: sig.ident, ctx, args, output: sig.output, body: *block })
}

/// What stands behind `kernel`: nothing, or `max_threads = 512`.
fn max_threads(attr: TokenStream) -> Result<Option<u32>> {
    const TAKES: &str = "`#[kernel]` takes `max_threads = N`, from 1 to 1024, or nothing";
    if attr.is_empty() {
        return Ok(None);
    }
    let span = attr.span();
    let wrong = |_| Error::new(span, TAKES);
    let pair: MetaNameValue = syn::parse2(attr).map_err(wrong)?;
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if pair.path.is_ident("max_threads") => {
            let threads = number.base10_parse::<u32>().map_err(wrong)?;
            if (1..=1024).contains(&threads) { Ok(Some(threads)) } else { Err(Error::new(span, TAKES)) }
        }
        _ => Err(Error::new(span, TAKES)),
    }
}

/// `syn`'s own error if it names a place inside of a function, else ours.
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
        errors.add(token, "a kernel cannot be `async`: a GPU thread has no executor");
    }
    if let Some(token) = &sig.constness {
        errors.add(token, "a kernel cannot be `const`");
    }
    if let Some(token) = &sig.unsafety {
        errors.add(token, "a kernel is launched by safe code: write `unsafe` blocks inside of it");
    }
    if let Some(abi) = &sig.abi {
        errors.add(abi, "`#[kernel]` gives the function its ABI");
    }
    if !sig.generics.params.is_empty() {
        errors.add(
            &sig.generics,
            "a kernel cannot be generic: a PTX entry has one name and one signature. Write a generic function \
             and one kernel for each type that calls it",
        );
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.add(clause, "a kernel is not generic, so it has no `where` clause");
    }
    if let Some(variadic) = &sig.variadic {
        errors.add(variadic, "a kernel has a fixed number of parameters");
    }
}

/// The first parameter, which must be `name: &Ctx`.
fn context(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let arg = named(param, errors)?;
    let Type::Reference(reference) = &arg.ty else {
        errors.add(&arg.ty, "a kernel's first parameter is `ctx: &Ctx`, its place in the job");
        return None;
    };
    if let Some(lifetime) = &reference.lifetime {
        errors.add(lifetime, "the context lives as long as the kernel: write `&Ctx`");
    }
    if let Some(token) = &reference.mutability {
        errors.add(token, "the context is shared by all threads: write `&Ctx`");
    }
    match &*reference.elem {
        Type::Path(path)
            if path.path.segments.last().is_some_and(|s| s.ident == "Ctx" && s.arguments.is_empty()) =>
        {
            Some(arg)
        }
        other => {
            errors.add(other, "a kernel's first parameter is `ctx: &Ctx`, its place in the job");
            None
        }
    }
}

/// Any other parameter: a name and a type, by value.
fn argument(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let arg = named(param, errors)?;
    match &arg.ty {
        Type::Reference(_) | Type::Ptr(_) => {
            errors.add(
                &arg.ty,
                "a kernel's arguments are values: pass memory as `SymSlice<T>` or `Sym<T>`, which mean the same on \
                 every PE",
            );
            None
        }
        Type::ImplTrait(_) => {
            errors.add(&arg.ty, "a kernel cannot be generic: write the type");
            None
        }
        _ => Some(arg),
    }
}

/// A parameter that is a plain name with a type.
fn named(param: &FnArg, errors: &mut Errors) -> Option<Arg> {
    let PatType { attrs, pat, ty, .. } = match param {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            errors.add(receiver, "a kernel is a function, not a method: it has no `self`");
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
            errors.add(other, "a kernel's parameters are plain names: take the value apart in the body");
            None
        }
    }
}

/// Errors so far.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn add(&mut self, at: impl quote::ToTokens, message: &str) {
        let error = Error::new_spanned(at, message);
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
