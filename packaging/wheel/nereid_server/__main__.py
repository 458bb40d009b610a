"""`python -m nereid_server` is the server."""

import os
import sys

from . import BINARY

os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
