//! Makes the text of `--help` from the table.

use super::table;

const WIDTH: usize = 100;
const INDENT: &str = "        ";

/// The call syntax of the program, and every option by group. Ends with a newline.
pub fn usage() -> String {
    let mut text = String::from(
        "Usage: nereid --model-repository=<path> [option]...     serve models\n       \
         nereid check <repository>...                     check models without loading them\n       \
         nereid config fmt|show|schema ...                format, explain or describe configurations\n       \
         nereid init <model directory>                    write config.pbtxt for a model\n       \
         nereid explain [<model>]                         tell what a running server does, and what to change\n       \
         nereid perf -m <model> [option]...               measure a server ('nereid perf --help')\n       \
         nereid tune <model> [option]...                  find the best settings of a model ('nereid tune --help')\n       \
         nereid api-key [--hash]                          make a key, or a digest, for --api-key-file\n       \
         nereid completions bash|zsh|fish                 print completions for a shell\n       \
         nereid man [options|configuration]               print the manual page, or a reference\n\n",
    );
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
