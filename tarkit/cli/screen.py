"""The terminal on stdout: its size, its colours, and its protocol for pictures."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tarkit.cli.color import wanted_colors

if TYPE_CHECKING:
    from tarkit.display.terminal import Cell, Colors, Graphics

PATIENCE = 0.3  # seconds to wait for the answer of a terminal
_LONGEST = 256  # maximum length of the answer in bytes


@dataclass(frozen=True)
class Screen:
    """The properties of stdout: whether it is a `terminal`, its `width` in columns, and its colours."""

    terminal: bool
    width: int
    colors: Colors


def screen() -> Screen:
    """Return the properties of stdout."""
    terminal, width = os.isatty(1), 100
    if terminal or "COLUMNS" in os.environ:
        from shutil import get_terminal_size

        width = get_terminal_size().columns
    return Screen(terminal, max(40, width), colors(os.environ))


def colors(env: Mapping[str, str]) -> Colors:
    """Return the colours that a terminal with this environment supports."""
    term = env.get("TERM", "")
    if wanted_colors(env) is False:
        return "none"
    direct = env.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct") or "kitty" in term
    return "truecolor" if direct else "256"


def how_to_draw(env: Mapping[str, str]) -> Graphics:
    """Return the protocol for pictures of a terminal with this environment; sixel support is queried."""
    if env.get("TMUX") or env.get("STY"):  # tmux and screen drop unknown sequences
        return "sixel" if takes_sixel() else "blocks"
    program, term = env.get("TERM_PROGRAM", ""), env.get("TERM", "")
    if env.get("KITTY_WINDOW_ID") or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty") or env.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return "sixel" if takes_sixel() else "blocks"


def takes_sixel() -> bool:
    """Query the attributes of the terminal (DA1, ECMA-48 8.3.24) and return whether 4, sixel, is one of them."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():  # writing would stop a background process
            return False
        return b"4" in _attributes(fd)
    except (OSError, termios.error):
        return False
    finally:
        os.close(fd)


def _attributes(fd: int) -> list[bytes]:
    """Return the numbers in the answer `ESC [ ? N ; N ... c`; input typed meanwhile is lost."""
    before = termios.tcgetattr(fd)
    quiet = [*before]
    quiet[3] &= ~(termios.ICANON | termios.ECHO)
    answer = b""
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        os.write(fd, b"\x1b[c")
        end = time.monotonic() + PATIENCE
        while len(answer) < _LONGEST and not answer.endswith(b"c"):
            if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
                break
            answer += os.read(fd, _LONGEST)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
    start = answer.find(b"\x1b[?")
    return answer[start + 3 : -1].split(b";")[1:] if start >= 0 and answer.endswith(b"c") else []


def cell() -> Cell:
    """Return the size of a character in pixels, a default if the terminal does not report it."""
    from tarkit.display.terminal import Cell

    try:
        lines, columns, width, height = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return Cell()
    return (
        Cell(width // columns, height // lines)
        if columns and lines and width >= columns and height >= lines
        else Cell()
    )
