"""Where this package has put the server and its libraries."""

import pathlib
import sysconfig

# The server. `pip` puts it beside the interpreter.
BINARY = pathlib.Path(sysconfig.get_path("scripts")) / "nereid"
# Triton's in-process C interface, and its header.
LIBRARY = pathlib.Path(sysconfig.get_path("data")) / "lib" / "libtritonserver.so"
HEADER = pathlib.Path(sysconfig.get_path("data")) / "include" / "nereid.h"
