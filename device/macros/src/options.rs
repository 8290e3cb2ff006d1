//! Parser for the arguments of `#[kernel]`.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, Ident, LitInt, Result, Token, bracketed, token};

/// Arguments of the `#[kernel]` attribute, all of them optional.
#[derive(Default)]
pub(crate) struct Options {
    /// Maximum number of threads per block, from `max_threads = 512`.
    pub(crate) max_threads: Option<u32>,
    /// Whether `per_block` is given, which allows the kernel to call `Ctx::per_block`.
    pub(crate) per_block: bool,
    /// Whether `after_failure` is given, for kernels of the runtime: the body runs although an earlier launch of the
    /// same launch queue has failed, and looks itself.
    pub(crate) after_failure: bool,
    /// Lists such as `T = [f32, f64]`, at most one per generic parameter.
    pub(crate) lists: Vec<List>,
}

/// A list such as `T = [f32, f64]`: the types or constants that one generic parameter can have.
pub(crate) struct List {
    pub(crate) name: Ident,
    pub(crate) values: Vec<GenericArgument>,
}

impl Options {
    pub(crate) fn parse(attr: TokenStream) -> Result<Self> {
        let span = attr.span();
        let wrong = || {
            let takes = "`#[kernel]` takes `max_threads = N` with N from 1 to 1024, `per_block`, and lists such as \
                         `T = [f32, f64]` for generic parameters";
            Error::new(span, takes)
        };
        let mut options = Self::default();
        let all = Punctuated::<Argument, Token![,]>::parse_terminated;
        for argument in all.parse2(attr).map_err(|_| wrong())? {
            match argument {
                Argument::Word(name) if name == "per_block" && !options.per_block => options.per_block = true,
                Argument::Word(name) if name == "after_failure" && !options.after_failure => {
                    options.after_failure = true;
                }
                Argument::Number(name, threads @ 1..=1024)
                    if name == "max_threads" && options.max_threads.is_none() =>
                {
                    options.max_threads = Some(threads);
                }
                Argument::List(list) => options.lists.push(list),
                Argument::Word(_) | Argument::Number(..) => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

enum Argument {
    Word(Ident),
    Number(Ident, u32),
    List(List),
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        if input.parse::<Option<Token![=]>>()?.is_none() {
            return Ok(Self::Word(name));
        }
        if input.peek(token::Bracket) {
            let content;
            bracketed!(content in input);
            let values = content.parse_terminated(GenericArgument::parse, Token![,])?;
            return Ok(Self::List(List { name, values: values.into_iter().collect() }));
        }
        Ok(Self::Number(name, input.parse::<LitInt>()?.base10_parse()?))
    }
}
