//! Writes the C++ header: overloads that call the functions of the C header.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::table::{Family, Function, Parameter, declared};

const TOP: &str = include_str!("top.hpp");

/// Types in the names of functions, which overloads leave out.
const TYPES: [&str; 8] = ["uint8", "uint16", "uint32", "uint64", "int32", "int64", "float", "double"];

pub(crate) fn header(families: &[Family]) -> String {
    let (mut details, mut public) = (String::new(), String::new());
    for family in families {
        let mut seen = BTreeSet::new();
        for function in &family.functions {
            let (ty, name) = split(function);
            if ty.is_none() {
                plain(&mut public, function, &name);
                elements(&mut public, function, &name);
                continue;
            }
            detail(&mut details, function, &name);
            if seen.insert((name.clone(), &function.scope)) {
                generic(&mut public, function, &name);
            }
        }
    }
    format!("{TOP}\n{details}\n}} // namespace detail\n{public}\n}} // namespace rushmem\n\n#endif\n")
}

/// Returns the type in a function's name, if any, and the name without type and scope.
fn split(function: &Function) -> (Option<&str>, String) {
    let name = function.name.strip_prefix("rushmem_device_").unwrap();
    let name = name.strip_suffix(&format!("_{}", function.scope)).unwrap_or(name);
    match name.split_once('_') {
        Some((ty, rest)) if TYPES.contains(&ty) => (Some(ty), rest.into()),
        _ => (None, name.into()),
    }
}

/// Returns the scope as first parameter, for calls that have several scopes.
fn scope(function: &Function) -> String {
    let only_threads = ["my_pe", "n_pes", "ptr", "team_my_pe", "team_n_pes", "team_translate_pe", "p", "g"];
    if only_threads.contains(&split(function).1.as_str()) {
        String::new()
    } else {
        format!("{}_scope, ", function.scope)
    }
}

fn names(parameters: &[Parameter]) -> String {
    parameters.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn plain(out: &mut String, function: &Function, name: &str) {
    let (result, scope) = (&function.returns.c, scope(function));
    let (declared, names) = (declared(&function.parameters), names(&function.parameters));
    let _ = write!(
        out,
        "\n__device__ inline {result} {name}({scope}{declared}) {{\n  return {}({names});\n}}\n",
        function.name
    );
}

/// Writes the form of a call of bytes that takes a number of elements: `put` for `putmem`.
fn elements(out: &mut String, function: &Function, name: &str) {
    let typed = match name {
        "reduce" | "reduce_scatter" => return,
        _ if name.contains("mem") => name.replace("mem", ""),
        _ => return,
    };
    let parameters = function.parameters.iter().map(|p| match (p.name.as_str(), p.value.c.as_str()) {
        ("bytes", _) => "size_t n".into(),
        (name, "void *") => format!("T *{name}"),
        (name, "const void *") => format!("const typename detail::same<T>::type *{name}"),
        _ => p.value.declare(&p.name),
    });
    let parameters = parameters.collect::<Vec<String>>().join(", ");
    let passed =
        function.parameters.iter().map(|p| if p.name == "bytes" { "n * sizeof(T)" } else { p.name.as_str() });
    let passed = passed.collect::<Vec<_>>().join(", ");
    let _ = write!(
        out,
        "\ntemplate <class T> __device__ inline int32_t {typed}({}{parameters}) {{\n  return {}({passed});\n}}\n",
        scope(function),
        function.name
    );
}

/// Writes an overload for one type.
fn detail(out: &mut String, function: &Function, name: &str) {
    let (declared, names) = (declared(&function.parameters), names(&function.parameters));
    let _ = write!(
        out,
        "\n__device__ inline {} {name}({}_scope, {declared}) {{\n  return {}({names});\n}}\n",
        function.returns.c, function.scope, function.name
    );
}

/// Writes the form of a call for all types of its size.
fn generic(out: &mut String, function: &Function, name: &str) {
    let trait_ = if matches!(name, "wait_until" | "wait_until_from" | "test") { "number" } else { "word" };
    // The table has the function for one of its types.
    let word = function.parameters[1].value.c.trim_start_matches("const ").trim_end_matches(" *");
    let of_word = |p: &Parameter| p.value.c == word && p.name != "pe" && p.name != "cmp";
    let of_pointer = |p: &Parameter| p.value.c.trim_start_matches("const ") == format!("{word} *");
    let constant = |p: &Parameter| if p.value.c.starts_with("const") { "const " } else { "" };
    let parameters = function.parameters.iter().map(|p| {
        if of_pointer(p) {
            format!("{}T *{}", constant(p), p.name)
        } else if of_word(p) {
            format!("typename detail::same<T>::type {}", p.name)
        } else {
            p.value.declare(&p.name)
        }
    });
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    let passed = function.parameters.iter().map(|p| {
        if of_pointer(p) {
            format!("reinterpret_cast<{}W *>({})", constant(p), p.name)
        } else if of_word(p) {
            format!("detail::bits<W>({})", p.name)
        } else {
            p.name.clone()
        }
    });
    let passed = passed.collect::<Vec<_>>().join(", ");
    let is_value = !function.is_status && name != "test";
    let (result, call) = if is_value {
        ("T", format!("detail::bits<T>(detail::{name}({}_scope{{}}, {passed}))", function.scope))
    } else {
        ("int32_t", format!("detail::{name}({}_scope{{}}, {passed})", function.scope))
    };
    let _ = write!(
        out,
        "\ntemplate <class T> __device__ inline {result} {name}({}{parameters}) {{\n  using W = typename detail::{trait_}<T>::type;\n  return {call};\n}}\n",
        scope(function)
    );
}
