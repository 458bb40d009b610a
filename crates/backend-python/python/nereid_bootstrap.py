"""The program of a worker: it reads the modules of the server from its standard input, which is a socket, and runs them."""

import _frozen_importlib
import _socket
import marshal
import os
import struct
import sys


class _Modules:
    """Imports the modules that the server has sent."""

    def __init__(self, sources):
        self._sources = dict(sources)

    def find_spec(self, name, path=None, target=None):
        if name not in self._sources:
            return None
        return _frozen_importlib.ModuleSpec(name, self, origin=f"<nereid>/{name}.py")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        module.__file__ = f"<nereid>/{name}.py"
        exec(compile(self._sources[name], module.__file__, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name):
        return self._sources[name]


def _receive(socket, count):
    frame = bytearray(count)
    rest = memoryview(frame)
    while rest:
        received = socket.recv_into(rest)
        if received == 0:
            os._exit(1)
        rest = rest[received:]
    return frame


def _start():
    socket = _socket.socket(fileno=os.dup(0))
    # What a model starts must not read from the socket.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _, ancillary, _, _ = socket.recvmsg(1, _socket.CMSG_SPACE(12))
    descriptors = struct.unpack("3i", ancillary[0][2][:12])
    length = int.from_bytes(_receive(socket, 4), "little")
    frame = _receive(socket, length)
    _, modules, facts = marshal.loads(memoryview(frame)[4:])
    # As in Triton: what models use that read a command line (unittest, argparse) finds none.
    sys.argv[:] = [""]
    # The server's directory is no place for modules.
    sys.path[:] = [place for place in sys.path if place]
    sys.meta_path.insert(0, _Modules(modules))
    import nereid_worker

    nereid_worker.run(socket, descriptors, facts)


_start()
