//! Finds functions that local macros generate, with names taken from the macro's arguments.
//!
//! Macros are not expanded. Each rule of a macro records which of its variables name functions, and the type that has
//! them as methods. An argument is matched against the start of the rule's pattern, up to the first repetition or
//! group.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Item;

/// A function that a macro generates from a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generated {
    /// The type that has the function as a method, if any.
    pub(crate) of: Option<String>,
    pub(crate) name: String,
    pub(crate) is_public: bool,
    pub(crate) is_test: bool,
}

/// A rule of a local macro that generates functions.
struct Rule {
    of_macro: String,
    pattern: Vec<TokenTree>,
    /// The generated functions. The `name` of each is a variable of the macro's pattern.
    generates: Vec<Generated>,
}

/// The local macros that generate functions.
#[derive(Default)]
pub(crate) struct Macros(Vec<Rule>);

impl Macros {
    pub(crate) fn add(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Macro(item) => {
                    let Some(name) = &item.ident else { continue };
                    self.0.extend(rules(&name.to_string(), item.mac.tokens.clone()));
                }
                Item::Mod(item) => self.add(item.content.as_ref().map_or(&[], |(_, items)| items)),
                _ => {}
            }
        }
    }

    /// Returns the functions that `name! { tokens }` generates.
    pub(crate) fn generated(&self, name: &str, tokens: &TokenStream) -> Vec<Generated> {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut all = Vec::new();
        for rule in self.0.iter().filter(|rule| rule.of_macro == name) {
            for part in tokens.split(|token| is(token, ";")) {
                let Some(bound) = bind(&rule.pattern, part) else { continue };
                for function in &rule.generates {
                    let name = bound.iter().find(|(variable, _)| *variable == function.name);
                    all.extend(name.map(|(_, name)| Generated { name: name.clone(), ..function.clone() }));
                }
            }
        }
        all
    }
}

fn is(token: &TokenTree, text: &str) -> bool {
    token.to_string() == text
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// Returns the rules `(pattern) => { body }` of a macro that generate functions.
fn rules(of_macro: &str, tokens: TokenStream) -> Vec<Rule> {
    let groups = tokens.into_iter().filter_map(|token| match token {
        TokenTree::Group(group) => Some(group.stream()),
        _ => None,
    });
    let groups: Vec<TokenStream> = groups.collect();
    let rule = |rule: &[TokenStream]| {
        let mut generates = Vec::new();
        functions(&rule[1].clone().into_iter().collect::<Vec<_>>(), None, &mut generates);
        let pattern = inner(rule[0].clone().into_iter().collect());
        Rule { of_macro: of_macro.into(), pattern, generates }
    };
    groups.chunks_exact(2).map(rule).filter(|rule| !rule.generates.is_empty()).collect()
}

/// Returns the tokens of a macro's pattern, or those of the repetition if the pattern is a single one.
fn inner(pattern: Vec<TokenTree>) -> Vec<TokenTree> {
    match &pattern[..] {
        [dollar, TokenTree::Group(group), ..] if is(dollar, "$") => group.stream().into_iter().collect(),
        _ => pattern,
    }
}

/// Adds the functions in a macro's body whose name is a variable. `of` is the type of the surrounding `impl`.
fn functions(body: &[TokenTree], of: Option<&str>, generates: &mut Vec<Generated>) {
    let mut of = of.map(str::to_owned);
    for (i, token) in body.iter().enumerate() {
        let next = |n: usize| body.get(i + n);
        let before = |n: usize| i.checked_sub(n).map(|i| &body[i]);
        match token {
            TokenTree::Ident(word) if *word == "impl" => of = ident(next(1)).or(of),
            TokenTree::Ident(word) if *word == "fn" && next(1).is_some_and(|token| is(token, "$")) => {
                let Some(name) = ident(next(2)) else { continue };
                let is_public = ident(before(1)).is_some_and(|word| word == "pub");
                let is_test = before(1).is_some_and(|token| is(token, "[test]"));
                generates.push(Generated { of: of.clone(), name, is_public, is_test });
            }
            TokenTree::Group(group) if group.delimiter() != Delimiter::Bracket => {
                functions(&group.stream().into_iter().collect::<Vec<_>>(), of.as_deref(), generates);
            }
            _ => {}
        }
    }
}

/// Returns the values of the variables at the start of a macro's pattern, or `None` if the argument does not match.
fn bind(pattern: &[TokenTree], argument: &[TokenTree]) -> Option<Vec<(String, String)>> {
    let (mut bound, mut pattern, mut argument) = (Vec::new(), pattern.iter(), argument.iter());
    while let Some(token) = pattern.next() {
        if !is(token, "$") {
            if matches!(token, TokenTree::Group(_)) || is(token, ";") {
                break;
            }
            (is(argument.next()?, &token.to_string())).then_some(())?;
            continue;
        }
        // `$name:kind`. A fragment of more than one token stops the match.
        let Some(variable) = ident(pattern.next()) else { break };
        let kind = pattern.nth(1)?.to_string();
        if !["ident", "literal"].contains(&kind.as_str()) {
            break;
        }
        bound.push((variable, argument.next()?.to_string()));
    }
    Some(bound)
}

#[test]
fn names_are_found_without_expanding() {
    let file: syn::File = syn::parse_str(
        "macro_rules! both {
            ($($t:ident $post:ident = $fetch:ident [$($word:tt)*] $does:literal;)*) => {
                impl Pe<'_> {$(
                    #[doc = $does]
                    pub fn $post(&self, word: impl Word) { call(fn_of($t)) }
                    fn $fetch(&self) {}
                )*}
            };
            (@ $name:ident) => {};
        }
        mod inner {
            macro_rules! tests { ($($name:ident $($other:ident)? = $i:literal;)*) => {$( #[test] fn $name() {} )*}; }
        }",
    )
    .unwrap();
    let mut macros = Macros::default();
    macros.add(&file.items);
    let generated = |name: &str, text: &str| macros.generated(name, &text.parse().unwrap());
    let of = |name: &str, is_public| Generated {
        of: Some("Pe".into()),
        name: name.into(),
        is_public,
        is_test: false,
    };
    let both = generated("both", "Amo add = fetch_add [a; b] \"Adds.\"; Amo and = fetch_and [] \"And.\";");
    let names = [("add", true), ("fetch_add", false), ("and", true), ("fetch_and", false)];
    assert_eq!(both, names.map(|(name, is_public)| of(name, is_public)));
    assert_eq!(generated("both", "Amo add - fetch_add"), [], "another form");
    assert_eq!(generated("neither", "Amo add = fetch_add [];"), []);
    let tests = generated("tests", "one = 0; two three = 1;");
    let test = |name: &str| Generated { of: None, name: name.into(), is_public: false, is_test: true };
    assert_eq!(tests, [test("one"), test("two")]);
}
