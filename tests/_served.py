"""A `tarkit` for shells that starts at once: the test process forks itself, with tarkit loaded.

A small client sends its descriptors, arguments, directory and environment, and ends with the status of the fork. The
files and pipes are the same; parent processes, limits and the targets of signals are not. The client is in C, since
Python takes longer to start than most commands of the tests; without a compiler each `tarkit` is a new process. The
first argument of the client is the socket of the test process, so that it is compiled once.
"""

from __future__ import annotations

import array
import functools
import os
import shlex
import shutil
import socket
import subprocess
import threading
from pathlib import Path

from tests._tools import TARKIT, process

CLIENT = rb"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    int fds[MOST], count = 0, status = 255;
    for (int fd = 0; fd < MOST; fd++)
        if (fcntl(fd, F_GETFD) >= 0) fds[count++] = fd;
    for (int fd = count; fd < MOST; fd++) fds[fd] = -1;

    struct sockaddr_un place = {AF_UNIX};
    strncpy(place.sun_path, argv[1], sizeof place.sun_path - 1);
    int found = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(found, (struct sockaddr *)&place, sizeof place)) return 255;
    union { char room[CMSG_SPACE(sizeof fds)]; struct cmsghdr aligned; } rights = {{0}};
    struct iovec data = {fds, sizeof fds};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (count) {
        message.msg_control = rights.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(head), fds, count * sizeof *fds);
    }
    if (sendmsg(found, &message, 0) < 0) return 255;

    FILE *rest = fdopen(found, "r+");
    char *folder = getcwd(NULL, 0);
    fwrite(folder, 1, strlen(folder) + 1, rest);
    for (char **each = environ; *each; each++) fwrite(*each, 1, strlen(*each) + 1, rest);
    putc(0, rest);
    for (char **each = argv + 2; *each; each++) fwrite(*each, 1, strlen(*each) + 1, rest);
    fflush(rest);
    shutdown(found, SHUT_WR);
    for (int each = 0; each < count; each++)
        if (fds[each] != 2) close(fds[each]);
    if (fscanf(rest, "%d", &status) != 1) return 255;
    if (status < 0) {
        signal(-status, SIG_DFL);
        kill(getpid(), -status);
    }
    _exit(status);
}
"""
CLIENT_IN = "TARKIT_TESTS_CLIENT"  # in the environment: the path of a client
MOST = 200  # maximum number of descriptors that are sent; the system takes 253 at a time


@functools.cache
def client(base: Path) -> str:
    """Return the path of the client that the environment names, or is compiled into `base`; "" without a compiler."""
    if CLIENT_IN in os.environ:
        return os.environ[CLIENT_IN]
    if not (compiler := shutil.which("cc")):
        return ""
    path = str(base / "client")
    subprocess.run([compiler, f"-DMOST={MOST}", "-xc", "-", "-o", path], input=CLIENT, check=True)
    return path


@functools.cache
def served(base: Path) -> Path:
    """Return a directory in `base` with such a `tarkit`, which works as long as this process lives."""
    directory = base / "served"
    directory.mkdir()
    words: tuple[str, ...] = TARKIT
    if path := client(base):
        place = str(directory / "place")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(place)
        listening.listen(64)
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
        words = path, place
    (directory / "tarkit").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (directory / "tarkit").chmod(0o755)
    return directory


def _accept(listening: socket.socket) -> None:
    while True:
        asked, _ = listening.accept()
        threading.Thread(target=_answer, args=(asked,), daemon=True).start()


def _answer(asked: socket.socket) -> None:
    with asked:
        numbers, ours, _, _ = socket.recv_fds(asked, 4 * MOST, MOST)
        try:
            with asked.makefile("rb") as file:
                head, _, words = file.read().partition(b"\0\0")
            directory, *environment = head.split(b"\0")

            def first() -> None:
                os.chdir(directory)
                os.environ.clear()
                os.environb.update(each.split(b"=", 1) for each in environment)

            theirs = array.array("i", numbers)[: len(ours)]
            started = process(
                *map(os.fsdecode, words.split(b"\0")[:-1]), first=first, fds=dict(zip(theirs, ours, strict=True))
            )
        finally:
            for fd in ours:
                os.close(fd)
        asked.sendall(b"%d" % started.wait())
