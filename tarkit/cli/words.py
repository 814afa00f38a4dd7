"""Words that are no commands here, but that users of tar, coreutils, git, tarp, webdataset or pandas try as one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator

from tarkit.errors import Usage

# A command line, and the words that are tried for it, in lower case and with hyphens.
_TABLE = r"""
--version
    version
--help
    usage man commands
show --names x.tar  # paths, keys, fields and sizes
    ls ll list dir tree names keys entries files t tf tvf tzf -t
show x.tar -c 3  # the first samples
    head first top take peek view look less more print display preview tarshow
show x.tar --all  # all samples, the last ones too
    tail last dump
show x.tar --match '^a/'  # samples whose key begins so; --where looks at fields
    search
show x.tar --html page.html  # a page with pictures and a search
    gallery browse images html serve web draw
stats x.tar  # counts, fields and sizes
    info inspect describe stat du size sizes schema summary summarize fields status analyze profile
stats x.tar --total  # the number of samples
    count wc len length nl total
stats x.tar --by cls  # how many samples a class has
    hist histogram plot value-counts groupby group classes
tsv x.tar -f 'cls json.width' -o x.tsv  # a table; .csv, .jsonl, .parquet are others
    export tables csv json jsonl parquet columns cut awk dataframe to-csv to-json to-parquet tar2tsv tar2json
sql "select cls, count(*) from 'x.tar' group by cls"  # a query; fields and paths into JSON are columns
    duckdb query-sql sqlite select-sql join-sql
get a/17.jpg x.tar -o 17.jpg  # one field of a sample
    read open field lookup pick tarfirst
extract x.tar -C files  # unpack all samples
    unpack untar unzip expand explode x xf xvf xzf -x --extract
shard pictures/ -c 1000 -o 'p-%06d.tar'  # pack a directory
    pack tar zip make build archive write add new init ingest prepare c cf cvf czf -c --create ishard
create table.csv --format csv -o new.tar  # pack what a table or a recipe lists
    import load from-csv from-parquet tsv2tar lines2tar
cat x.tar y.tar -o both.tar  # one archive after the other
    merge concat concatenate combine append union extend tarcats tarpcat
cat x.tar -o y.tar.zst  # a copy; the suffix compresses
    cp copy convert compress decompress gzip gunzip zstd transcode repack
cat https://host/x.tar -o x.tar  # a copy; s3:// and other URLs too
    download fetch pull clone wget curl
cat x.tar -o s3://bucket/x.tar  # a copy; gs:// and other URLs too
    upload push publish sync deploy
cat x.tar --where 'cls == 3' -o some.tar  # the samples for which it is true
    filter where grep query find subset
cat x.tar --sample 0.1 -o some.tar  # a tenth of the samples, drawn at random
    sample draw-sample subsample
cat x.tar -f 'jpg cls' -o some.tar  # these fields of each sample; --where chooses samples
    select project keep
cat x.tar --drop json -o less.tar  # all fields but one; --where chooses samples
    drop strip
cat x.tar --where "__key__ != 'a/17'" -o rest.tar  # a copy without a sample
    rm delete del remove exclude
cat x.tar -f 'image:jpg label:cls' -o y.tar  # new names of fields; --rekey changes keys
    rename mv move rekey
cat x.tar --join labels.csv -o joined.tar  # columns become fields; of archives: sort --allow joined-sample
    join zip-with annotate join-csv merge-columns
split x.tar -c 1000 -o 'x-%05d.tfrecord'  # to TFRecord; it, MDS and Parquet are inputs too
    tfrecord tfrecords mds from-tfrecord to-tfrecord from-mds to-mds
sort x.tar -s json.score -o sorted.tar  # by a field
    order order-by rank arrange
shuffle x.tar -o shuffled.tar  # a random order
    shuf permute randomize random
mix x.tar@3 y.tar@1 -o mixed.tar  # by weights
    blend interleave weight weights balance tarmix
split x.tar -c 1000 -o 'x-%06d.tar'  # shards of 1000 samples
    reshard shards chunk divide rechunk repartition tarsplit
split x.tar -c 1000 --parts train=0.9,val=0.1  # shards of each part
    partition train-test-split folds holdout
proc x.tar -c 'md5sum sample.jpg > sample.md5' -o y.tar  # a command for each sample; --map calls Python
    map apply run exec transform process edit filter-map tarproc
each '*.tar' -- stats {} --total  # a command line for each archive
    foreach for xargs parallel batch jobs
check x.tar  # what is wrong
    validate verify lint test fsck scan doctor audit
check x.tar --fix clean.tar  # a clean copy
    repair fix recover clean salvage rescue heal
check x.tar --unique  # keys that occur twice
    uniq unique
cat x.tar --unique-by sha256.jpg -o once.tar  # without samples of the same content
    dedup dedupe deduplicate distinct
check x.tar --unique --by phash.jpg  # pictures that look alike; sha256.jpg is the same content
    duplicates near-duplicates dups
check x.tar --leak y.tar --by sha256.jpg  # samples that are in both
    leak leaks leakage contamination overlap disjoint
check x.tar --same-as y.tar  # are the samples the same?
    equal same
check x.tar --diff y.tar  # which samples differ?
    diff cmp compare delta
check x.tar --decode all  # which pictures, sounds, JSON .. are broken?
    decode broken corrupt corrupted
index x.tar --format wids  # dali, energon, webshart, tsv and parquet too
    reindex wids widsindex wds2idx idx
completion bash  # also zsh and fish
    completions autocomplete
"""


def table() -> Iterator[tuple[str, list[str]]]:
    """Yield command lines, each with words for it."""
    command = ""
    for line in _TABLE.splitlines():
        if line.startswith(" "):
            yield command, line.split()
        else:
            command = line


def answer(word: str) -> str | None:
    """Return the hint for a word that is no command, or for an option of tar; None for any other word."""
    if os.path.isfile(word):
        return f"tarkit show {shlex.quote(word)}  # what is in it"
    known = word.lower().replace("_", "-")
    names = (known, known.removeprefix("--"))
    return next((f"tarkit {line}" for line, words in table() if not {*names}.isdisjoint(words)), None)


def no_command(name: str, commands: Iterable[str]) -> Usage:
    """Return the error for a word that is none of the commands: what to call, or commands that are spelled like it."""
    from difflib import get_close_matches

    if (hint := answer(name)) is not None:
        return Usage(f"No such command {name!r}.", hint)
    near = " or ".join(sorted(map(repr, get_close_matches(name, commands))))
    return Usage(f"No such command {name!r}.{f' (Did you mean {near}?)' if near else ''}", "see tarkit --help")
