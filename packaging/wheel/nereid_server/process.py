"""What starts the program of a server: for `Server`, and for replicas of Ray Serve."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess


class ServerError(Exception):
    """The server has refused a request, has not started, or has ended. `status` is that of HTTP, if there is one."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class NotifySocket:
    """Where a server tells that it is ready: a socket in a folder, until the end of the `with` block."""

    def __init__(self, folder: str | os.PathLike[str]):
        self._path = str(pathlib.Path(folder) / "notify")

    def __enter__(self) -> NotifySocket:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._socket.settimeout(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def variables(self) -> dict[str, str]:
        """What the server must have in its environment."""
        return {"NOTIFY_SOCKET": self._path}

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the server is ready. Otherwise it has ended. An exception, such as that of Ctrl-C, ends it, too."""
        try:
            while process.poll() is None:
                try:
                    if b"READY=1" in self._socket.recv(4096):
                        return True
                except socket.timeout:
                    pass
        except BaseException:
            process.kill()
            process.wait()
            raise
        return False


def has_ended(status: int | None, log: str) -> str:
    """How a server ended: its status, and the end of its log."""
    return f"the server has ended with status {status}:\n{log[-2000:]}"
