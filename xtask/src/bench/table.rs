//! The figures, their medians, and the tables that show them.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

/// The measured values, in the order of the columns: the name in the CSV of the load generator, and the heading.
const COLUMNS: [(&str, &str); 6] = [
    ("requests_per_second", "req/s"),
    ("inferences_per_second", "infer/s"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("server_us_per_request", "server us/req"),
    ("errors", "errors"),
];

/// One value for each column; `None` where the column does not apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures([Option<f64>; COLUMNS.len()]);

impl Figures {
    /// Reads the two lines of a CSV of `nereid perf`.
    pub(super) fn from_csv(text: &str) -> Result<Figures> {
        let fields = csv_fields(text)?;
        Ok(Figures(COLUMNS.map(|(name, _)| fields.get(name).and_then(|field| field.parse().ok()))))
    }

    pub(super) fn of_bare_loop(inferences_per_second: f64) -> Figures {
        Figures(COLUMNS.map(|(name, _)| (name == "inferences_per_second").then_some(inferences_per_second)))
    }

    /// The median of each column.
    pub(super) fn medians(rounds: &[Figures]) -> Figures {
        let mut medians = [None; COLUMNS.len()];
        for (column, median) in medians.iter_mut().enumerate() {
            let mut values: Vec<f64> = rounds.iter().filter_map(|figures| figures.0[column]).collect();
            values.sort_by(f64::total_cmp);
            *median = values.get(values.len() / 2).copied();
        }
        Figures(medians)
    }

    /// The latency that one of a hundred requests exceeds, in microseconds.
    pub(super) fn p99_us(&self) -> Result<f64> {
        self.column("p99_us").context("there is no figure p99_us")
    }

    /// Answered requests per second.
    pub(super) fn requests_per_second(&self) -> Result<f64> {
        self.column("requests_per_second").context("there is no figure requests_per_second")
    }

    /// The value of the column that has this name in the CSV of the load generator.
    pub(super) fn column(&self, wanted: &str) -> Option<f64> {
        COLUMNS.iter().zip(self.0).find_map(|((name, _), value)| value.filter(|_| *name == wanted))
    }

    pub(super) fn line(&self) -> String {
        let named =
            COLUMNS.iter().zip(&self.0).filter_map(|((_, heading), value)| Some((heading, (*value)?)));
        named.map(|(heading, value)| format!("{heading} {}", short(value))).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn errors(&self) -> f64 {
        self.0[COLUMNS.len() - 1].unwrap_or_default()
    }
}

/// The fields of the two lines of a CSV of `nereid perf`, by their headings.
pub(super) fn csv_fields(text: &str) -> Result<BTreeMap<&str, &str>> {
    let (headings, row) = text.trim_end().split_once('\n').context("the load generator wrote no row")?;
    Ok(headings.split(',').zip(row.split(',')).collect())
}

/// The value in the middle; no number if there are none.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The first two lines of a table whose first columns hold texts and whose other columns hold numbers.
pub(super) fn table_head(texts: &[&str], numbers: &[&str]) -> String {
    let headings = [texts, numbers].concat().join(" | ");
    format!("| {headings} |\n|{}{}\n", "---|".repeat(texts.len()), "---:|".repeat(numbers.len()))
}

/// The cells of a line of a table, after its texts: each a number with so many digits, `-` for none.
pub(super) fn cells(numbers: &[(f64, usize)]) -> String {
    let mut text = String::new();
    for &(number, digits) in numbers {
        match number.is_nan() {
            true => text.push_str(" - |"),
            false => write!(text, " {number:.digits$} |").expect("a string takes all"),
        }
    }
    text.push('\n');
    text
}

fn short(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// All rows of all contenders.
pub(super) struct ResultTable {
    rows: Vec<(String, String, Figures)>,
}

impl ResultTable {
    pub(super) fn new() -> ResultTable {
        ResultTable { rows: Vec::new() }
    }

    /// Adds the medians of the rounds of each contender.
    pub(super) fn extend(&mut self, row: &str, names: &[&str], rounds: &[Vec<Figures>]) {
        let medians = rounds.iter().map(|rounds| Figures::medians(rounds));
        let contenders = names.iter().zip(medians);
        self.rows.extend(contenders.map(|(name, medians)| (row.to_owned(), (*name).to_owned(), medians)));
    }

    pub(super) fn errors(&self) -> f64 {
        self.rows.iter().map(|(_, _, figures)| figures.errors()).sum()
    }

    pub(super) fn markdown(&self) -> String {
        let headings: Vec<&str> = COLUMNS.iter().map(|(_, heading)| *heading).collect();
        let mut text = format!("| row | contender | {} |\n|---|---|", headings.join(" | "));
        text.push_str(&"---:|".repeat(COLUMNS.len()));
        for (row, name, figures) in &self.rows {
            let cells = figures.0.map(|value| value.map_or("-".into(), short));
            text.push_str(&format!("\n| {row} | {name} | {} |", cells.join(" | ")));
        }
        text.push('\n');
        text
    }

    pub(super) fn csv(&self) -> String {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let mut text = format!("row,contender,{}\n", names.join(","));
        for (row, name, figures) in &self.rows {
            let fields = figures.0.map(|value| value.map_or(String::new(), |value| format!("{value:.2}")));
            text.push_str(&format!("{row},{name},{}\n", fields.join(",")));
        }
        text
    }
}

/// How a contender compares with another one, as ratios within each round.
pub(super) struct ComparisonTable {
    /// Which contender is divided by which.
    heading: &'static str,
    rows: Vec<(String, [Option<Ratios>; COMPARED.len()])>,
}

/// The compared columns.
const COMPARED: [(&str, &str); 2] =
    [("server_us_per_request", "server us/req"), ("inferences_per_second", "infer/s")];

/// The median of the rounds' ratios, the quarter that lies below it, and the quarter above it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratios {
    median: f64,
    low: f64,
    high: f64,
}

impl Ratios {
    fn of(mut ratios: Vec<f64>) -> Option<Ratios> {
        ratios.sort_by(f64::total_cmp);
        let at = |quarter: usize| ratios.get((ratios.len().checked_sub(1)? * quarter + 2) / 4).copied();
        Some(Ratios { median: at(2)?, low: at(1)?, high: at(3)? })
    }
}

impl ComparisonTable {
    pub(super) fn new(heading: &'static str) -> ComparisonTable {
        ComparisonTable { heading, rows: Vec::new() }
    }

    /// Adds a row. Both lists have the same rounds.
    pub(super) fn extend(&mut self, row: &str, one: &[Figures], other: &[Figures]) {
        let ratios = COMPARED.map(|(name, _)| {
            let both = one.iter().zip(other);
            let ratio = |(one, other): (&Figures, &Figures)| Some(one.column(name)? / other.column(name)?);
            Ratios::of(both.filter_map(ratio).collect())
        });
        self.rows.push((row.to_owned(), ratios));
    }

    pub(super) fn markdown(&self) -> String {
        let headings = COMPARED.map(|(_, heading)| heading).join(" | ");
        let mut text = format!("| {} | {headings} |\n|---|---:|---:|\n", self.heading);
        for (row, ratios) in &self.rows {
            let cells = ratios.map(|ratios| {
                ratios.map_or("-".into(), |Ratios { median, low, high }| {
                    format!("{median:.2} ({low:.2} to {high:.2})")
                })
            });
            text.push_str(&format!("| {row} | {} |\n", cells.join(" | ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_number_has_an_empty_cell() {
        assert_eq!(cells(&[(1.234, 1), (f64::NAN, 2), (7.0, 0)]), " 1.2 | - | 7 |\n");
        assert!(median([]).is_nan());
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(table_head(&["a"], &["b", "c"]), "| a | b | c |\n|---|---:|---:|\n");
    }

    fn figures(rate: f64, errors: u32) -> Figures {
        Figures::from_csv(&format!(
            "model,requests_per_second,inferences_per_second,p50_us,p99_us,server_us_per_request,errors\n\
             m,{rate},{rate},10.5,20,,{errors}\n"
        ))
        .unwrap()
    }

    #[test]
    fn medians_are_per_column_and_ignore_what_is_missing() {
        let median = Figures::medians(&[figures(300.0, 0), figures(100.0, 0), figures(200.0, 1)]);
        assert_eq!(median, figures(200.0, 0));
        assert!(Figures::from_csv("only,headings").is_err());
    }

    #[test]
    fn builds_are_compared_within_each_round() {
        let [ours, before] = [[110.0, 90.0, 200.0, 100.0, 300.0], [100.0, 100.0, 100.0, 100.0, 100.0]];
        let rounds = |rates: [f64; 5]| rates.map(|rate| figures(rate, 0));
        let mut table = ComparisonTable::new("this build : the earlier one");
        table.extend("tiny", &rounds(ours), &rounds(before));
        let markdown = table.markdown();
        assert!(markdown.ends_with("\n| tiny | - | 1.10 (1.00 to 2.00) |\n"), "{markdown}");
        assert_eq!(Ratios::of(Vec::new()), None);
    }

    #[test]
    fn a_table_has_a_cell_for_each_column() {
        let mut table = ResultTable::new();
        let rounds = [vec![figures(200.0, 2)], vec![Figures::of_bare_loop(9.0)]];
        table.extend("tiny", &["ours", "bare b8"], &rounds);
        let markdown = table.markdown();
        assert!(markdown.contains("| tiny | ours | 200 | 200 | 10.5 | 20 | - | 2 |"), "{markdown}");
        assert!(markdown.contains("| tiny | bare b8 | - | 9 | - | - | - | - |"), "{markdown}");
        assert!(table.csv().contains("tiny,ours,200.00,200.00,10.50,20.00,,2.00"), "{}", table.csv());
        assert_eq!(table.errors(), 2.0);
    }
}
