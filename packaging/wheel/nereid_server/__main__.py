"""`python -m nereid_server` is the server. `python -m nereid_server link` is for NVIDIA's package `tritonserver`."""

import os
import sys

from . import BINARY

if sys.argv[1:] == ["link"]:
    from .link import link

    sys.exit(link())
os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
