"""A hard link comes out after its target, with the content that it had, or the command is an error."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Link, Run

COMMANDS = (
    "cat -f",
    "cat --drop",
    "cat --shuffle 2 --seed 1 -f",
    "sort",
    "sort -r -f",
    "sort --memory 1M",
    "shuffle --seed 3",
    "shuffle --seed 4 -c 1",
    "split -c 1",
    "cat -f 'json:txt link txt json'",
    "cat -f 'x:json json link'",
)


def linked(draw: random.Random) -> list[tuple[str, Content]]:
    """Return members with hard links, to fields of the same sample and to entries without a key, and back."""
    members: list[tuple[str, Content]] = []
    for key in "abc":
        own: list[tuple[str, Content]] = []
        for name in draw.sample([f"{key}.json", f"{key}.link", f"{key}.txt", f"README{key}", f"OTHER{key}"], 4):
            targets = [other for other, content in own if isinstance(content, bytes)]
            content: Content = Link(draw.choice(targets)) if targets and draw.random() < 0.5 else name.encode()
            own.append((name, content))
        members += own
    return members


def meant(data: bytes) -> dict[str, bytes | None]:
    """Return the content of each name as tar extracts it; None for a hard link whose target does not precede it."""
    found: dict[str, bytes | None] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        for info in file:
            content = file.extractfile(info) if info.isreg() else None
            found[info.name] = content.read() if content is not None else found.get(info.linkname)
    return found


@each_row("seed", range(100))
def test_links_follow_their_targets(seed: int, here: Path, run: Run, archive: Archive) -> None:
    """Hard links in samples, in random places, through commands that choose, order and divide."""
    draw = random.Random(seed)
    name = archive(members := linked(draw))
    command = draw.choice(COMMANDS)
    words = [word.strip("'") for word in command.split(" ", 2)] if "'" in command else command.split()
    if command.endswith("-f"):
        words.append(" ".join(draw.sample(["json", "link", "txt"], draw.randint(1, 3))))
    elif command.endswith("--drop"):
        words.append(draw.choice(["json", "link", "txt"]))
    series = words[0] == "split" or "-c" in words
    feed = Feed(draw.choice(("file", "pipe", "gzip")))
    more = ["--on-missing-field", "keep"] if "-f" in words else []
    ran = run(words[0], feed(name), *words[1:], *more, "-o", "out-%d.tar" if series else "out.tar", exit=None)
    if ran.status:
        assert "[unmovable-entry]" in ran.stderr or "[duplicate-entry]" in ran.stderr
        return
    before = meant(Path(name).read_bytes())
    renamed = "x:json" in command or "json:txt" in command
    for path in here.glob("out*.tar"):
        for entry, content in meant(path.read_bytes()).items():
            assert content is not None, f"{words}: {entry} is a link to nothing\n{members}"
            assert renamed or content == before[entry]
