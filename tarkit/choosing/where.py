"""--where: an expression over the values of a sample, such as `cls == 3 and json.width > 512`.

It is parsed by `ast`, each node is checked against a list of allowed types and becomes a function of the sample; no
part of it runs as Python. Names are those of `values`: a decoded field, a path into JSON, in which `.0` is an element
of an array as `[0]` is, `size.jpg`. `null`, `true` and `false` are literals, as in JSON. Two functions take names:
`has(jpg)` returns whether there is a value, `field('0 (x).mp3')` takes any field name. The check bounds the cost of an
expression: its length and depth; no powers, no repeated text, no loops. The one exception is a regular expression of
`match`, which can take any time.

Beside each function of a sample there is one of many samples of a batch, or rows of a view, at once (`tables.vectors`),
made of the same functions of values: where it raises anything, each is evaluated alone, which says what is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tarkit.choosing.functions import FUNCTIONS, NATIVES, OPERATORS
from tarkit.choosing.syntax import ALLOWED, DIGITS, HINT, LITERALS, character, constant, dots, parse, with_steps
from tarkit.errors import Problem, Usage, show, spell, spell_open
from tarkit.problems import Policy
from tarkit.samples.lookup import NO_TEXT, FieldLookup, is_unicode
from tarkit.samples.sample import TarSample
from tarkit.samples.values import Name, step_into
from tarkit.tables import vectors
from tarkit.tables.vectors import FAILURES, PRESENT, TEXT, Columns, Vectorial

Value = Callable[[FieldLookup], Any]
"""The value of a part of an expression for a sample."""


class Term(NamedTuple):
    """A part of an expression: its value for one sample, which is the reference, and for many samples or rows."""

    one: Value
    many: Vectorial


class Where:
    """An expression; a call with a sample returns whether the sample is selected.

    Attributes:
        names: the names in it whose values it needs.
        columnar: whether many samples of an archive can be evaluated together.

    Raises:
        Usage: the expression is invalid.
    """

    def __init__(self, text: str) -> None:
        self.text = text = text.strip()
        self.source = with_steps(text)
        self.needs_entries = False
        self.names: frozenset[str] = frozenset()
        self._named: dict[tuple[str, bool], Name] = {}
        self._tree = parse(self.source).body
        self._value, self._values = self._compiled(self._tree)
        self.columnar = all(name.columnar for name in self._named.values())

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
        """Return which of many samples or rows are selected; None if one of them may be a problem."""
        try:
            kind, values = self._values(columns)
            return list(values if kind == vectors.TRUTHS else map(bool, values))
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
        if not isinstance(node, ALLOWED):
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
        if not isinstance(sign, ALLOWED):
            raise self._refused(sign, f"{type(sign).__name__} is not allowed")
        return OPERATORS[type(sign)]

    def _comparison(self, node: ast.Compare) -> Term:
        for sign, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, (ast.Is, ast.IsNot)) and not isinstance(constant(other), (bool, type(None))):
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
        text = dots(node)
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
        return Term(name.value, vectors.named(name))

    def _present(self, name: Name) -> Term:
        """Return the part that says whether there is a value."""
        return Term(name.present, vectors.named(name, PRESENT))

    def _check_has(self, node: ast.AST) -> None:
        """Raise Usage for brackets behind has.NAME, which is true or false."""
        text = dots(node, indexed=True) or ""
        if text.startswith("has.") and "[" in text:
            test = f"has({text[4:]})".replace("'", '"')
            error = self._refused(node, f"{show(text)} is true or false and has no elements,")
            error.hint = f"did you mean {show(test)}?"
            raise error

    def _name(self, text: str, exact: bool = False) -> Name:
        name = self._named.setdefault((text, exact), Name(text, exact=exact))
        self.names |= {"\0" if exact and text == "__key__" else text}  # a field of this name is no column
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
        if name == "match" and node.args and isinstance(pattern := constant(node.args[0]), str):
            try:
                re.compile(pattern)
            except re.error as error:
                raise self._refused(node, f"invalid regular expression {show(pattern)}: {error},") from None
        function, low, high = FUNCTIONS[name]
        if not low <= len(node.args) <= high or node.keywords:
            raise self._refused(node, f"{name} takes {low if low == high else f'{low} to {high}'} arguments")
        if name in ("has", "field", "str"):  # they take a name, not its value
            [argument] = node.args
            text = dots(argument, indexed=name == "has")
            if text is None and name != "str" and isinstance(constant(argument), str):
                text = constant(argument)
            if text is not None:
                self._check_name(argument, text)
                field = self._name(text, exact=name == "field")
                if name == "has":
                    return self._present(field)
                if name == "field":
                    return Term(field.value, vectors.named(field))
                return Term(field.words, vectors.named(field, TEXT))
            if name != "str":
                raise self._refused(node, f"{name} takes a name, such as {name}('seg.png'),")
        return self._applied(node, function, *node.args)

    def _refused(self, node: ast.AST, words: str) -> Usage:
        return Usage(f"{spell('where')}: {words} at character {character(self.source, node)}", HINT)

    def _problem(self, lookup: FieldLookup, name: str, node: ast.AST, detail: str) -> Problem:
        sample = lookup.sample
        part = (ast.get_source_segment(self.source, node) or self.text).translate(DIGITS)
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
