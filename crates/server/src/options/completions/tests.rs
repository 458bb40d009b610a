//! Each script has each option. `tests/clients/test_completions.py` runs them in their shells.

use super::{super::commands, *};

#[test]
fn each_option_of_the_server_and_of_each_command_is_in_each_script() {
    for shell in SHELLS {
        let script = completions(shell).unwrap();
        let own: Vec<_> = commands::descriptions().into_iter().flat_map(|command| command.options).collect();
        for option in commands::server_options().chain(own) {
            for name in &option.names {
                let name = if shell == "fish" { name.trim_start_matches('-') } else { name };
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
        assert!(script.contains("config fmt") && script.contains("bash zsh fish"), "{shell}");
    }
    assert_eq!(completions("tcsh"), None);
}

#[test]
fn no_text_ends_its_quotes() {
    for shell in SHELLS {
        for line in completions(shell).unwrap().lines().filter(|line| !line.contains(r#"[\"\']"#)) {
            assert_eq!(line.matches('\'').count() % 2, 0, "{shell}: {line}");
        }
    }
}
