"""A program that embeds the server: the first argument is the library, the second the URL of a repository.

It registers the repository at run time, with another name for the model `a`, loads that, and writes what happens.
"""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
for name in ("TRITONSERVER_ErrorMessage", "TRITONSERVER_ParameterNew"):
    getattr(library, name).restype = ctypes.c_void_p
EXPLICIT = 2
STRING = 0


def call(name, *arguments):
    """The text of the error, or nothing."""
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    error = function(*arguments)
    if not error:
        return ""
    return ctypes.string_at(library.TRITONSERVER_ErrorMessage(ctypes.c_void_p(error))).decode()


def tell(*words):
    print(*words, flush=True)


url = sys.argv[2].encode()
options, server = ctypes.c_void_p(), ctypes.c_void_p()
call("TRITONSERVER_ServerOptionsNew", ctypes.byref(options))
call("TRITONSERVER_ServerOptionsSetModelRepositoryPath", options, url)
call("TRITONSERVER_ServerOptionsSetModelControlMode", options, EXPLICIT)
call("TRITONSERVER_ServerOptionsSetStartupModel", options, b"b")
tell("new", call("TRITONSERVER_ServerNew", ctypes.byref(server), options))
tell("again", call("TRITONSERVER_ServerRegisterModelRepository", server, url + b"/", None, 0))
tell("unregister", call("TRITONSERVER_ServerUnregisterModelRepository", server, url))
parameter = library.TRITONSERVER_ParameterNew(b"a", STRING, ctypes.c_char_p(b"other"))
mapping = (ctypes.c_void_p * 1)(parameter)
tell("missing", call("TRITONSERVER_ServerRegisterModelRepository", server, url + b"/missing", None, 0))
tell("register", call("TRITONSERVER_ServerRegisterModelRepository", server, url, mapping, 1))
tell("load", call("TRITONSERVER_ServerLoadModel", server, b"other"))
for model in (b"other", b"b"):
    ready = ctypes.c_bool()
    call("TRITONSERVER_ServerModelIsReady", server, model, ctypes.c_int64(-1), ctypes.byref(ready))
    tell(model.decode(), ready.value)
tell("delete", call("TRITONSERVER_ServerDelete", server))
