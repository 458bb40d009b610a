//! Makes the text of `--help` from the table.

use super::{
    commands::{COMMANDS, CommandSpec},
    table,
};

const WIDTH: usize = 100;
const INDENT: &str = "        ";

/// The call syntax of the program, and every option by group. Ends with a newline.
pub fn usage() -> String {
    let mut text = "Usage: nereid --model-repository=<path> [option]...     serve models\n".to_owned();
    for CommandSpec { name, usage, purpose, .. } in COMMANDS {
        let line = format!("nereid {name} {usage}");
        text.push_str(&format!("       {line:<48} {purpose}\n"));
    }
    text.push('\n');
    text.push_str(
        "Options may be shortened as long as they stay unambiguous; values follow as '--name value' \
             or '--name=value'.\n",
    );
    for (heading, options) in table::GROUPS {
        text.push('\n');
        if !heading.is_empty() {
            text.push_str(&format!("{heading}:\n"));
        }
        for option in *options {
            match option.placeholder() {
                None => text.push_str(&format!("  --{}\n", option.name)),
                Some(value) if value.contains('<') => {
                    text.push_str(&format!("  --{} {value}\n", option.name));
                }
                Some(value) => text.push_str(&format!("  --{} <{value}>\n", option.name)),
            }
            push_wrapped(&mut text, &option.description());
        }
    }
    text
}

fn push_wrapped(text: &mut String, paragraph: &str) {
    let mut column = WIDTH;
    for word in paragraph.split_whitespace() {
        if column + 1 + word.len() > WIDTH {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(INDENT);
            column = INDENT.len();
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
}
