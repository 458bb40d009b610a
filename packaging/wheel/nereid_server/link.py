"""Lets NVIDIA's package `tritonserver` find the library of this package, which it has none of."""

import importlib.util
import os
import pathlib

from . import LIBRARY


def link():
    """Puts a link to the library beside the module of that package. Returns None, or what is wrong."""
    package = importlib.util.find_spec("tritonserver")
    if package is None or not package.submodule_search_locations:
        return "this environment has no package 'tritonserver': pip install tritonserver"
    modules = [module for folder in package.submodule_search_locations for module in pathlib.Path(folder).rglob("triton_bindings*.so")]
    if not modules:
        return f"the package in {package.submodule_search_locations[0]} has no module: this version of Python or Linux has an empty one"
    for module in modules:
        place = module.with_name("libtritonserver.so")
        if place.is_symlink() or not place.exists():
            new = place.with_name(f".{place.name}-{os.getpid()}")
            new.symlink_to(LIBRARY)
            new.replace(place)
        else:
            return f"{place} is there and is no link"
        print(f"{place} -> {LIBRARY}")
    return None
