"""Wrong arguments of the API, and arguments in several forms: one clear error in words of Python, nothing written."""

from __future__ import annotations

import builtins
import errno
import inspect
import io
import os
import re
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit import errors
from tests._tools import each_row
from tests.api._inputs import write_inputs
from tests.conftest import Archive

Call = Callable[[tarkit.Dataset], Any]


# A call, its exception, a part of the message, and of the hint after `|`; `...` is for any words.
ERRORS = r"""
check('a.tar', target='torch') -> Usage: target='torch': it is one of
data.check(target='torch') -> Usage: target='torch'
check('a.tar', rejects='r.tar') -> Usage: rejects requires fix
check('a.tar', fix='f.tar', processes=2) -> Usage: fix cannot be
check('a.tar', same_as='a.tar', unique=True) -> Usage: same_as
check('a.tar', leak='cut.tar') -> Usage: leak requires by | sha256.jpg
check('a.tar', unique=True, by='sha256.x:1') -> Usage: by='sha256.x:1': sha256 has no distance
data.write('x-%06d.tar') -> Usage: %06d numbers a series of files | use .split()
TarWriter('x-{00..10}.tar') -> Usage: numbers a series
data.table('x-%06d.csv') -> Usage: numbers a series
data.where(lambda s: True) -> TypeError: for a function use map
data.shuffle(seed='x') -> TypeError: seed='x': a whole number is needed, not str
data.shuffle(None) -> TypeError: seed=None: a whole number
mix(['a.tar', 'b.tar'], seed=1) -> TypeError: pairs (dataset, weight)
mix([(2, data)], seed=1) -> TypeError: pairs (dataset, weight)
mix(data, seed=1) -> TypeError: pairs (dataset, weight)
data.head(-1) -> Usage: count=-1: it is at least 0
data.extract('d', mtime='then') -> Usage: mtime=
data.extract('d', mtime=10 ** 12) -> Usage: mtime=
data.extract('d', mtime=1.5) -> TypeError: mtime=
open('a.tar', shard_slice=slice(-1, None)) -> Usage: counts from the start
open('a.tar', shard_slice=slice(0, -1)) -> Usage: counts from the start
open('a.tar', shard_slice=slice(0, 3, -1)) -> Usage: counts from the start
open('a.tar', shard_slice=3) -> TypeError: shard_slice=3: a slice is needed
data.write(3) -> TypeError: a path or a binary file object, not int
data.write(io.StringIO()) -> Usage: a text file | open it in mode 'wb'
data.select(3) -> TypeError: fields=3: a str or a list of str is needed
data.keys([1, 2]) -> TypeError: keys=[1, 2]: a str or a list of str
data.sample('x', 1) -> TypeError: share='x': a number is needed, not str
data.proc('true', add_log='a/b') -> Usage: add_log 'a/b': expected the name
data.proc('true', add_log='log', multi=True) -> Usage: add_log 'log': not with multi
data.proc('true', add_log='log', batch=2) -> Usage: add_log 'log': not with multi or batch
data.proc('true', multi=True, batch=2) -> Usage: batch cannot be used with multi
data.sample(2.0, 1) -> Usage: share=2.0: it is a whole number of samples, or a share from 0.0 to 1.0
data.sample(-1, 1) -> Usage: share=-1: it is at least 0
data.balance('cls', 0, seed=1) -> Usage: per_class=0: it is at least 1
data.balance('cls', 'all', seed=1) -> Usage: per_class='all': it is one of min, max, median
data.unique_by(1) -> TypeError: field=1: a str is needed
data.slice(0, 3, 0) -> Usage: with a step of at least 1
data.match(3) -> TypeError: pattern=3: a str is needed, not int
data.match(None) -> TypeError: pattern=None: a str is needed
data.split('x-%d.tar', size=1.5) -> TypeError: size=1.5: a whole number
data.sort(by=[]) -> Usage: by names no field
data.sort(by=3) -> TypeError: by=3: a str or a list of str is needed
data.sort('cls', order_file='x') -> Usage: order_file cannot be used with by
data.find_disorder(type='x') -> Usage: type='x': it is one of
data.indexed()[10000] -> IndexError: no sample 10000: the dataset has 10
data.indexed()[-11] -> IndexError: no sample -11: the dataset has 10
data.head()[0]['jpg'] -> KeyError: jpg: no such field; the sample 00 has txt, cls

data.where("__import__('os')") -> Usage: where: unknown function; the functions are abs, endswith, field, float, has, in
data.slice(-1) -> Usage: slice(-1, None, 1): a slice counts from the start, with a step of at least 1
data.slice(0, 3, -1) -> Usage: slice(0, 3, -1): a slice counts from the start, with a step of at least 1
data.sort(type=None) -> TypeError: type=None: without it the default is 'auto'
data.require('x', on_missing=None) -> Usage: on_missing=None: it is one of error, warn, skip, keep
open('a.tar', mode=None) -> Usage: mode=None: it is one of
data.split('x-%d.tar', shards=2, even=None) -> TypeError: even=None: without it the default is 'count'
data.proc('true', retries=None) -> TypeError: retries=None: without it the default is 0
open('a.tar', allow=None) -> TypeError: allow=None: without it the default is ()
shard('d', 'x-%d.tar', require='x', on_missing=None) -> TypeError: on_missing=None: without it the default is
create('recipe', 'x.tar', parallel=None) -> TypeError: parallel=None: a whole number is needed, not NoneType
stats('a.tar', processes=None) -> TypeError: processes=None: without it the default is 1
data.sort(type='nix') -> Usage: type='nix': it is one of auto, str, int, float, natural
data.table('t.tsv', 'a:') -> Usage: invalid column 'a:': it must be NAME, A;B, NEW:NAME or NEW:A,B
data.write('x.tar', compress='nix') -> Usage: compress='nix': the codec is one of gz, zst, lz4, xz, bz2, zip, none
data.table('t', on_missing='nix') -> Usage: on_missing='nix': it is one of error, warn, skip, keep
data.table('t', format='nix') -> Usage: format='nix': it is one of tsv, csv, jsonl, json, yaml, parquet
data.table('t.xlsx') -> Usage: t.xlsx: tables of this format are not written
data.split('x-%d.tar', size_rule='nix') -> Usage: size_rule='nix': it is one of tar, content
mix([data], seed=1, until='nix') -> Usage: until='nix': it is one of first, all
data.split('x-%d.tar', size=0) -> Usage: size=0: it is at least 1
data.split('x-%d.tar', max_shards=0) -> Usage: max_shards=0: it is at least 1
data.split('x-%d.tar', start=-1) -> Usage: start=-1: it is at least 0
open('in.tar', interleave=0) -> Usage: interleave=0: it is at least 1
open('in.tar', prefetch=-1) -> Usage: prefetch=-1: it is at least 0
open('in.tar', maxerr=-1) -> Usage: maxerr=-1: it is at least 0
data.buffer_shuffle(0, seed=1) -> Usage: size=0: it is at least 1
data.sort(memory=100) -> Usage: memory=100: it is at least 1000000
data.shuffle(1, memory=-1) -> Usage: memory=-1: it is at least 1000000
mix([data], seed=1, total=-1) -> Usage: total=-1: it is at least 0
mix([(data, float('nan'))], seed=1) -> Usage: sources[0]: `weight` is more than 0

mix('a.tar', 1) -> Usage: a.tar: a mix is described in a file .yaml
mix({'shards': 'a.tar'}, 1) -> TypeError: a mix is of datasets
mix(3, 1) -> TypeError: a mix is of datasets
mix([{'weight': 1}], 1) -> Usage: sources[0]: `shards` is a name
mix([{'shards': 'a.tar', 'weigth': 1}], 1) -> Usage: did you mean 'weight'
mix([{'shards': 'a.tar', 'weight': 'x'}], 1) -> Usage: `weight` is a number
mix([open('a.tar')], 1, skip='truncated') -> Usage: skip: it is for sources that are names
mix([{'shards': open('a.tar'), 'nstreams': 2}], 1) -> Usage: `nstreams` is for shards that are names
mix([{'shards': mix([open('a.tar')], 1), 'shuffle': 2}], 1) -> Usage: a mix has no shards
mix([open('a.tar')], 1, each=print) -> TypeError: each returns a dataset, not NoneType
mix([{'shards': '-'}, {'shards': '-'}], 1) -> Usage: stdin is named more than once

index('a.tar', ()) -> Usage: format is missing
index('a.tar', 3) -> TypeError: format=3: a str or a list of str is needed
index('a.tar', 'dali', processes=-1) -> Usage: processes=-1: it is at least 0
verify_index('a.tar') -> TarkitError: no index to verify
verify_index('a.tar', 'nix') -> Usage: no such format

data.worker(b'cat') -> TypeError: command=b'cat': a str is needed, not bytes
data.map(dict, proces=2) -> TypeError: map... got an unexpected ... 'proces'
data.map(dict, init='f.py:g') -> TypeError: a function is needed, not str
data.map(list, batch=0) -> Usage: batch=0: it is at least 1
data.map(dict, allow_pickle=True) -> Usage: allow_pickle requires decode
data.map(dict, max_errors='many') -> Usage: max_errors 'many': expected a number
data.worker('cat', max_errors=0.1) -> Usage: max_errors '0.1': ... 1%
data.map(dict, on_error='error', rejects='bad.tar') -> Usage: on_error='error' cannot be used with max_errors or rejects
data.map(dict, mtime='now') -> TypeError: mtime='now': a whole number is needed
data.map(dict, rejects='-') -> Usage: rejects needs a file
open('in.tar', mode='words') -> Usage: mode='words': it is one of tar, keys
open('in.tar', mode='lines', prefetch=1) -> Usage: need archives
data.map(dict, rejects='o.tar').write('o.tar') -> Usage: is the rejects, and the ou
data.map(dict, rejects='o.csv').table('o.csv') -> Usage: is the rejects, and the ou
data.map(dict, rejects='o-1.tar').split('o-%d.tar') -> Usage: the shards may get
data.map(dict, rejects='in.tar').write('o.tar') -> Usage: both input and output

open('no.tar') -> MissingFile: no.tar: No such file or directory
open('no-{0..3}.tar') -> MissingFile: 4 of the 4 names of no-{0..3}.tar are missing
open(['in.tar', 'no.tar']) -> MissingFile: no.tar
open('file:no.tar') -> MissingFile: no.tar
stats('no.tar') -> MissingFile: no.tar
index('no.tar', 'tsv') -> MissingFile: no.tar
loader('no.tar') -> MissingFile: no.tar
mix('no.yaml', 1) -> MissingFile: no.yaml
mix([{'shards': 'no.tar'}], 1) -> MissingFile: no.tar
create('no.csv', 'out.tar') -> MissingFile: no.csv
list(data.sort(order_file='no.txt')) -> MissingFile: no.txt
open('') -> Usage: the name of an input is empty
open([]) -> Usage: the list of inputs is empty
open(b'in.tar') -> TypeError: not bytes
open(3) -> TypeError: not int
open(None) -> TypeError: not NoneType
open(['in.tar', 3]) -> TypeError: not int
open(['-', '-']) -> Usage: stdin is named more than once

plan(directory='nix') -> FileNotFoundError: nix
plan(directory='tree/one/a.jpg') -> Usage: is not a directory
plan(require='txt') -> TarkitError: a field that require does not name [missing-field]
plan(join='nix.csv:name') -> OSError: nix.csv
plan(label_from_dir='cls', classes='nix') -> OSError: nix
plan(count=0) -> Usage: count=0: it is at least 1
plan(dirs='keep') -> Usage: dirs='keep': it is one of pack, separate, collapse
plan(on_missing='skip') -> Usage: on_missing='skip': it is one of error, warn, keep, exclude
plan(classes_out='file') -> Usage: classes and classes_out require label_from_dir
plan(shards=2, size='9K') -> Usage: shards and even cannot be used with count or size
plan(even=True, dirs='collapse') -> Usage: shards and even cannot be used with dirs='collapse'
plan(shards=2, map='m') -> Usage: shards and even cannot be used with map
plan(size=0) -> Usage: size=0: it is at least 1

make(count=-1) -> TarkitError: count=-1: it is at least 0
make(parallel=0) -> TarkitError: parallel=0: it is at least 1
make(format='xml') -> TarkitError: format='xml': it is one of tsv, csv, jsonl
make(columns=['txt']) -> TarkitError: columns and a key require format
make(recipe='tree') -> TarkitError: tree: Is a directory
make(mtime=-1 << 70) -> Usage: mtime=-1180591620717411303424: it is from -62135596800 to 253402300799 seconds since 1970
make(output='-', depfile='out.d') -> Usage: depfile requires an output file
make(output='out.tar', depfile='recipe') -> Usage: recipe is both input and output
make(output='out.tar', depfile='./out.tar') -> Usage: out.tar is the output, and the depfile too

data.map(len, retries=-1) -> Usage: retries=-1: it is at least 0
data.map(len, timeout=0) -> Usage: timeout=0: it is more than 0 seconds
data.map(len, timeout=float('nan')) -> Usage: timeout=nan
data.map(len, on_error='ignore') -> Usage: on_error='ignore': it is one of error, skip, keep

count(processes=-1) -> TarkitError: processes=-1: it is at least 0
count(workers=1 << 62) -> TarkitError: world times workers is at most 1000000
count(world=2000, workers=1000) -> TarkitError: world times workers is at most 1000000
count(world=0) -> TarkitError: world=0: it is at least 1
count(workers=0) -> TarkitError: workers=0: it is at least 1
count(classes='names') -> TarkitError: classes requires by

split(parts=2, stratify='cls', seed=1) -> Usage: stratify uses no hash: it cannot be used with seed
split(parts={'a': 0.5}) -> Usage: parts 'a=0.5': the shares sum to 0.5
split(shards=3, count=3) -> Usage: shards cannot be used with count or size
split(even='tar') -> Usage: even='tar': it is one of count, size
split(remainder='nix', shards=3) -> Usage: remainder='nix'
split(shards=0) -> Usage: shards=0: it is at least 1
split(append=True, start=3) -> Usage: append continues after the last shard: it cannot be used with start
split(map={'x-%d': ['.']}) -> Usage: with map, template is a directory: the map has the names of shards

loader(data, shuffle='some') -> Usage: shuffle='some': it is the number of samples in a buffer
loader(data, shuffle=-1) -> Usage: shuffle=-1: it is at least 0
loader(data, batch=0) -> Usage: batch=0: it is at least 1
loader(data, epochs=0) -> Usage: epochs=0: it is at least 1
loader(data, equal='some') -> Usage: equal='some': it is one of drop, repeat
loader(data, length=5, equal='drop') -> Usage: length cannot be used with equal
loader(data, collate=len) -> Usage: collate requires batch
loader(data, resample=True, equal='drop') -> Usage: equal cannot be used with resample
loader(data, shuffle='full', resample=True) -> Usage: cannot be used with resample or interleave
loader(data, shuffle='full', equal='drop', where='cls == 1') -> Usage: needs all samples
loader(data.require('jpg', on_missing='skip'), shuffle='full', equal='drop') -> Usage: needs all samples
loader(open('a.tar', skip='missing-field').select('jpg'), shuffle='full', equal='drop') -> Usage: needs all samples
loader(data.drop('x*'), shuffle='full', equal='drop') -> Usage: needs all samples
len(loader(data.require('jpg', on_missing='skip'), shuffle='full')) -> TypeError: the number of samples is known with
len(loader(open('a.tar', skip='all').select('jpg'), shuffle='full')) -> TypeError: the number of samples is known with

list(open('cut.tar')) -> TarkitError: [truncated] | ; tarkit.open(..., skip='truncated') keeps the whole
list(open('a.tar', allow='truncated', skip='truncated')) -> TarkitError: allow and skip both name truncated
list(open('a.tar', allow='nix')) -> TarkitError: allow nix: unknown problem
data.where('cls =') -> TarkitError: where 'cls =':
list(data.where('nix == 1')) -> TarkitError: has no field 'nix' | ; tarkit.open(..., skip='missing-field') leaves
list(loader(data, select='txt jpg')) -> TarkitError: has no field 'jpg' | tarkit.open(..., skip='missing-field') leaves
list(data.where('txt > 1')) -> TarkitError: where 'txt > 1' for '00':  | tarkit.open(..., skip='bad-field') drops such s
data.match('(') -> TarkitError: match '(':
data.rekey('{nix}') -> TarkitError: rekey '{nix}':
data.rekey('k').write('o.tar') -> TarkitError:  | this rekey gives two samples one key: another makes them differ, rekey
list(data.require('jpg')) -> TarkitError: [missing-field] | on_missing='skip' drops such samples
data.sort('txt', type='int').write('o.tar') -> TarkitError: not a | type='auto' takes all
data.sort('nix').write('o.tar') -> TarkitError: [missing-field] | ...skip='missing-field') leaves such samples out, allo
data.sort(order_file='keys').write('o.tar') -> TarkitError: is not in keys | that are: keys keys
list(data.map(fails)) -> TarkitError: raised ValueError | on_error='skip' leaves such samples out, rejects='OUT.tar' col
list(data.map(fails, max_errors=3)) -> TarkitError: failed, more than max_errors allows
list(data.proc('nix-program')) -> TarkitError:  | by their absolute paths
list(data.proc('/no/such')) -> TarkitError:  | by their absolute paths
list(data.worker('exit 3')) -> TarkitError: worker exit 3:
data.extract('tree/out') -> TarkitError: there are files of these names | force replaces them, directory names another d
open('a.tar', allow='unsafe-name').extract('d') -> TarkitError: allow='unsafe-name': what is unsafe | skip='unsafe-name'
data.split('tree/s-%d.tar') -> TarkitError:  | force replaces them; append keeps them, and
data.split('o-%02d.tar', shards=11, remainder='drop') -> TarkitError:  | remainder='repeat'
data.split('o-%d.tar', even='size') -> TarkitError: even='size' requires a number | shards=64, or a
data.split('o-%d.tar', group='x') -> TarkitError: group requires parts
data.split(parts=2, map={'a': ['b']}) -> TarkitError: map and parts cannot be used together
data.split('o-%d.tar', parts=2, group='y') -> TarkitError:  | match all: group='y|.*'
data.table('t.zip') -> TarkitError: refusing to write text to a zip | compress='none', or another name
check('a.tar', fix='-') -> TarkitError: fix writes to files | name it: fix='clean.tar'
create('recipe', 'o.tar') -> TarkitError:  | group gathers the entries of each sample
plan(require='txt', on_missing='error', match='jpg|txt') -> TarkitError: [missing-field] | on_missing='exclude' leaves s
plan(key='(') -> TarkitError: key '(':
plan(join='x') -> TarkitError: join 'x': unknown kind of table
plan(join='caps.csv') -> TarkitError: no column '__key__' | name the column with the keys: join='caps.csv:COLUMN'
list(data.join('caps.csv')) -> TarkitError: no column '__key__' | name the column with the keys: join('caps.csv', 'COL
shard('tree/one', 'tree/s-%d.tar') -> TarkitError:  | resume keeps those that are as planned, ..., force replaces them
data.split('-') -> Usage: not stdout | name them with template='out-%06d.tar'
shard('tree', '-') -> Usage: stdout
shard('tree', 't-%d.tar', update=True, force=True) -> Usage: update adds to existing shards: it cannot be used with forc
make('piped') -> TarkitError: piped:2: pipe: is not allowed here
make('piped.tsv', format='tsv') -> TarkitError: piped.tsv:2: ...pipe: is not allowed here
make('failing', pipes=True) -> TarkitError: failing:2:
mix([], 1) -> Usage: a mix is of at least one dataset
mix([data], 1, repeat=True) -> Usage: repeat has no end
mix([data], 1, repeat=True, until='first', total=3) -> Usage: repeat cannot be used with until='first'
list(mix([data.match('nix')], 1)) -> TarkitError: no sample to draw
make(output='nix/out.tar') -> FileNotFoundError: nix/out.tar
data.map('functions.py:same') -> TypeError: a function is needed, not str
data.write('out.tar', progress=3) -> TypeError: progress=3: a function is needed, not int
data.gallery('page.html', count=-1) -> Usage: count=-1: it is at least 0
data.gallery('in.tar') -> Usage: in.tar is both input and output
data.write('in.tar') -> Usage: in.tar is both input and output
open('tree/s-0.tar').split('tree/s-%d.tar', count=1, force=True) -> Usage: tree/s-0.tar is an input, and has a name that
data.gallery('page.html', classes='nowhere') -> FileNotFoundError: nowhere
data.get(0) -> TypeError: a key is a str, not int
open('a.tar', decode='grey') -> Usage: decode has no form of pictures 'grey' | torchrgb8
open('a.tar', decode=False) -> Usage: decode=False decodes nothing
open('a.tar', allow_pickle=True) -> Usage: allow_pickle requires decode
open('a.tar', decode={'jpg png': 'rgb', 'jpg': 'l'}) -> Usage: decode has two rules for 'jpg'
open('a.tar', decode={'jpg': 3}) -> TypeError: a rule of decode is a function of bytes, ..., not int
open('a.tar', decode=['pil']) -> TypeError: decode takes True, ..., not list
open('a.tar', decode=True).map(dict, decode=True) -> Usage: the samples of this dataset are decoded already
TarWriter('') -> Usage: the name of the output is empty
TarWriter('none/o.tar') -> FileNotFoundError: none/o.tar
ShardWriter('-') -> Usage: stdout
ShardWriter('o-%d-%d.tar') -> Usage: more than one number
ShardWriter('') -> Usage: empty
ShardWriter('x-%d.tar', maxcount=3) -> TypeError: ShardWriter() got ... 'maxcount': it is count=
loader('x', batch_size=3) -> TypeError: loader() got ... 'batch_size': it is batch=
loader('x', bach=3) -> TypeError: loader() got ... 'bach': see
loader(data, buffer=3) -> TypeError: buffer
loader(data, allow_pickle=True) -> Usage: allow_pickle requires decode
data.shuffle(bufsize=100) -> TypeError: a buffer is buffer_shuffle(size, seed)
data.shuffle(buffer_size=10, seed=1) -> TypeError: a buffer is buffer_shuffle(size, seed)
"""


def fails(sample: tarkit.Sample) -> Any:
    raise ValueError


NAMES = {
    **{name: getattr(tarkit, name) for name in tarkit.__all__},
    "Path": Path,
    "io": io,
    "fails": fails,
    "plan": lambda directory="tree", **options: tarkit.shard(directory, **options),
    "make": lambda recipe="recipe", output="out.tar", **options: tarkit.create(recipe, output, **options),
    "count": lambda inputs="in.tar", **options: tarkit.stats(inputs, **options),
    "split": lambda **options: tarkit.open("in.tar").split(
        "{part}-%d.tar" if "parts" in options else "s-%d.tar", **options
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with what calls read."""
    with chdir(folder := tmp_path_factory.mktemp("arguments")):
        write_inputs()
    return folder


@pytest.mark.filterwarnings("ignore::tarkit.TarkitWarning")
@each_row("row", ERRORS.split("\n"))
def test_errors(row: str, inputs: Path) -> None:
    """An error and its hint name arguments, and no option; nothing is written."""
    if not row:
        return
    code, _, expected = row.partition(" -> ")
    kind, _, said = expected.partition(": ")
    message, _, hint = said.partition(" | ")
    with chdir(inputs):
        before = sorted(map(str, Path().rglob("*")))
        with pytest.raises(
            getattr(errors, kind, None) or getattr(tarkit, kind, None) or getattr(builtins, kind)
        ) as error:
            eval(code, {**NAMES, "data": tarkit.open("in.tar")})
        assert sorted(map(str, Path().rglob("*"))) == before
    if isinstance(missing := error.value, errors.MissingFile):
        assert isinstance(missing, FileNotFoundError)
        assert missing.errno == errno.ENOENT
        assert str(missing.filename) in str(missing)
    for part, text in ((message, str(error.value)), (hint, str(getattr(error.value, "hint", "")))):
        assert re.search(".*".join(map(re.escape, part.split("..."))), text), text
        assert not re.search(r"(?<![\w-])--?[a-zA-Z]", re.sub("tarkit index .*| -key", "", text)), text


# What each function is called with, and each method of a dataset.
CALLS = """
tarkit.open: 'a.tar'; tarkit.stats: 'a.tar'; tarkit.check: 'a.tar'; tarkit.verify_index: 'a.tar'; tarkit.loader: 'a.tar'
tarkit.index: 'a.tar', 'tsv'; tarkit.create: 'recipe', 'o.tar'; tarkit.shard: 'tree', 's-%d.tar'
tarkit.mix: ['a.tar'], 1; tarkit.map_shards: 'a.tar', 'm-{stem}.tar', len; tarkit.TarWriter: 'o.tar'
tarkit.ShardWriter: 'o-%d.tar'
data.where: 'cls == 1'; data.match: '0'; data.keys: '00'; data.sample: 0.5, 1; data.slice: 0; data.rekey: '{key}'
data.shuffle: 1; data.buffer_shuffle: 3, 1; data.map: dict; data.proc: 'true'; data.worker: 'cat'; data.get: '00'
data.gallery: 'p.html'; data.table: 't.tsv'; data.extract: 'd'; data.write: 'o.tar'; data.split: 'o-%d.tar'
data.head: ; data.decode: ; data.sort: ; data.find_disorder: ; data.stats: ; data.check: ; data.require: 'cls'
"""
WRONG = {"str": 5, "int": "x", "float": "x", "bool": "no"}


def test_arguments_of_wrong_types(data: tarkit.Dataset) -> None:
    """Each argument of a plain type is checked before anything is read or written: the TypeError names it."""
    before, checked = sorted(os.listdir()), 0
    for call, words in re.findall(r"([\w.]+): ([^;\n]*)", CALLS):
        function, given = eval(call, {"tarkit": tarkit, "data": data}), eval(f"({words}{',' * bool(words)})")
        for at, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
            kinds = {*str(parameter.annotation).split(" | ")} - {"None"}
            if kinds and kinds <= WRONG.keys():
                wrong: object = WRONG[kinds.pop()] if len(kinds) == 1 else ()
                named = {} if at < len(given) else {name: wrong}
                with pytest.raises((TypeError, tarkit.Usage)) as error:
                    function(*given[:at], *(() if named else (wrong,)), *given[at + 1 :], **named)
                assert name in str(error.value), (call, name)
                checked += 1
    assert checked > 130
    assert sorted(os.listdir()) == before


@each_row(
    "forms",
    [
        [lambda data: data.select("cls txt"), lambda data: data.select(["cls", "txt"])],
        [lambda data: data.select("cls txt"), lambda data: data.select("cls", "txt")],
        [lambda data: data.drop("cls", "txt"), lambda data: data.drop(["cls", "txt"])],
        [lambda data: data.require("cls", "txt"), lambda data: data.require(["cls", "txt"])],
        [lambda data: data.require("cls", "txt"), lambda data: data.require("cls,txt")],
        [lambda data: tarkit.mix([(data, 2)], 1), lambda data: tarkit.mix([[data, 2]], 1)],  # type: ignore[list-item]
    ],
)
def test_words_and_lists(data: tarkit.Dataset, forms: list[Call]) -> None:
    """A list is equivalent to a str with names."""
    one, other = ([list(each.items()) for each in form(data)] for form in forms)
    assert one == other


def test_columns_as_a_list(data: tarkit.Dataset) -> None:
    """A list of columns is equivalent to a str with spaces."""
    assert data.table("x.csv", ["cls", "txt"]) == data.table("y.csv", "cls txt") == 10
    assert Path("x.csv").read_bytes() == Path("y.csv").read_bytes()


def test_names_of_problems_and_fields(data: tarkit.Dataset) -> None:
    """A str is one name, or several with commas; a key may contain a comma."""
    Path("cut.tar").write_bytes(Path("a.tar").read_bytes()[:3000])
    assert [each.name for each in tarkit.check("a.tar", require="png")] == ["missing-field"] * 10
    assert [each.name for each in tarkit.check("a.tar", require="png,txt")] == ["missing-field"] * 10
    for allow in ("truncated", "truncated,bad-header", ["truncated", "bad-header"]):
        assert tarkit.check("cut.tar", allow=allow).ok
        assert data.__class__ is tarkit.open("cut.tar", allow=allow).__class__
    with pytest.warns(tarkit.TarkitWarning):
        assert len(list(tarkit.open("cut.tar", skip="truncated, bad-header"))) == 1
    assert not list(data.keys("00,01"))


def test_templates_may_be_paths(data: tarkit.Dataset, here: Path) -> None:
    assert len(data.split(here / "s-%d.tar", count=5)) == 2
    assert data.write("file:x-%06d.tar").samples == 10, "which is no template"
    with tarkit.ShardWriter(here / "w-%d.tar") as out:
        out.write("a", {"txt": "x"})
    assert [shard.name for shard in tarkit.shard("tree", here / "p-%d.tar")] == [str(here / "p-0.tar")]


def test_repr(data: tarkit.Dataset) -> None:
    """The repr is short: the number of inputs, and the steps."""
    Path("bad.tar").write_bytes(b"x" * 1000)
    chain = (
        data.where("cls == 1").match("0").keys("01").sample(1, seed=1).slice(0).select("txt").drop("x").require("txt")
    )
    chain = chain.rekey("{key}").sort().shuffle(1).buffer_shuffle(3, 1).map(dict).proc("true")
    steps = "where, match, keys, sample, slice, select, drop, require, rekey, sort, shuffle, buffer_shuffle, map, proc"

    assert repr(data) == "<tarkit.Dataset of 1 input>"
    assert repr(chain) == f"<tarkit.Dataset of 1 input: {steps}>"
    assert repr(tarkit.open(["a.tar", "bad.tar"])) == "<tarkit.Dataset of 2 inputs>"
    report = tarkit.check(["a.tar", "bad.tar"])
    assert repr(report) == "<tarkit.Report: 1 of 2 shards bad>"
    assert report.bad == ["bad.tar"]


@pytest.mark.forks
def test_check_uses_the_directory_of_the_dataset(archive: Archive) -> None:
    """For temporary files, as all methods of the dataset do."""
    names = [archive({f"{number}.x": b"1"}, f"{number}.tar") for number in range(2)]
    Path("tmp").mkdir()
    data = tarkit.open(names, tmpdir="tmp")
    assert data.check(processes=2).ok
    Path("tmp").rmdir()
    with pytest.raises(FileNotFoundError):
        data.check(processes=2)


@pytest.mark.forks
@pytest.mark.parametrize("processes", [1, 2])
def test_missing_field_in_a_function(data: tarkit.Dataset, processes: int) -> None:
    """The message has the line in the function, not one of tarkit."""

    def read_picture(sample: tarkit.Sample) -> dict[str, bytes]:
        return {"txt": sample["jpg"]}

    with pytest.raises(tarkit.TarkitError, match=r"test_arguments\.py.*no such field; the sample 00 has txt, cls"):
        data.map(read_picture, processes=processes).head()
