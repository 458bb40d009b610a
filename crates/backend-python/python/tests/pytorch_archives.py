"""Writes archives that the stand-in for PyTorch reads."""

import zipfile


def write(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def script(path, source):
    """A network as TorchScript: `source` has its function `forward`."""
    return write(path, {"network/constants.pkl": "()", "network/code/network.py": source})


def weights(path, weight):
    return write(path, {"weights/data.pkl": str(weight)})
