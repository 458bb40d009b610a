"""PyTorch, which no package of this server brings: the interpreter of the model must have it."""

import sys

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"the model needs the package torch: install it by '{sys.executable} -m pip install torch'") from None

__all__ = ["torch"]
