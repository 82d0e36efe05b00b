//! Checks the source of every crate against the project's rules:
//!
//! - No module cycles. Sibling modules, at the top of a crate or in one folder, use each other in one direction only.
//!   A use in `a/b.rs` counts for `a` among the siblings of `a`, and for `b` among the siblings of `b`. A re-exported
//!   item counts for the module that defines it. The module `a.rs` is no sibling of the modules in `a/`: it may use
//!   its children, and they may use the types that it defines itself.
//! - A function has at most 80 lines and 6 parameters (`self` not counted). A struct has at most 15 fields, unless a
//!   comment directly above the struct or its first field contains the word `fields:` and the reason.
//! - Names, comments, printed text and documents use plain words: see [`words`]. Here, test code is not checked, but
//!   comments and strings are.
//! - In one crate, a type name has one meaning.
//!
//! The first two rules do not count test code (`#[cfg(test)]`, `tests/`), comments and strings.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a checker that cannot continue fails"
)]

mod graph;
mod sizes;
mod tokens;
mod words;

use std::path::Path;

use graph::{Files, Tree};

/// Reads the source files of all crates, by crate.
fn crates() -> Vec<(String, Files)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all: Vec<(String, Files)> = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let (src, mut files) = (entry.as_ref().unwrap().path().join("src"), Files::new());
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if src.is_dir() {
            read(&src, &src, &mut files);
            all.push((name, files));
        }
    }
    all.sort();
    assert!(!all.is_empty(), "the crates are in the folder of this one");
    all
}

fn read(src: &Path, dir: &Path, files: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(src, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).unwrap().components();
            let name: Vec<String> =
                name.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
            files.insert(name.join("/"), std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let mut found = Vec::new();
    for (name, files) in crates() {
        for root in ["lib.rs", "main.rs"].into_iter().filter(|root| files.contains_key(*root)) {
            found.extend(Tree::read(&files, root).cycles().iter().map(|cycle| format!("{name}: {cycle}")));
        }
    }
    assert!(found.is_empty(), "module cycles:\n\n{}\n", found.join("\n\n"));
}

#[test]
fn functions_and_structs_are_small_enough_to_read() {
    let mut found = Vec::new();
    for (name, files) in crates() {
        // Files that contain only tests are not checked.
        let code = files.iter().filter(|(file, _)| !words::is_test(file));
        found.extend(code.flat_map(|(file, text)| sizes::too_large(&format!("{name}/src/{file}"), text)));
    }
    assert!(found.is_empty(), "too large:\n{}\n", found.join("\n"));
}

/// Lines in which a replaced word is a quotation or a name: a file and a part of the line.
const QUOTATIONS: &str = include_str!("quotations.txt");

#[test]
fn names_and_prose_use_plain_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for (name, files) in crates() {
        for (file, text) in &files {
            if !words::is_test(file) {
                found.extend(words::in_source(&format!("crates/{name}/src/{file}"), text));
            }
        }
    }
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let names = ["README.md", "ARCHITECTURE.md", "DESIGN.md", "CONTRIBUTING.md"];
    for path in docs.chain(names.map(|name| root.join(name))) {
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            found.extend(words::in_document(&name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    let quotations: Vec<(&str, &str)> = QUOTATIONS.lines().filter_map(|line| line.split_once(": ")).collect();
    let is_quotation = |found: &String| {
        let (path, rest) = found.split_once(':').unwrap();
        let number: usize = rest.split(':').next().unwrap().parse().unwrap();
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let line = text.lines().nth(number - 1).unwrap_or_default();
        quotations.iter().any(|(file, part)| *file == path && line.contains(part))
    };
    found.retain(|found| !is_quotation(found));
    assert!(found.is_empty(), "{} replaced words:\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn a_type_name_means_one_thing_in_a_crate() {
    let shared: Vec<String> =
        crates().iter().flat_map(|(name, files)| words::shared_type_names(name, files)).collect();
    assert!(shared.is_empty(), "type names with several meanings:\n{}\n", shared.join("\n"));
}

/// Returns the module cycles of a crate with these files.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let files: Files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Tree::read(&files, "lib.rs").cycles()
}

#[test]
fn a_planted_cycle_is_reported_with_its_uses() {
    let found = cycles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "\nuse crate::b::Thing;\npub struct Other;"),
        ("b.rs", "pub struct Thing;\nfn go() { let _ = crate::a::Other; }"),
    ]);
    let expected = "a -> b -> a\n    a -> b: a.rs:2 (crate::b::Thing)\n    b -> a: b.rs:2 (crate::a::Other)";
    assert_eq!(found, [expected]);
}

#[test]
fn cycles_are_found_through_re_exports_folders_and_groups() {
    let through_root = [
        ("lib.rs", "mod a; mod b; pub use a::deep::Thing;"),
        ("a.rs", "pub mod deep; use crate::{b::Other, c};"),
        ("a/deep.rs", "pub struct Thing;"),
        ("b.rs", "pub struct Other; fn go(_: crate::Thing) {}"),
    ];
    assert!(cycles(&through_root)[0].starts_with("a -> b -> a"));
    let siblings = [
        ("lib.rs", "mod a;"),
        ("a.rs", "mod one; mod two; mod three; pub(crate) use one::One;"),
        ("a/one.rs", "use super::two::Two; pub(crate) struct One;"),
        ("a/two.rs", "use super::three; pub(crate) struct Two;"),
        ("a/three.rs", "fn go(_: super::One) {}"),
    ];
    assert!(cycles(&siblings)[0].starts_with("a::one -> a::two -> a::three -> a::one"));
    let inline = [(
        "lib.rs",
        "mod a { use super::b::B; pub struct A; } mod b { use crate::a::{self, A as Z}; pub struct B; }",
    )];
    assert!(cycles(&inline)[0].starts_with("a -> b -> a"));
}

#[test]
fn text_that_is_no_use_makes_no_cycle() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A;"),
        ("a.rs", "mod child; use crate::b::B; pub struct A; use child::Child;"),
        ("a/child.rs", "use super::A; pub(in crate::b) struct Child;"),
        (
            "b.rs",
            r##"
            // use crate::a::A;
            /* use crate::a::A; /* nested */ use crate::a::A; */
            pub struct B; const TEXT: &str = "use crate::a::A;"; const RAW: &str = r#"crate::a::A "quoted""#;
            fn life<'a>(c: &'a str) -> char { let _ = '"'; '\'' }
            #[cfg(test)]
            use crate::a::A;
            #[cfg(test)]
            mod tests { use crate::a::A; }
            #[cfg(all(test, unix))]
            fn only_here() { crate::a::A; }
            "##,
        ),
    ];
    assert_eq!(cycles(&files), Vec::<String>::new());
}

#[test]
fn planted_large_items_are_reported() {
    let long = format!("fn long() {{\n{}}}\nfn short() {{}}", "    go();\n".repeat(79));
    assert_eq!(sizes::too_large("x.rs", &long), ["x.rs:1: fn long has 81 lines; at most 80"]);
    let fits = format!("fn fits() {{\n{}}}", "    go();\n".repeat(78));
    assert_eq!(sizes::too_large("x.rs", &fits), Vec::<String>::new());

    let many = "fn many<F: Fn(u8, u8) -> u8>(&mut self, a: u8, b: (u8, u8), c: HashMap<u8, u8>, d: F, e: u8, f: u8, g: u8);";
    assert_eq!(sizes::too_large("x.rs", many), ["x.rs:1: fn many has 7 parameters; at most 6"]);
    let few = "fn few(self: &Arc<Self>, a: u8, b: (u8, u8), c: HashMap<u8, u8>, d: &[u8], e: u8, f: u8,) {}";
    assert_eq!(sizes::too_large("x.rs", few), Vec::<String>::new());

    let fields = |count: usize, reason: &str| {
        let fields: String =
            (0..count).map(|at| format!("    /// One.\n    pub f{at}: HashMap<u8, u8>,\n")).collect();
        format!(
            "struct Before;\n/// Doc.\n#[derive(Debug)]\npub(crate) struct Large<T> {{\n{reason}{fields}}}"
        )
    };
    let found = sizes::too_large("x.rs", &fields(16, ""));
    assert!(found.len() == 1 && found[0].starts_with("x.rs:4: struct Large has 16 fields"), "{found:?}");
    assert_eq!(sizes::too_large("x.rs", &fields(15, "")), Vec::<String>::new());
    assert_eq!(
        sizes::too_large("x.rs", &fields(16, "    // fields: a row of a table.\n")),
        Vec::<String>::new()
    );
    let above = fields(16, "").replace("/// Doc.", "// fields: a row of a table.\n/// Doc.");
    assert_eq!(sizes::too_large("x.rs", &above), Vec::<String>::new());
}
