//! Reads the exported functions from the source of the crate.

use std::fs;
use std::path::Path;

use serde::Serialize;
use syn::{
    Attribute, Expr, FnArg, GenericArgument, Item, ItemFn, Lit, Meta, Pat, PathArguments, ReturnType, Type,
};

/// The exported functions of one source file.
pub(crate) struct Family {
    /// First sentence of the file's documentation.
    pub(crate) title: String,
    pub(crate) functions: Vec<Function>,
}

/// An exported function, as kernels in other languages declare it.
#[derive(Serialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Which threads make the call: `thread`, `warp` or `block`.
    pub(crate) scope: String,
    /// What the function does, from its documentation.
    pub(crate) doc: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Value,
    /// Whether the function returns a status rather than a value.
    pub(crate) is_status: bool,
}

#[derive(Serialize)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) value: Value,
}

#[derive(Clone, Serialize)]
pub(crate) struct Value {
    /// The type in C.
    pub(crate) c: String,
    /// The type in LLVM: `i8` to `i64`, `float` or `double`. Addresses are `i64`.
    pub(crate) llvm: &'static str,
}

impl Value {
    /// Returns the declaration of `name` with this type in C.
    pub(crate) fn declare(&self, name: &str) -> String {
        let space = if self.c.ends_with('*') { "" } else { " " };
        format!("{}{space}{name}", self.c)
    }
}

/// Returns the parameters as a list in C.
pub(crate) fn declared(parameters: &[Parameter]) -> String {
    parameters.iter().map(|p| p.value.declare(&p.name)).collect::<Vec<_>>().join(", ")
}

/// The files of the crate in the order in which its users meet them.
const FILES: [&str; 7] = ["pe", "rma", "amo", "signal", "wait", "order", "coll"];

pub(crate) fn families() -> Vec<Family> {
    FILES
        .map(|file| {
            family(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file).with_extension("rs"))
        })
        .into()
}

fn family(path: &Path) -> Family {
    let source = fs::read_to_string(path).unwrap();
    let file = syn::parse_file(&source).unwrap();
    let functions = file.items.iter().flat_map(|item| match item {
        Item::Fn(function) => exported(function),
        _ => Vec::new(),
    });
    let doc = doc(&file.attrs);
    let title = doc.split_once(". ").map_or(doc.as_str(), |(first, _)| first).trim_end_matches('.');
    Family { title: title.into(), functions: functions.collect() }
}

/// Returns the functions that `#[export]` defines for `function`.
fn exported(function: &ItemFn) -> Vec<Function> {
    let Some(list) = function.attrs.iter().find(|attribute| attribute.path().is_ident("export")) else {
        return Vec::new();
    };
    let mut types: Vec<(Option<String>, Option<String>)> = vec![(None, None)];
    let mut scopes = Vec::new();
    let Meta::List(list) = &list.meta else { panic!("an attribute without a list") };
    let tokens = list.tokens.to_string();
    // The condition of the direct path comes last.
    let exports = tokens.split("direct =").next().unwrap().trim_end_matches([' ', ',']);
    let (plain, named) =
        exports.split_once("T =").map_or((exports, None), |(plain, named)| (plain, Some(named)));
    scopes.extend(plain.split(',').map(str::trim).filter(|scope| !scope.is_empty()).map(str::to_owned));
    if let Some(named) = named {
        let pairs = named.trim().trim_matches(['[', ']']).split(',').filter_map(|pair| pair.split_once(':'));
        types = pairs.map(|(name, ty)| (Some(name.trim().into()), Some(ty.trim().into()))).collect();
    }
    let each = |scope: &String, (prefix, ty): &(Option<String>, Option<String>)| {
        let suffix = if scope == "thread" { String::new() } else { format!("_{scope}") };
        let prefix = prefix.as_ref().map_or(String::new(), |prefix| format!("{prefix}_"));
        let (returns, is_status) = returns(&function.sig.output, ty.as_deref());
        Function {
            name: format!("rushmem_device_{prefix}{}{suffix}", function.sig.ident),
            scope: scope.clone(),
            doc: doc(&function.attrs),
            parameters: parameters(function, ty.as_deref()),
            returns,
            is_status,
        }
    };
    types.iter().flat_map(|ty| scopes.iter().map(move |scope| each(scope, ty))).collect()
}

fn parameters(function: &ItemFn, generic: Option<&str>) -> Vec<Parameter> {
    let ctx = Parameter { name: "ctx".into(), value: Value { c: "rushmem_ctx".into(), llvm: "i64" } };
    let others = function.sig.inputs.iter().skip(1).filter_map(|argument| {
        let FnArg::Typed(typed) = argument else { panic!("a method") };
        let Pat::Ident(name) = &*typed.pat else { panic!("a pattern") };
        // The group is no argument of the exported function.
        if matches!(&*typed.ty, Type::ImplTrait(_)) {
            return None;
        }
        let name = name.ident.to_string();
        Some(Parameter { name: name.trim_start_matches("r#").into(), value: value(&typed.ty, generic) })
    });
    std::iter::once(ctx).chain(others).collect()
}

/// Returns the type that the exported function returns, and whether that is a status.
fn returns(output: &ReturnType, generic: Option<&str>) -> (Value, bool) {
    let ReturnType::Type(_, ty) = output else { panic!("no result") };
    let Type::Path(path) = &**ty else { panic!("no path") };
    match &path.path.segments.last().unwrap().arguments {
        PathArguments::AngleBracketed(list) => match list.args.first() {
            Some(GenericArgument::Type(ty)) => (value(ty, generic), false),
            _ => panic!("no type"),
        },
        _ => (Value { c: "int32_t".into(), llvm: "i32" }, true),
    }
}

fn value(ty: &Type, generic: Option<&str>) -> Value {
    match ty {
        Type::Ptr(pointer) => {
            let constant = if pointer.mutability.is_none() { "const " } else { "" };
            Value { c: format!("{constant}{} *", value(&pointer.elem, generic).c), llvm: "i64" }
        }
        Type::Path(path) => {
            let name = path.path.segments.last().unwrap().ident.to_string();
            let name = if name == "T" { generic.expect("a generic function") } else { &name };
            let (c, llvm) = match name {
                "u8" => ("uint8_t", "i8"),
                "u16" => ("uint16_t", "i16"),
                "u32" => ("uint32_t", "i32"),
                "u64" => ("uint64_t", "i64"),
                "i32" => ("int32_t", "i32"),
                "i64" => ("int64_t", "i64"),
                "f32" => ("float", "float"),
                "f64" => ("double", "double"),
                "usize" => ("size_t", "i64"),
                "TeamBits" => ("rushmem_team", "i64"),
                "c_void" => ("void", "i64"),
                _ => panic!("a type that has no name in C: {name}"),
            };
            Value { c: c.into(), llvm }
        }
        _ => panic!("a type that has no name in C"),
    }
}

fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}
