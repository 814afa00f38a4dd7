"""A `tarkit` for shells that starts at once: the process that tests makes a copy of itself, with tarkit loaded.

A small client hands over its words, folder, environment and descriptors, and ends as the copy has ended. The files and
pipes are the very same; what is not is who is whose child, limits, and whom a signal reaches.
"""

from __future__ import annotations

import marshal
import os
import shlex
import socket
import sys
import threading
from pathlib import Path

from _tools import process

CLIENT = """
import _socket, marshal, os, sys
found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
found.connect(PLACE)
fds = []
for fd in range(256):
    try:
        os.fstat(fd)
    except OSError:
        continue
    if fd != found.fileno():
        fds.append(fd)
data = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ), fds))
rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
found.sendmsg([len(data).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
while data:
    data = data[found.send(data):]
for fd in fds:
    if fd != 2:
        os.close(fd)
status = int(found.recv(16) or 255)
if status < 0:
    import _signal
    if status != -9:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class Server:
    """Answers the `tarkit` that it puts into a folder, until it is closed."""

    def __init__(self, folder: Path) -> None:
        place = str(folder / "place")
        (folder / "client.py").write_text(CLIENT.replace("PLACE", repr(place)))
        (folder / "tarkit").write_text(
            f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", str(folder / "client.py")])} "$@"\n'
        )
        (folder / "tarkit").chmod(0o755)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(place)
        self.socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _accept(self) -> None:
        while True:
            try:
                asked, _ = self.socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: socket.socket) -> None:
        with asked:
            length, ours, _, _ = socket.recv_fds(asked, 8, 256)
            try:
                with asked.makefile("rb") as file:
                    words, folder, environment, theirs = marshal.loads(file.read(int.from_bytes(length, "little")))

                def first() -> None:
                    os.chdir(folder)
                    os.environ.clear()
                    os.environ.update(environment)

                started = process(*words, first=first, fds=dict(zip(theirs, ours, strict=True)))
            finally:
                for fd in ours:
                    os.close(fd)
            asked.sendall(b"%d" % started.wait())
