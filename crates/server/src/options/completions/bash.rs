//! The script for bash.

use std::fmt::Write;

use super::parts::{is_server_like, key, names, takes_server_after_dashes};
use crate::options::commands::{
    CommandDescription, CommandOptionDescription, ValueDescription, descriptions, server_options,
};

/// What does not depend on the tables. `word` is the word to complete, and `option` the one before it.
const HELPERS: &str = r#"# Completes commands, options and values of nereid in bash: source <(nereid completions bash)

# Completes $1 with the names of files.
_nereid_files() {
    local begin=$1 name
    # The line has the word as it is typed.
    case $begin in
        [\"\']*) begin=${begin:1} ;;
        *) begin=${begin//\\/} ;;
    esac
    compopt -o filenames 2>/dev/null
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$begin")
}

# Completes $1 with the words in $2.
_nereid_words() {
    local name
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -W "$2" -- "$1")
}

"#;

/// Finds the command, and whether options of the server may follow.
const BEGIN: &str = r#"_nereid() {
    COMPREPLY=()
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} command= server= options= words= files= at
    # The equals sign is a word of its own.
    if [[ $word == = ]]; then word=; elif [[ $option == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi
"#;

pub(super) fn script() -> String {
    let commands = descriptions();
    let of_server: Vec<_> = server_options().collect();
    let mut text = format!("{HELPERS}{BEGIN}");
    push_command(&mut text, &commands);
    text.push_str("    case \"$command $option\" in\n");
    for command in &commands {
        let key = key(command);
        push_values(&mut text, &command.options, |name| format!("'{key} {name}'"));
    }
    text.push_str("    esac\n    [[ $server ]] && case $option in\n");
    push_values(&mut text, &of_server, str::to_owned);
    text.push_str("    esac\n    case $command in\n");
    for command in &commands {
        let options = names(&command.options).join(" ");
        let mut line = format!("        '{}') options='{options}'", key(command));
        if command.words.is_empty() {
            // A command is the first word.
            let _ = write!(line, "; ((COMP_CWORD > 1)) || words='{}'", command.operand.words.join(" "));
        } else if !command.operand.words.is_empty() {
            let _ = write!(line, " words='{}'", command.operand.words.join(" "));
        }
        if command.operand.is_file {
            line.push_str(" files=yes");
        }
        let _ = writeln!(text, "{line} ;;");
    }
    text.push_str("    esac\n");
    let _ = writeln!(text, "    [[ $server ]] && options+=' {}'", names(&of_server).join(" "));
    text.push_str(
        "    if [[ $word == -* ]]; then\n        _nereid_words \"$word\" \"$options\"\n        return\n    fi\n    \
         [[ $words ]] && _nereid_words \"$word\" \"$words\"\n    [[ $files ]] && _nereid_files \"$word\"\n    return 0\n}\n\
         complete -F _nereid nereid\n",
    );
    text
}

/// Finds the command that the line begins with, and the word that follows it, if that belongs to the command.
fn push_command(text: &mut String, commands: &[CommandDescription]) {
    let patterns = |depth: usize| {
        let of_depth = commands.iter().filter(move |command| command.words.len() == depth);
        let keys: Vec<_> = of_depth.map(|command| format!("'{}'", key(command))).collect();
        keys.join("|")
    };
    let (one, two) = (patterns(1), patterns(2));
    let like_server = commands.iter().filter(|command| is_server_like(command));
    let like_server: Vec<_> = like_server.map(|command| format!("'{}'", key(command))).collect();
    let after_dashes: Vec<_> = commands
        .iter()
        .filter(|command| takes_server_after_dashes(command))
        .map(|command| format!("'{}'", key(command)))
        .collect();
    let (like_server, after_dashes) = (like_server.join("|"), after_dashes.join("|"));
    let _ = write!(
        text,
        "    ((COMP_CWORD > 1)) && case ${{COMP_WORDS[1]}} in\n        {one}) command=${{COMP_WORDS[1]}} ;;\n    esac\n    \
         ((COMP_CWORD > 2)) && case \"$command ${{COMP_WORDS[2]}}\" in\n        {two}) command+=\" ${{COMP_WORDS[2]}}\" ;;\n    \
         esac\n    case $command in\n        {like_server}) server=yes ;;\n        {after_dashes})\n            \
         for ((at = 2; at < COMP_CWORD; at++)); do [[ ${{COMP_WORDS[at]}} == -- ]] && server=yes command=; done ;;\n    esac\n"
    );
}

/// A line for each option with a value.
fn push_values(text: &mut String, options: &[CommandOptionDescription], pattern: impl Fn(&str) -> String) {
    for option in options {
        let Some((_, ValueDescription { words, is_file })) = &option.value else { continue };
        let patterns: Vec<_> = option.names.iter().map(|name| pattern(name)).collect();
        let mut action = String::new();
        if !words.is_empty() {
            let _ = write!(action, "_nereid_words \"$word\" '{}'; ", words.join(" "));
        }
        if *is_file {
            action.push_str("_nereid_files \"$word\"; ");
        }
        let _ = writeln!(text, "        {}) {action}return ;;", patterns.join("|"));
    }
}
