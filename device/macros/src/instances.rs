//! The instances of a generic kernel: all combinations of the types and constants listed in its attribute.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;
use syn::{Expr, ExprLit, GenericArgument, GenericParam, Lit, Signature};

use crate::errors::Errors;
use crate::options::List;

#[derive(Clone)]
pub(crate) struct Instance {
    /// Name of the PTX entry.
    pub(crate) entry: Ident,
    /// The generic arguments, in the order of the kernel's parameters.
    pub(crate) arguments: Vec<GenericArgument>,
}

/// Returns the instances of a kernel, one per combination of the values in `lists`. Empty if the kernel is not generic
/// or has errors.
pub(crate) fn of(sig: &Signature, lists: &[List], errors: &mut Errors) -> Vec<Instance> {
    let params = &sig.generics.params;
    for (i, List { name, .. }) in lists.iter().enumerate() {
        if !params.iter().any(|param| param_name(param) == Some(name)) {
            errors.add(name, format!("`{name}` is not a generic parameter of `{}`", sig.ident));
        } else if lists[..i].iter().any(|earlier| earlier.name == *name) {
            errors.add(name, format!("`{name}` has two lists"));
        }
    }
    if params.is_empty() {
        return Vec::new();
    }
    let none = Instance { entry: sig.ident.unraw(), arguments: Vec::new() };
    params.iter().fold(vec![none], |instances, param| {
        let values = values(param, lists, errors);
        let with = |instance: &Instance, value: &GenericArgument| {
            let mut longer = instance.clone();
            longer.entry = format_ident!("{}_{}", instance.entry, words(value).join("_"));
            longer.arguments.push(value.clone());
            longer
        };
        instances.iter().flat_map(|instance| values.iter().map(move |value| with(instance, value))).collect()
    })
}

/// Returns the values that `lists` gives for `param`. Without a list, reports an error and returns none.
fn values<'a>(param: &GenericParam, lists: &'a [List], errors: &mut Errors) -> &'a [GenericArgument] {
    let Some(name) = param_name(param) else {
        errors.add(
            param,
            "a kernel cannot have a lifetime parameter, because its arguments borrow nothing; remove it",
        );
        return &[];
    };
    let (what, example) = match param {
        GenericParam::Const(_) => ("constants", "4, 8"),
        _ => ("types", "f32, f64"),
    };
    let Some(list) = lists.iter().find(|list| list.name == *name) else {
        let need = "needs a list, because a PTX entry has one signature";
        errors
            .add(param, format!("`{name}` {need}: name its {what} as in `#[kernel({name} = [{example}])]`"));
        return &[];
    };
    if list.values.is_empty() {
        errors.add(&list.name, format!("the list of `{name}` is empty; name at least one of its {what}"));
    }
    for (i, value) in list.values.iter().enumerate() {
        let fits = match value {
            GenericArgument::Type(_) => what == "types",
            GenericArgument::Const(Expr::Lit(ExprLit { lit: Lit::Int(_) | Lit::Bool(_), .. })) => {
                what == "constants"
            }
            _ => false,
        };
        if !fits {
            errors.add(value, format!("the list of `{name}` has {what} such as `{example}`"));
        } else if list.values[..i].iter().any(|earlier| words(earlier) == words(value)) {
            errors.add(value, format!("`{}` is in the list of `{name}` twice", text(value)));
        }
    }
    &list.values
}

pub(crate) fn param_name(param: &GenericParam) -> Option<&Ident> {
    match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    }
}

/// Returns the identifiers and numbers in a type or constant, which become parts of an entry's name.
pub(crate) fn words(tokens: impl ToTokens) -> Vec<String> {
    let words = |tree| match tree {
        TokenTree::Ident(ident) => vec![ident.unraw().to_string()],
        TokenTree::Literal(literal) => vec![literal.to_string().replace(|c: char| !c.is_alphanumeric(), "_")],
        TokenTree::Group(group) => words(group.stream()),
        TokenTree::Punct(_) => Vec::new(),
    };
    tokens.into_token_stream().into_iter().flat_map(words).collect()
}

/// Returns a type or constant as the user would write it.
pub(crate) fn text(tokens: impl ToTokens) -> String {
    let tokens: TokenStream = tokens.into_token_stream();
    tokens.to_string().replace(' ', "")
}
