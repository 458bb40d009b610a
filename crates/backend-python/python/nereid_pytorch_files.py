"""The files of a network of PyTorch: which file of a version it is, and what the file has.

The content of an archive tells its kind, because the same name means different things: `model.pt` may be TorchScript, or the
weights of the class in `model.py`.
"""

import enum
import os
import zipfile

from nereid_host import TritonModelException

# As Triton: src/model.py of the backend for PyTorch. Triton has no `model.pt2` there.
_USUAL_NAMES = ("model.py", "model.pt", "model.pt2")

# PyTorch stores weights as they are, and compresses texts only.
_MOST_EXPANSION = 100

# The first byte of a pickle, which was the form of weights before PyTorch 1.6.
_PICKLE = b"\x80"


class FileKind(enum.Enum):
    """What a file has. The values are the words of errors."""

    TORCH_SCRIPT = "TorchScript"
    EXPORTED = "an exported program"
    COMPILED = "a package of AOTInductor"
    SOURCE = "a class in Python"
    WEIGHTS = "weights"


def find(directory, named):
    """The path and the kind of the network in a version's directory. `named` is `default_model_filename`, or empty."""
    weights = None
    names = dict.fromkeys(name for name in (named, *_USUAL_NAMES) if name)
    for name in names:
        path = os.path.join(directory, name)
        if not os.path.isfile(path):
            continue
        kind = kind_of(path)
        if kind != FileKind.WEIGHTS:
            return path, kind
        weights = path
    if weights is not None:
        raise TritonModelException(
            f"'{weights}' has weights without a network: put a model.py with the class beside it, or save the network by "
            "torch.jit.save or torch.export.save"
        )
    raise TritonModelException(f"unable to find '{os.path.join(directory, next(iter(names)))}'")


def weights_beside(source):
    """The path of the weights of a class in `source`, or None."""
    path = f"{os.path.splitext(source)[0]}.pt"
    return path if os.path.isfile(path) else None


def kind_of(path):
    """What a file has. Raises TritonModelException for what is none of the kinds, is cut off, or would fill the memory."""
    if path.endswith(".py"):
        return FileKind.SOURCE
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        with open(path, "rb") as file:
            if file.read(1) == _PICKLE:
                return FileKind.WEIGHTS
        raise TritonModelException(f"'{path}' is no archive of PyTorch, or its end is missing") from None
    _check_sizes(path, members)
    # All members are in one folder, whose name tells nothing. Exported programs of old versions have no folder.
    names = {name for member in members for name in (member.filename, member.filename.partition("/")[2])}
    if "constants.pkl" in names:
        return FileKind.TORCH_SCRIPT
    if any(name.startswith("data/aotinductor/") for name in names):
        return FileKind.COMPILED
    if "serialized_exported_program.json" in names or any(name.startswith("models/") for name in names):
        return FileKind.EXPORTED
    if "data.pkl" in names:
        return FileKind.WEIGHTS
    raise TritonModelException(
        f"'{path}' is an archive, but has neither TorchScript nor an exported program, a package of AOTInductor or weights"
    )


def _check_sizes(path, members):
    size = os.path.getsize(path)
    stored = sum(member.compress_size for member in members)
    if stored > size:
        raise TritonModelException(
            f"the members of the archive '{path}' have {stored} bytes, more than the {size} bytes of the file: they overlap"
        )
    expanded = sum(member.file_size for member in members)
    if expanded > _MOST_EXPANSION * size:
        raise TritonModelException(
            f"the archive '{path}' has {size} bytes and expands to {expanded}, more than {_MOST_EXPANSION} times as many"
        )
