//! With which codes the program ends, for its help, its manual page and the page of the command line.

/// Each code with its meaning, which fits into a cell of a table.
pub(super) const EXIT_CODES: [(&str, &str); 5] = [
    ("0", "the command has done its work; the server has stopped in order"),
    (
        "1",
        "it has not, or `check` has found errors; for the server a wrong command line, too, as with Triton",
    ),
    ("2", "wrong usage of a command"),
    ("3", "`check --strict` has found warnings, `replay` other answers, `perf` no stable result"),
    ("130", "a second Ctrl-C has ended the server at once"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_command_line_has_the_same_table() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command-line.md"));
        let rows: String =
            EXIT_CODES.iter().map(|(code, meaning)| format!("| {code} | {meaning} |\n")).collect();
        assert!(page.unwrap().contains(&format!("| Exit code | Meaning |\n|---|---|\n{rows}\n")), "{rows}");
    }
}
