# Imports NumPy as a worker does, and tells the error, if there is one.
import sys

sys.path[:] = [place for place in sys.path if place]
try:
    import numpy  # noqa: F401
except BaseException as error:
    sys.stdout.write(f"{type(error).__name__}: {error} (interpreter {sys.executable})")
