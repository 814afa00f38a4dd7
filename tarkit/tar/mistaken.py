"""Text in place of an archive, which a server, a store or git wrote under its name."""

from __future__ import annotations

import re
from typing import NamedTuple


class Mistaken(NamedTuple):
    """A kind of text: its name in messages, and the hint."""

    what: str
    hint: str


HTML = Mistaken("an HTML page", "a server sent an error or a login in place of the archive: fetch it again")
XML = Mistaken("XML", "stores answer so, for example that access is denied: fetch the archive again")
JSON = Mistaken(
    "JSON", "servers report errors so: fetch the archive again; a table is for tarkit create --format jsonl"
)
LFS = Mistaken("a Git LFS pointer", "git lfs pull fetches the file that it stands for")
ANNEX = Mistaken("a git-annex pointer", "git annex get fetches the file that it stands for")

# The Git LFS specification, "The Pointer"; the git-annex documentation, "pointer file"; the HTML and XML standards
_KINDS = (
    (LFS, rb"version https?://(?:git-lfs\.github\.com|hawser\.github\.com|git-media\.io)/"),
    (ANNEX, rb"/annex/objects/"),
    (
        HTML,
        rb"(?is)(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|script|center)[\s>/]",
    ),
    (XML, rb"<(?:\?xml\s|!DOCTYPE\s|!--|[A-Za-z_][\w.:-]*[\s>/])"),
    (JSON, rb"""(?:\{\s*(?:"|\}|\Z)|\[\s*(?:["\[{\]]|-?[0-9]|true|false|null))"""),
)

LENGTH = 1024  # bytes that are looked at


def recognise(head: bytes) -> Mistaken | None:
    """Return the kind of a file that begins with `head` and not with a header of a tar, None if unknown."""
    text = head[:LENGTH].removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"<", b"{", b"[", b"v", b"/"):
        return None
    return next((kind for kind, pattern in _KINDS if re.match(pattern, text)), None)
