# Compiles the files whose names come from stdin, without running them, and tells their classes and methods.
import ast
import json
import sys
import warnings

CLASS = "TritonPythonModel"
# Names and attributes by which code makes names while it runs.
MAKERS = {
    "exec", "eval", "globals", "locals", "setattr", "vars", "modules", "import_module", "__import__",
    "__dict__", "__getattr__", "__getattribute__", "__setattr__", "__new__", "__class__",
}  # fmt: skip


def names_of(tree):
    """All names that the code may bind in some scope, and the attributes that it sets."""
    names, attributes = [], []
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.extend(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            attributes.append(node.attr)
        else:
            # Exception handlers and patterns.
            found = [getattr(node, "name", None), getattr(node, "rest", None)]
            names.extend(name for name in found if isinstance(name, str))
    return names, attributes


def is_dynamic(node):
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    if isinstance(node, ast.Name):
        return node.id in MAKERS
    if isinstance(node, ast.Attribute):
        return node.attr in MAKERS
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in MAKERS


def bounds_of(function, bound):
    """The smallest and the largest number of arguments, without those that Python adds; None if they are not known."""
    decorators = [node.id if isinstance(node, ast.Name) else None for node in function.decorator_list]
    if decorators not in ([], ["staticmethod"], ["classmethod"]):
        return None
    arguments = function.args
    positional = len(getattr(arguments, "posonlyargs", [])) + len(arguments.args)
    # A keyword without a default cannot be given.
    least = positional - len(arguments.defaults)
    if any(default is None for default in arguments.kw_defaults):
        least = 1 << 16
    most = 1 << 16 if arguments.vararg else positional
    added = decorators == ["classmethod"] or (bound and decorators == [])
    # Only the method of an instance and that of a class get an argument from Python.
    return [least - added, most - added]


def class_of(tree):
    """What the class of the model has, if it is defined once and in the module itself."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == CLASS]
    if len(classes) != 1 or classes[0] not in tree.body:
        return {}
    (model,) = classes
    functions = [node for node in model.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    body = ast.Module(body=model.body, type_ignores=[])
    return {
        "line": model.lineno,
        "derived": bool(model.bases or model.keywords or model.decorator_list),
        "methods": [
            {
                "name": function.name,
                "line": function.lineno,
                "column": function.col_offset + 1,
                "arguments": bounds_of(function, function.name != "auto_complete_config"),
            }
            for function in functions
        ],
        "members": names_of(body)[0],
    }


def imports_of(tree):
    """The modules that running the file surely imports, each with its line. Empty if the file changes where they are found."""
    changes_places = ("sys", "path"), ("sys", "modules"), ("sys", "meta_path"), ("sys", "path_hooks")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in changes_places:
                return []
    found = []
    # What stands in a condition, or where its error is handled, may be missing.
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.extend((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.module.split(".")[0], node.lineno))
    return found


def told_of(source):
    tree = ast.parse(source)
    compile(source, "model.py", "exec", dont_inherit=True)
    names, attributes = names_of(tree)
    dynamic = any(is_dynamic(node) for node in ast.walk(tree))
    return {"names": names, "attributes": attributes, "dynamic": dynamic, "imports": imports_of(tree), **class_of(tree)}


warnings.simplefilter("ignore")
told = []
for name in sys.stdin.buffer.read().split(b"\0"):
    if not name:
        continue
    try:
        with open(name, "rb") as file:
            one = told_of(file.read())
    except SyntaxError as error:
        one = {"error": error.msg, "at": [error.lineno, error.offset]}
    except (ValueError, OSError, RecursionError, MemoryError) as error:
        one = {"error": str(error) or type(error).__name__, "at": [None, None]}
    told.append(one)
json.dump(told, sys.stdout)
