//! How long files and functions are.

use crate::modules::group;
use crate::tokens::{Kind, tokens};

/// A function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Where it begins.
    pub(crate) line: usize,
    /// From `fn` to its closing brace.
    pub(crate) lines: usize,
}

/// The functions of a file, those inside others and in tests included.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let tokens = tokens(text);
    let mut all = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = tokens.get(at + 1).filter(|name| name.kind == Kind::Word) else {
            continue;
        };
        if !token.is("fn") {
            continue;
        }
        // To the body, past brackets in parameters and types; one that is only declared has none.
        let mut body = at + 2;
        while tokens.get(body).is_some_and(|token| !token.is("{") && !token.is(";")) {
            body += group(&tokens[body..]).max(1);
        }
        if tokens.get(body).is_some_and(|token| token.is("{"))
            && let Some(end) = tokens.get(body + group(&tokens[body..]).saturating_sub(1))
        {
            let lines = end.line - token.line + 1;
            all.push(Function { name: name.text.to_owned(), line: token.line, lines });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_reaches_from_its_name_to_its_closing_brace() {
        let text = "trait T { fn a(); }\nfn b(x: [u8; { 3 }])\nwhere\n{\n    \"}\";\n    fn c() {}\n}\n\
                    const D: fn(u8) = e;\n";
        let found: Vec<_> = functions(text);
        let seen: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.line, one.lines)).collect();
        assert_eq!(seen, [("b", 2, 6), ("c", 6, 1)]);
    }
}
