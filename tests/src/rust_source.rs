//! A tokenizer of Rust source, for tests that read the code of the repository.
//!
//! Unlike a syntax tree, its tokens include the code inside macro calls.

use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A Rust token: a word, a literal, `::`, a delimiter, or another single character of punctuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token as written.
    pub text: String,
    /// Number of the line with the token, from 1.
    pub line: usize,
}

/// Returns the tokens of `source`. Comments are dropped, and doc comments become attributes.
///
/// # Panics
/// If `source` is not valid Rust.
pub fn tokens(source: &str) -> Vec<Token> {
    let stream = TokenStream::from_str(source).unwrap_or_else(|error| panic!("{error} in {source}"));
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut is_joint_colon = false;
    for tree in stream {
        let line = tree.span().start().line;
        let after_colon = std::mem::take(&mut is_joint_colon);
        let text = match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.into(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.into(), line: group.span_close().end().line });
                continue;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && after_colon => {
                tokens.pop();
                "::".into()
            }
            TokenTree::Punct(punct) => {
                is_joint_colon = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                punct.as_char().to_string()
            }
            TokenTree::Ident(word) => word.to_string(),
            TokenTree::Literal(literal) => literal.to_string(),
        };
        tokens.push(Token { text, line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_their_line_numbers() {
        let found = tokens("use a::b; // c\nf!(\"x\",\n'y')");
        let found: Vec<_> = found.iter().map(|token| (token.text.as_str(), token.line)).collect();
        let first = ["use", "a", "::", "b", ";"].map(|text| (text, 1));
        let second = ["f", "!", "(", "\"x\"", ","].map(|text| (text, 2));
        assert_eq!(found, [&first[..], &second, &[("'y'", 3), (")", 3)]].concat());
    }
}
