"""No text leaves the process with secrets: logins, signatures and tokens are hidden, in URLs anywhere in it.

`hide_secrets` is the one function that does so. Errors hide what is secret when they are made, messages when they are
printed. A value that was hidden in one text is hidden in later ones too: a server may repeat it in its message.
"""

from __future__ import annotations

import re
from functools import lru_cache

HIDDEN = "***"

SECRET = (
    "sig|token|secret|pass|pwd|key|credential|auth(?!ors?(?![a-z]))|jwt|session|sessid|cookie|bearer|x-amz-|x-goog-"
    "|(?<![a-z])(?:code|sid|otp|pin|pw|sas|hmac|nonce|ticket|login)(?![a-z])"
)
"""The regular expression of what names of secrets contain, in any case."""

SHORTEST = 6  # characters of a value that is hidden in other texts
KEPT = 64  # values that are

_URL = r"[A-Za-z][A-Za-z0-9+.-]*://"
_NEXT = rf"(?:::|[,;|=&'\"<>()\[\]\s]){_URL}|::pipe:"  # where another URL, or input, follows
_NAME = r"[?&;#]([^=?&;#]*)="
_VALUE, _VALUE_IN_TEXT = r"[^&#]*", r"[^&#'\"<>]*"
_NAMED = (
    r"(?:[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_KEY)[A-Z0-9_]*|--[a-z-]*(?:secret|token|passw|api-key)[a-z-]*)"
)
_ASSIGNED = rf"(?<![^\s'\"])({_NAMED}=)([^=\s'\"][^\s'\"]*)"  # a variable, or an option of another program
_SENT = r"(?i)\b(authorization:\s*\w+|bearer|basic)(\s+)[\w.~+/=-]{6,}"
_HOST = r"(?:\[[0-9A-Fa-f:.]*\]|localhost|[\w-]+(?:\.[\w-]+)+\.?)?(?::[0-9]*)?"  # of which an @ behind it is no login

_secrets: dict[str, None] = {}


def hide_secrets(text: str, whole: bool = False, remembered: bool = True) -> str:
    """Return a text with `***` in place of secrets, and without the logins of URLs.

    Args:
        text: a message, a word of a command line, a name.
        whole: it is one URL, which may have blanks.
        remembered: secrets of earlier texts are hidden too; without it the result depends on the text alone.
    """
    if "://" in text:
        text = _in_urls(text, whole)
    if not whole:
        if "=" in text:
            text = re.sub(_ASSIGNED, lambda match: match[1] + _keep(match[2]), text)
        text = re.sub(_SENT, rf"\1\2{HIDDEN}", text)
    return _without_secrets(text) if remembered and _secrets else text


def _in_urls(text: str, whole: bool) -> str:
    """Hide the secrets of each URL in a text; one ends at a blank, or where another one begins."""
    pieces, at = [], 0
    begin, blank, another = re.compile(_URL), re.compile(r"\s"), re.compile(_NEXT)
    while (start := begin.search(text, at)) is not None:
        end = None if whole else blank.search(text, start.end())
        stop = len(text) if end is None else end.start()
        if (after := another.search(text, start.end(), stop)) is not None:
            stop = after.start()
        pieces += [text[at : start.end()], _hidden(text[start.end() : stop], whole)]
        at = stop
    return "".join([*pieces, text[at:]])


def _hidden(text: str, whole: bool) -> str:
    """Return the part of a URL after its scheme without login, and with hidden parameters."""
    host = re.match(r"[^/?#]*", text)
    authority = host[0] if host is not None else ""
    login, sign, _ = authority.rpartition("@")
    behind = text[len(authority) :].rpartition("@")
    if sign and login not in ("", HIDDEN):
        _keep(login.partition(":")[2] or login)
        text = f"{HIDDEN}@{behind[2]}" if behind[1] else text[len(login) + 1 :]
    elif (
        not sign and behind[1] and ":" in authority and not re.fullmatch(_HOST, authority)
    ):  # a password may have / ? #
        _keep((authority + behind[0]).partition(":")[2])
        text = f"{HIDDEN}@{behind[2]}"
    return _hide_parameters(text, _VALUE if whole else _VALUE_IN_TEXT) if "=" in text else text


def _hide_parameters(text: str, value: str) -> str:
    from urllib.parse import unquote  # takes milliseconds to load

    pieces, at = [], 0
    for name in re.finditer(_NAME, text):
        if name.start() >= at and _is_secret(unquote(name[1])):
            end = re.compile(value).match(text, name.end())
            stop = name.end() if end is None else end.end()
            pieces += [text[at : name.end()], _keep(text[name.end() : stop])]
            at = stop
    return "".join([*pieces, text[at:]])


@lru_cache(maxsize=256)
def _is_secret(name: str) -> bool:
    return re.search(SECRET, name, re.IGNORECASE) is not None


def _keep(value: str) -> str:
    """Remember a secret, and return the text in its place."""
    from urllib.parse import unquote

    value = value.strip("'\"")
    for form in (value, unquote(value)):
        if len(form) >= (2 * SHORTEST if form.isalpha() else SHORTEST) and HIDDEN not in form:
            _secrets.pop(form, None)
            _secrets[form] = None
    while len(_secrets) > KEPT:
        del _secrets[next(iter(_secrets))]
    return HIDDEN


def _without_secrets(text: str) -> str:
    for value in _secrets:
        if value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, text)
    return text
