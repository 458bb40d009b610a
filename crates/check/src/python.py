# Compiles the files whose names come from stdin, without running them, and tells their classes and methods.
import ast
import json
import sys
import warnings

warnings.simplefilter("ignore")
told = []
for name in sys.stdin.buffer.read().split(b"\0"):
    if not name:
        continue
    one = {}
    try:
        with open(name, "rb") as file:
            source = file.read()
        tree = ast.parse(source)
        compile(source, "model.py", "exec", dont_inherit=True)
        # Code that makes names while it runs may make the class, too.
        one["dynamic"] = any(
            isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
            or isinstance(node, ast.Name) and node.id in ("exec", "globals", "setattr", "vars", "__getattr__")
            for node in ast.walk(tree)
        )
        names = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names.append(node.name)
                if node.name == "TritonPythonModel":
                    functions = [f for f in node.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))]
                    one["line"] = node.lineno
                    one["derived"] = bool(node.bases or node.keywords or node.decorator_list)
                    one["methods"] = [[f.name, f.lineno, f.col_offset + 1] for f in functions]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.extend(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
        one["names"] = names
    except SyntaxError as error:
        one = {"error": error.msg, "at": [error.lineno, error.offset]}
    except (ValueError, OSError, RecursionError, MemoryError) as error:
        one = {"error": str(error) or type(error).__name__, "at": [None, None]}
    told.append(one)
json.dump(told, sys.stdout)
