"""Every small change that can be made to a module: one `Mutant` each, named so that it is found again later.

A mutant is a change of the syntax tree, compiled in memory: no file is written, so the tree under test stays as it
is. Names hold no line number (module, function, kind, the code before and after, and which one of several alike), so
that a list of survivors outlives edits elsewhere in the module.

Left alone are code outside of functions, assertions, annotations, decorators, text, and the arguments of errors:
what they change is a tuning figure or a sentence, which no test should pin.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

Change = tuple[str, ast.AST]
"""A kind, and what stands in the place of the node."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_BODY = ".<locals>"
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Mutant(NamedTuple):
    """One change of one module: `node` and `option` find it again in a fresh parse."""

    name: str
    path: Path
    room: str
    path_in_source: str
    kind: str
    function: str
    node: int
    option: int
    is_idle: bool
    """Whether it cannot matter: the same arguments, or those of a function that does not care for their order."""

    def compile(self) -> object:
        """Return the code object of the changed module."""
        tree = ast.parse(self.path.read_text(), str(self.path))
        target = list(ast.walk(tree))[self.node]
        _, changed = list(changes_of(target))[self.option]
        put = _Replace(target, ast.copy_location(changed, target))
        return compile(ast.fix_missing_locations(put.visit(tree)), str(self.path), "exec", dont_inherit=True)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, changed: ast.AST) -> None:
        self._target, self._changed = target, changed

    def visit(self, node: ast.AST) -> ast.AST:
        return self._changed if node is self._target else self.generic_visit(node)


def mutants_of(path: Path, *, source: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its syntax tree."""
    tree = ast.parse(path.read_text(), str(path))
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    seen = Counter[str]()
    for body, node in _mutable(tree, ""):
        function = body.removesuffix(_BODY)
        for option, (kind, changed) in enumerate(changes_of(node)):
            inside = path.relative_to(source)
            name = f"{inside} {function} {kind}: {_text(node)} -> {_text(changed)}"
            seen[name] += 1
            name += f" #{seen[name]}" if seen[name] > 1 else ""
            place = (inside.parts[1], str(inside), kind, function, numbers[id(node)], option)
            yield Mutant(name, path, *place, is_idle=_is_idle(node, changed))


def _is_idle(node: ast.AST, changed: ast.AST) -> bool:
    unordered = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min")
    return unordered or ast.dump(node) == ast.dump(changed)


def _text(node: ast.AST) -> str:
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= 90 else line[:87] + "..."


def _mutable(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield the nodes below this one that may change, each with the qualified name of its function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _of_definition(child, function)
        elif isinstance(child, ast.Assert | ast.JoinedStr):
            continue
        elif isinstance(child, ast.Raise):
            if _in_function(function):
                yield function, child
        elif isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield from _mutable(ast.Expression(child.value), function)
        else:
            if _in_function(function) and isinstance(child, ast.expr | ast.stmt):
                yield function, child
            yield from _mutable(child, function)


def _of_definition(
    child: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, function: str
) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    prefix = f"{function}." if function else ""
    is_class = isinstance(child, ast.ClassDef)
    inner = f"{prefix}{child.name}" + ("" if is_class else _BODY)
    for part in child.body:
        yield from _mutable(ast.Module([part], []), inner)


def _in_function(function: str) -> bool:
    return function.endswith(_BODY)


def changes_of(node: ast.AST) -> Iterator[Change]:
    """Yield what may stand in the place of a node, always in the same order."""
    if (find := _CHANGES.get(type(node))) is not None:
        yield from find(node)


def _compare(node: ast.Compare) -> Iterator[Change]:
    operator = type(node.ops[0])
    if len(node.ops) > 1:
        return
    swapped = copy.copy(node)
    swapped.ops = [COMPARISONS[operator]()]
    yield "comparison", swapped
    if operator in ORDERED:
        for step in (ast.Add(), ast.Sub()):
            moved = copy.copy(node)
            moved.comparators = [ast.BinOp(node.comparators[0], step, ast.Constant(1))]
            yield "boundary", moved


def _logic(node: ast.BoolOp) -> Iterator[Change]:
    other = copy.copy(node)
    other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "logic", other


def _not(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not):
        yield "not", node.operand


def _constant(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant", ast.Constant(node.value + 1)


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    if (operator := ARITHMETIC.get(type(node.op))) is not None:
        other = copy.copy(node)
        other.op = operator()
        yield "arithmetic", other
    if isinstance(node, ast.AugAssign):
        yield "removed", ast.Pass()


def _call(node: ast.Call) -> Iterator[Change]:
    first = node.args[:2]
    if len(first) == 2 and not any(isinstance(arg, ast.Starred) for arg in first):
        other = copy.copy(node)
        other.args = [first[1], first[0], *node.args[2:]]
        yield "arguments", other


def _condition(node: ast.If | ast.While | ast.IfExp) -> Iterator[Change]:
    if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        other = copy.copy(node)
        other.test = ast.UnaryOp(ast.Not(), node.test)
        yield "not", other


def _return(node: ast.Return) -> Iterator[Change]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", ast.Return(ast.Constant(None))


def _assign(node: ast.Assign) -> Iterator[Change]:
    if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        yield "removed", ast.Pass()


def _expression(node: ast.Expr) -> Iterator[Change]:
    if isinstance(node.value, ast.Call | ast.Await):
        yield "removed", ast.Pass()


def _statement(node: ast.stmt) -> Iterator[Change]:
    yield "removed", ast.Pass()


_CHANGES: dict[type[ast.AST], Callable[..., Iterator[Change]]] = {
    ast.Compare: _compare,
    ast.BoolOp: _logic,
    ast.UnaryOp: _not,
    ast.Constant: _constant,
    ast.BinOp: _arithmetic,
    ast.AugAssign: _arithmetic,
    ast.Call: _call,
    ast.If: _condition,
    ast.While: _condition,
    ast.IfExp: _condition,
    ast.Return: _return,
    ast.Assign: _assign,
    ast.Expr: _expression,
    ast.Raise: _statement,
    ast.Continue: _statement,
    ast.Break: _statement,
    ast.Delete: _statement,
}
