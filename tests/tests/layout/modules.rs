//! One crate as a tree of modules: which items each has, what it imports, which paths its code names.
//! What is only there for tests (`cfg(test)`) is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::tokens::{Kind, Token, tokens};

/// A path as it is written: `crate`, `a`, `b`.
pub(crate) type Words = Vec<String>;

/// One module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The file it is in; modules in braces share their parent's.
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    /// Items that are defined here, modules aside.
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two words and more in code.
    pub(crate) paths: Vec<Words>,
}

/// One name of a `use`.
#[derive(Debug)]
pub(crate) struct Import {
    /// What it is called here; `*` for all names.
    pub(crate) name: String,
    pub(crate) path: Words,
    /// Whether it is handed on: `pub use`.
    pub(crate) is_public: bool,
}

/// A crate; the root is the first module.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    pub(crate) modules: Vec<Module>,
    /// Modules that are declared and have no file.
    pub(crate) missing: Vec<String>,
}

impl Crate {
    /// Reads the tree below `root`, files with `read`.
    pub(crate) fn load(root: &Path, read: &impl Fn(&Path) -> Option<String>) -> Self {
        let mut all = Self::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        all.add(root, &folder, None, read);
        all
    }

    /// Adds the module of a file, whose children's files are in `folder`; gives its number.
    fn add(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        read: &impl Fn(&Path) -> Option<String>,
    ) -> usize {
        let number = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        match read(file) {
            Some(text) => {
                let tokens = tokens(&text);
                self.items(&tokens, number, folder, read);
            }
            None => self.missing.push(file.display().to_string()),
        }
        number
    }

    /// Takes in the items of a module.
    fn items(
        &mut self,
        tokens: &[Token<'_>],
        number: usize,
        folder: &Path,
        read: &impl Fn(&Path) -> Option<String>,
    ) {
        let (mut at, mut depth, mut is_public) = (0, 0usize, false);
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            let mut length = 1;
            match token.text {
                _ if token.kind == Kind::Literal => {}
                "#" => {
                    length = attribute(rest);
                    if is_for_tests(&rest[..length]) || is_of_another(&rest[..length]) {
                        length += item(&rest[length..]);
                    } else {
                        // Attributes name paths too: that of a default, for example.
                        self.path_tokens(&rest[..length], number);
                    }
                }
                "pub" => {
                    is_public = true;
                    length = visibility(rest);
                    at += length;
                    continue;
                }
                "use" => {
                    let end = position(rest, ";").unwrap_or(rest.len());
                    imports(&rest[1..end], &mut Vec::new(), &mut |name, path| {
                        self.modules[number].imports.push(Import { name, path, is_public });
                    });
                    length = end;
                }
                "mod" if depth == 0 && rest.len() > 2 => {
                    length = self.module(rest, number, folder, read);
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ if depth == 0 && defined(rest).is_some() => {
                    let name = defined(rest).unwrap_or_default().to_owned();
                    self.modules[number].items.insert(name);
                }
                _ => length = self.path(rest, at.checked_sub(1).map(|at| tokens[at]), number),
            }
            is_public = false;
            at += length.max(1);
        }
    }

    /// `mod name;` or `mod name { .. }`; gives its length.
    fn module(
        &mut self,
        rest: &[Token<'_>],
        parent: usize,
        folder: &Path,
        read: &impl Fn(&Path) -> Option<String>,
    ) -> usize {
        let name = rest[1].text.to_owned();
        let below = folder.join(&name);
        if rest[2].is("{") {
            let number = self.modules.len();
            let file = self.modules[parent].file.clone();
            self.modules.push(Module { file, parent: Some(parent), ..Module::default() });
            self.modules[parent].children.insert(name, number);
            let end = 2 + group(&rest[2..]);
            self.items(&rest[3..end.saturating_sub(1).max(3)], number, &below, read);
            return end;
        }
        let beside = folder.join(format!("{name}.rs"));
        let file = if read(&beside).is_some() { beside } else { below.join("mod.rs") };
        let number = self.add(&file, &below, Some(parent), read);
        self.modules[parent].children.insert(name, number);
        3
    }

    /// Takes in a path, if one begins here; gives its length.
    fn path(&mut self, rest: &[Token<'_>], before: Option<Token<'_>>, number: usize) -> usize {
        let words = words(rest);
        let length = (2 * words.len()).saturating_sub(1).max(1);
        // Behind these it is the rest of another path, or a field's or method's name.
        let begins = !before.is_some_and(|token| token.is("::") || token.is("."));
        if begins && words.len() > 1 {
            self.modules[number].paths.push(words);
        }
        length
    }

    fn path_tokens(&mut self, tokens: &[Token<'_>], number: usize) {
        let mut at = 0;
        while at < tokens.len() {
            at += self.path(&tokens[at..], at.checked_sub(1).map(|at| tokens[at]), number);
        }
    }
}

/// The path that begins here; empty if none does.
fn words(tokens: &[Token<'_>]) -> Words {
    let mut words = Vec::new();
    let mut rest = tokens;
    while let Some(token) = rest.first().filter(|token| token.kind == Kind::Word) {
        words.push(token.text.to_owned());
        match rest.get(1) {
            Some(sign) if sign.is("::") => rest = &rest[2..],
            _ => break,
        }
    }
    words
}

/// The name of the item that is defined here.
fn defined<'a>(rest: &[Token<'a>]) -> Option<&'a str> {
    let second = rest.get(1)?;
    match rest.first()?.text {
        "fn" | "struct" | "enum" | "trait" | "type" | "union" => Some(second.text),
        "static" if second.is("mut") => Some(rest.get(2)?.text),
        "const" if ["fn", "unsafe", "async", "extern"].contains(&second.text) => None,
        "const" | "static" => Some(second.text),
        "macro_rules" => Some(rest.get(2)?.text),
        _ => None,
    }
}

/// Where a sign is outside of brackets, or where the brackets around all this end.
fn position(tokens: &[Token<'_>], sign: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.is(sign) || ["}", ")", "]"].iter().any(|end| token.is(end)) {
            return Some(at);
        }
        at += group(&tokens[at..]).max(1);
    }
    None
}

/// The length of a bracket with all that is in it; 0 if there is none here.
pub(crate) fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            _ if token.kind != Kind::Sign => {}
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth <= 0 {
            return if at == 0 { 0 } else { at + 1 };
        }
    }
    tokens.len()
}

/// The length of `#[..]` or `#![..]`.
fn attribute(tokens: &[Token<'_>]) -> usize {
    let sign = if tokens.get(1).is_some_and(|token| token.is("!")) { 2 } else { 1 };
    sign + tokens.get(sign..).map_or(0, group)
}

/// `#[cfg(test)]`, also with more beside `test`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let has = |word: &str| attribute.iter().any(|token| token.is(word));
    attribute.get(2).is_some_and(|token| token.is("cfg")) && has("test") && !has("not")
}

/// `#[path = ".."]`: a module of another crate, which is judged there.
fn is_of_another(attribute: &[Token<'_>]) -> bool {
    attribute.get(2).is_some_and(|token| token.is("path"))
}

/// The length of `pub` and what may be in brackets behind it.
fn visibility(tokens: &[Token<'_>]) -> usize {
    1 + tokens.get(1).filter(|token| token.is("(")).map_or(0, |_| group(&tokens[1..]))
}

/// The length of the item, field or statement that begins here, its other attributes included.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while tokens.get(at).is_some_and(|token| token.is("#")) {
        at += attribute(&tokens[at..]);
    }
    if tokens.get(at).is_some_and(|token| token.is("pub")) {
        at += visibility(&tokens[at..]);
    }
    let first = tokens.get(at).map_or("", |token| token.text);
    let behind = tokens.get(at + 1).map_or("", |token| token.text);
    let ends_with_braces = match first {
        "use" | "static" | "type" | "let" => false,
        "const" => ["fn", "unsafe", "async", "extern"].contains(&behind),
        _ => true,
    };
    let is_item = ["fn", "struct", "enum", "impl", "trait", "mod", "unsafe", "async", "extern"];
    let may_have_commas = is_item.contains(&first) || !ends_with_braces || first == "const";
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" => return at + 1,
            "," if !may_have_commas => return at + 1,
            "}" | ")" | "]" => return at,
            "{" if ends_with_braces => return at + group(&tokens[at..]),
            _ => at += group(&tokens[at..]).max(1),
        }
    }
    at
}

/// Each name of a tree of imports, behind what is in `prefix`.
fn imports(tree: &[Token<'_>], prefix: &mut Words, found: &mut impl FnMut(String, Words)) {
    let depth = prefix.len();
    let mut at = 0;
    while let Some(token) = tree.get(at) {
        if token.is("{") {
            let end = at + group(&tree[at..]);
            let inside = &tree[at + 1..end.saturating_sub(1).max(at + 1)];
            for branch in branches(inside) {
                imports(branch, prefix, found);
            }
            prefix.truncate(depth);
            return;
        }
        if token.is("as") {
            break;
        }
        if !token.is("::") {
            prefix.push(token.text.to_owned());
        }
        at += 1;
    }
    let renamed = tree.get(at + 1).map(|token| token.text.to_owned());
    let mut path = prefix.clone();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(last) = path.last().cloned() {
        found(renamed.unwrap_or(last), path);
    }
    prefix.truncate(depth);
}

/// The parts between commas.
fn branches<'t, 'a>(inside: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let (mut all, mut rest) = (Vec::new(), inside);
    while !rest.is_empty() {
        let end = position(rest, ",").unwrap_or(rest.len());
        all.push(&rest[..end]);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    all.retain(|branch| !branch.is_empty());
    all
}
