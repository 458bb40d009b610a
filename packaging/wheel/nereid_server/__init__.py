"""The server and its libraries: where this package has put them, and a server as an object (`Server`)."""

from __future__ import annotations

import pathlib
import sysconfig
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .process import ServerError as ServerError
    from .server import Server as Server

# The server. `pip` puts it beside the interpreter.
BINARY = pathlib.Path(sysconfig.get_path("scripts")) / "nereid"
# Triton's in-process C interface, and its header.
LIBRARY = pathlib.Path(sysconfig.get_path("data")) / "lib" / "libtritonserver.so"
HEADER = pathlib.Path(sysconfig.get_path("data")) / "include" / "nereid.h"


def __getattr__(name: str) -> Any:
    # The programs of this package start without NumPy.
    if name in ("Server", "ServerError"):
        from . import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
