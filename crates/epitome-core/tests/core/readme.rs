//! The README shows what really comes out.

#[path = "../../../epitome/examples/context.rs"]
mod context_example;

#[test]
fn the_readme_shows_what_the_example_prints() {
    let printed = context_example::show().unwrap();
    let readme = include_str!("../../../../README.md");
    let block = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines: Vec<&str> = block.lines().filter(|line| !line.is_empty() && line.trim() != "...").collect();
    assert!(lines.len() > 4);
    for line in lines {
        assert!(printed.lines().any(|said| said == line), "not printed any more: {line}\n{printed}");
    }
}
