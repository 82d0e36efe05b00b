//! Tables with columns as wide as their content.

use super::{Style, clipped, display_width};

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A table: rows under headings.
///
/// ```text
/// let mut table = Table::new(&["session", "messages>", "updated"]);
/// table.row(["ann".to_owned(), grouped(1_200), "just now".to_owned()]);
/// show.table(&table)?;
/// ```
///
/// A heading that ends in `>` aligns its column to the right. On a terminal that is too narrow, the widest columns are
/// clipped. Piped output stays complete.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// Minimum width of a clipped column, in columns of the terminal.
const MIN_WIDTH: usize = 8;

impl Table {
    /// Returns a table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let column = |heading: &&str| match heading.strip_suffix('>') {
            Some(right) => (right.to_owned(), Align::Right),
            None => ((*heading).to_owned(), Align::Left),
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty. Surplus cells are not shown.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the headings and rows as lines, without trailing spaces. `width` is the maximum width of a line in
    /// columns; `None` if lines may have any length.
    pub fn lines(&self, width: Option<usize>, style: Style) -> Vec<String> {
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let widths = self.widths(width);
        let head = style.bold(&self.line(&headings, &widths));
        std::iter::once(head).chain(self.rows.iter().map(|row| self.line(row, &widths))).collect()
    }

    fn widths(&self, most: Option<usize>) -> Vec<usize> {
        let widest =
            |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| display_width(cell)).max();
        let widths = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (heading, _))| display_width(heading).max(widest(at).unwrap_or(0)));
        let mut widths: Vec<usize> = widths.collect();
        let gaps = widths.len().saturating_sub(1) * 2;
        while let Some(most) = most {
            let over = (widths.iter().sum::<usize>() + gaps).saturating_sub(most);
            let Some(widest) = widths.iter_mut().max() else { break };
            if over == 0 || *widest <= MIN_WIDTH {
                break;
            }
            *widest = widest.saturating_sub(over.min(*widest - MIN_WIDTH).min(4));
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, ((_, align), width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = clipped(cells.get(at).map_or("", String::as_str), *width);
            let space = " ".repeat(width.saturating_sub(display_width(&cell)));
            line.push_str(if at > 0 { "  " } else { "" });
            match align {
                Align::Left => line.extend([cell, space]),
                Align::Right => line.extend([space, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&["session", "messages>", "updated"]);
        table.row(["ann".to_owned(), "1,200".to_owned(), "just now".to_owned()]);
        table.row(["a name that goes on and on".to_owned(), "7".to_owned()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            sample().lines(None, Style::default()),
            [
                "session                     messages  updated",
                "ann                            1,200  just now",
                "a name that goes on and on         7",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_clips_the_widest_column() {
        let lines = sample().lines(Some(40), Style::default());
        assert!(lines.iter().all(|line| display_width(line) <= 40), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains('…')), "{lines:#?}");
        assert!(sample().lines(Some(1), Style::default()).len() == 3, "too narrow for anything");
    }
}
