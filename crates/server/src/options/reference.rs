//! The reference of options, made from the table: `docs/options.md`.
use std::fmt::Write;

use super::table::{self, OptionSpec};

const HEAD: &str = "\
# Options of the server

`nereid man options` prints this page from the table that the server reads its options with. `nereid --help` and `nereid man` have the same
texts.

An option is given in one of three ways. The command line takes precedence over the environment, and the environment over the file.

| Way | Example |
|---|---|
| on the command line, as `--name value` or `--name=value`; names may be shortened as long as they stay unambiguous | `--http-port=9000` |
| as an environment variable; an option that may be given several times has a value on each line | `NEREID_HTTP_PORT=9000` |
| as a key of the TOML file that `--config` or `NEREID_CONFIG` names; a table stands for the first words of names | `http-port = 9000` |

```toml
# nereid --config=nereid.toml
model-repository = [\"/models\"]
log-verbose = 1

[http]
port = 9000
```

Each row has the name, the variable and the value of an option. The key of the file is the name without `--`. Options that are commands have
no variable.
";

/// The reference as a page of Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for (heading, options) in table::GROUPS {
        let heading = if heading.is_empty() { "General" } else { heading };
        let _ = write!(page, "\n## {heading}\n\n| Option | Value | Meaning |\n|---|---|---|\n");
        for option in *options {
            let _ =
                writeln!(page, "| {} | {} | {} |", names(option), value(option), cell(&option.description()));
        }
    }
    page
}

fn names(option: &OptionSpec) -> String {
    let variable = option.variable().map_or_else(String::new, |name| format!(" `{name}`"));
    format!("`--{}`{variable}", option.name)
}

fn value(option: &OptionSpec) -> String {
    option.placeholder().map_or_else(String::new, |words| format!("`{}`", words.replace('|', "\\|")))
}

/// A text that does not end its cell of a table. A placeholder such as `<path>` is not HTML.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_a_row_and_each_row_three_cells() {
        let page = reference();
        for option in table::all() {
            assert!(page.contains(&format!("\n| `--{}`", option.name)), "{}", option.name);
        }
        for row in page.lines().filter(|line| line.starts_with("| `--")) {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
        }
        assert!(page.contains("| `--http-port` `NEREID_HTTP_PORT` |"));
    }
}
