//! Tables for terminals: columns as wide as needed, words aligned left, numbers right.

/// The kind of a column, which decides its alignment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Words,
    Number,
}

/// Formats `rows` below `heads`.
pub(crate) fn table<const COLUMNS: usize>(
    heads: [(&str, Column); COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let heads = heads.map(|(head, column)| (head.to_owned(), column));
    columns(&heads, rows.map(Vec::from))
}

/// Formats a table with a number of columns that is known only at run time. Each row has one cell for each head.
pub(crate) fn columns(
    heads: &[(String, Column)],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut all = vec![heads.iter().map(|(head, _)| head.clone()).collect()];
    all.extend(rows);
    let mut widths = vec![0; heads.len()];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &all {
        let cells = row.iter().zip(&widths).zip(heads);
        let line: Vec<String> = cells
            .map(|((cell, &width), (_, column))| match column {
                Column::Words => format!("{cell:<width$}"),
                Column::Number => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Column, table};

    #[test]
    fn words_stand_to_the_left_and_numbers_to_the_right() {
        let heads = [("NAME", Column::Words), ("COUNT", Column::Number)];
        let rows = [("caf\u{e9} au lait", "7"), ("a", "1,000,000")];
        let rows = rows.map(|(name, count)| [name.to_owned(), count.to_owned()]);
        let expected = "\
NAME              COUNT
caf\u{e9} au lait          7
a             1,000,000
";
        assert_eq!(table(heads, rows.into_iter()), expected);
    }
}
