//! One crate as a tree of modules: which items each has, what it imports, which paths its code names.
//! What is only there for tests (`cfg(test)`) is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mote_tests::source::Sources;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

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

/// Reads a crate; its root is the first module.
pub(crate) fn load(root: &Path, sources: &Sources) -> Vec<Module> {
    let mut reader = Reader { sources, modules: Vec::new() };
    reader.file(root, root.parent().unwrap_or(Path::new("")), None);
    reader.modules
}

struct Reader<'s> {
    sources: &'s Sources,
    modules: Vec<Module>,
}

impl Reader<'_> {
    /// Adds the module of a file, whose children's files are in `folder`; gives its number.
    fn file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = self.sources.get(file).unwrap_or_else(|| panic!("{}: no file", file.display()));
        let parsed = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(file.to_owned(), folder, parent, parsed)
    }

    fn add(
        &mut self,
        file: PathBuf,
        folder: &Path,
        parent: Option<usize>,
        text: TokenStream,
    ) -> usize {
        let number = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        let tokens: Vec<_> = text.into_iter().collect();
        let mut rest = tokens.as_slice();
        while !rest.is_empty() {
            rest = self.item(rest, number, folder);
        }
        number
    }

    /// Takes in the first item with its attributes; gives what is behind it.
    fn item<'t>(
        &mut self,
        tokens: &'t [TokenTree],
        number: usize,
        folder: &Path,
    ) -> &'t [TokenTree] {
        let (mut at, mut is_left_out) = (0, false);
        while is(tokens.get(at), "#") {
            let is_inner = is(tokens.get(at + 1), "!");
            at += 2 + usize::from(is_inner);
            let attribute = tokens[at - 1].to_string().replace(' ', "");
            let is_test = attribute.starts_with("[cfg(") && attribute.contains("test");
            // `path` names a file of another crate, which is looked at there.
            let is_other = attribute.starts_with("[path=");
            is_left_out |= !is_inner && (is_other || is_test && !attribute.contains("not("));
            if !is_left_out {
                // Attributes name paths too: that of a default, for example.
                self.code(&tokens[at - 1..at], number);
            }
        }
        let is_public = is(tokens.get(at), "pub");
        at += usize::from(is_public);
        at += usize::from(is_public && group(tokens.get(at), Delimiter::Parenthesis).is_some());
        let item = &tokens[at..];
        // A value may have braces before its semicolon.
        let is_value = ["use", "static", "type", "const"].iter().any(|word| is(item.first(), word));
        let is_value = is_value
            && !["fn", "unsafe", "async", "extern"].iter().any(|word| is(item.get(1), word));
        let ends =
            |one| is(Some(one), ";") || !is_value && group(Some(one), Delimiter::Brace).is_some();
        let end = item.iter().position(ends).map_or(item.len(), |last| last + 1);
        let (item, behind) = item.split_at(end);
        if is_left_out {
        } else if is(item.first(), "mod") {
            self.module(item, number, folder);
        } else {
            self.modules[number].items.extend(defined(item));
            self.statement(item, number, is_public);
        }
        behind
    }

    /// `mod name;` or `mod name { .. }`.
    fn module(&mut self, item: &[TokenTree], parent: usize, folder: &Path) {
        let name = item[1].to_string();
        let below = folder.join(&name);
        let child = match group(item.get(2), Delimiter::Brace) {
            Some(inside) => {
                self.add(self.modules[parent].file.clone(), &below, Some(parent), inside)
            }
            None => {
                let beside = folder.join(format!("{name}.rs"));
                let file =
                    if self.sources.contains_key(&beside) { beside } else { below.join("mod.rs") };
                self.file(&file, &below, Some(parent))
            }
        };
        self.modules[parent].children.insert(name, child);
    }

    fn statement(&mut self, tokens: &[TokenTree], number: usize, is_public: bool) {
        if !is(tokens.first(), "use") {
            return self.code(tokens, number);
        }
        let end = tokens.iter().position(|one| is(Some(one), ";")).unwrap_or(tokens.len());
        let names = &mut self.modules[number].imports;
        imports(&tokens[1..end], &[], &mut |name, path| {
            names.push(Import { name, path, is_public })
        });
        self.code(&tokens[end..], number);
    }

    /// Takes in the paths of code, and what is imported within.
    fn code(&mut self, tokens: &[TokenTree], number: usize) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(inside) => {
                    let inside: Vec<_> = inside.stream().into_iter().collect();
                    self.code(&inside, number);
                }
                TokenTree::Ident(word) if word == "use" => {
                    return self.statement(&tokens[at - 1..], number, false);
                }
                TokenTree::Ident(first) => {
                    // Behind these it is the rest of another path, or a field's or method's name.
                    let before = tokens[..at - 1].last();
                    let is_rest = is(before, ".") || at > 2 && is_sign(&tokens[at - 3..]);
                    let mut path = vec![first.to_string()];
                    while let (true, Some(TokenTree::Ident(word))) =
                        (is_sign(&tokens[at..]), tokens.get(at + 2))
                    {
                        path.push(word.to_string());
                        at += 3;
                    }
                    if !is_rest && path.len() > 1 {
                        self.modules[number].paths.push(path);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

/// Whether it is this word or sign.
fn is(token: Option<&TokenTree>, text: &str) -> bool {
    match token {
        Some(TokenTree::Ident(word)) => word == text,
        Some(TokenTree::Punct(sign)) => text.chars().eq([sign.as_char()]),
        Some(TokenTree::Group(_) | TokenTree::Literal(_)) | None => false,
    }
}

/// Whether `::` is first.
fn is_sign(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(first), second, ..] = tokens else { return false };
    first.as_char() == ':' && first.spacing() == Spacing::Joint && is(Some(second), ":")
}

/// What is inside of these brackets.
fn group(token: Option<&TokenTree>, brackets: Delimiter) -> Option<TokenStream> {
    let Some(TokenTree::Group(group)) = token else { return None };
    (group.delimiter() == brackets).then(|| group.stream())
}

/// The name of an item: behind the last of the words that say what it is.
fn defined(item: &[TokenTree]) -> Option<String> {
    let kinds =
        ["fn", "struct", "enum", "trait", "type", "union", "const", "static", "macro_rules"];
    let before = ["unsafe", "async", "extern", "mut", "!"];
    let is_one_of = |one: &TokenTree, all: &[&str]| all.iter().any(|word| is(Some(one), word));
    let words = item.iter().filter(|one| !matches!(one, TokenTree::Literal(_)));
    let mut words = words.skip_while(|one| is_one_of(one, &before)).peekable();
    if !is_one_of(words.peek()?, &kinds) {
        return None;
    }
    let name = words.find(|one| !is_one_of(one, &kinds) && !is_one_of(one, &before));
    name.map(ToString::to_string)
}

/// Each name of a tree of imports, behind what is in `prefix`.
fn imports(tree: &[TokenTree], prefix: &[String], found: &mut impl FnMut(String, Words)) {
    for branch in tree.split(|one| is(Some(one), ",")) {
        let (mut path, mut renamed) = (prefix.to_vec(), None);
        for (at, token) in branch.iter().enumerate() {
            if is(Some(token), "as") {
                renamed = branch.get(at + 1).map(ToString::to_string);
                break;
            }
            if let Some(inside) = group(Some(token), Delimiter::Brace) {
                let inside: Vec<_> = inside.into_iter().collect();
                imports(&inside, &path, found);
                path.clear();
            } else if !is(Some(token), ":") {
                path.push(token.to_string());
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(last) = path.last().cloned() {
            found(renamed.unwrap_or(last), path);
        }
    }
}
