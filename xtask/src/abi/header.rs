//! Writes `include/nereid.h`: the tables in C and C++, with the documentation of the Rust functions.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::table::{Enum, Interface, Prototype, Side};

/// Lines are broken so that they are not longer than this.
const WIDTH: usize = 100;

const BEGIN: &str = "\
/*
 * Nereid's C interfaces, name by name and number by number those of Triton Inference Server:
 *
 *   TRITONSERVER_*     a server in your own process
 *   TRITONBACKEND_*    for shared libraries that run models, and that decide what joins a batch
 *   TRITONCACHE_*      for shared libraries that keep responses
 *   TRITONREPOAGENT_*  for shared libraries that look after the files of models
 *
 * Plug-ins define the functions that are marked NEREID_PLUGIN, as far as their kind needs them, and
 * find all others in the server that loads them. Programs find them in libtritonserver.so.
 *
 * A text ends with a NUL and is UTF-8. What is handed out as const belongs to the object it was
 * asked of, and lives as long. Null where something is needed is answered with an error. Functions
 * may be called from any thread; an object is for one thread at a time.
 *
 * Written by `cargo xtask header` from crates/c-api/abi and from the sources of the functions. Not to
 * be edited.
 */
#ifndef NEREID_H
#define NEREID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NEREID_VISIBLE __attribute__((visibility(\"default\")))
#else
#define NEREID_VISIBLE
#endif

/** A function that plug-ins define. Seen by the server even where symbols are hidden by default. */
#define NEREID_PLUGIN NEREID_VISIBLE

/* Marks that sources written for Triton carry. */
#define TRITONSERVER_DECLSPEC
";

const END: &str = "
#ifdef __cplusplus
} /* extern \"C\" */
#endif

#endif /* NEREID_H */
";

/// The whole header. `docs` are the documentation texts of the exported functions.
pub(crate) fn text(interfaces: &[Interface], docs: &BTreeMap<String, String>) -> String {
    let mut out = BEGIN.to_owned();
    for prefix in interfaces.iter().map(|interface| &interface.prefix).filter(|it| *it != "TRITONSERVER") {
        line(&mut out, format_args!("#define {prefix}_DECLSPEC"));
        line(&mut out, format_args!("#define {prefix}_ISPEC NEREID_PLUGIN"));
    }
    out.push_str("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for interface in interfaces {
        types(&mut out, interface);
    }
    for interface in interfaces {
        heading(&mut out, &format!("{}: functions of the server", interface.prefix));
        functions(&mut out, interface, Side::Server, docs);
        if interface.functions.iter().any(|function| function.side == Side::Plugin) {
            heading(&mut out, &format!("{}: functions of plug-ins", interface.prefix));
            functions(&mut out, interface, Side::Plugin, docs);
        }
    }
    out.push_str(END);
    out
}

fn types(out: &mut String, interface: &Interface) {
    let prefix = &interface.prefix;
    heading(out, &format!("{prefix}: types"));
    let (major, minor) = interface.version;
    line(out, format_args!("\n#define {prefix}_API_VERSION_MAJOR {major}"));
    line(out, format_args!("#define {prefix}_API_VERSION_MINOR {minor}"));
    for handle in &interface.handles {
        comment(out, &handle.docs);
        line(out, format_args!("typedef struct {0} {0};", handle.name));
    }
    for known in &interface.enums {
        comment(out, &known.docs);
        enumeration(out, known);
    }
    for callback in &interface.callbacks {
        comment(out, &callback.docs);
        let head = format!("typedef {} (*{})(", spaced(&callback.returns), callback.name);
        parameters(out, &head, callback);
    }
}

fn enumeration(out: &mut String, known: &Enum) {
    line(out, format_args!("typedef enum {} {{", known.tag));
    let last = known.constants.len() - 1;
    for (index, (name, number)) in known.constants.iter().enumerate() {
        line(out, format_args!("  {name} = {number}{}", if index == last { "" } else { "," }));
    }
    line(out, format_args!("}} {};", known.name));
}

fn functions(out: &mut String, interface: &Interface, side: Side, docs: &BTreeMap<String, String>) {
    for function in interface.functions.iter().filter(|function| function.side == side) {
        let function = &function.prototype;
        comment(out, docs.get(&function.name).unwrap_or(&function.docs));
        let mark = if side == Side::Plugin { "NEREID_PLUGIN " } else { "" };
        parameters(out, &format!("{mark}{}{}(", attached(&function.returns), function.name), function);
    }
}

/// The parameters between the opening parenthesis and the semicolon.
fn parameters(out: &mut String, head: &str, prototype: &Prototype) {
    let all = prototype.parameters.iter();
    let all: Vec<_> =
        all.map(|parameter| format!("{}{}", attached(&parameter.kind), parameter.name)).collect();
    let one_line = format!("{head}{});", all.join(", "));
    if one_line.len() <= WIDTH {
        line(out, format_args!("{one_line}"));
        return;
    }
    line(out, format_args!("{head}"));
    let mut current = String::from("   ");
    for (index, parameter) in all.iter().enumerate() {
        let close = if index + 1 == all.len() { ");" } else { "," };
        if current.len() + parameter.len() + close.len() + 1 > WIDTH {
            line(out, format_args!("{current}"));
            current = String::from("   ");
        }
        current = format!("{current} {parameter}{close}");
    }
    line(out, format_args!("{current}"));
}

/// `T*` as `T *`, followed by a name.
fn attached(kind: &str) -> String {
    let spaced = spaced(kind);
    if spaced.ends_with('*') { spaced } else { format!("{spaced} ") }
}

fn spaced(kind: &str) -> String {
    let base = kind.trim_end_matches('*');
    let stars = &kind[base.len()..];
    if stars.is_empty() { base.to_owned() } else { format!("{base} {stars}") }
}

fn heading(out: &mut String, text: &str) {
    line(out, format_args!("\n/* ---- {text} {} */", "-".repeat(WIDTH.saturating_sub(text.len() + 12))));
}

/// A comment before a declaration, or an empty line if there is no text.
fn comment(out: &mut String, docs: &str) {
    out.push('\n');
    let docs = plain(docs);
    let words: Vec<&str> = docs.split_whitespace().collect();
    if words.is_empty() {
        return;
    }
    let one_line = format!("/** {} */", words.join(" "));
    if one_line.len() <= WIDTH {
        line(out, format_args!("{one_line}"));
        return;
    }
    out.push_str("/**\n");
    let mut current = String::from(" *");
    for word in words {
        if current.len() + word.len() + 1 > WIDTH {
            line(out, format_args!("{current}"));
            current = String::from(" *");
        }
        current = format!("{current} {word}");
    }
    line(out, format_args!("{current}\n */"));
}

/// The text without the markup of Rust's documentation, and without characters that would end a comment.
fn plain(docs: &str) -> String {
    let mut plain = String::new();
    let mut rest = docs;
    // `[text](place)` is its text.
    while let Some((text, (_, after))) =
        rest.split_once("](").and_then(|(text, link)| Some((text, link.split_once(')')?)))
    {
        plain.push_str(text);
        rest = after;
    }
    plain.push_str(rest);
    plain.replace("`]", "").replace("[`", "").replace('`', "").replace("*/", "* /")
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn a_prototype_gets_the_words_of_its_function_and_is_broken_where_it_is_long() {
        let mut interfaces = Vec::new();
        let long = "server A_Error* A_Do(const char** a_name_that_is_rather_long, uint64_t another_long_name, \
                    bool yet_another_name);";
        table::read(&format!("[a.h]\nversion A 1 2;\nhandle A_Error;\n{long}"), &mut interfaces).unwrap();
        let docs =
            [("A_Do".to_owned(), "Does [`this`], [`that`](super::that). Ends `*/`.".to_owned())].into();
        let text = text(&interfaces, &docs);
        assert!(
            text.contains("\n#define A_API_VERSION_MINOR 2\n\ntypedef struct A_Error A_Error;\n"),
            "{text}"
        );
        assert!(text.contains(
            "\n/** Does this, that. Ends * /. */\nA_Error *A_Do(\n    const char **a_name_that_is_rather_long, \
             uint64_t another_long_name, bool yet_another_name);\n"
        ));
    }
}
