"""`python -m nereid_server` is the server. With the word `link` it is for packages of NVIDIA: link.py."""

import os
import sys

from . import BINARY

if sys.argv[1:] in (["link"], ["link", "pytriton"]):
    from .link import link

    sys.exit(link(*sys.argv[2:] or ["tritonserver"]))
os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
