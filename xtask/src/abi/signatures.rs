//! Checks that the exported Rust functions have the parameters and results that C expects.

use std::collections::{BTreeMap, BTreeSet};

use super::exports::{Export, FunctionSignature, Type};
use super::table::{Interface, Prototype, Side};

/// The machine type of a value, and what a pointer points to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Class {
    Nothing,
    Bool,
    /// Characters, and bytes read as such.
    Char,
    Signed32,
    Signed64,
    Unsigned32,
    Unsigned64,
    Size,
    Double,
    /// A C enumeration: 32 bits.
    Enum,
    /// Behind a pointer: a handle.
    Opaque,
    Pointer(Box<Class>),
}

/// The maximum number of lines of an exported function: it checks, borrows, calls and maps the error. Other code
/// belongs into the function it calls.
const WRAPPER_LINES: usize = 10;

/// Exported functions that break the tables or the rules, one line each.
pub(crate) fn broken(interfaces: &[Interface], exports: &[Export]) -> Vec<String> {
    let functions = interfaces.iter().flat_map(|interface| &interface.functions);
    let functions: BTreeMap<_, _> =
        functions.map(|function| (function.prototype.name.as_str(), function)).collect();
    let types = Types::of(interfaces);
    let mut broken = Vec::new();
    for export in exports {
        match functions.get(export.name.as_str()) {
            None => broken.push(format!("{} is in no table of the C interfaces", export.name)),
            Some(function) if function.side == Side::Plugin => {
                broken.push(format!("{} is for plug-ins to define, not for us", export.name));
            }
            Some(_) if export.lines > WRAPPER_LINES => {
                let lines = export.lines;
                broken.push(format!("{}: {lines} lines, more than {WRAPPER_LINES}", export.name));
            }
            Some(function) => {
                let differences = types.differences(&function.prototype, &export.signature).into_iter();
                broken.extend(differences.map(|difference| format!("{}: {difference}", export.name)));
            }
        }
    }
    broken
}

/// The types of the C interfaces.
struct Types<'a> {
    enums: BTreeSet<&'a str>,
    callbacks: BTreeMap<&'a str, &'a Prototype>,
}

impl<'a> Types<'a> {
    fn of(interfaces: &'a [Interface]) -> Types<'a> {
        let enums = interfaces.iter().flat_map(|interface| &interface.enums);
        let callbacks = interfaces.iter().flat_map(|interface| &interface.callbacks);
        Types {
            enums: enums.map(|known| known.name.as_str()).collect(),
            callbacks: callbacks.map(|known| (known.name.as_str(), known)).collect(),
        }
    }

    fn differences(&self, function: &Prototype, rust: &FunctionSignature) -> Vec<String> {
        let (expected, found) = (function.parameters.len(), rust.parameters.len());
        if expected != found {
            return vec![format!("takes {found} parameters instead of {expected}")];
        }
        let pairs = function.parameters.iter().zip(&rust.parameters);
        let mut differences: Vec<_> = pairs
            .flat_map(|(expected, found)| self.difference(&expected.name, &expected.kind, found))
            .collect();
        differences.extend(self.difference("what it gives", &function.returns, &rust.returns));
        differences
    }

    /// The difference between the type of `what` and the one in C.
    fn difference(&self, what: &str, expected: &str, found: &Type) -> Vec<String> {
        match (self.callbacks.get(expected), found) {
            (Some(callback), Type::Function(rust)) => {
                let within = self.differences(callback, rust).into_iter();
                within.map(|difference| format!("{what}: {difference}")).collect()
            }
            (None, Type::Plain(plain))
                if of_rust(plain).is_some_and(|found| agree(&self.of_c(expected), &found)) =>
            {
                Vec::new()
            }
            (_, Type::Plain(plain)) => vec![format!("{what} is `{plain}`, in C `{expected}`")],
            (None, Type::Function(_)) => vec![format!("{what} is a function, in C `{expected}`")],
        }
    }

    fn of_c(&self, kind: &str) -> Class {
        let kind = kind.trim();
        if let Some(pointee) = kind.strip_suffix('*') {
            return Class::Pointer(Box::new(self.of_c(pointee)));
        }
        let name = kind.strip_prefix("const ").unwrap_or(kind);
        match name {
            "void" => Class::Nothing,
            "bool" => Class::Bool,
            "char" => Class::Char,
            "int" | "int32_t" => Class::Signed32,
            "int64_t" => Class::Signed64,
            "unsigned int" | "uint32_t" => Class::Unsigned32,
            "uint64_t" => Class::Unsigned64,
            "size_t" => Class::Size,
            "double" => Class::Double,
            _ if self.enums.contains(name) => Class::Enum,
            _ => Class::Opaque,
        }
    }
}

/// `None` for a type that must not pass by value between C and Rust.
fn of_rust(kind: &str) -> Option<Class> {
    if let Some(pointee) = kind.strip_prefix("*mut ").or_else(|| kind.strip_prefix("*const ")) {
        return Some(Class::Pointer(Box::new(of_rust(pointee).unwrap_or(Class::Opaque))));
    }
    match kind {
        "" => Some(Class::Nothing),
        "bool" => Some(Class::Bool),
        "c_char" | "u8" | "i8" => Some(Class::Char),
        "c_int" | "i32" => Some(Class::Signed32),
        "i64" => Some(Class::Signed64),
        "c_uint" | "u32" => Some(Class::Unsigned32),
        "u64" => Some(Class::Unsigned64),
        "usize" => Some(Class::Size),
        "f64" | "c_double" => Some(Class::Double),
        _ => None,
    }
}

fn agree(expected: &Class, found: &Class) -> bool {
    match (expected, found) {
        (Class::Enum, Class::Unsigned32 | Class::Signed32) => true,
        (Class::Pointer(expected), Class::Pointer(found)) => match (&**expected, &**found) {
            // `void*` may be any type but a pointer. A handle has another name in Rust.
            (Class::Nothing | Class::Opaque, found) => !matches!(found, Class::Pointer(_)),
            (expected, found) => agree(expected, found),
        },
        (expected, found) => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    const TABLE: &str = "[a.h]
        enum a_kind A_Kind { A_X = 0 };
        callback void A_Call(void* userp);
        server A_Error* A_Do(A_Thing** thing, A_Kind* kind, const void* bytes, size_t n, A_Call call);
        plugin A_Error* A_Entry(A_Thing* thing);";

    fn plain(kind: &str) -> Type {
        Type::Plain(kind.to_owned())
    }

    fn export(name: &str, parameters: Vec<Type>) -> Export {
        let signature = FunctionSignature { parameters, returns: plain("*mut CError") };
        Export { name: name.to_owned(), docs: String::new(), signature, lines: 1 }
    }

    fn call(parameter: &str) -> Type {
        Type::Function(Box::new(FunctionSignature { parameters: vec![plain(parameter)], returns: plain("") }))
    }

    fn broken_by(export: Export) -> Vec<String> {
        let mut interfaces = Vec::new();
        table::read(TABLE, &mut interfaces).unwrap();
        broken(&interfaces, &[export])
    }

    #[test]
    fn a_function_that_takes_what_c_passes_is_fine() {
        let good = ["*mut *mut Thing", "*mut u32", "*const u8", "usize"].map(plain);
        let good = good.into_iter().chain([call("*mut c_void")]).collect();
        assert_eq!(broken_by(export("A_Do", good)), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_named() {
        let bad = ["*mut Thing", "*mut u64", "*const u8", "u32"].map(plain);
        let bad = bad.into_iter().chain([call("u32")]).collect();
        assert_eq!(
            broken_by(export("A_Do", bad)),
            [
                "A_Do: thing is `*mut Thing`, in C `A_Thing**`",
                "A_Do: kind is `*mut u64`, in C `A_Kind*`",
                "A_Do: n is `u32`, in C `size_t`",
                "A_Do: call: userp is `u32`, in C `void*`",
            ]
        );
        assert_eq!(broken_by(export("A_Do", vec![])), ["A_Do: takes 0 parameters instead of 5"]);
    }

    #[test]
    fn an_exported_function_with_too_many_lines_is_named() {
        let long = Export { lines: WRAPPER_LINES + 1, ..export("A_Do", vec![]) };
        assert_eq!(broken_by(long), ["A_Do: 11 lines, more than 10"]);
    }

    #[test]
    fn what_plug_ins_define_and_what_nobody_knows_is_named() {
        assert_eq!(
            broken_by(export("A_Entry", vec![plain("*mut Thing")])),
            ["A_Entry is for plug-ins to define, not for us"]
        );
        assert_eq!(broken_by(export("A_New", vec![])), ["A_New is in no table of the C interfaces"]);
    }
}
