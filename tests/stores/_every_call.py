"""A program that calls every public function of tarkit that takes `storage_options`, with URLs wherever it takes one.

Its argument is the address of a server. It prints the names of the functions.
"""

import importlib.util
import json
import os
import sys
from functools import partial

import tarkit

MINE = {"endpoint_url": sys.argv[1], "access_key_id": "one", "secret_access_key": "1secret", "region": "us-east-1"}
MINE |= {"net_retries": 0, "net_timeout": 20}
HOW = {"storage_options": MINE}
BUCKET = "s3://bucket"
called: list[str] = []


def done(*names: str) -> None:
    called.extend(names)


def put(name: str, data: str) -> str:
    """Write an object, and return its URL."""
    from tarkit.stores.connect import create_object
    from tarkit.stores.store import parse_options

    upload = create_object(f"{BUCKET}/{name}", options=parse_options(MINE))
    upload.write(data.encode())
    upload.close()
    return f"{BUCKET}/{name}"


def same(data: tarkit.Dataset) -> tarkit.Dataset:
    return data.map(keep, rejects=f"{BUCKET}/map/rejects.tar")


def keep(sample: tarkit.Sample) -> object:
    """Return the sample; the first one fails."""
    if sample.key == "0":
        raise ValueError("no")
    return sample


def repair(sample: tarkit.Sample) -> object:
    return sample


def make() -> str:
    """Write two archives, and return the glob that finds them."""
    for name, first in (("a", 0), ("b", 3)):
        with tarkit.TarWriter(f"{BUCKET}/in/{name}.tar", **HOW) as out:
            for number in range(first, first + 3):
                out.write(f"{number}", {"txt": f"text {number}", "cls": number % 2})
    with tarkit.ShardWriter(f"{BUCKET}/w/s-%d.tar", count=1, force=True, **HOW) as out:
        for number in range(3):
            out.write(f"{number}", {"txt": "x"})
    done("TarWriter", "ShardWriter")
    return f"{BUCKET}/in/*.tar"


def map_shards(pattern: str) -> None:
    """A job for each archive, with a journal; and the same again, of which nothing is left to do."""
    words = (pattern, f"{BUCKET}/map/{{stem}}.tar.gz", same)
    how = {"journal": "j", "resume": True, "compress": "gz", **HOW}
    assert tarkit.map_shards(*words, **how).done == 2
    assert tarkit.map_shards(*words, **how).kept == 2
    put("map/a.tar.gz", "damaged")
    with tarkit.TarWriter(f"{BUCKET}/in/b.tar", **HOW) as out:
        out.write("7", {"txt": "new", "cls": 1})
    assert tarkit.map_shards(*words, **how).done == 2
    assert [each.key for each in tarkit.open(f"{BUCKET}/map/b.tar.gz", **HOW)] == ["7"]
    done("map_shards")


def read(pattern: str) -> None:
    """Read, choose, order, count, check."""
    order, classes = put("f/order.txt", "2\n1\n0\n"), put("f/classes.txt", "dog\ncat\n")
    for inputs in (pattern, f"{BUCKET}/in/", f"{BUCKET}/in/a.tar::{BUCKET}/in/b.tar", [f"{BUCKET}/in/{{a,b}}.tar"]):
        assert len(list(tarkit.open(inputs, **HOW))) == 4
    assert len(list(tarkit.open(pattern, interleave=2, prefetch=2, **HOW))) == 4
    assert len(list(tarkit.open(f"{BUCKET}/f/order.txt", mode="lines", **HOW))) == 3
    data = tarkit.open(f"{BUCKET}/in/a.tar", **HOW)
    assert data.sort(order_file=order).head()[0].key == "2"
    assert data.find_disorder(order_file=order) is not None
    assert "text 1" in str(data.indexed()["1"]["txt"])
    assert data.get("1").key == "1"
    assert len(list(tarkit.loader(pattern, **HOW))) == len(list(tarkit.Loader(pattern, **HOW)))
    tarkit.stats(pattern, by="cls", classes=classes, world=2, **HOW).write_html(f"{BUCKET}/stats.html", **HOW)
    if importlib.util.find_spec("duckdb") is not None:
        tarkit.sql(f"select count(*) from '{pattern}'", f"{BUCKET}/sql.tsv", **HOW)
    done("sql")
    described = put("f/mix.json", json.dumps({"sources": [{"shards": f"{BUCKET}/in/*.tar"}, {"shards": "b.tar"}]}))
    with tarkit.TarWriter("b.tar") as out:
        out.write("x", {"txt": "x", "cls": 0})
    assert len(list(tarkit.mix(described, 7, until="all", **HOW))) == 5
    assert len(list(tarkit.mix([{"shards": pattern}, {"shards": "b.tar"}], 7, until="all", **HOW))) == 5
    done("open", "loader", "Loader", "stats", "Stats.write_html", "mix")


def write(pattern: str) -> None:
    """Write archives, shards, tables, pages, indexes."""
    data = tarkit.open(pattern, **HOW)
    assert data.write(f"{BUCKET}/o/all.tar", **HOW).samples == 4
    where = f"{BUCKET}/o/s-%d.tar"
    for more in ({}, {"append": True}, {"force": True, "manifest": f"{BUCKET}/o/list.tsv"}):
        assert data.split(where, count=2, **more, **HOW)
    chosen = put("f/map.json", json.dumps({"c-%d.tar": [".*"]}))
    os.mkdir("o")
    assert data.split("o/", map=chosen, **HOW)
    assert data.table(f"{BUCKET}/o/t.tsv", "txt", **HOW) == 4
    assert data.table(f"{BUCKET}/o/t.parquet", "txt", format="parquet", **HOW) == 4
    assert data.gallery(f"{BUCKET}/o/page.html", by="cls", classes=f"{BUCKET}/f/classes.txt", **HOW) == 4
    written = tarkit.index(f"{BUCKET}/in/a.tar", ["dali", "tsv"], f"{BUCKET}/x/", **HOW)
    tarkit.index(pattern, "tsv", **HOW)
    assert len(written) == 2
    assert tarkit.index(pattern, "wids", md5=True, **HOW)
    tarkit.verify_index(f"{BUCKET}/in/a.tar", ["dali", "tsv"], f"{BUCKET}/x/", **HOW)
    tarkit.verify_index(pattern, "tsv", **HOW)
    done("Dataset.write", "Dataset.split", "Dataset.table", "Dataset.gallery", "index", "verify_index")


def work(pattern: str) -> None:
    """Processed samples, and rejects: the options of the dataset hold for them, unless there are own."""
    for number, own in enumerate((HOW, {})):
        bad, out = f"{BUCKET}/p/bad-{number}.tar", f"{BUCKET}/p/out-{number}.tar"
        tarkit.open(f"{BUCKET}/in/a.tar", **HOW).map(keep, rejects=bad, **own).write(out, **HOW)
        assert len(list(tarkit.open([out, bad], **HOW).map(repair))) == 3
        bad, out = f"{BUCKET}/p/bad-c-{number}.tar", f"{BUCKET}/p/out-c-{number}.tar"
        data = tarkit.open(f"{BUCKET}/in/a.tar", **HOW)
        data.proc("grep -q 1 sample.txt", rejects=bad, **own).write(out, **HOW)
        assert len(list(tarkit.open([out, bad], **HOW))) == 3
        data.worker("cat", rejects=f"{BUCKET}/p/bad-w-{number}.tar", **own).write(out, **HOW)
    done("Dataset.map", "Dataset.proc", "Dataset.worker")


def check(pattern: str) -> None:
    table = put("f/keys.txt", "0\n1\n2\n7\n")
    tarkit.check(pattern, against=table, unique=True, **HOW)
    tarkit.check(f"{BUCKET}/o/s-*.tar", manifest=f"{BUCKET}/o/list.tsv", **HOW)
    tarkit.check(f"{BUCKET}/in/a.tar", same_as=f"{BUCKET}/in/a.tar", **HOW)
    tarkit.check(f"{BUCKET}/in/a.tar", fix="fixed.tar", rejects="rejects.tar", **HOW)
    done("check")


def pack() -> None:
    """Trees, plans and recipes."""
    for name in ("cat/0.txt", "cat/1.txt", "dog/2.txt"):
        put(f"t/{name}", name)
    joined = put("f/join.csv", "id,label\ncat/0,x\ncat/1,y\ndog/2,z\n")
    chosen = put("f/tree.json", json.dumps({"m-%d.tar": [".*"]}))
    classes = put("f/names.txt", "cat\ndog\n")
    call = partial(tarkit.shard, f"{BUCKET}/t/", f"{BUCKET}/k/s-%d.tar", count=2, join=f"{joined}:id", **HOW)
    assert call(dry_run=True)
    call(recipe=f"{BUCKET}/k.recipe")
    more = {"manifest": f"{BUCKET}/k/list.tsv", "depfile": f"{BUCKET}/k/dep"}
    assert call(**more)
    assert call(resume=True, **more)
    assert call(force=True, output_storage_options=HOW["storage_options"])
    how = {"label_from_dir": "cls", "classes": classes, "classes_out": f"{BUCKET}/k/classes", "map": chosen}
    assert tarkit.shard(f"{BUCKET}/t/", f"{BUCKET}/k/", **how, **HOW)
    put("t/dog/3.txt", "new")
    assert tarkit.shard(f"{BUCKET}/t/", f"{BUCKET}/k/u-%d.tar", count=2, update=True, **HOW)
    recipe = put("f/r.txt", "a.txt s3://bucket/t/cat/0.txt\na.bin s3://bucket/t/cat/1.txt\n")
    table = put("f/r.csv", "__key__,@txt\na,s3://bucket/t/cat/0.txt\n")
    assert tarkit.create(recipe, f"{BUCKET}/c.tar", parallel=2, **HOW) == 1
    assert tarkit.create(recipe, "c.tar", depfile=f"{BUCKET}/c.dep", **HOW) == 1
    assert tarkit.create(table, f"{BUCKET}/d.tar", format="csv", **HOW) == 1
    done("shard", "create")


def on_cluster(pattern: str) -> None:
    if importlib.util.find_spec("distributed") is not None:
        data = tarkit.open(pattern, **HOW).shuffle(seed=7)
        how = {"dask": "local", "spill": f"{BUCKET}/spill", **HOW}
        assert tarkit.write_on_cluster(data, f"{BUCKET}/y/s-%d.tar", count=2, **how)
    done("write_on_cluster")


if __name__ == "__main__":
    os.environ["DASK_DISTRIBUTED__WORKER__DAEMON"] = "False"
    shards = make()
    map_shards(shards)
    read(shards)
    write(shards)
    work(shards)
    check(shards)
    pack()
    on_cluster(shards)
    sys.stdout.write(json.dumps(called))
