"""Reading hf:// URLs, from a server that answers as the Hub does: its own client library is run against it as well."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.stores import hub
from tarkit.stores.hub import HubPath, HubStore, split_url
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.stores import _tools
from tests.stores._hub import HubServer, Repository, hub_server

DATA = random.Random(7).randbytes(1_000_000)
QUICK = StoreOptions(retries=3, timeout=2)
ROOT = "hf://datasets/org/name/"
FILES = {
    "README.md": b"# name\n",
    "empty": b"",
    "data/train-0.tar": DATA,
    "data/train-1.tar": DATA[:300_000],
    "data/train-10.tar": DATA[:300_001],
    "data/sub/train-2.tar": b"x",
    "data/with space & #.tar": b"odd",
}


@pytest.fixture
def server(small_ranges: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A Hub with a dataset."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(hub, "_commits", {})
    with hub_server() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        repository = found.repositories["datasets/org/name"] = Repository(lfs={n for n in FILES if n.endswith(".tar")})
        repository.commit(FILES)
        yield found


def whole(url: str, options: StoreOptions = QUICK, lines: list[str] | None = None) -> bytes:
    return _tools.whole(HubStore(options if lines is None else options.replace(tell=lines.append)), url)


@each_row(
    ("url", "expected"),
    [
        ("hf://o/n/a/b", HubPath("hf://o/n/", "models", "o/n", "main", "a/b")),
        ("HF://models/o/n/a", HubPath("HF://models/o/n/", "models", "o/n", "main", "a")),
        ("hf://datasets/o/n@v1/a@2", HubPath("hf://datasets/o/n@v1/", "datasets", "o/n", "v1", "a@2")),
        ("hf://datasets/o/n/a@2", HubPath("hf://datasets/o/n/", "datasets", "o/n", "main", "a@2")),
        ("hf://spaces/o/n@refs/pr/1/a", HubPath("hf://spaces/o/n@refs/pr/1/", "spaces", "o/n", "refs/pr/1", "a")),
        ("hf://o/n@refs%2Fpr%2F1/a", HubPath("hf://o/n@refs%2Fpr%2F1/", "models", "o/n", "refs/pr/1", "a")),
        ("hf://o/n@refs/convert/parquet/a", HubPath("hf://o/n@refs/convert/parquet/", "models", "o/n",
                                                    "refs/convert/parquet", "a")),
    ],
)  # fmt: skip
def test_urls(url: str, expected: HubPath) -> None:
    assert split_url(url) == expected


@each_row("url", ["hf://", "hf://a", "hf://datasets/o/n", "hf://o/n@/a", "hf://buckets/o/n/a", "hf://datasets/o/*"])
def test_urls_that_name_no_file(url: str) -> None:
    with pytest.raises(Usage, match="not the URL of a file"):
        split_url(url)
    with pytest.raises(Unsupported) as caught:
        HubStore(StoreOptions()).put(ROOT + "a.tar", False)
    assert "hf upload org/name DIRECTORY --repo-type dataset" in str(caught.value.hint)


def test_agrees_with_the_client_library(server: HubServer, tmp_path: Path) -> None:
    """What the Hub's own library finds on this server is what is found here: so the server answers as it expects."""
    client = pytest.importorskip("huggingface_hub")
    api = client.HfApi(endpoint=server.url, token=False)
    listed = {entry.path: entry for entry in api.list_repo_tree("org/name", repo_type="dataset", recursive=True)}
    files = {path: entry for path, entry in listed.items() if hasattr(entry, "blob_id")}
    assert set(files) == set(FILES)
    store = HubStore(StoreOptions())
    for path, data in FILES.items():
        url = client.hf_hub_url("org/name", path, repo_type="dataset", endpoint=server.url)
        described = client.get_hf_file_metadata(url, endpoint=server.url, token=False)
        ours = store.head(ROOT + path)
        assert (described.size, described.etag) == (ours.size, ours.version) == (len(data), ours.version)
        entry = files[path]
        assert ours.version == (entry.lfs.sha256 if entry.lfs else entry.blob_id)
        local = api.hf_hub_download("org/name", path, repo_type="dataset", cache_dir=tmp_path / "cache")
        assert Path(local).read_bytes() == data == whole(ROOT + path)
    sha = api.repo_info("org/name", repo_type="dataset", revision="main").sha
    assert server.repositories["datasets/org/name"].revisions == {"main": sha}


def test_errors_agree_with_the_client_library(server: HubServer) -> None:
    client = pytest.importorskip("huggingface_hub")
    server.repositories["datasets/org/gated"] = Repository(token="other", gated=True)
    server.repositories["datasets/org/gated"].commit(FILES)
    api = client.HfApi(endpoint=server.url, token=False)
    for url, theirs, ours in (
        ("org/none/a.tar", client.errors.RepositoryNotFoundError, "no repository org/none among datasets"),
        ("org/name@v9/a.tar", client.errors.RevisionNotFoundError, "has no revision v9"),
        ("org/name/a.tar", client.errors.EntryNotFoundError, "No such file"),
        ("org/gated/empty", client.errors.GatedRepoError, "access must be requested"),
    ):
        found = split_url(f"hf://datasets/{url}")
        with pytest.raises(theirs):
            api.hf_hub_download(found.repository, found.path, repo_type="dataset", revision=found.revision)
        with pytest.raises((TarkitError, FileNotFoundError), match=ours) as caught:
            whole(f"hf://datasets/{url}")
        assert f"hf://datasets/{url}" in str(caught.value)


def test_tokens_go_to_the_hub_alone(server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From HF_TOKEN, else the file; to no other host, and into no message."""
    server.repositories["datasets/org/name"].token = "t0ken"
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(" t0ken\n")
    assert whole(ROOT + "data/train-0.tar") == DATA
    monkeypatch.setenv("HF_TOKEN", "other")
    with pytest.raises(TarkitError, match="or it is private") as caught:
        whole(ROOT + "data/train-1.tar")
    monkeypatch.setenv("HF_TOKEN", "t0ken")
    monkeypatch.setattr(hub, "_commits", {})
    assert whole(ROOT + "README.md") == FILES["README.md"]
    assert len(list(HubStore(StoreOptions()).list(ROOT))) == len(FILES)
    assert server.storage.log
    assert all("Authorization" not in headers for _, _, headers in server.storage.log)
    assert all("Authorization" in headers for _, _, headers in server.log)
    monkeypatch.setenv("HF_TOKEN", "wr0ng")
    for url in (ROOT + "README.md", "hf://datasets/org/none/x"):
        with pytest.raises(TarkitError, match="permission denied") as caught:
            whole(url)
        assert "wr0ng" not in f"{caught.value}{caught.value.hint}"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.delenv("HF_TOKEN")
    server.log.clear()
    for options in (StoreOptions(), StoreOptions(anonymous=True)):
        with pytest.raises(TarkitError, match="or it is private"):
            whole(ROOT + "README.md", options)
    assert all("Authorization" not in headers for _, _, headers in server.log)


def test_pages_on_another_host_get_no_token(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "t0ken")
    there = server.storage.serve("/more", b"[]")
    server.statuses = []
    store = HubStore(StoreOptions())
    store._commit(ROOT, split_url(ROOT))
    server.statuses = [(302, {"Location": there})]
    assert list(store.list(ROOT)) == []
    assert "Authorization" not in server.storage.log[-1][2]


def test_models_and_spaces(server: HubServer) -> None:
    for kind, root in (("models", "hf://org/name/"), ("spaces", "hf://spaces/org/name/")):
        repository = server.repositories[f"{kind}/org/name"] = Repository(lfs={"a"})
        repository.commit({"a": kind.encode(), "b": b"b"})
        assert (whole(root + "a"), whole(root + "b")) == (kind.encode(), b"b")


def test_all_files_are_of_one_commit(server: HubServer) -> None:
    """A commit to the branch while the process runs changes nothing; a commit and a tag are revisions too."""
    repository = server.repositories["datasets/org/name"]
    first = repository.revisions["main"]
    assert whole(ROOT + "data/train-1.tar") == FILES["data/train-1.tar"]
    second = repository.commit({"data/train-0.tar": b"new", "README.md": b"new"})
    assert whole(ROOT + "data/train-0.tar") == DATA
    assert [info.url for info in HubStore(StoreOptions()).list(ROOT + "data/train-10")] == [ROOT + "data/train-10.tar"]
    assert sum("/revision/" in path for _, path, _ in server.log) == 1
    assert whole(f"hf://datasets/org/name@{second}/README.md") == b"new"
    assert whole(f"hf://datasets/org/name@{first}/README.md") == FILES["README.md"]
    assert sum("/revision/" in path for _, path, _ in server.log) == 1
    repository.revisions["refs/pr/1"] = second
    assert whole("hf://datasets/org/name@refs/pr/1/README.md") == b"new"


def test_an_address_that_expires_is_asked_for_again(server: HubServer) -> None:
    """The signed address of a file at the storage is valid for a while only."""

    def expire(served: object, number: int) -> None:
        if number > 2:
            served.statuses = [403]  # type: ignore[attr-defined]

    serve = server.storage.serve
    server.storage.serve = lambda *args, **how: serve(*args, **{**how, "change": expire})  # type: ignore[method-assign]
    lines: list[str] = []
    assert whole(ROOT + "data/train-0.tar", StoreOptions(retries=0, timeout=2), lines) == DATA
    assert lines == []
    assert server.signatures > 1


def test_a_hub_that_fails(server: HubServer) -> None:
    """While it is busy it is asked again, a few times."""
    for status, headers, error in (
        (429, {"RateLimit": '"api";r=0;t=0'}, "429"),
        (429, {"Retry-After": "0"}, "429"),
        (418, {}, "418"),
        (403, {}, "permission denied"),
    ):
        server.statuses = [(status, headers)] * 99
        with pytest.raises(TarkitError, match=f"^{ROOT}README.md: .*{error}"):
            whole(ROOT + "README.md")
    lines: list[str] = []
    server.statuses = [(429, {"RateLimit": '"api";r=0;t=1'}), (503, {}), (504, {})]
    assert whole(ROOT + "README.md", lines=lines) == FILES["README.md"]
    assert len(lines) == 3


@pytest.mark.parametrize(("end", "error"), [(b"", "the Hub says"), (b"?", "checksum")])
def test_bytes_that_differ_are_an_error(end: bytes, error: str, server: HubServer) -> None:
    """What the storage sends has another length, or another SHA-256, than the Hub has described."""
    serve = server.storage.serve
    server.storage.serve = lambda path, data, **how: serve(path, data[:-1] + end, **how)  # type: ignore[method-assign]
    with pytest.raises(TarkitError, match=error):
        whole(ROOT + "data/train-0.tar")


def test_a_repository_is_packed_like_a_directory(server: HubServer, here: Path) -> None:
    """The Hub lists files in an order of its own; the shards are those of the same files on the disk."""
    for name, data in FILES.items():
        path = here / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    silent: list[str] = []
    local = tarkit.shard("t", "l-%d.tar", count=2, on_problem=silent.append)
    remote = tarkit.shard(ROOT, "r-%d.tar", count=2, on_problem=silent.append)
    assert [shard.sha256 for shard in remote] == [shard.sha256 for shard in local] != []
