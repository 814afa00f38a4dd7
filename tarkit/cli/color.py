"""Colours of text on stdout and stderr: whether there are any, and what has which."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import click

Role = Literal["heading", "error", "warning", "hint", "ok"]

_STYLES: dict[Role, dict[str, Any]] = {
    "heading": {"bold": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "hint": {"fg": "cyan"},
    "ok": {"fg": "green"},
}


def wanted_colors(env: Mapping[str, str]) -> bool | None:
    """Return whether the environment asks for colours or for none; with None a terminal has them, nothing else."""
    if env.get("NO_COLOR"):
        return False
    if any(env.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return False if env.get("TERM") == "dumb" or env.get("CLICOLOR") == "0" else None


def has_colors(fd: int) -> bool:
    """Return whether text on stdout (1) or stderr (2) has colours."""
    wanted = wanted_colors(os.environ)
    return os.isatty(fd) if wanted is None else wanted


def painted(text: str, role: Role) -> str:
    """Return text in its colour."""
    return click.style(text, **_STYLES[role])


def painted_message(text: str, role: Role | None) -> str:
    """Return the lines of a message, `tarkit: TEXT` and perhaps `hint: TEXT`, with their first words in colour."""
    message, _, hint = text.partition("\n")
    if role is not None:
        before, word, rest = message.partition("warning:" if role == "warning" else "tarkit:")
        message = before + painted(word, role) + rest
    if hint.startswith("hint:"):
        hint = painted("hint:", "hint") + hint.removeprefix("hint:")
    return f"{message}\n{hint}"


class HeadingFormatter(click.HelpFormatter):
    """Help with bold headings."""

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f"{'':>{self.current_indent}}{painted(f'{heading}:', 'heading')}\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of the usage."""
        super().write_usage(prog, args, f"{painted('Usage:', 'heading')} " if prefix is None else prefix)


def write_help(ctx: click.Context, fd: int) -> None:
    """Write the help of a command to stdout (1) or stderr (2)."""
    colored = has_colors(fd)
    if colored:
        ctx.formatter_class = HeadingFormatter
    click.echo(ctx.get_help(), err=fd == 2, color=colored)
