"""Each method makes what its command makes: the same files, byte for byte, or the same error."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import types
import warnings
from collections.abc import Callable
from contextlib import chdir
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.api._inputs import ARCHIVES, CHOSEN, TARMIX, write_files, write_tree
from tests.conftest import entries, tar
from tests.conftest import tarkit as command

RECIPE = (
    "a.jpg photos/1.jpg\na.txt text:one two\n# comment\n\nb.bin hex:00ff\nb.txt base64:aGk=\nc.jpg file:photos/2.jpg\n"
)
FUNCTIONS = """
def rename(sample):
    key = sample["__key__"] if "__key__" in sample else sample.key
    return {**sample, "__key__": f"e/{key[-3:]}"}

def some(sample):
    return sample if sample["cls"] > b"3" else None

def several(sample):
    for i in range(len(sample["txt"]) % 3):
        key = sample["__key__"] if "__key__" in sample else sample.key
        yield {"__key__": f"{key}-{i}", "txt": sample["txt"], "n": str(i)}

def listed(sample):
    return list(several(sample))

n = []

def init():
    n.append(3)

def values(samples):
    return [{**sample, "n.json": [len(sample["y"]), n[-1:]], "k.txt": sample["__key__"]} for sample in samples]
"""
TEXTS = {
    "keys": "b/9\na/4\nnix\n",
    "map": "^1/ one\n^[23]/ sub-%03d\n",
    "lines": "^1/;one\n^[23]/;sub-%03d\n",
    "dirs": "cat/;c-%d\ndog/;d-%d\n",
    "classes": "pig\ndog\ncat\nlink\n.\n",
    "names": "cat\na <dog>\nemu\n",
    "functions.py": FUNCTIONS,
    "recipe": RECIPE,
    "missing": RECIPE + "d.x nix.jpg\n",
    "apart": RECIPE + "a.cls text:1\n",
    "inside": RECIPE.replace("photos/", ""),
    "piped": RECIPE + "d.txt pipe:echo hello\n",
    "r.csv": "id,txt,@jpg\n7,one,photos/1.jpg\n8,two,photos/2.jpg\n",
    "r.jsonl": '{"__key__": "x", "txt": "one", "json": {"a": 1}}\n{"__key__": "y", "txt": "two", "json": [2]}\n',
    "bad.jsonl": "{]\n",
    "bare.tsv": "x\t1\ny\t2\n",
    "mix.json": json.dumps({"sources": TARMIX}),
    "buffer.json": json.dumps({"sources": TARMIX, "shuffle": 4}),
    "chosen.json": json.dumps({"datasets": CHOSEN}),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write archives, texts, pictures, and a tree of three directories with links; files have times of their own."""
    with chdir(folder := tmp_path_factory.mktemp("inputs")):
        for name, members in ARCHIVES.items():
            Path(name).write_bytes(tar(members))
        for name, text in TEXTS.items():
            Path(name).write_text(text)
        write_files({f"photos/{number}.jpg": b"picture" * number for number in (1, 2)})
        mixed = ("README", "a.jpg", "cat/b.jpg", "cat/b.txt", "cat/LICENSE")
        write_files({f"mixed/{name}": b"x" for name in mixed})
        Path("table.csv").write_text(write_tree())
    return folder


def made(folder: Path) -> dict[str, bytes]:
    """Return names and contents of the files that were made in a directory, where inputs are links."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def beside(inputs: Path, name: str) -> Path:
    """Make a directory with links to all inputs."""
    folder = Path.cwd() / name
    for part in ("", "sub", "out"):
        (folder / part).mkdir()
    for path in inputs.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def compare(line: str, inputs: Path, *calls: Callable[[], Any]) -> None:
    """Run a command, and each call, in directories of their own; compare what they make, warnings and errors.

    A line that begins with `!` is of a command that fails. A dataset that a call returns is written, and is iterated;
    the samples of shards are those of the report.
    """
    with chdir(folder := beside(inputs, "cli")):
        ran = command("--report", "../report", *shlex.split(line.removeprefix("!")), exit=None)
        assert bool(ran.status) == line.startswith("!"), ran.stderr
        if ran.stdout:
            Path("stdout").write_bytes(ran.stdout)
    for number, call in enumerate(calls):
        with chdir(beside(inputs, f"api{number}")), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", tarkit.TarkitWarning)
            if ran.status:
                with pytest.raises(tarkit.TarkitError) as error:
                    _written(call())
                said, _, _ = str(error.value).partition("; pending samples: ")  # as many as the pipe took
                assert said in re.sub("--([a-z-]+)", lambda option: option[1].replace("-", "_"), ran.stderr)
            else:
                _check_result(_written(call()), json.loads(Path("../report").read_text()))
        told = {str(each.message) for each in warned if each.category is tarkit.TarkitWarning}
        assert len(told) == ran.stderr.count("tarkit: warning: ") - ran.stderr.count("no sample is left"), told
        assert made(Path(f"api{number}")) == made(folder)
    assert ran.status or made(folder)


def _written(result: Any) -> Any:
    """Write a dataset, whose samples in a loop are those of the archive."""
    if not isinstance(result, tarkit.Dataset):
        return result
    shard = result.write("out.tar")
    assert [(f"{each.key}.{field}", data) for each in result for field, data in each.items()] == entries("out.tar")
    return [shard]


def _check_result(result: Any, report: dict[str, Any]) -> None:
    """Check the shards, or the number of samples, that a method returns."""
    if isinstance(result, list) and result and isinstance(result[0], tarkit.Shard):
        assert sum(shard.samples for shard in result) == report["samples"]
        for shard in result:
            data = Path(shard.name).read_bytes()
            assert not shard.sha256 or (shard.stored, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert {shard.name for shard in result} == {
            *filter(re.compile(r"\.(tar|zip|tgz|gz|zst|xz)$").search, made(Path()))
        }
    elif isinstance(result, int):
        assert result in (report["samples"], len(made(Path())))
        if os.path.exists("out.tar"):
            assert result == len({name.partition(".")[0] for name, _ in entries("out.tar")})


# ---- A dataset

Change = Callable[[tarkit.Dataset], tarkit.Dataset]
STEPS: list[tuple[str, Change]] = [
    ("", lambda data: data),
    ("--where 'cls == 3 and json.w > 30'", lambda data: data.where("cls == 3 and json.w > 30")),
    ("--where 'has(jpg) and size.jpg > 100'", lambda data: data.where("has(jpg) and size.jpg > 100")),
    ("--where False", lambda data: data.where("False")),
    ("--match ^a/", lambda data: data.match("^a/")),
    ("--keys-from keys", lambda data: data.keys(["b/9", "a/4", "nix"])),
    ("--sample 0.5 --seed 7", lambda data: data.sample(0.5, seed=7)),
    ("--sample 5 --seed 7", lambda data: data.sample(5, seed=7)),
    ("--unique-by cls", lambda data: data.unique_by("cls")),
    ("--slice 1: --sample 2 --balance cls --per-class 2 --seed 7",
        lambda data: data.balance("cls", 2, seed=7).sample(2, seed=7).slice(1)),
    ("--slice 2:9:3", lambda data: data.slice(2, 9, 3)),
    ("--slice 4:", lambda data: data.slice(4)),
    ("-f 'cls image:png,jpg'", lambda data: data.select("cls image:png,jpg")),
    ("--drop j*n --drop cl?", lambda data: data.drop("j*n", "cl?")),
    ("--require cls,png|jpg", lambda data: data.require("cls", "png|jpg")),
    ("--rekey {stem}/{index:03d}", lambda data: data.rekey("{stem}/{index:03d}")),
    ("--match a/ --where 'cls != 0' -f json --slice 1:3 --rekey n{index}",
        lambda data: data.match("a/").where("cls != 0").select("json").slice(1, 3).rekey("n{index}")),
]  # fmt: skip
ORDERS: list[tuple[str, Change]] = [
    ("sort", lambda data: data.sort()),
    ("sort -s cls", lambda data: data.sort(by="cls")),
    ("sort -s cls,json --type str", lambda data: data.sort(["cls", "json"], "str")),
    ("sort -s json.w -r", lambda data: data.sort("json.w", reverse=True)),
    ("sort --type natural", lambda data: data.sort(type="natural")),
    ("sort --memory 1M", lambda data: data.sort(memory=1 << 20)),
    ("shuffle --seed 3", lambda data: data.shuffle(seed=3)),
    ("shuffle --seed 3 --buffer 4", lambda data: data.buffer_shuffle(4, seed=3)),
]


@each_row(("line", "change"), [(f"cat {words}", change) for words, change in STEPS] + ORDERS)
def test_steps(line: str, change: Change, inputs: Path, here: Path) -> None:
    """Samples that are chosen, changed and ordered; `tests/laws/test_chains.py` has other inputs, and several steps."""
    word, *words = shlex.split(line)
    compare(shlex.join([word, "in.tar", "-o", "out.tar", *words]), inputs, lambda: change(tarkit.open("in.tar")))


def fails(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (f"!{row[0]}", *row[1:])


def opened(name: str, method: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Return a call of a method of the dataset of an archive."""
    return lambda: getattr(tarkit.open(name), method)(*arguments, **options)


def split(words: str, name: str = "ninety.tar", **options: Any) -> tuple[str, Any]:
    """Return a row: split with options."""
    template = {} if "map" in options else {"template": "{part}-%d.tar" if "parts" in options else "s-%04d.tar"}
    options = {**template, **options}
    output = f"-o {options['template']}" if "template" in options else ""
    return f"split {name} {output} {words}", opened(name, "split", **options)


def table(words: str, output: str = "t", **options: Any) -> tuple[str, Any]:
    """Return a row: a table with options."""
    return f"tsv in.tar -o {output} {words}", opened("in.tar", "table", output, **options)


OUTPUTS = [
    ("cat in.tar -o o.zip", opened("in.tar", "write", Path("o.zip"))),
    ("cat in.tar -o 'pipe:cat > o.tar'", opened("in.tar", "write", "pipe:cat > o.tar")),
    ("cat in.tar --compress gz:1 -o o.tar", opened("in.tar", "write", "o.tar", compress="gz:1", fsync=True)),
    ("!cat in.tar -o 'pipe:cat > x; exit 3'", opened("in.tar", "write", "pipe:cat > x; exit 3")),
    ("!sort odd.tar -o out.tar --order-file keys", opened("odd.tar", "sort", order_file="keys")),
    split("", "in.tar"),
    split("-s 10240", "in.tar", size=10240),
    split("-s 20K -c 9", "in.tar", size="20K", count=9),
    split("-c 20 --parts train=0.75,val=0.25", count=20, parts={"train": 0.75, "val": 0.25}),
    split("--parts x=1/3,y --seed 3", parts={"x": Fraction(1, 3), "y": None}, seed=3),
    split("--parts 3 --stratify cls", parts=3, stratify="cls"),
    split("--parts 2 --group-field cls", parts=2, group_field="cls"),
    split("-n 7 --manifest m.tsv", shards=7, manifest=Path("m.tsv")),
    split("--even size", template="x-{1..5}.tar", even="size"),
    split("--map map --unmatched rest", map="map", template="out", unmatched="rest"),
    split("""--map '{"a-%d.tar":["^1/"],"b":["glob:[2-3]/*"]}'""", map={"a-%d.tar": ["^1/"], "b": ["glob:[2-3]/*"]}),
    split("--map lines --map-sep ';'", map=Path("lines"), map_sep=";"),
    split("-c 3 --post 'cp {} {}.copy'", "in.tar", count=3, post="cp {} {}.copy"),
    table(""),
    table("-f 'cls json.w size.jpg'", columns="cls json.w size.jpg"),
    table("-f cls --no-key --no-header", columns="cls", key=False, header=False),
    table("-f cls", "t.parquet", columns="cls"),
    table("-f nix --on-missing-field skip", columns="nix", on_missing="skip"),
    ("extract in.tar -C out --mtime source", opened("in.tar", "extract", Path("out"), mtime="source")),
    ("index in.tar -o out --format dali,wids --md5", lambda: tarkit.index("in.tar", "dali,wids", "out", md5=True)),
]  # fmt: skip


@each_row(("line", "call"), OUTPUTS)
def test_outputs(line: str, call: Callable[[], Any], inputs: Path, here: Path) -> None:
    """An archive, shards, tables, files, and indexes."""
    compare(line, inputs, call)


# ---- Files, recipes, mixes


def shard(words: str, tree: str = "tree", **options: Any) -> tuple[str, Callable[[], Any]]:
    """Return a row: the shards of the tree, which are those of a dry run."""
    given = {"template": "%02d.tar"} if "map" not in options and "-o" not in words else {}

    def call() -> Any:
        before = made(Path())
        planned = [] if "recipe" in options else tarkit.shard(tree, dry_run=True, **given, **options)
        assert made(Path()) == before
        shards = tarkit.shard(tree, **given, **options)
        assert [shard[:3] for shard in shards] == [shard[:3] for shard in planned]
        return shards

    return f"shard {tree} {'-o %02d.tar' if given else ''} {words}", call


SHARDS = [
    shard(""),
    shard("-s 10K --size-rule content", size="10K", size_rule="content"),
    shard("-n 3 --even", shards=3, even=True),
    shard("--sort shuffle:7 -c 3 --dirs collapse", sort="shuffle:7", count=3, dirs="collapse"),
    fails(shard("--key base --rename key", key="base", rename="key")),
    shard("--require jpg,txt --on-missing-field keep", require=["jpg", "txt"], on_missing="keep"),
    fails(shard("--require txt", require="txt")),
    shard("--label-from-dir cls --label-from-dir class:-1:name", label_from_dir=["cls", "class:-1:name"]),
    shard("--label-from-dir cls --classes classes", label_from_dir="cls", classes="classes"),
    shard("--label-from-dir cls --classes-out o.txt --match /", label_from_dir="cls", classes_out="o.txt", match="/"),
    shard("--join table.csv:name --exclude *.txt", join="table.csv:name", exclude="*.txt"),
    shard("--exclude *.txt --exclude dog/*", exclude=["*.txt", "dog/*"]),
    shard("--symlinks skip --mtime source", symlinks="skip", mtime=None),
    shard("--mtime @77 --compress gz:1", mtime=77, compress="gz:1"),
    shard("-c 4 -p 3", count=4, processes=3, fsync=True),
    shard("-c 8 --post 'cp {} {}.copy'", count=8, post="cp {} {}.copy"),
    shard("""--map '{"c":["cat"]}' --unmatched r -c 2""", map={"c": ["cat"]}, unmatched="r", count=2),
    shard("--map dirs --map-sep ';' --sort -key", map=Path("dirs"), map_sep=";", sort="-key"),
    shard("-o x@12.tgz -c 3 --manifest m --depfile d", template="x@12.tgz", count=3, manifest=Path("m"), depfile="d"),
    fails(shard("--label-from-dir cls", "mixed", label_from_dir="cls")),
    shard("--recipe recipe.txt", recipe=Path("recipe.txt")),
]


@pytest.mark.slow
@pytest.mark.forks
@each_row(("line", "call"), SHARDS)
def test_shards(line: str, call: Callable[[], Any], inputs: Path, here: Path) -> None:
    """Shards of a tree, with manifest, depfile, list of classes and recipe."""
    compare(line, inputs, call)


def create(words: str, recipe: str = "recipe", **options: Any) -> tuple[str, Callable[[], Any]]:
    """Return a row: an archive of a recipe."""
    return f"create {recipe} -o out.tar {words}", lambda: tarkit.create(recipe, "out.tar", **options)


def mix(words: str, described: Any, **options: Any) -> tuple[str, Callable[[], Any]]:
    """Return a row: a mix that a file or dicts describe."""
    name = described if isinstance(described, str) else "mix.json" if described is TARMIX else "chosen.json"
    return f"mix {name} --seed 7 -o out.tar {words}", lambda: tarkit.mix(described, 7, **options)


def each_form(words: str, name: str, sources: Any, **options: Any) -> list[tuple[str, Callable[[], Any]]]:
    """Return rows: a mix by its file and by dicts."""
    return [mix(words, name, **options), mix(words, sources, **options)]


def drawn(words: str, **options: Any) -> tuple[str, Callable[[], Any]]:
    """Return a row: a mix of two datasets, one of them a stream."""
    sources = lambda: [(tarkit.open("in.tar"), Fraction(2)), tarkit.open("pipe:cat ten.tar")]  # noqa: E731
    line = f"mix in.tar@2 'pipe:cat ten.tar@1' --seed 5 -o out.tar {words}"
    return line, lambda: tarkit.mix(sources(), seed=5, **options)


OTHERS = [
    create("--mtime source --count 3", mtime=None, count=3),
    create("--mtime @1000", mtime=1000),
    create("-p 3 --compress gz:9", parallel=3, compress="gz:9", fsync=True),
    create("--on-missing skip", "missing", skip_missing=True),
    fails(create("", "missing")),
    create("--group", "apart", group=True),
    fails(create("", "apart")),
    create("-C photos", "inside", directory=Path("photos")),
    create("--format csv --key {id}", "r.csv", format="csv", key="{id}"),
    create("--format jsonl", "r.jsonl", format="jsonl"),
    fails(create("--format jsonl", "bad.jsonl", format="jsonl")),
    create("--format tsv --columns __key__,txt", "bare.tsv", format="tsv", columns=["__key__", "txt"]),
    create("", "piped", pipes=True),
    create("--depfile out.d -C .", depfile=Path("out.d"), directory="."),
    drawn("--until all", until="all"),
    drawn("--total 60 --repeat", total=60, repeat=True),
    *each_form("--until all", "mix.json", TARMIX, until="all"),
    mix("--total 30", "buffer.json", total=30),
    *each_form("--repeat --total 99 -p 3", "mix.json", TARMIX, repeat=True, total=99, prefetch=2),
    *each_form("--shard-slice 1:3", "mix.json", TARMIX, shard_slice=slice(1, 3)),
    *each_form("--until all", "chosen.json", CHOSEN, until="all"),
]


@pytest.mark.slow
@each_row(("line", "call"), OTHERS)
def test_recipes_and_mixes(line: str, call: Callable[[], Any], inputs: Path, here: Path) -> None:
    """Archives of recipes and tables; samples of several sources."""
    compare(line, inputs, call)


# ---- Functions and commands


def functions() -> dict[str, Any]:
    exec(FUNCTIONS, (module := types.ModuleType("functions")).__dict__)
    return vars(module)


def mapped(name: str, words: str = "", **options: Any) -> tuple[str, str, str, Any, dict[str, Any]]:
    """Return a row: a function for each sample."""
    return f"proc --map functions.py:{name} {words}", "sixty.tar", "map", name, options


WORKED = [
    *map(mapped, ("rename", "some", "listed")),
    ("proc --map functions.py:values --init functions.py:init --batch 3 --decode", "ten.tar", "map", "values",
     {"init": "init", "batch": 3, "decode": True}),
    ("proc -c 'rm sample.*'", "six.tar", "proc", "rm sample.*", {}),
    ("!proc --worker 'exit 3'", "ten.tar", "worker", "exit 3", {}),
    ("proc --worker cat", "ten.tar", "worker", "cat", {}),
    ("proc -m 'for i in 0 1; do cp sample.x sample-00000$i.x; done'", "ten.tar", "proc",
     "for i in 0 1; do cp sample.x sample-00000$i.x; done", {"multi": True}),
    ("proc --retries 1 --on-error skip -c '[ $TARKIT_KEY != 3 ]'", "ten.tar", "proc", "[ $TARKIT_KEY != 3 ]",
     {"retries": 1, "on_error": "skip"}),
    ("proc --timeout 0.3 --on-error keep -c '[ $TARKIT_KEY != 3 ] || sleep 9'", "ten.tar", "proc",
     "[ $TARKIT_KEY != 3 ] || sleep 9", {"timeout": 0.3, "on_error": "keep"}),
    ("proc --mtime source -c 'touch -d @99 sample.new'", "ten.tar", "proc", "touch -d @99 sample.new", {"mtime": None}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.forks
@each_row(("line", "name", "method", "what", "options"), WORKED)
def test_work(line: str, name: str, method: str, what: str, options: dict[str, Any], inputs: Path, here: Path) -> None:
    """Functions, commands and programs that stay, in one process and in several."""

    def call(processes: int) -> Any:
        known = functions() if method == "map" else {}
        found = {key: known.get(value, value) if isinstance(value, str) else value for key, value in options.items()}
        return getattr(tarkit.open(name), method)(known.get(what, what), processes=processes, **found)

    calls = [partial(call, processes) for processes in ((1, 3) if method == "map" else (3,))]
    compare(f"{line} {name} -o out.tar", inputs, *calls)
