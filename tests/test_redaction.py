"""Secrets leave the process in no form: messages, reports, journals, scripts, pages, tables, lists, names of files."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit import redaction
from tarkit.errors import TarkitError
from tarkit.redaction import hide_secrets
from tests import conftest
from tests._tools import ROUNDS, each_row, process, tarkit
from tests.conftest import entries, tar

pytestmark = pytest.mark.forks

MARK = "HUNTER2"

PASSWORDS = ["{}", "a/{}", "{}/b", "a?{}", "{}#b", "a@{}", "a@b/{}/c", "{}@b", "1/{}", "8080/{}?x=y@z", "a%2F{}"]
PASSWORDS += ["a:{}", "{}="]
NAMES = "sig token Signature X-Amz-Signature X-Amz-Credential X-Amz-Security-Token session sid otp pin access_token "
NAMES += "password apikey api_key auth jwt code sessionid jsessionid X-Goog-Signature client_secret %74oken SAS hmac"
WAYS = ["{}", "a {} b", "'{}'", '"{}"', "--output={}", "-o{}", "a.tar::{}", "{}::b.tar", "pipe:curl {} | cat", "X={}"]
WAYS += ["FROM={}", "(see {})", "<{}>", "{},{}", "x: {}: no", "file {}\nnext", '{{"url": "{}"}}']


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Each test begins with no known secrets."""
    redaction._secrets.clear()
    yield
    redaction._secrets.clear()


def urls(draw: random.Random) -> Iterator[str]:
    """Yield URLs with a secret somewhere."""
    host = draw.choice(["host", "127.0.0.1:1", "h.example.org", "[::1]:80", "bucket"])
    scheme = draw.choice(["https", "s3", "ftp", "gs", "zpush", "http"])
    for password in PASSWORDS:
        yield f"{scheme}://{draw.choice(['u', '', 'me_x'])}:{password.format(MARK)}@{host}/dir/a.tar"
    yield f"{scheme}://{MARK}@{host}/a.tar"
    for name in NAMES.split():
        place = draw.choice(["?{}", "?a=b&{}", "#{}", "?a=b;{}&c=d", ";{}"])
        yield f"{scheme}://{host}/{{0..3}}/a.tar{place.format(f'{name}={MARK}')}"


def test_urls_in_any_text() -> None:
    """No part of a secret is left, what is no secret stays, and to hide twice is to hide once."""
    draw = random.Random(os.environ.get("TARKIT_TESTS_SEED", "7"))
    for _ in range(ROUNDS):
        for url in urls(draw):
            for way in WAYS:
                redaction._secrets.clear()
                text = way.replace("{}", url).replace("{{", "{").replace("}}", "}")
                shown = hide_secrets(text)
                assert MARK not in shown, (text, shown)
                assert hide_secrets(shown) == shown, (text, shown)
                assert shown.startswith(way.partition("{")[0])
                assert MARK not in str(TarkitError(text, text).hint)


@each_row(
    "text",
    [
        "http://localhost:8080/a@b/c.tar",
        "https://h.org:80/a@b?x=y",
        "hf://datasets/o/n@main/x.tar",
        "s3://bucket/key=5/a.tar at 5: 'a/17.jpg'",
        "--where 'json.token == 5' and key=a; token=b",
        "s3://b/{000..009}.tar::s3://c/d@e.tar",
        "FROM=TO http://[::1]:80/x@y",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert hide_secrets(text) == text


def test_a_server_that_repeats_a_secret() -> None:
    """What was hidden in the name is hidden in what follows, plain or decoded; short words are not."""
    hide_secrets("https://h/x?sig=ab%2B12cd%3D&pin=1234&code=train")
    text = "https://h/x: the server answers 403: 'ab%2B12cd%3D' (ab+12cd=) is no signature for train-1234.tar"
    shown = "https://h/x: the server answers 403: '***' (***) is no signature for train-1234.tar"
    assert hide_secrets(text) == shown


# ---- Everything that is written


S = f"https://user:{MARK}@127.0.0.1:1/"
ODD = f"https://user:pa/{MARK}@127.0.0.1:1/"
Q = f"https://127.0.0.1:1/a.tar?session={MARK}"
NET = ["--net-retries", "0", "--net-timeout", "1"]
CAT = ["cat", *NET]  # which the jobs of `each` do not get by themselves
LINES = {
    "output=": ["each", "a.tar", "--", *CAT, "{}", f"--output={S}{{stem}}.tar"],
    "-o": ["each", "a.tar", "--", *CAT, "{}", f"-o{S}{{stem}}.tar"],
    "value": ["each", Q, "--", *CAT, "{}", "-o", "out/{index}.tar"],
    "values": ["each", ODD, "b", "--", "false", "{}"],
    "list": ["each", f"a.tar::{S}b.tar", "--", *CAT, "{}", "-o", "out/{index}.tar"],
    "pipe": ["each", "a.tar", "--", "cat", f"pipe:curl -f {Q}", "-o", "out/{stem}.tar"],
    "program": ["each", "a.tar", "--", "bash", "-c", f"echo {S} >&2; echo $1 >&2; exit 3", "-", f"--url={Q}"],
    "variable": ["each", "a.tar", "--", "env", f"AWS_SECRET_ACCESS_KEY={MARK}", "false", "{}"],
    "header": ["each", "a.tar", "--", "curl", "-H", f"Authorization: Bearer {MARK}", "http://127.0.0.1:1/{}"],
    "endpoint": ["cat", "a.tar", "-o", "out/{stem}.tar", "--endpoint-url", f"http://user:{MARK}@127.0.0.1:1"],
    "mapped": ["cat", f"{S}a.tar", "-o", "out/{stem}.tar"],
    "mapped pipe": ["cat", f"pipe:curl -f {Q}", "-o", "out/{index}.tar"],
    "keys": ["cat", "a.tar", "--keys-from", f"{S}keys", "-o", "out/{stem}.tar"],
}


def written(here: Path) -> str:
    """Return all that is in the directory, names of files included."""
    paths = [path for path in here.rglob("*") if "given" not in path.parts]
    return "\n".join(f"{path}\n{path.read_bytes() if path.is_file() else b''!r}" for path in paths)


def ended(*words: str, **others: Any) -> tuple[int, str, str]:
    """Run a command in a fork of this process, which has seen no secrets; return its status, stdout and stderr."""
    with process(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **others) as started:
        out, err = started.communicate()
    return started.returncode, out.decode(), err.decode()


@pytest.mark.slow
@each_row("line", LINES)
@each_row("mode", ["slurm", "k8s", "make", "dry-run", "run"])
def test_jobs(here: Path, line: str, mode: str) -> None:
    """Scripts are refused, in one line; in command lines, journals, reports and tables of failures it is hidden."""
    Path("out").mkdir()
    Path("a.tar").write_bytes(tar({"a.txt": b"x"}))
    words = LINES[line]
    how = {"dry-run": ["--dry-run"], "run": ["--journal", "j", "--report", "r", "-v"]}.get(mode, ["--emit", mode])
    if mode == "run":
        status, stdout, stderr = ended(words[0], *how, *NET, *words[1:])
    else:
        redaction._secrets.clear()
        out, stderr, status = conftest.tarkit(words[0], *how, *NET, *words[1:], exit=None)
        stdout = out.decode()
    assert MARK not in stdout + stderr + written(here)
    assert "Traceback" not in stderr
    if mode in ("slurm", "k8s", "make"):
        assert (status, stdout) == (2, "")
        assert "the script would hold the secrets of this" in stderr


COMMANDS = [
    ["cat", S + "a.tar", "-o", "o.tar"],
    ["cat", ODD + "a.tar", "-o", "o.tar"],
    ["cat", f"a.tar::{Q}", "-o", "o.tar"],
    ["cat", f"pipe:echo {S} >&2; false", "-o", "o.tar"],
    ["cat", "a.tar", "-o", f"pipe:cat > o.tar; echo {S} >&2; false"],
    ["cat", "-T", f"{S}list", "-o", "o.tar"],
    ["stats", f"pipe:cat a.tar # {S}", "--json"],
    ["stats", f"pipe:cat a.tar # {S}", "--html", "o.html"],
    ["show", f"pipe:cat a.tar # {S}", "--html", "o.html"],
    ["check", f"pipe:cat a.tar # {S}", "--json"],
    ["check", f"pipe:head -c 600 a.tar # {S}", "--list-bad"],
    ["tsv", f"pipe:cat a.tar # {S}", "-f", "shard txt"],
    ["split", f"pipe:cat a.tar # {S}", "-o", "o-%d.tar", "--manifest", "m"],
    ["create", "r", "-o", "o.tar", "--depfile", "d"],
    ["create", "r.pipe", "-o", "o.tar", "--depfile", "d"],
    ["mix", f"pipe:cat a.tar # {S}", "-o", "o.tar", "--seed", "1", "-v"],
    ["mix", f"{S}a.tar@2", "-o", "o.tar"],
    ["get", "a.txt", f"{S}a.tar"],
    ["proc", "a.tar", "-c", f"echo {S} >&2; false", "--rejects", "bad.tar", "-o", "o.tar"],
    ["proc", "a.tar", "--map", "f.py:run", "--rejects", "bad.tar", "-o", "o.tar"],
    ["sort", "a.tar", "--order-file", f"{S}keys", "-o", "o.tar"],
    ["shard", f"s3://key:{MARK}@bucket/", "-o", "o-%d.tar"],
    ["cat", f"s3://key:a/{MARK}@bucket/a.tar", "-o", "o.tar"],
    ["cat", "a.tar", "-o", f"{S}o.tar"],
    ["cat", "a.tar", "-o", f"{S}{{x}}.tar"],
    ["cat", f"zpull://u:{MARK}@127.0.0.1", "-o", "o.tar"],
    ["cat", f"--net-retries={S}", "a.tar"],
    ["cat", f"--no-such={S}", "a.tar"],
    ["index", "a.tar", "--format", "tsv", "-o", f"{S}x"],
    ["extract", f"{S}a.tar", "-C", "x"],
]


@pytest.mark.slow
@each_row("words", COMMANDS)
def test_commands(here: Path, words: list[str]) -> None:
    """Whatever a command prints and writes, with a report, verbose, and with a cache."""
    Path("a.tar").write_bytes(tar({"a.txt": b"x"}))
    Path("given").mkdir()
    Path("given/r").write_text(f"a.txt {S}x\n")
    Path("given/r.pipe").write_text(f"a.txt pipe:echo {S}\n")
    Path("given/f.py").write_text(f"def run(sample):\n    raise ValueError('no {S} ' + '{Q}')\n")
    for name in ("r", "r.pipe", "f.py"):
        os.symlink(f"given/{name}", name)
    net = [*NET, "--cache", "cache", "--report", "report", "-v"]
    env = {"http_proxy": f"http://me:{MARK}@127.0.0.1:1", "https_proxy": f"me:a/{MARK}@127.0.0.1:1"}
    _, stdout, stderr = ended(*words, *net, env=env)
    for name in ("r", "r.pipe", "f.py"):
        os.unlink(name)
    lines = (stdout + stderr).splitlines()
    quoted = "\n".join(line for line in lines if not line.endswith(S))  # that a command of the user prints
    found = written(here).replace(repr(f"{S}\n".encode()), "")
    assert MARK not in quoted, quoted
    assert "Traceback (most recent call last)" not in stderr or words[0] == "proc"
    if words[:2] != ["create", "r.pipe"]:
        assert MARK not in found, found[found.index(MARK) - 300 :][:600]


def test_a_journal_of_a_job_with_a_secret_is_resumed(here: Path) -> None:
    """Hidden names do not make two jobs one."""
    Path("v").write_text("".join(f"https://127.0.0.1:1/x?token=secret{number}\n" for number in range(3)))
    words = ["each", "-T", "v", "--journal", "j", "--resume", "--", "echo", "{}"]
    assert len(tarkit(*words).stdout.splitlines()) == 3
    assert tarkit(*words).stdout == b""
    assert {json.loads(line)["value"] for line in Path("j").read_text().splitlines()} == {
        "https://127.0.0.1:1/x?token=***"
    }


def test_records_of_failures_are_the_same_in_each_run(here: Path) -> None:
    """Addresses in memory are not in `__error__.json`."""
    Path("a.tar").write_bytes(tar({"a.txt": b"x"}))
    Path("f.py").write_text("def run(sample):\n    raise ValueError(object(), run, 'at 0x10 of 0xdeadbeef')\n")
    for number in (0, 1):
        tarkit("proc", "a.tar", "--map", "f.py:run", "--rejects", f"bad-{number}.tar", "-o", "o.tar")
    record = json.loads(dict(entries("bad-0.tar"))["a.__error__.json"])
    assert "<object object at 0x...>" in record["stderr"]
    assert "<function run at 0x...>" in record["stderr"]
    assert "at 0x10 of 0xdeadbeef" in record["stderr"]
