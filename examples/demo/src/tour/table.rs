//! Tables for the terminal.

use std::fmt;

/// Rows under heads, columns as wide as they need to be. Columns of numbers are set to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self {
            rows: vec![heads.map(str::to_owned).into()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn column(&self, index: usize) -> Column {
        let cells = || self.rows.iter().filter_map(|row| row.get(index));
        let is_number = |cell: &String| {
            cell.is_empty()
                || cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains([' ', ','])
        };
        Column {
            width: cells().map(|cell| cell.chars().count()).max().unwrap_or(0),
            numbers: cells().skip(1).all(is_number),
        }
    }
}

struct Column {
    width: usize,
    numbers: bool,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.rows.first().map_or(0, Vec::len);
        let columns: Vec<_> = (0..count).map(|index| self.column(index)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, Column { width, numbers }) in row.iter().zip(&columns) {
                line.push_str("  ");
                if *numbers {
                    line.push_str(&format!("{cell:>width$}"));
                } else {
                    line.push_str(&format!("{cell:<width$}"));
                }
            }
            writeln!(f, "  {}", line.trim_end())?;
            if index == 0 {
                let rule: Vec<_> = columns.iter().map(|c| "─".repeat(c.width)).collect();
                writeln!(f, "    {}", rule.join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn words_are_set_to_the_left_and_numbers_to_the_right() {
        let mut table = Table::new(["who", "calls"]);
        table.row(["Zoë".into(), "7".into()]);
        table.row(["everybody".into(), "1234567".into()]);
        let lines = [
            "    who          calls",
            "    ─────────  ───────",
            "    Zoë              7",
            "    everybody  1234567",
            "",
        ];
        assert_eq!(table.to_string(), lines.join("\n"));
    }
}
