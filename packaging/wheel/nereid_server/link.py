"""Lets packages of NVIDIA use what this package has: `tritonserver` its library, and `nvidia-pytriton` its program."""

import importlib.util
import os
import pathlib
import shlex

from . import BINARY, LIBRARY

# PyTriton makes models of the backend `python` of Triton, which it copies beside the server.
WRAPPER = "#!/bin/sh\nexec {program} \"$@\" --backend-config=python,implementation=built-in\n"


def link(package):
    """Links what the package of that name needs. Returns None, or what is wrong."""
    return {"tritonserver": tritonserver, "pytriton": pytriton}[package]()


def tritonserver():
    """Puts a link to the library beside the module of NVIDIA's package, which has no library. As `link`."""
    folders = folders_of("tritonserver")
    if not folders:
        return "this environment has no package 'tritonserver': pip install tritonserver"
    modules = [module for folder in folders for module in folder.rglob("triton_bindings*.so")]
    if not modules:
        return f"the package in {folders[0]} has no module: this version of Python or Linux has an empty one"
    for module in modules:
        place = module.with_name("libtritonserver.so")
        if place.exists() and not place.is_symlink():
            return f"{place} is there and is no link"
        replace(place, lambda new: new.symlink_to(LIBRARY))
        print(f"{place} -> {LIBRARY}")
    return None


def pytriton(program=BINARY):
    """Replaces the server in PyTriton by a script that runs that of this package. As `link`."""
    folders = folders_of("pytriton")
    places = [folder / "tritonserver/bin/tritonserver" for folder in folders]
    if not places or not places[0].exists():
        return "this environment has no package 'nvidia-pytriton': pip install nvidia-pytriton"

    def write(new):
        new.write_text(WRAPPER.format(program=shlex.quote(str(program))))
        new.chmod(0o755)

    replace(places[0], write)
    print(f"{places[0]} runs {program}")
    return None


def folders_of(package):
    found = importlib.util.find_spec(package)
    return [pathlib.Path(folder) for folder in (found and found.submodule_search_locations) or []]


def replace(place, make):
    """Makes a file beside a place and moves it there, so that nobody finds half of it."""
    new = place.with_name(f".{place.name}-{os.getpid()}")
    make(new)
    new.replace(place)
