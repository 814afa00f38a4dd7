"""--where: an expression over the values of a sample, such as `cls == 3 and json.width > 512`.

It is parsed by `ast`, each node is checked against a list of allowed types and becomes a function of the sample; no
part of it runs as Python. Names are those of `values`: a decoded field, a path into JSON, in which `.0` is an element
of an array as `[0]` is, `size.jpg`. `null`, `true` and `false` are literals, as in JSON. Two functions take names:
`has(jpg)` returns whether there is a value, `field('0 (x).mp3')` takes any field name. The check bounds the cost of an
expression: its length and depth; no powers, no repeated text, no loops. The one exception is a regular expression of
`match`, which can take any time.

Beside each function of a sample there is one of many rows of a view at once (`tables.vectors`), made of the same
functions of values: where it raises anything, each row is evaluated as a sample, which says what is wrong.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tarkit.errors import Problem, Usage, show, spell, spell_open
from tarkit.problems import Policy
from tarkit.samples.lookup import NO_TEXT, FieldLookup, is_unicode
from tarkit.samples.sample import TarSample
from tarkit.samples.values import Name, step_into
from tarkit.sizes import plural
from tarkit.tables import vectors
from tarkit.tables.vectors import NUMBERS, TEXTS, TRUTHS, Columns, Vectorial

# ---- Operators and functions allowed in expressions
# Each raises TypeError or ValueError for invalid values, with a text that a message can end with.


def _numbers(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Restrict `function` to numbers: for text, % would format and * would repeat."""

    def checked(left: Any, right: Any) -> Any:
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            raise TypeError(f"{_kind(left)} and {_kind(right)}")
        return function(left, right)

    return checked


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"the number {value if abs(value) < 1e18 else f'{value:.3e}'}"
    if isinstance(value, str):
        return f"the text {show(value[:40])}"
    return "an object" if isinstance(value, dict) else "a list"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(left: Any, right: Any) -> None:
    """Raise TypeError for a comparison of a number with text, which are never equal."""
    if (isinstance(left, str) and _is_number(right)) or (_is_number(left) and isinstance(right, str)):
        text = left if isinstance(left, str) else right
        why = "; str(NAME) takes a field as text" if re.fullmatch(r"[-+]?[0-9.]+", text) else " are never equal"
        raise TypeError(f"{_kind(left)} and {_kind(right)}{why}")


def _ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Restrict `function` to two numbers or two texts."""

    def checked(left: Any, right: Any) -> bool:
        if not (_is_number(left) and _is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
            raise TypeError(f"{_kind(left)} and {_kind(right)}")
        return function(left, right)

    return checked


def _equal(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left == right)


def _within(left: Any, right: Any) -> bool:
    if isinstance(right, (tuple, list, set)):
        if right and all(type(item) is type(next(iter(right))) for item in right):
            _comparable(left, next(iter(right)))
        return any(left == item for item in right)
    if isinstance(right, str) and not isinstance(left, str):
        raise TypeError(f"{_kind(left)} in {_kind(right)}")
    if not isinstance(right, (str, dict)):
        raise TypeError(f"{_kind(right)} is not a container")
    return left in right


def _join(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > 1 << 22:
            raise ValueError("the text is too long")
        return left + right
    return _numbers(operator.add)(left, right)


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict `function` to texts."""

    def checked(*values: Any) -> Any:
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"expected text, not {_kind(value)}; str(NAME) takes a field as text")
        return function(*values)

    return checked


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, set, dict)):
        raise TypeError(f"expected text, a list or an object, not {_kind(value)}; str(NAME) takes a field as text")
    return len(value)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict `min` or `max` to several values of one type, or those in one list."""

    def checked(*values: Any) -> Any:
        several = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else values
        kinds = {"number" if _is_number(value) else "text" if isinstance(value, str) else "other" for value in several}
        if not several or len(kinds) > 1 or "other" in kinds:
            raise TypeError("expected numbers only or texts only")
        return function(several)

    return checked


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _join,
    ast.Sub: _numbers(operator.sub),
    ast.Mult: _numbers(operator.mul),
    ast.Div: _numbers(operator.truediv),
    ast.FloorDiv: _numbers(operator.floordiv),
    ast.Mod: _numbers(operator.mod),
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _within,
    ast.NotIn: lambda left, right: not _within(left, right),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {  # with the minimum and maximum number of arguments
    "len": (_length, 1, 1),
    "lower": (_of_text(str.lower), 1, 1),
    "upper": (_of_text(str.upper), 1, 1),
    "startswith": (_of_text(str.startswith), 2, 2),
    "endswith": (_of_text(str.endswith), 2, 2),
    "match": (_of_text(lambda pattern, text: re.search(pattern, text) is not None), 2, 2),
    "int": (int, 1, 1),
    "float": (float, 1, 1),
    "abs": (abs, 1, 1),
    "round": (round, 1, 1),
    "min": (_extreme(min), 1, 16),
    "max": (_extreme(max), 1, 16),
    "has": (bool, 1, 1),
    "field": (str, 1, 1),
    "str": (str, 1, 1),
}

_ORDERS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_EQUALITIES = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
NATIVES: vectors.Natives = {  # those of Python, where a check of the types would find nothing
    **{
        (OPERATORS[sign], kind): (native, TRUTHS)
        for sign, native in {**_ORDERS, **_EQUALITIES}.items()
        for kind in (NUMBERS, TEXTS)
    },
    **{(OPERATORS[sign], NUMBERS): (native, NUMBERS) for sign, native in _ARITHMETIC.items()},
    **{(OPERATORS[sign], TRUTHS): (native, TRUTHS) for sign, native in _EQUALITIES.items()},
    **{(operator.not_, kind): (operator.not_, TRUTHS) for kind in (NUMBERS, TEXTS, TRUTHS)},
    (operator.neg, NUMBERS): (operator.neg, NUMBERS),
    (operator.pos, NUMBERS): (operator.pos, NUMBERS),
    (_length, TEXTS): (len, NUMBERS),
}


LITERALS = {"null": None, "true": True, "false": False}  # words of JSON, in addition to those of Python
LONGEST, DEEPEST = 4096, 64  # characters, levels
HINT = "for example 'cls == 3 and json.width > 512', \"size.jpg > 10000 and 'cat' in txt\", 'has.json'"

_ALLOWED = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Load),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp, ast.Call),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Tuple, ast.List, ast.Set),
)

Value = Callable[[FieldLookup], Any]
"""The value of a part of an expression for a sample."""


class Term(NamedTuple):
    """A part of an expression: its value for one sample, which is the reference, and for many rows of a view."""

    one: Value
    many: Vectorial


FAILURES = (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, re.error)
"""What a part of an expression raises for values that it is not made for."""


class Where:
    """An expression; a call with a sample returns whether the sample is selected.

    Attributes:
        names: the names in it whose values it needs.

    Raises:
        Usage: the expression is invalid.
    """

    def __init__(self, text: str) -> None:
        self.text = text = text.strip()
        self.source = _with_steps(text)
        self.needs_entries = False
        self.names: set[str] = set()
        self._tree = _parse(self.source).body
        self._value, self._values = self._compiled(self._tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle its text: functions made of it cannot be."""
        return Where, (self.text,)

    def __call__(self, sample: TarSample, policy: Policy) -> bool:
        """Return whether `sample` is selected.

        Raises:
            Problem: `missing-field`, `bad-field`, `sparse-entry`, unless `policy` lets it pass.
        """
        lookup = FieldLookup(sample, complete=self.needs_entries)
        try:
            return bool(self._value(lookup))
        except Problem as problem:
            if problem.name == "missing-field" and not problem.hint:
                problem.hint = self._hint(problem)
            return policy.apply(problem) == "keep"
        except RecursionError:
            return (
                policy.apply(self._problem(lookup, "bad-field", self._tree, "values are nested too deeply")) == "keep"
            )

    def flags(self, columns: Columns) -> list[bool] | None:
        """Return which rows of a view are selected, by columns with all values; None if one may be a problem."""
        try:
            return list(map(bool, self._values(columns).values))
        except FAILURES:
            return None

    def _hint(self, problem: Problem) -> str:
        """Return the hint for a field that is missing; a name that is compared with may be meant as text."""
        for node in ast.walk(self._tree):
            for side in node.comparators if isinstance(node, ast.Compare) else ():
                if isinstance(side, ast.Name) and f"has no field {show(side.id)}," in problem.detail:
                    return f'text has quotes: "{side.id}"; without them {side.id} is a field'
        skip = spell_open("skip", "missing-field")
        return f"has.NAME and ... tests for it first; {skip} leaves such samples out"

    def _compiled(self, node: ast.AST) -> Term:
        """Check a node and those below it; return the functions that compute its value."""
        if not isinstance(node, _ALLOWED):
            raise self._refused(node, f"{type(node).__name__} is not allowed")
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            self._check_has(node)
        match node:
            case ast.Constant():
                if not isinstance(value := node.value, (str, int, float, bool, type(None))):
                    raise self._refused(node, "invalid literal")
                return _literal(value)
            case ast.Name() | ast.Attribute():
                return self._dotted(node)
            case ast.Call():
                return self._call(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.BoolOp():
                return _either(isinstance(node.op, ast.Or), list(map(self._compiled, node.values)))
            case ast.UnaryOp():
                return self._applied(node, self._operator(node.op), node.operand)
            case ast.BinOp():
                left = self._compiled(node.left)
                return self._applied(node, self._operator(node.op), left, node.right)
            case ast.IfExp():
                test, body, other = map(self._compiled, (node.test, node.body, node.orelse))
                many = vectors.conditional(test.many, body.many, other.many)
                return Term(lambda lookup: body.one(lookup) if test.one(lookup) else other.one(lookup), many)
            case ast.Subscript():
                return self._applied(node, _element, node.value, node.slice)
            case ast.Slice():
                return self._of_terms(slice, [node.lower, node.upper, node.step])
            case ast.Set():
                return self._applied(node, lambda *values: set(values), *node.elts)
            case ast.Tuple() | ast.List():
                return self._of_terms(_tuple if isinstance(node, ast.Tuple) else _list, node.elts)
        raise AssertionError(node)

    def _of_terms(self, function: Callable[..., Any], nodes: Sequence[ast.AST | None]) -> Term:
        """Return the part that a function makes of others; one that is not there is None."""
        terms = [_literal(None) if node is None else self._compiled(node) for node in nodes]
        many = vectors.applied(function, [term.many for term in terms], {})
        return Term(lambda lookup: function(*(term.one(lookup) for term in terms)), many)

    def _applied(self, node: ast.AST, function: Callable[..., Any], *operands: ast.AST | Term) -> Term:
        """Return the part that applies a function to operands; errors of Python become problems of the sample."""
        terms = [self._compiled(operand) if isinstance(operand, ast.AST) else operand for operand in operands]
        values = [term.one for term in terms]

        def value_of(lookup: FieldLookup) -> Any:
            several = [value(lookup) for value in values]
            try:
                value = function(*several)
            except (KeyError, IndexError) as error:
                raise self._problem(lookup, "missing-field", node, f"no {error}") from None
            except (TypeError, ValueError, ArithmeticError, AttributeError, re.error) as error:
                raise self._problem(lookup, "bad-field", node, str(error)) from None
            if isinstance(value, str) and not is_unicode(value):  # as in `json['a']`, which is not resolved by name
                raise self._problem(lookup, "bad-field", node, NO_TEXT)
            return value

        return Term(value_of, vectors.applied(function, [term.many for term in terms], NATIVES))

    def _operator(self, sign: ast.AST) -> Callable[..., Any]:
        if not isinstance(sign, _ALLOWED):
            raise self._refused(sign, f"{type(sign).__name__} is not allowed")
        return OPERATORS[type(sign)]

    def _comparison(self, node: ast.Compare) -> Term:
        for sign, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, (ast.Is, ast.IsNot)) and not isinstance(_constant(other), (bool, type(None))):
                raise self._refused(node, "'is' takes only None, True or False, use == instead,")
        left = self._compiled(node.left)
        signs = list(map(self._operator, node.ops))
        operands = [left, *map(self._compiled, node.comparators)]
        pairs = [
            self._applied(node, sign, left, right)
            for sign, left, right in zip(signs, operands, operands[1:], strict=False)
        ]
        if len(pairs) == 1 and (items := _items(node.comparators[0])) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            negated = isinstance(node.ops[0], ast.NotIn)
            many = vectors.member(operands[0].many, items, negated, pairs[0].many)
            pairs[0] = pairs[0]._replace(many=many)
        return pairs[0] if len(pairs) == 1 else _either(False, pairs)

    def _dotted(self, node: ast.Name | ast.Attribute) -> Term:
        text = _dots(node)
        if text is None:
            assert isinstance(node, ast.Attribute)
            if not isinstance(node.value, (ast.Subscript, ast.Attribute)) or node.attr.startswith("__"):
                raise self._refused(node, f"invalid attribute '.{node.attr}'")
            return self._applied(node, _element, node.value, ast.Constant(node.attr))
        if text in LITERALS:
            return _literal(LITERALS[text])
        self._check_name(node, text)
        if text.startswith("has."):
            return self._present(self._name(text[4:]))
        if text in FUNCTIONS:
            hint = "has.NAME" if text == "has" else f"{text}(...)"
            raise self._refused(node, f"{text} is a function, use {hint}; a field of this name is field('{text}'),")
        name = self._name(text)
        return Term(name.value, vectors.named(text))

    def _present(self, name: Name) -> Term:
        """Return the part that says whether there is a value: in columns with all values there is."""
        return Term(name.present, vectors.constant(True))

    def _check_has(self, node: ast.AST) -> None:
        """Raise Usage for brackets behind has.NAME, which is true or false."""
        text = _dots(node, indexed=True) or ""
        if text.startswith("has.") and "[" in text:
            test = f"has({text[4:]})".replace("'", '"')
            error = self._refused(node, f"{show(text)} is true or false and has no elements,")
            error.hint = f"did you mean {show(test)}?"
            raise error

    def _name(self, text: str, exact: bool = False) -> Name:
        name = Name(text, exact=exact)
        self.names.add("\0" if exact and text == "__key__" else text)  # a field of this name is no column
        self.needs_entries = self.needs_entries or name.needs_entries
        return name

    def _check_name(self, node: ast.AST, text: str) -> None:
        if not text or (text != "__key__" and any(part.startswith("__") for part in text.split("."))):
            raise self._refused(node, f"invalid field name {show(text)}")

    def _call(self, node: ast.Call) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in FUNCTIONS:
            names = ", ".join(sorted(FUNCTIONS))
            raise self._refused(node, f"unknown function; the functions are {names};")
        if name == "match" and node.args and isinstance(pattern := _constant(node.args[0]), str):
            try:
                re.compile(pattern)
            except re.error as error:
                raise self._refused(node, f"invalid regular expression {show(pattern)}: {error},") from None
        function, low, high = FUNCTIONS[name]
        if not low <= len(node.args) <= high or node.keywords:
            raise self._refused(node, f"{name} takes {low if low == high else f'{low} to {high}'} arguments")
        if name in ("has", "field", "str"):  # they take a name, not its value
            [argument] = node.args
            text = _dots(argument, indexed=name == "has")
            if text is None and name != "str" and isinstance(_constant(argument), str):
                text = _constant(argument)
            if text is not None:
                self._check_name(argument, text)
                field = self._name(text, exact=name == "field")
                if name == "has":
                    return self._present(field)
                return Term(field.value if name == "field" else field.words, vectors.named(text))
            if name != "str":
                raise self._refused(node, f"{name} takes a name, such as {name}('seg.png'),")
        return self._applied(node, function, *node.args)

    def _refused(self, node: ast.AST, words: str) -> Usage:
        return Usage(f"{spell('where')}: {words} at character {_character(self.source, node)}", HINT)

    def _problem(self, lookup: FieldLookup, name: str, node: ast.AST, detail: str) -> Problem:
        sample = lookup.sample
        part = (ast.get_source_segment(self.source, node) or self.text).translate(_DIGITS)
        detail = f"{spell('where')} {show(part)} for {show(sample.key or b'')}: {detail}"
        return Problem(name, sample.source.name, sample.start, detail)


def _literal(value: Any) -> Term:
    """Return the part with one value; text that is not Unicode is no value of many rows, since it may be a problem."""
    return Term(lambda lookup: value, vectors.constant(value) if is_unicode(value) else vectors.failing)


def _either(wanted: bool, terms: Sequence[Term]) -> Term:
    """Return the part for `or` (True) or `and` (False): the first value that is `wanted`, else the last one."""
    values = [term.one for term in terms]

    def value_of(lookup: FieldLookup) -> Any:
        for value in values:
            if bool(result := value(lookup)) is wanted:
                break
        return result

    return Term(value_of, vectors.either(wanted, [term.many for term in terms]))


def _tuple(*values: Any) -> tuple[Any, ...]:
    return values


def _list(*values: Any) -> list[Any]:
    return list(values)


def _items(node: ast.AST) -> list[Any]:
    """Return the items of a list of literals; none for other expressions."""
    if not isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return []
    return (
        [item.value for item in node.elts if isinstance(item, ast.Constant)]
        if all(isinstance(item, ast.Constant) and is_unicode(item.value) for item in node.elts)
        else []
    )


def _element(value: Any, step: Any) -> Any:
    """Return an element or a part of a value: of JSON as in a path, of text its characters."""
    if type(step) in (int, str) and not (type(step) is int and isinstance(value, (str, tuple))):
        return step_into(value, step)
    return value[step]


_STAND_INS = {ord(digit): chr(0x10330 + number) for number, digit in enumerate("0123456789")}
_DIGITS = {ord(letter): digit for digit, letter in zip("0123456789", _STAND_INS.values(), strict=True)}
_DOTTED = re.compile(r"""#[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[0-9][\w.]*|((?:[^\W0-9]\w*|\])(?:\.\w+)+)""")


def _with_steps(text: str) -> str:
    """Return the text with letters for the digits in `json.a.0`, which the parser takes for a number.

    A letter is one character, as a digit is: positions stay. Text that has such (Gothic) letters is not changed.
    """

    def lettered(match: re.Match[str]) -> str:
        return re.sub(r"\.[0-9]+(?!\w)", lambda step: step[0].translate(_STAND_INS), match[1]) if match[1] else match[0]

    return text if any(ord(char) in _DIGITS for char in text) else _DOTTED.sub(lettered, text)


def _parse(text: str, again: bool = False) -> ast.Expression:
    """Return the tree of an expression of limited length and depth; `text` is that of `_with_steps`.

    Args:
        text: the expression.
        again: it is what a hint may name.

    Raises:
        Usage: the expression is too long, nested too deeply, or not valid syntax.
    """
    if len(text) > LONGEST:
        raise Usage(f"{spell('where')}: the expression has {plural(len(text), 'character')}, the limit is {LONGEST}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset and error.lineno == 1 else ""
        from tarkit.samples.where_hints import hint_for

        words = text.translate(_DIGITS)
        hint = None if again else hint_for(words, lambda other: bool(_parse(_with_steps(other), again=True)))
        raise Usage(f"{spell('where')} {show(words)}: {error.msg}{place}", hint or HINT) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Usage(
            f"{spell('where')} {show(text[:80].translate(_DIGITS))}: not an expression: {error}", HINT
        ) from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise Usage(f"{spell('where')}: the expression is nested too deeply")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = _as_written(text, node)
        elif isinstance(node, ast.Attribute):
            node.attr = _as_written(text, node)
    return tree


def _as_written(text: str, node: ast.Name | ast.Attribute) -> str:
    """Return the last word of a name as in the text: the parser normalises words (NFKC), field names are bytes."""
    part = ast.get_source_segment(text, node) or ""
    start = len(part)
    while start and f"a{part[start - 1]}".isidentifier():
        start -= 1
    return part[start:].translate(_DIGITS)


def _character(text: str, node: ast.AST) -> int:
    """Return the position of a node in characters from 1; the parser counts bytes in a line."""
    lines = text.encode().splitlines(keepends=True)
    before = lines[: getattr(node, "lineno", 1) - 1]
    line = lines[len(before)] if len(before) < len(lines) else b""
    return len((b"".join(before) + line[: getattr(node, "col_offset", 0)]).decode()) + 1


def _constant(node: ast.AST) -> Any:
    """Return the value of a literal; for other nodes a value that no literal has."""
    if isinstance(node, ast.Name):
        return LITERALS.get(node.id, ())
    return node.value if isinstance(node, ast.Constant) else ()


def _dots(node: ast.AST, indexed: bool = False) -> str | None:
    """Return a name with dots, if `indexed` also with literals in brackets, as text; None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (text := _dots(node.value, indexed)) is not None:
        return f"{text}.{node.attr}"
    if indexed and isinstance(node, ast.Subscript) and (text := _dots(node.value, indexed)) is not None:
        step = node.slice
        negative = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
        value = _constant(step.operand if isinstance(step, ast.UnaryOp) and negative else step)
        if type(value) is int or (type(value) is str and "'" not in value and not negative):
            return f"{text}[{'-' * negative}{value!r}]"
    return None
