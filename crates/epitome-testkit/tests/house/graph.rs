//! Builds the graph of modules that use each other, and finds its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tokens::{Token, close, scan};

/// Source files of one crate by their path below `src`, as in `engine/session.rs`.
pub(crate) type Files = BTreeMap<String, String>;

type Path = Vec<String>;

/// A name that a `use` brings into a module, or a path in the module's code.
#[derive(Debug, Clone)]
struct Mention {
    path: Path,
    /// The name of the item in this module; `*` for a glob import.
    name: String,
    line: usize,
    is_use: bool,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    mentions: Vec<Mention>,
}

/// A line in which one module uses another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UseSite {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The modules below one crate root, `lib.rs` or `main.rs`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    modules: BTreeMap<Path, Module>,
}

impl Tree {
    pub(crate) fn read(files: &Files, root: &str) -> Self {
        let mut tree = Self::default();
        tree.read_file(files, root, Vec::new());
        tree
    }

    fn read_file(&mut self, files: &Files, file: &str, path: Path) {
        let Some(text) = files.get(file) else { return };
        self.read_tokens(files, file, path, &scan(text).tokens);
    }

    fn read_tokens(&mut self, files: &Files, file: &str, path: Path, tokens: &[Token]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let next = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text.as_str());
            let word_before = at > 1 && tokens[at - 1].is(":") && tokens[at - 2].is(":");
            match token.text.as_str() {
                // The path of a visibility, as in `pub(in crate::a)`, is no use.
                "pub" if next(1) == "(" => at = close(tokens, at + 1),
                "mod" if tokens.get(at + 1).is_some_and(Token::is_word) && matches!(next(2), ";" | "{") => {
                    let name = next(1).to_owned();
                    let inner: Path = path.iter().cloned().chain([name.clone()]).collect();
                    module.children.insert(name);
                    if next(2) == "{" {
                        let end = close(tokens, at + 2);
                        self.read_tokens(files, file, inner, &tokens[at + 3..end - 1]);
                        at = end;
                    } else {
                        self.read_file(files, &format!("{}.rs", inner.join("/")), inner);
                        at += 3;
                    }
                }
                "use" if !word_before => {
                    let end = at + tokens[at..].iter().position(|token| token.is(";")).unwrap_or(1);
                    read_use(&tokens[at + 1..end], &Path::new(), &mut module.mentions);
                    at = end + 1;
                }
                "crate" | "super" | "self" if next(1) == ":" && next(2) == ":" && !word_before => {
                    let line = token.line;
                    let mut inline = Path::new();
                    while let Some(word) = tokens.get(at).filter(|token| token.is_word()) {
                        inline.push(word.text.clone());
                        let joined =
                            [1, 2].iter().all(|ahead| tokens.get(at + ahead).is_some_and(|t| t.is(":")));
                        at += if joined { 3 } else { 1 };
                        if !joined {
                            break;
                        }
                    }
                    module.mentions.push(Mention { path: inline, name: String::new(), line, is_use: false });
                }
                _ => at += 1,
            }
        }
        self.modules.insert(path, module);
    }

    /// Finds the module that defines a path's item, also through re-exports. Returns `None` for an item of another
    /// crate.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Path> {
        let (first, mut rest) = path.split_first()?;
        let mut at: Path = match first.as_str() {
            "crate" => Path::new(),
            "self" => from.to_vec(),
            "super" => from.split_last()?.1.to_vec(),
            child => {
                let module = self.modules.get(from)?;
                if !module.children.contains(child) {
                    return None;
                }
                from.iter().cloned().chain([child.to_owned()]).collect()
            }
        };
        while let Some((next, more)) = rest.split_first() {
            let module = self.modules.get(&at)?;
            if next == "super" {
                at.pop();
            } else if module.children.contains(next) {
                at.push(next.clone());
            } else {
                let imported = module.mentions.iter().find(|mention| mention.is_use && &mention.name == next);
                if let Some(imported) = imported.filter(|_| depth > 0) {
                    let whole: Path = imported.path.iter().chain(more).cloned().collect();
                    return self.resolve(&at, &whole, depth - 1);
                }
                break;
            }
            rest = more;
        }
        Some(at)
    }

    /// Returns the edges between sibling modules, by their parent module.
    ///
    /// A use in `a/b.rs` counts for `a` at the level of `a`, and for `b` inside `a`. A use in `a.rs` itself counts
    /// only for
    /// `a`. Inside `a` it is no node: `a.rs` may use its children, and they may use its own types.
    fn edges(&self) -> BTreeMap<Path, Graph> {
        let mut levels: BTreeMap<Path, Graph> = BTreeMap::new();
        for (from, module) in &self.modules {
            for mention in &module.mentions {
                let Some(to) = self.resolve(from, &mention.path, 8) else { continue };
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) else { continue };
                let site =
                    UseSite { file: module.file.clone(), line: mention.line, path: mention.path.join("::") };
                let graph = levels.entry(from[..shared].to_vec()).or_default();
                graph.entry(a.clone()).or_default().entry(b.clone()).or_default().push(site);
            }
        }
        levels
    }

    /// Returns the module cycles. Of cycles that share a module, only the shortest is returned.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (above, graph) in self.edges() {
            let mut reported: BTreeSet<String> = BTreeSet::new();
            let mut cycles: Vec<Vec<String>> =
                graph.keys().filter_map(|start| shortest(&graph, start)).collect();
            cycles.sort_by_key(Vec::len);
            for cycle in cycles {
                if cycle.iter().any(|node| reported.contains(node)) {
                    continue;
                }
                reported.extend(cycle.iter().cloned());
                found.push(describe(&above, &graph, &cycle));
            }
        }
        found
    }
}

type Graph = BTreeMap<String, BTreeMap<String, Vec<UseSite>>>;

/// Finds the shortest path from a module back to itself. The module is its first and last element.
fn shortest(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut queue = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = queue.pop_front() {
        for next in graph.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            let mut longer = way.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                queue.push_back(longer);
            }
        }
    }
    None
}

/// Describes a cycle: its modules, and for each edge up to three uses.
fn describe(above: &[String], graph: &Graph, cycle: &[String]) -> String {
    let full = |name: &String| above.iter().chain([name]).cloned().collect::<Vec<_>>().join("::");
    let mut text = cycle.iter().map(full).collect::<Vec<_>>().join(" -> ");
    for pair in cycle.windows(2) {
        let uses = &graph[&pair[0]][&pair[1]];
        for site in uses.iter().take(3) {
            text += &format!("\n    {} -> {}: {}:{} ({})", pair[0], pair[1], site.file, site.line, site.path);
        }
        if uses.len() > 3 {
            text += &format!("\n    {} -> {}: {} more", pair[0], pair[1], uses.len() - 3);
        }
    }
    text
}

/// Adds the names that a `use` imports to `mentions`.
fn read_use(tokens: &[Token], before: &Path, mentions: &mut Vec<Mention>) {
    let mut start = 0;
    while start < tokens.len() {
        let mut end = start;
        while end < tokens.len() && !tokens[end].is(",") {
            end = if tokens[end].is("{") { close(tokens, end) } else { end + 1 };
        }
        read_branch(&tokens[start..end], before, mentions);
        start = end + 1;
    }
}

fn read_branch(tokens: &[Token], before: &Path, mentions: &mut Vec<Mention>) {
    let mut path = before.clone();
    let mut alias = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "{" => return read_use(&tokens[at + 1..close(tokens, at) - 1], &path, mentions),
            "as" => {
                alias = tokens.get(at + 1).map(|token| token.text.clone());
                break;
            }
            "*" => alias = Some("*".to_owned()),
            ":" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    let Some(first) = tokens.first() else { return };
    // `a::{self}` imports `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let Some(name) = alias.or_else(|| path.last().cloned()) else { return };
    mentions.push(Mention { path, name, line: first.line, is_use: true });
}
