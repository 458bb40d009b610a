"""Regions of shared memory as clients make them, with the unmodified module of the client library."""

import contextlib
import itertools
import os
from multiprocessing import resource_tracker

import numpy as np
import tritonclient.utils.shared_memory as shm
from protocols import GRPC, numpy_datatype
from tritonclient.utils import serialize_byte_tensor

ALLOWED = "--allow-client-shm=true"
PAGE = 4096

_numbers = itertools.count()

# The client library has a process of Python's that removes the regions of a process that was killed. It ends with this one.
resource_tracker.ensure_running()


class Region:
    """An object of shared memory and the name under which it is registered. As a context, both are removed at the end."""

    def __init__(self, byte_size, name=None):
        self.name = name or f"region_{next(_numbers)}"
        self.key = f"/nereid_{os.getpid()}_{next(_numbers)}"
        self.byte_size = byte_size
        self.handle = shm.create_shared_memory_region(self.name, self.key, byte_size)
        self.path = f"/dev/shm{self.key}"
        self._clients = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self._clients:
            with contextlib.suppress(Exception):
                client.unregister_system_shared_memory(self.name)
        # A test may have unlinked the object.
        with contextlib.suppress(FileNotFoundError):
            shm.destroy_shared_memory_region(self.handle)

    def register(self, client, byte_size=None, offset=0):
        client.register_system_shared_memory(self.name, self.key, self.byte_size if byte_size is None else byte_size, offset)
        self._clients.append(client)
        return self

    def write(self, array, offset=0):
        array = serialize_byte_tensor(array) if array.dtype == np.object_ else array
        shm.set_shared_memory_region(self.handle, [array], offset)
        return self

    def read(self, datatype, shape, offset=0):
        return shm.get_contents_as_numpy(self.handle, datatype, shape, offset).copy()

    def truncate(self, byte_size):
        os.truncate(self.path, byte_size)

    def input(self, protocol, name, array, offset=0, datatype=None, byte_size=None):
        """An input whose bytes are written to the region."""
        array = np.asarray(array)
        if array.size:
            self.write(array, offset)
        datatype = datatype or numpy_datatype(array)
        if byte_size is None:
            byte_size = serialized_size(array)
        return self.place(protocol, name, list(array.shape), datatype, byte_size, offset)

    def place(self, protocol, name, shape, datatype, byte_size, offset=0):
        """An input in the region, whatever is there."""
        tensor = protocol.library.InferInput(name, shape, datatype)
        tensor.set_shared_memory(self.name, byte_size, offset)
        return tensor

    def output(self, protocol, name, byte_size=None, offset=0):
        options = {} if protocol is GRPC else {"binary_data": False}
        output = protocol.library.InferRequestedOutput(name, **options)
        output.set_shared_memory(self.name, self.byte_size - offset if byte_size is None else byte_size, offset)
        return output


def serialized_size(array):
    if array.dtype == np.object_:
        return sum(4 + len(element) for element in array.ravel())
    return array.nbytes


def output_shape(result, name):
    """The shape of an output whose elements are not in the response."""
    output = result.get_output(name)
    if isinstance(output, dict):
        assert not {"data", "parameters"} & output.keys()
        return output["shape"]
    assert not output.parameters
    # Every output has raw contents, which are empty.
    place = [other.name for other in result.get_response().outputs].index(name)
    assert result.get_response().raw_output_contents[place] == b""
    return list(output.shape)


def registered(protocol, client):
    """The status of all regions by name: key, offset, and length."""
    status = protocol.json(client.get_system_shared_memory_status)
    if protocol is GRPC:
        status = status.get("regions", {}).values()
    return {str(row["name"]): (row["key"], row.get("offset", 0), row["byte_size"]) for row in status}
