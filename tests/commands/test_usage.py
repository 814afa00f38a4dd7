"""Errors of command lines: one line and perhaps a hint, and nothing is written."""

from __future__ import annotations

import gzip
import re
import shlex
from contextlib import chdir
from pathlib import Path

import pytest

from tests._tools import each_row
from tests.conftest import tar, tarkit

# A command line, and the only line of stderr; after `|` the hint, or nothing if there is none. A text may end in `...`.
# The status is 2 after `->`, and 1 after `=>`. `cat` has an output.
ERRORS = r"""
split in.tar -c 0 -> split: -c 0: it is at least 1
split in.tar -s 100 -> '100': a size of 100 bytes holds no entry | was -c 100 meant?
split in.tar -s 1PB -> invalid size '1PB'
split in.tar -n 2 -c 1 -> -n cannot be used with -c or -s
split in.tar -n 2 -s 1M -> -n cannot be used with -c or -s
split in.tar -c 1 --append --force -> --append keeps what is there, --force replaces it: choose one
split in.tar -c 1 --append --start 3 -> --append continues after the last shard: it cannot be used with --start
split in.tar -c 1 -o - -> split writes numbered files, not stdout
split in.tar -c 1 -o x-%d-%d.tar -> 'x-%d-%d.tar': more than one number
split in.tar -c 1 -o x-{9..1}.tar -> 'x-{9..1}.tar': the range {9..1} has no numbers
split in.tar -c 1 -o pipe:cat -> 'pipe:cat': a command for shards needs a number: %06d
split in.tar -c 1 -o nix://bucket/x-%d.tar -> nix://bucket/x-%d.tar: unknown scheme nix://...
split in.tar -c 1 -o none/x-%d.tar => none/x-0.tar: No such file or directory
split in.tar -n 2 -o none/x-%d.tar => none/x-0.tar: ... | there is no directory none: make it with mkdir -p
split in.tar -c 1 -o x-{0..3}.tar --start 4 => 'x-{0..3}.tar': too few names: the template has 4 names, shard 5 has none
split in.tar -n 5 -o x-{0..3}.tar => 'x-{0..3}.tar': too few names: the template has 4 names, shard 5 has none
split in.tar -c 1 -o pipe:cat>%d --manifest m -> --manifest needs shards that are files or objects
split in.tar -c 1 -o x-%d.tar --manifest in.tar -> in.tar is both input and output
split in.tar -c 1 -o x-%d.tar --report in.tar -> in.tar is both input and output
split in.tar -c 1 -o x-%d.tar --manifest x-3.tar -> x-3.tar is the manifest, and has a name that the shards may get
split in.tar -c 1 --remainder drop -> --remainder requires -n
split in.tar -c 9 --parts a=0.5,b=0.4 -> --parts 'a=0.5,b=0.4': the shares sum to 0.9
split in.tar -c 9 --parts a=0.5,b=0.6 -> --parts 'a=0.5,b=0.6': the shares sum to 1.1
split in.tar -c 9 --parts a=1,b -> --parts 'a=1,b': nothing is left for b
split in.tar -c 9 --parts a,b -> --parts 'a,b': a and b have no share; one part may get the rest
split in.tar -c 9 --parts a=0,b=1 -> --parts 'a=0,b=1': '0': a share is more than 0 and at most 1
split in.tar -c 9 --parts a=1/0,b -> --parts 'a=1/0,b': '1/0': a share is more than 0 and at most 1
split in.tar -c 9 --parts a=-1,b=2 -> --parts 'a=-1,b=2': invalid share '-1'
split in.tar -c 9 --parts a=.,b -> --parts 'a=.,b': invalid share '.'
split in.tar -c 9 --parts a=%,b -> --parts 'a=%,b': invalid share '%'
split in.tar -c 9 --parts a=1/2%,b -> --parts 'a=1/2%,b': invalid share '1/2%'
split in.tar -c 9 --parts a=101%,b -> --parts 'a=101%,b': '101%': a share is more than 0 and at most 1
split in.tar -c 9 --parts a=0.5,a=0.5 -> --parts 'a=0.5,a=0.5': a occurs twice
split in.tar -c 9 --parts ../a=1 -> --parts '../a=1': invalid name '../a'
split in.tar -c 9 --parts a%d=1 -> --parts 'a%d=1': invalid name 'a%d'
split in.tar -c 9 --parts .a=1 -> --parts '.a=1': invalid name '.a'
split in.tar -c 9 --parts a=1, -> --parts 'a=1,': invalid name ''
split in.tar -c 9 --parts -1 -> --parts -1: a number of parts is from 2 to 9999
split in.tar -c 9 --parts 1 -> --parts 1: a number of parts is from 2 to 9999
split in.tar -c 9 --parts 10000 -> --parts 10000: a number of parts is from 2 to 9999
split in.tar -c 9 --map {} --parts 2 -> --map and --parts cannot be used together
split in.tar -c 9 --map {} --group x -> --group requires --parts
split in.tar -c 9 --parts a=1 --group '(' -> --group '(': missing ), unterminated subpattern at position 0
split in.tar -c 9 --parts a=1 --stratify cls --group x -> --stratify uses no hash: it cannot be used with --group
split in.tar -c 9 --parts a=1 --stratify cls --seed 1 -> --stratify uses no hash: it cannot be used with --seed
split in.tar -c 9 --parts a=1 --group x --group-field y -> --group and --group-field: choose one
split in.tar -c 9 --parts a=1 --max-shards 1 -> --max-shards cannot be used with --parts: it needs one series of shards
split in.tar -c 9 --unmatched x -> --map-sep and --unmatched require --map
split in.tar -c 9 -o {part}-%d.tar -> {part} in a name needs --parts
split in.tar -c 9 --parts a=1 -o - -> split writes numbered files, not stdout
split in.tar -c 9 --map '{"x":["x"]}' -o - -> split writes numbered files, not stdout
split in.tar -c 9 --parts a=0.5,b=0.5 -o pipe:cat>%d -> a command for several parts must contain {part}
split in.tar -c 9 --parts a=1 --manifest a-7.tar -o {part}-%d.tar ->
    a-7.tar is the manifest, and has a name that the shards may get
split in.tar -c 9 --parts 1=0.5,11=0.5 -o {part}{1..11}.tar ->
    '1{1..11}.tar' and '11{1..11}.tar' both have a shard '111.tar'
split in.tar -n 2 --parts a=1 -> -n cannot be used with --parts: it needs one series of shards
split in.tar --even size --parts a=1 -> --even cannot be used with --parts: it needs one series of shards
split in.tar --even size -> --even size requires a number of shards
split in.tar --even size -c 3 -o x-{0..3}.tar -> --even cannot be used with -c or -s
split in.tar -n 3 --even size --remainder drop -> --remainder requires -n and equal numbers of samples
split in.tar -n 9 --even size -o x-{0..3}.tar =>
    'x-{0..3}.tar': too few names: the template has 4 names, shard 9 has none
split in.tar -c 1 --parts a=1 -o {part}/x-%d.tar => a: no such directory
split in.tar -c 1 --parts a,b=0.1 -o {part}-{0..3}.tar --start 4 =>
    'a-{0..3}.tar': too few names: the template has 4 names, shard 5 has none
split in.tar -c 1 --map none => none: No such file or directory
split in.tar -c 1 --map {} => --map: no pattern in this map
split in.tar -n 4 => 3 samples cannot fill 4 shards | --remainder repeat uses some again
split in.tar -n 4 --remainder drop => 3 samples cannot fill 4 shards | --remainder repeat uses some again

sort in.tar --by n --order-file list -> --order-file cannot be used with -s, -t or --reverse
sort in.tar -s __random__,n -> -s __random__ cannot be used with other fields or --check-only
sort in.tar --check-only -o x.tar -> --check-only cannot be used with options of the output: it writes nothing
sort in.tar --order-file list -r -> --order-file cannot be used with -s, -t or --reverse
sort in.tar -s , -> -s names no field
sort in.tar --force -o x.tar -> --force and --size-rule require -c or --size
sort in.tar -s 1M -o out.tar =>
    in.tar: at 0: 'a' has no field '1M', it has 'cls', 'jpg', 'json' [missing-field]
    | -s takes fields: --size 1M cuts shards
sort in.tar -s 1.5GiB -o out.tar => in.tar: at 0: ... | -s takes fields: --size 1.5GiB cuts shards
sort in.tar -s 1000 -o out.tar => in.tar: at 0: ... | -s takes fields: -c 1000 cuts shards
sort in.tar -s 1Mx -o out.tar => in.tar: at 0: ... | --skip missing-field leaves such samples out, ...
sort in.tar --keys-from some --require-all -o out.tar =>
    some: 2 keys requested, 1 found, 1 missing, the first of them 'z'
sort in.tar --order-file twice => twice:3: the key 'a' is in line 1 too
sort in.tar --order-file empty => empty: no key found
sort in.tar --order-file none => none: No such file or directory
sort in.tar -s __random__ -o x-%d.tar -> 'x-%d.tar': %d numbers a series of files, but only one is written

shuffle in.tar -c 2 -> -c and --size cut shards, which are files | name them with -o 'out-%06d.tar'
shuffle in.tar --epochs 2 -o e{epoch}-%d.tar -> 'e0-%d.tar': %d numbers a series of files, but only one is written
shuffle in.tar --seed 1 --buffer 1G -> --buffer 1G: a whole number is needed
shuffle in.tar --seed 1 --buffer 0 -> --buffer 0: it is at least 1
shuffle in.tar --seed 1 --memory 1 -> --memory 1: it is at least 1000000 | sizes look like 500M, 2GB or 16GiB
shuffle in.tar --seed 1 -o x-%d.tar -> 'x-%d.tar': %d numbers a series of files, but only one is written
shuffle in.tar --seed 1 -o x-{epoch}.tar -> 'x-{epoch}.tar': {epoch} needs --epochs N
shuffle in.tar --seed 1 -o x.tar --force -> --force and --size-rule require -c or --size
shuffle in.tar --seed 1 -o in.tar -> in.tar is both input and output
shuffle in.tar --seed 4 --keys-from some --require-all -o out.tar =>
    some: 2 keys requested, 1 found, 1 missing, the first of them 'z'
shuffle in.tar --seed 1 --epochs 2 -> '-': each epoch needs an output of its own
shuffle in.tar --seed 1 --epochs 2 -o pipe:cat -> 'pipe:cat': each epoch needs an output of its own
shuffle in.tar --seed 1 --epochs 2 -o {epoch}%d.tar -c 1 -> '{epoch}%d.tar': a number next to {epoch}
shuffle in.tar --seed 1 --epochs 2 -o {epoch:x}.tar ->
    '{epoch:x}.tar': the placeholder of an epoch is {epoch} or {epoch:03d}

mix -> nothing to mix
mix in.tar@0 -> 'in.tar@0': a weight is more than 0 | leave the source out to draw nothing from it
mix in.tar none.tar@2 => none.tar: No such file or directory
mix in.tar none.yaml -> 'none.yaml' describes a whole mix: it has no weight, and no other sources beside it
mix m.YML@2 -> 'm.YML' describes a whole mix: it has no weight, and no other sources beside it
mix m.yaml m.json -> 'm.yaml' describes a whole mix: only one can be given
mix none.yaml => none.yaml: No such file or directory
mix - - -> stdin is named more than once
mix in.tar --repeat -> --repeat has no end | use --total N, or --until all to end when each source was read once
mix in.tar --repeat --until first -> --repeat cannot be used with --until first: it reads a source again after its end
mix in.tar --total x -> invalid --total 'x' | a number of samples, such as 5000, 1e6 or 1M
mix in.tar --total -1 -> invalid --total '-1'
mix in.tar --total 1.2345e3 -> invalid --total '1.2345e3'
mix in.tar --total 1KiB -> invalid --total '1KiB'
mix in.tar --until last -> mix: --until last: it is one of first, all
mix m.json -o m.json -> m.json is the output, and the description of the mix too
mix m.json --report m.json -> m.json is the report, and the description of the mix too
mix in.tar --seed 1 -o in.tar -> in.tar is both input and output

show in.tar --json --names -> --names and --json exclude each other
show in.tar --images --html x -> --images and --html exclude each other
show in.tar --by cls -> --by and --classes require --html or --images
show in.tar --json --classes x -> --by and --classes require --html or --images
show in.tar --all -c 1 -> --all and --count exclude each other
show in.tar --html '' -> the name of the output is empty
show in.tar --html in.tar -> in.tar is both input and output
show in.tar -c x -> show: --count x: a whole number is needed

stats 'pipe:touch read' --total --json -> --total, --json and --html exclude each other
stats 'pipe:touch read' --json --html x -> --total, --json and --html exclude each other
stats 'pipe:touch read' --total --world 2 ->
    --total cannot be used with --world, --workers or --by: it prints one number
stats 'pipe:touch read' --total --by a -> --total cannot be used with --world, --workers or --by: it prints one number
stats 'pipe:touch read' --classes x -> --classes requires --by

tsv in.tar -o t.xlsx ->
    t.xlsx: tables of this format are not written
    | the suffix is .tsv, .csv, .jsonl, .json, .yaml or .parquet; or give --format
tsv in.tar -o t.XLS -> t.XLS: tables of this format are not written | the suffix is .tsv, ...
tsv in.tar -o t.ods -> t.ods: tables of this format are not written | the suffix is .tsv, ...
tsv 'pipe:touch read' -f ' ' -> no column given
tsv 'pipe:touch read' -f a,b -> 'a,b': a comma separates alternatives, of which the first present one is used
tsv 'pipe:touch read' -f x: -> invalid column 'x:': it must be NAME, A;B, NEW:NAME or NEW:A,B
tsv 'pipe:touch read' -f 'a;;b' -> invalid column 'a;;b': it must be NAME, A;B, NEW:NAME or NEW:A,B
tsv 'pipe:touch read' -f 'cls cls' -> two columns are named 'cls'
tsv 'pipe:touch read' -f cls -f cls:jpg -> two columns are named 'cls'
tsv 'pipe:touch read' -f @jpg -> invalid column '@jpg': @ marks a column of sources

index in.tar -> --format is missing
index in.tar --format sqlite -> --format sqlite: no such format
index in.tar --format dali --md5 -> --md5 requires --format wids
index in.tar num.tar --format dali -o x.idx -> -o x.idx: there will be several indexes | name an existing directory
index in.tar num.tar --format dali -o none/ => none/: No such file or directory
    | there is no directory none: make it with mkdir -p
index in.tar --format dali -o num.tar => num.tar: the file exists and is not a dali index | --force replaces it
index in.tar --format dali -o in.tar --force -> in.tar: its dali index would have its own name
index in.tar num.tar --format wids -o in.tar --force -> in.tar is both input and output

extract in.tar -C out --allow unsafe-name -> --allow unsafe-name: what is unsafe is never extracted
    | --skip unsafe-name leaves it out
extract in.tar -> extract: Missing option '-C' / '--directory'.
extract in.tar -C '' -> the name of the directory is empty
extract in.tar -C in.tar -> -C 'in.tar': it is a file, not a directory

cat in.tar --json -> cat: No such option '--json'... | --report - prints what was done as JSON
tsv in.tar --json -> tsv: No such option '--json'... | --format jsonl writes JSON, a sample a line
get x in.tar =>
    no sample 'x': searched 1 input | a key includes the directories of its path: tarkit show --names lists keys
get x.jpg in.tar => no sample 'x': searched 1 input | a key includes the directories of its path: ...
get b.png in.tar =>
    in.tar: at 3072: 'b' has no field 'png', it has 'cls', 'jpg', 'json' [missing-field] | tarkit show lists fields
get -f wav in.tar => no selected sample has a field 'wav': searched 1 input | 'a' has 'cls', 'jpg', 'json'
get -f wav --match x in.tar => no selected sample has a field 'wav': searched 1 input |
get c in.tar -f cls =>
    c: No such file or directory; with -f all words are inputs
    | the field of one sample is KEY.FIELD, without -f: tarkit get c.cls INPUT...
get a in.tar -f jpg,png =>
    a: No such file or directory; with -f all words are inputs
    | the field of one sample is KEY.FIELD, without -f: tarkit get a.jpg INPUT...
get a.jpg in.tar -f jpg =>
    a.jpg: No such file or directory; with -f all words are inputs
    | the field of one sample is KEY.FIELD, without -f: tarkit get a.jpg INPUT...
get "it's" -f cls =>
    it's: No such file or directory; with -f all words are inputs
    | the field of one sample is KEY.FIELD, without -f: tarkit get 'it'"'"'s.cls' INPUT...
get no.tar in.tar -f cls => no.tar: No such file or directory | --skip missing-shard goes on without it
get no.tar.gz -f cls => no.tar.gz: No such file or directory |
get no/ -f cls => no/: No such file or directory |
get in.tar c.cls => c.cls: No such file or directory | KEY comes first: tarkit get c.cls in.tar
get in.tar a => a: No such file or directory | KEY comes first: tarkit get a in.tar
get in.tar in.tar in.tar a => a: No such file or directory | KEY comes first: tarkit get a in.tar in.tar ...
get i*.tar a => a: No such file or directory | KEY comes first: tarkit get a 'i*.tar'
get ./ c.cls -> invalid key './' | KEY comes first: tarkit get c.cls ./
get in.tar a -f cls => a: No such file or directory; with -f all words are inputs
    | the field of one sample is KEY.FIELD, without -f: tarkit get a.cls INPUT...
get in.tar none.tar => none.tar: No such file or directory |
get in.tar no/ => no/: No such file or directory |
get -> no KEY
get a/ -> invalid key 'a/'
get .hidden -> invalid key '.hidden'
get -f a/b in.tar -> invalid field 'a/b' for -f: it takes field names separated by commas
get -f '' in.tar -> invalid field '' for -f: it takes field names separated by commas
get a.jpg in.tar --compress gz -> --compress is for a whole sample; a field is written as it is
get b.txt in.tar -o in.tar -> in.tar is both input and output

check -T empty => empty: an empty list of inputs |
check -T empty --same-as in.tar => empty: an empty list of inputs |
check in.tar -T empty => empty: an empty list of inputs |
check in.tar --json --list-bad -> --json and --list-bad: choose one
check in.tar --rejects r.tar -> --rejects requires --fix or --decode
check in.tar --decode txt --rejects - -> --rejects writes to a file, the findings go to stdout
check in.tar --fix f.tar --rejects - -> --rejects writes to a file, the findings go to stdout
check in.tar --diff in.tar -o - -> -o writes to a file, the sums go to stdout
check in.tar --diff in.tar -o x.xlsx -> x.xlsx: tables of this format are not written
check in.tar --allow nothing -> --allow nothing: unknown problem...
check in.tar --fix o.tar -p 2 -> --fix cannot be used with -p: it reads one input at a time
check in.tar --fix - -> --fix writes to files, the findings go to stdout
check in.tar --fix in.tar -> in.tar is both input and output
check in.tar --fix o.tar --rejects in.tar -> in.tar is both input and output
check in.tar --fix o.tar --rejects o.tar -> o.tar is the clean copy, and the file of rejects too
check in.tar --fix none/ => none/: no such directory | make it: mkdir -p none/
check in.tar ./in.tar --fix ./ -> two inputs have one file name | number the copies: --fix 'clean-%06d.tar'
check pipe:cat --fix ./ -> pipe:cat has no file name for a copy in a directory | name the file: --fix clean.tar
check in.tar --decode 'jpg mp4' -> --decode mp4: tarkit does not decode 'mp4' | all decodes what can be: txt text...
check in.tar --same-as in.tar --decode jpg -> --same-as cannot be used with --decode
check in.tar --same-as in.tar --unique -> --same-as cannot be used with --unique
check in.tar --same-as in.tar --fix o.tar -> --same-as cannot be used with --fix
check in.tar --same-as in.tar --leak in.tar --by txt -> --same-as cannot be used with --leak
check in.tar --leak in.tar -> --leak requires --by | sha256.jpg is the content of a field...
check in.tar --by txt -> --by requires --leak, --unique or --diff
check in.tar --diff x.tar --by txt -> --by txt: --diff matches samples by key or content
check in.tar --leak in.tar --by txt -> --leak names in.tar, which is an input too | within one set: --unique --by txt
check in.tar --leak x.tar --by sha256.jpg:3 -> --by 'sha256.jpg:3': sha256 has no distance | ...
check in.tar --leak x.tar --by phash.jpg:17 -> --by 'phash.jpg:17': a distance is a number of bits from 0 to 16
check in.tar --leak x.tar --by txt --unique -> --leak cannot be used with --unique
check in.tar --unique --by txt --fix o.tar -> --by cannot be used with --fix
check in.tar - --same-as - -> stdin is named more than once
check in.tar --target none ->
    check: --target none: it is one of webdataset, hf, dali, energon,...

cat in.tar --match '(' -> --match '(': missing ), unterminated subpattern at position 0
cat in.tar --slice -1: -> --slice '-1:': negative numbers are not supported
cat in.tar --slice 1:2:0 -> --slice '1:2:0': the step must be at least 1
cat in.tar --slice a -> --slice a: LO:HI:STEP takes up to three integers
cat in.tar --shard-slice 1:2:3:4 -> --shard-slice '1:2:3:4': LO:HI:STEP takes up to three integers
cat in.tar --sample 2.0 -> --sample 2.0: a whole number of samples, or a share from 0.0 to 1.0 or 100%, is needed
cat in.tar --sample nan --seed 1 -> --sample nan: a whole number of samples, ...
cat in.tar --sample 101% -> --sample '101%': a whole number of samples, ...
cat in.tar --sample -1 -> --sample -1: a whole number of samples, ...
cat in.tar --per-class 2 -> --per-class requires --balance
cat in.tar --balance cls --per-class 0 -> --per-class 0: it is a number from 1 on, or one of min, max, median
cat in.tar --balance cls --per-class most -> --per-class most: it is a number from 1 on, or one of min, max, median
cat in.tar --balance cls --per-class 9 --seed 1 =>
    --per-class 9: the class '1' of 'cls' has fewer samples: 3
    | --per-class min takes 3 of each, --per-class max repeats samples
cat in.tar --balance cls --per-class max --seed 1 ->
    --per-class max repeats samples, and a key may be there once
    | tarkit cat --rekey '{index:09d}-{key}' gives each its own, and a view may list a sample several times
split in.tar -c 1 -o new-%d.tar --balance cls --per-class median --seed 1 ->
    --per-class median repeats samples, and a key may be there once | tarkit cat --rekey ...
extract in.tar -C out --balance cls --per-class max --seed 1 ->
    --per-class max repeats samples, and a key may be there once | tarkit cat --rekey ...
tsv in.tar -f cls --balance cls --per-class max --seed 1 ->
    --per-class max repeats samples, and a key may be there once | --allow repeated-key writes a row for each
sort in.tar --balance cls --per-class max --seed 1 ->
    --per-class max repeats samples, and a key may be there once
    | a sort joins samples of one key: order the samples first, then choose
get a in.tar --balance cls --seed 1 ->
    get writes one sample: it cannot be used with --balance | tarkit cat INPUT... --balance FIELD
get -f cls in.tar --unique-by cls -> get writes one sample: it cannot be used with --unique-by |
    tarkit cat INPUT... --unique-by FIELD
cat in.tar -o 'o-{stem}.tar' --unique-by cls ->
    --unique-by is for all inputs together, and here each has an output of its own
    | one command writes all of them: tarkit split INPUT... --unique-by FIELD -o 'out-%06d.tar'
cat in.tar --exclude-keys-from empty => empty: no key found
cat in.tar --require-all -> --require-all requires --keys-from
cat in.tar --keys-from none => none: No such file or directory
cat in.tar --keys-from empty => empty: no key found
cat in.tar --keys-from table.tsv:x => table.tsv: no column 'x'
cat in.tar --keys-from table.parquet => table.parquet: damaged, or not a Parquet file: ...
cat in.tar --keys-from list.gz => list.gz: not a list of keys, TSV, CSV, JSON lines or Parquet
cat in.tar --keys-from bad.jsonl:id => bad.jsonl:2: bad JSON: Expecting ':' delimiter at column 1
cat in.tar -s 1G -> -s 1G: a whole number is needed
cat in.tar -s ² -> -s ²: a whole number is needed
cat in.tar -s -1 -> -s -1: it is at least 0
cat in.tar -m 0 -> cat: -m 0: it is at least 1
cat in.tar --skip truncatd -> --skip truncatd: unknown problem... | did you mean 'truncated'?
cat in.tar --skip bad-content -> --skip bad-content: unknown problem...
    | problems that check alone finds are none of these; --where ok.jpg chooses samples whose jpg is whole
check in.tar --skip truncated -> check: No such option '--skip'.
    | check finds all problems; tarkit cat --skip NAME leaves such samples out
check in.tar --disjoint x.tar -> check: No such option '--disjoint'.
    | --leak OTHER --by sha256.jpg reports samples that are in both
check in.tar --overlap x.tar -> check: No such option '--overlap'. | --leak OTHER --by sha256.jpg reports ...
check in.tar --same-as in.tar --by cls -> --by requires --leak, --unique or --diff
    | --same-as compares all contents; --diff lists what differs
cat in.tar --allow nothing -> --allow nothing: unknown problem; the problems are: all, truncated...
cat in.tar --allow truncated --skip truncated -> --allow and --skip both name truncated
cat in.tar --allow all --skip all -> --allow and --skip both name ...
cat in.tar --skip truncated,typo -> --skip typo: unknown problem...
cat in.tar -f '' -> no field given
cat in.tar -f a/b -> invalid field name 'a/b': it contains a slash
cat in.tar -f new: -> invalid field 'new:': it must be NAME, NEW:OLD or NEW:OLD1,OLD2
cat in.tar -f :old -> invalid field ':old': it must be NAME, NEW:OLD or NEW:OLD1,OLD2
cat in.tar -f a,,b -> invalid field 'a,,b': it must be NAME, NEW:OLD or NEW:OLD1,OLD2
cat in.tar -f 'jpg jpg' => in.tar: at 0: two fields of 'a' get the same name [duplicate-entry]
cat in.tar -f 'x:jpg x:json' => in.tar: at 0: two fields of 'a' get the same name [duplicate-entry]
cat in.tar -R x => in.tar: at 3072: the sample before it in the output has the same key 'x' [joined-sample]
cat in.tar -R '' => --rekey '' makes '' of 'a', which is not a key
cat in.tar -R a.b{index} => --rekey 'a.b{index}' makes 'a.b0' of 'a', which is not a key
cat in.tar -R x/ => --rekey 'x/' makes 'x/' of 'a', which is not a key
cat in.tar -R {stem}.x/{shard} => --rekey '{stem}.x/{shard}' makes 'in.x/in.tar' of 'a', which is not a key
cat in.tar -R {name} -> --rekey '{name}': 'name'
    | it may hold {key}, {index:06d}, {shard}, {stem}, {dir}, or # for nine digits
cat in.tar -R { -> --rekey '{': Single '{' encountered in format string
cat in.tar -R {} -> --rekey '{}': Replacement index 0 out of range for positional args tuple
cat in.tar -R {index:q} -> --rekey '{index:q}': Unknown format code 'q' for object of type 'int'
cat in.tar -R {key:d} -> --rekey '{key:d}': Unknown format code 'd' for object of type 'str'

cat in.tar --where 'cls = 3' -> --where 'cls = 3': ... | did you mean 'cls == 3'?
cat in.tar --where 'json.a = "=" ' -> --where 'json.a = "="': ... | did you mean 'json.a == "="'?
cat in.tar --where "json.a = 'x'" -> --where 'json.a = 'x'': ... | did you mean "json.a == 'x'"?
cat in.tar --where 'cls === 3 && !has.txt' ->
    --where 'cls === 3 && !has.txt': ... | did you mean 'cls == 3 and not has.txt'?
cat in.tar --where 'cls <> 4||cls=1' -> --where 'cls <> 4||cls=1': ... | did you mean 'cls != 4 or cls==1'?
cat in.tar --where 'cls == 3 AND cls > 1' -> --where 'cls == 3 AND cls > 1': ... | did you mean 'cls == 3 and cls > 1'?
cat in.tar --where 'class == 3' ->
    --where 'class == 3': ...
    | did you mean 'field("class") == 3'? class is a keyword of Python, the usual name of the field is cls
cat in.tar --where 'json.class > 3' ->
    --where 'json.class > 3': ... | did you mean 'json["class"] > 3'? class is a keyword of Python
cat in.tar --where 'has.class' -> --where 'has.class': ... | did you mean 'has("class")'? class is a keyword...
cat in.tar --where 'cls ==' -> --where 'cls ==': ... | for example 'cls == 3 and json.width > 512',...
cat in.tar --where 'has.json.t[0]' ->
    --where: 'has.json.t[0]' is true or false and has no elements, at character 1 | did you mean 'has(json.t[0])'?
cat in.tar --where 'cls == 1 and has.json["t"][0].x' ->
    --where: 'has.json['t'][0].x' is true or false and has no elements, at character 14
    | did you mean 'has(json["t"][0].x)'?
cat in.tar --where 'cls == cat' =>
    in.tar: at 0: 'a' has no field 'cat', it has 'cls', 'jpg', 'json' [missing-field]
    | text has quotes: "cat"; without them cat is a field
cat in.tar --where 'jpeg' =>
    in.tar: at 0: 'a' has no field 'jpeg', it has 'cls', 'jpg', 'json'; did you mean 'jpg'? [missing-field]
    | has.NAME and ... tests for it first; --skip missing-field leaves such samples out
cat in.tar -f jpeg =>
    in.tar: at 0: 'a' has no field 'jpeg', it has 'cls', 'jpg', 'json'; did you mean 'jpg'? [missing-field]
cat in.tar --require 'class|text' =>
    in.tar: at 0: 'a' has no field 'class' or 'text', it has 'cls', 'jpg', 'json'; did you mean 'cls'? [missing-field]
cat in.tar -f png => in.tar: at 0: 'a' has no field 'png', it has 'cls', 'jpg', 'json' [missing-field]
sort in.tar -s jpeg =>
    in.tar: at 0: 'a' has no field 'jpeg', it has 'cls', 'jpg', 'json'; did you mean 'jpg'? [missing-field]
get a.jpeg in.tar =>
    in.tar: at 0: 'a' has no field 'jpeg', it has 'cls', 'jpg', 'json'; did you mean 'jpg'? [missing-field]
    | tarkit show lists fields
get -f jpeg in.tar =>
    no selected sample has a field 'jpeg': searched 1 input | 'a' has 'cls', 'jpg', 'json'; did you mean 'jpg'?
get d/b.jpg in.tar => no sample 'd/b': searched 1 input | did you mean 'b'?
get C in.tar => no sample 'C': searched 1 input | did you mean 'c'?
get 3 num.tar => no sample '3': searched 1 input | did you mean 'n/0003'?
get n/0004 num.tar => no sample 'n/0004': searched 1 input | a key includes the directories of its path: ...
get picutre num.tar => no sample 'picutre': searched 1 input | did you mean 'n/picture'?
get n/picutre num.tar => no sample 'n/picutre': searched 1 input | did you mean 'n/picture'?
proc in.tar 'cat sample.jpg > sample.png' =>
    cat sample.jpg > sample.png: No such file or directory
    | a command is the value of -c: -c 'cat sample.jpg > sample.png'
proc in.tar cat sample.jpg => cat: No such file or directory | a command is the value of -c: -c 'cat sample.jpg'
proc 'cat x' in.tar => cat x: No such file or directory | a command is the value of -c: -c 'cat x'
proc in.tar no-such-program => no-such-program: No such file or directory |
cat in.tar 'cat x' => cat x: No such file or directory |
cat in.tar --compress rar -> --compress rar: the codec is one of gz, zst, lz4, xz, bz2, zip, none
cat in.tar --compress gz:99 -> --compress 'gz:99': the level of gz is a number from 1 to 9
cat in.tar --tmpdir none => none: No such file or directory | --tmpdir is a directory that exists: mkdir -p makes one
cat in.tar --tmpdir list => list: Not a directory | --tmpdir is a directory that exists: mkdir -p makes one
each a b --tmpdir none -- true => none: No such file or directory | --tmpdir is a directory that exists: ...
each a b -- cat in.tar -o {} --tmpdir none =>
    none: No such file or directory | --tmpdir is a directory that exists: mkdir -p makes one
each a b -- tarkit --tmpdir none cat in.tar -o {} =>
    none: No such file or directory | --tmpdir is a directory that exists: mkdir -p makes one
each a -> the command line is missing | it follows --: tarkit each '{0..9}' -- COMMAND...
each -- x -> there are no values | tarkit each '{0..9}' -- COMMAND, or -T LIST
each a -- x + -> there is no step before or after a + | steps are joined as in: cat {} + split -o '{stem}-%d.tar'
each a -- cat --no-such -> cat: No such option '--no-such'. | see tarkit cat --help
each a -- tarkit nothing -> No such command 'nothing'. | see tarkit --help
each a -- echo {part} -> '{part}': unknown placeholder {part} | there are {} {stem} {name} {dir} {index:05d}; ...
each a b -- cat {}.tar -o out.tar -> 'a' and 'b' would write one output: out.tar
    | give its name a placeholder, such as {}
each a --resume -- x -> --resume requires --journal FILE
each a --shard-index 2/2 -- x -> --shard-index '2/2': expected K/N, where K is from 0 to N-1 | for example 0/16
each z* -- x => 'z*': matches nothing | -0 with -T takes values as they are
each a --journal s3://b/j -- x -> s3://b/j: --journal is a local path, not a URL
split in.tar -c 1 --post=-1 ->
    --post -1: a number is not a command
    | did you mean parallel work? --post is for a command that runs after each shard

create recipe -o out.tar --columns a -> columns and a key require --format | tsv, csv or jsonl
create recipe -o out.tar --key '{index}' -> columns and a key require --format | tsv, csv or jsonl
create recipe -o out.tar --format tsv --key '{x' -> invalid template for keys '{x': expected '}' before end of string
create recipe -o out.tar --format tsv --set x -> --set requires --format parquet
create recipe -o out.tar --format parquet --columns x -> column names are for tsv and csv only
    | a Parquet table has its own
create recipe -o out.tar --format parquet --set x: ->
    --set 'x:': a word must be FIELD, FIELD:COLUMN or json:{A,B:COLUMN}
create recipe -o out.tar --format jsonl --columns x -> column names are for tsv and csv only
    | in jsonl each line has its own
create recipe --depfile d -o - -> --depfile requires an output file | make needs its name
create recipe -o out.tar --depfile recipe -> recipe is both input and output | write to another file, then rename it
create recipe -o out.tar --report recipe -> recipe is both input and output | write to another file, then rename it
create recipe -o recipe -> recipe is the output, and the recipe too
create recipe -o out.tar -p 0 -> create: -p 0: it is at least 1 | see tarkit create --help

proc in.tar -o out.tar -> nothing to run
    | give one of -c COMMAND, -m COMMAND, --map MODULE:FUNCTION and --worker COMMAND
proc in.tar -o out.tar -c : -m : -> -c and -m exclude each other
    | give one of -c COMMAND, -m COMMAND, --map MODULE:FUNCTION and --worker COMMAND
proc in.tar -o out.tar -m : --batch 2 -> --batch cannot be used with -m
proc in.tar -o out.tar --worker : --batch 2 -> --batch cannot be used with --worker
proc in.tar -o out.tar -c : --batch 0 -> proc: --batch 0: it is at least 1 | see tarkit proc --help
proc in.tar -o out.tar -c wc\ sample.txt --batch 2 ->
    with --batch the files are called sample-000000.jpg, sample-000001.jpg, not sample.jpg
    | sample-*.jpg are those of all samples
proc in.tar -o out.tar --map a:b --keep-dir -> --keep-dir cannot be used with --map
proc in.tar -o out.tar -c : --max-errors x -> --max-errors 'x': expected a number of samples, or a share such as 1%
proc in.tar -o out.tar -c : --max-errors 101% ->
    --max-errors '101%': expected a number of samples, or a share such as 1%
proc in.tar -o out.tar -c : --on-error error --rejects r.tar ->
    --on-error error cannot be used with --max-errors or --rejects: it ends at the first failure
proc in.tar -o out.tar -c : --rejects - -> --rejects needs a file: stdout is the output
proc in.tar -o out.tar -c : --rejects in.tar -> in.tar is both input and output
    | write to another file, then rename it
proc in.tar -c : --rejects out.tar -o out.tar -> out.tar is the output, and the rejects too

cat in.tar --join t.xls -> --join 't.xls': unknown kind of table
    | known suffixes: .csv .tsv .txt .jsonl .ndjson .parquet
cat in.tar --join e.tar.gz -> --join 'e.tar.gz': unknown kind of table
    | a plain archive can be joined: tarkit cat e.tar.gz -o e.tar
cat in.tar --join x.csv => x.csv:1: no column '__key__', ... | name the column with the keys: --join 'x.csv:COLUMN'
cat in.tar --join-by stem -> --join-by requires --join
cat in.tar --on-duplicate last -> --on-duplicate requires --join
cat in.tar --join t.csv -o t.csv -> t.csv is the output, and the table too
cat in.tar --set cls -> --set is for tables (.parquet, .tfrecord, .mds), and no input is one, and there is no --join
    | --from tfrecord says that an input is one

shard tree -n 3 -c 1 -> -n and --even cannot be used with -c or -s
shard tree --even -> --even requires a number of shards | -n 64, or a limited number of names: -o 'x-{00..63}.tar'
shard tree --even -n 2 --dirs separate -> -n and --even cannot be used with --dirs separate
shard tree -n 99 => 2 samples cannot fill 99 shards | choose fewer shards
shard tree -c 1 -o x-{0..0}.tar => 'x-{0..0}.tar': too few names: the template has 1 name, shard 2 has none
    | widen the range, or use %06d, which has no end
shard tree -c 1 --map '{"a-{0..0}.tar":["x"]}' =>
    'a-{0..0}.tar': too few names: the template has 1 name, shard 2 has none | widen the range, ...
shard tree --unmatched x -> --map-sep and --unmatched require --map
shard tree --classes x -> --classes and --classes-out require --label-from-dir
shard tree --update --force -> --update adds to existing shards: it cannot be used with --force or --resume
shard tree --update --label-from-dir cls -> --update requires the numbers of the classes
    | --classes FILE, as --classes-out wrote it
shard tree --recipe p --dry-run -> --dry-run, --recipe and --resume: choose one
shard tree -o - -> shard writes numbered files, not stdout | name them with --output 'out-%06d.tar'
shard tree -o 'pipe:cat >o-%d.tar' -> shards are files or objects
    | --post runs a command for each: --post 'scp {} host: && rm {}'
shard tree -o no/x-%d.tar => no/x-0.tar: No such file or directory | there is no directory no: make it with mkdir -p
shard tree --map '{}' -o x-%d.tar -> with --map, -o is the directory of the shards: the map has their names
    | for example -o out/
shard tree --join t.csv --join-by cls -> --join-by cls: files of a directory have keys and names: key or stem
    | cat joins samples of shards by their values: tarkit cat --join TABLE:COLUMN
shard tree --join :k -> --join ':k': not TABLE or TABLE:COLUMN
shard tree --label-from-dir a/b -> --label-from-dir 'a/b': not FIELD, FIELD:LEVEL or FIELD:LEVEL:name
    | for example cls, class.txt:name or cls:-1...
shard tree --label-from-dir a:0 -> --label-from-dir 'a:0': not FIELD, FIELD:LEVEL or FIELD:LEVEL:name
    | for example cls, class.txt:name or cls:-1...
shard tree --label-from-dir a:1:2 -> --label-from-dir 'a:1:2': not FIELD, FIELD:LEVEL or FIELD:LEVEL:name
    | for example cls, class.txt:name or cls:-1...
shard tree --label-from-dir a:+1 -> --label-from-dir 'a:+1': not FIELD, FIELD:LEVEL or FIELD:LEVEL:name
    | for example cls, class.txt:name or cls:-1...
shard tree --label-from-dir a:1 --label-from-dir b:-1 ->
    --label-from-dir: numbers of two levels would need two lists of classes
    | add the name of one of them: FIELD:LEVEL:name
shard tree --match '(' -> --match '(': missing ), unterminated subpattern at position 0
shard none --key "(.*'" -> --key '(.*'': missing ), unterminated subpattern at position 0
    | a key is full, base, flat or a regular expression with a group
shard none -s '16 MiB' -> invalid size '16 MiB' | sizes look like 500M, 1.5GB, 16MiB...
shard none -s 100B -> '100B': a size of 100 bytes holds no entry | was -c 100B meant?
shard none -o '{}' -> '{}.tar': unknown placeholder {} | file:NAME takes all but numbers literally
shard none -o '' -> the name of the output is empty | is a shell variable unset?
shard none -o %6d -> '%6d.tar': numbers are %d or %06d, a percent sign is %%
shard none --require .a,,.b -> --require '.a,,.b': an empty name of a field | for example --require jpg,json
shard none --require '' -> --require '': an empty name of a field | for example --require jpg,json
shard none --require a --on-missing-field x -> shard: --on-missing-field x: it is one of error, warn, keep, exclude
    | see tarkit shard --help
shard none --map '{"x-%d.tar": ["(.*"]}' ->
    --map: 'x-%d.tar': invalid regular expression '(.*': missing ), unterminated subpattern at position 0
    | a glob has the prefix glob:
shard none --sort shuffle:zz -> --sort 'shuffle:zz': not key, -key, shuffle or shuffle:SEED | SEED is a number >= 0
shard none --sort alpha:up -> --sort 'alpha:up': not key, -key, shuffle or shuffle:SEED | SEED is a number >= 0
shard none --sort shuffle: -> --sort 'shuffle:': not key, -key, shuffle or shuffle:SEED | SEED is a number >= 0
shard none --sort key:dec -> --sort 'key:dec': not key, -key, shuffle or shuffle:SEED | SEED is a number >= 0
shard none --sort shuffle:-1 -> --sort 'shuffle:-1': not key, -key, shuffle or shuffle:SEED | SEED is a number >= 0

nothing -> No such command 'nothing'. | see tarkit --help
splt -> No such command 'splt'. (Did you mean 'split'?) | see tarkit --help
Sort -o x -> No such command 'Sort'. (Did you mean 'sort'?) | see tarkit --help
-q sho -> No such command 'sho'. (Did you mean 'show'?) | see tarkit --help
--nothing -> No such option '--nothing'. | see tarkit --help
split --join x -> split: No such option '--join'.
    | --join is an option of shard, cat, proc, tsv; see tarkit split --help
cat --cuont 3 -> cat: No such option '--cuont'. (Did you mean... | see tarkit cat --help
extract in.tar -o d -> extract: No such option '-o'. | -C DIR is the directory of the files
cat --nothing -> cat: No such option '--nothing'... | see tarkit cat --help
sort --template=at -> sort: No such option '--template'... | numbers in -o are %06d, {000..099} or @00099
cat -c many -> cat: -c many: a whole number is needed | see tarkit cat --help
cat -c -1 -> cat: -c -1: it is at least 0 | see tarkit cat --help
cat -o -> cat: Option '-o' requires an argument. | see tarkit cat --help
split --size-rule x -> split: --size-rule x: it is one of tar, content | see tarkit split --help
create a b -> create: Got unexpected extra argument (b) | see tarkit create --help
completion -> completion: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish
    | see tarkit completion --help
completion csh -> completion: Invalid value for... | see tarkit completion --help
proc --redo bad.tar -c : in.tar -> proc: No such option '--redo'...
    | run it over the rejects with --drop __error__.json, then sort both outputs together
shard foo://bucket/data -> foo://bucket/data: foo:// cannot be listed | mount it, or copy it here
shard http://bucket/data -> http://bucket/data: http:// cannot be listed | mount it, or copy it here
shard -> no directory: tarkit shard DIR
shard '' -> no directory: tarkit shard DIR
shard list -> list is not a directory
shard none -o x-%d.tar => none: No such file or directory |
shard none/there/ -o x-%d.tar => none/there/: No such file or directory |
cat in.tar -o '' -> the name of the output is empty | is a shell variable unset?
cat in.tar -o none/b.tar => none/b.tar: No such file or directory | there is no directory none: make it with mkdir -p
cat in.tar --report none/r => none/r: No such file or directory | there is no directory none: make it with mkdir -p

cat in.tar -f jpg,cls -> 'jpg,cls': a comma separates alternatives, of which the first present one is used
    | 'jpg cls' for both, 'jpg:jpg,cls' for either
cat in.tar --match a --match b -> --match is given twice
cat in.tar -R a --rekey b -> --rekey is given twice
cat in.tar -o a.tar --outputs b.tar -> --output is given twice
split in.tar -q -o a-{00..01 -> 'a-{00..01': unmatched or nested braces | file:NAME takes all but numbers literally
split in.tar -q -o a-@00001-%d.tar ->
    'a-@00001-%d.tar': @00001 is not a number here: a name has numbers of one notation
    | file:NAME takes all but numbers literally
split in.tar -q -o {stem}-%d.tar -> '{stem}-%d.tar': unknown placeholder {stem}
    | tarkit each INPUT... -- COMMAND {} -o TEMPLATE fills it in...
split in.tar -q --parts a,b=0.5 -o {parts}-%d.tar -> 'a-{parts}-%d.tar': unknown placeholder {parts}
    | {part} is the name of the part
split in.tar -q --parts 3 -o cv-{fold}-%d.tar -> 'fold-0-cv-{fold}-%d.tar': unknown placeholder {fold}
    | {part} is the name of the part
split in.tar -q --parts 3 -o {part}-@@9.tar ->
    'fold-0-@@9.tar': @ is followed by the last number, of at most 18 digits
split in.tar -q --map '{"x-{c}":["a"]}' -> --map: 'x-{c}': 'x-{c}.tar': unknown placeholder {c}
split in.tar -q --map '{"x":["a"]}' --unmatched y{ -> --unmatched: 'y{.tar': unmatched or nested braces
sort in.tar --size 1M -o x-{stim}.tar -> 'x-{stim}.tar': unknown placeholder {stim}
    | file:NAME takes all but numbers literally
check in.tar --fix x-%d-{stem}.tar -> 'x-%d-{stem}.tar': a job writes one file, not %d
    | --fix may have {stem}, {name}, {dir} and {index}
check in.tar --fix x-{a..b}.tar -> 'x-{a..b}.tar': a range is {FIRST..LAST} or {FIRST..LAST..STEP}, of decimal numbers
extract in.tar -C {stim}/ -> '{stim}/': unknown placeholder {stim} | make the directory first if that is its name
split in.tar -p 4 -> --post 4: a number is not a command
    | did you mean parallel work? --post is for a command that runs after each shard
split in.tar x-%d.tar => x-%d.tar: No such file or directory | shards are written with -o: -o 'x-%d.tar'
sort in.tar x-{0..1}.tar -c 3 => x-0.tar: No such file or directory (2 of the 2 names of x-{0..1}.tar are missing)
    | shards are written with -o: -o 'x-{0..1}.tar'
mix in.tar:3 -q => in.tar:3: No such file or directory | a weight follows an @: 'in.tar@3'
mix in.tar@x in.tar -q => in.tar@x: No such file or directory | weights look like 'in.tar@3'
mix z*.tar:0.5 -q => z*.tar:0.5: matches no archive | a weight follows an @: 'z*.tar@0.5'
create tree => tree: Is a directory | tarkit shard packs the files below it: tarkit shard tree
cat -T tree => tree: Is a directory | a file is needed here, not a directory
cat in.tar --keys-from tree => tree: Is a directory | a file is needed here, not a directory
sort in.tar --order-file tree => tree: Is a directory | a file is needed here, not a directory

cat in.tar -o out --report out -> out is the report, and the output too
cat in.tar -o out --report ./out -> out is the report, and the output too
cat in.tar -o out-0.tar --keys-from out-0.tar -> out-0.tar is the output, and the list of keys too
cat -T out-0.tar -o out-0.tar -> out-0.tar is a list of inputs, and the output too
cat -l out-0.tar -o o --report out-0.tar -> out-0.tar is the report, and a list of inputs too
create recipe -o out --depfile out -> out is the output, and the depfile too
create recipe -o out --depfile d --report d -> d is the report, and the depfile too
split in.tar -c 1 -o new-%d.tar --report new-0.tar ->
    new-0.tar is the report, and has a name that the shards may get
split in.tar -c 1 -o new-%d.tar --report r --manifest r -> r is the report, and the manifest too
split in.tar -c 1 -o out-%d.tar --force --keys-from out-0.tar ->
    out-0.tar is the list of keys, and has a name that the shards may get
stats in.tar --html in.tar -> in.tar is both input and output | write to another file, then rename it
stats in.tar --html r --report r -> r is the report, and the page too
"""


VIEWS = r"""
split in.tar -c 3 --names x-%d.tar -> --names requires a view
split in.tar -c 3 -o new.parquet --append -> --append cannot be used with a view: it is one file, and has no shards
split in.tar -c 3 -o new.parquet --compress gz ->
    --compress cannot be used with a view: it is one file, and has no shards
split in.tar -c 3 -o new.parquet --manifest m ->
    --manifest cannot be used with a view: it is one file, and has no shards
split in.tar -c 3 -o new.parquet --names x.parquet -> shards are archives, and a view is one file
split in.tar --by x -> in.tar: --by names a column of a view, and this is an archive
split v.parquet --by x -> v.parquet: there is no column 'x'
split v.parquet --by n -> v.parquet: the column 'n' has names of shards, and so text, not int64
split v.parquet --by __into__ -c 3 -> --by cannot be used with -c: the column says what is in which shard
split v.parquet --by twice -o . -> 'x.tar' and './x.tar' in twice are names of one file
split v.parquet --by hole => v.parquet: hole is null in a row
split v.parquet -c 3 -o new-%d.parquet ->
    'new-%d.parquet': %d numbers a series of files, but only one is written | a view is one file, and the names...
cat v.parquet -o new.parquet.gz -> new.parquet.gz: Parquet is not compressed again | its name ends in .parquet
tsv v.parquet -f jpg -o new.parquet.gz -> new.parquet.gz: Parquet is not compressed again | its name ends in .parquet
index v.parquet --format tsv =>
    v.parquet: a view, and this reads archives | tarkit cat v.parquet -o NAME.tar makes an archive of it
check v.parquet --fix out.tar -> v.parquet: --fix needs archives, and this is a view
check v.parquet --target webdataset -> v.parquet: --target needs archives, and this is a view

cat v.parquet -o in.tar -> in.tar is both input and output
cat v.parquet -o out.tar --report in.tar -> in.tar is both input and output
sort v.parquet -o out.tar --report in.tar -> in.tar is both input and output
check v.parquet --report in.tar -> in.tar is both input and output
get a.jpg v.parquet -o in.tar -> in.tar is both input and output
show v.parquet --html in.tar -> in.tar is both input and output
stats v.parquet --html in.tar -> in.tar is both input and output
proc v.parquet -c false --rejects in.tar -o out.tar -> in.tar is both input and output
split v.parquet -c 9 -o new-%d.tar --manifest in.tar -> in.tar is both input and output
split shard.parquet -c 99 -o s-%d.tar --force -> s-0.tar is an input, and has a name that the shards may get
extract field.parquet -C x --force -f jpg => 'a.jpg' would replace an input | choose another directory with -C
"""
"""Those of views; the archives that a view names are inputs."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with what the command lines name."""
    with chdir(folder := tmp_path_factory.mktemp("usage")):
        Path("in.tar").write_bytes(tar({f"{key}.{field}": b"1" for key in "abc" for field in ("cls", "jpg", "json")}))
        Path("num.tar").write_bytes(tar({f"n/{key}.txt": b"1" for key in ("0003", "0005", "picture")}))
        texts = {
            "list": "a\n",
            "some": "b\nz\n",
            "twice": "a\nb\na\n",
            "empty": "\n",
            "table.tsv": "n\tid\n1\te/b\n",
            "table.parquet": "PAR1",
            "out-0.tar": "in.tar\n",
            "recipe": "a.x text:1\n",
            "bad.jsonl": '{"id": "x"}\n{"id"\n',
            "t.csv": "__key__,a\n",
            "x.csv": "key,a\nd/a,1\n",
            "m.json": '{"sources": [{"shards": "in.tar"}]}',
        }
        for name, text in texts.items():
            Path(name).write_text(text)
        Path("tree").mkdir()
        for name in ("1.x", "2.x"):
            Path("tree", name).write_text("x")
        Path("list.gz").write_bytes(gzip.compress(b"d/a\n"))
    return folder


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with the views that the command lines name."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    with chdir(folder := tmp_path_factory.mktemp("views")):
        Path("x").mkdir()
        for view, archive in (("v.parquet", "in.tar"), ("shard.parquet", "s-0.tar"), ("field.parquet", "x/a.jpg")):
            Path(archive).write_bytes(tar({f"{key}.{field}": b"1" for key in "abc" for field in ("cls", "jpg")}))
            tarkit("cat", archive, "-o", view)
        table = parquet.read_table("v.parquet")
        columns = {"n": [1, 2, 3], "twice": ["x.tar", "./x.tar", "x.tar"], "hole": [None, "x", "x"]}
        for name, values in columns.items():
            table = table.append_column(name, arrow.array(values))
        parquet.write_table(table, "v.parquet")
    return folder


def rows_of(text: str) -> list[str]:
    """Return the rows of a text, whose continuation lines are indented."""
    return [row for row in re.sub(r"\n {4}", " ", text).splitlines() if row]


def matches(text: str, row: str) -> bool:
    """Compare a text with that of a row."""
    return text.startswith(row[:-3]) if row.endswith("...") else text == row


def contents() -> dict[str, bytes]:
    """Return the files of the directory."""
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def check_row(row: str, folder: Path) -> None:
    """Run the command line of a row: the message is that of the row, there is no output, all files are as they were."""
    command, arrow, expected = re.split(" ([-=]>) ", row, maxsplit=1)
    message, bar, hint = expected.partition(" |")
    words = shlex.split(command)
    with chdir(folder):
        before = contents()
        if words[0] == "cat" and "-o" not in words:
            words += ["-o", "out.tar"]
        ran = tarkit(*words, exit=2 if arrow == "->" else 1)
        assert contents() == before
    [line, *hints] = ran.lines
    assert matches(line, f"tarkit: {message}")
    assert len(hints) < 2
    if bar:
        assert matches("".join(hints), f"hint: {hint.strip()}" if hint else "")
    assert ran.stdout == b""


@each_row("row", rows_of(ERRORS))
def test_errors(row: str, inputs: Path) -> None:
    check_row(row, inputs)


@each_row("row", rows_of(VIEWS))
def test_errors_of_views(row: str, views: Path) -> None:
    check_row(row, views)
