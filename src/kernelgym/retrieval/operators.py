"""The operators that a reference computes, in order of evaluation.

Contract: `operators` is a pure function of a module's text; nothing is imported or run. It follows
``Model.forward`` through the module's own classes and functions, and resolves each operator through
import aliases: functions, methods, ``self.x = nn.Y(...)``, containers, lambdas and infix. Names,
docstrings, comments, formatting and sizes do not change it. A few idioms are read as the operator
that they spell (``x * torch.sigmoid(x)`` is ``silu``).

It does not cover: values (both branches of an ``if`` are read, a loop's body once), modules found
by ``getattr``, and code that is imported from elsewhere, of which only the name is known. A source
that cannot be parsed has no operators; of one larger than the limits, the first are read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from kernelgym.retrieval.idioms import COMPARED, IDIOMS, INFIX, arithmetic, bounded, layer, number
from kernelgym.retrieval.kinds import (
    OTHER,
    TENSOR,
    Dotted,
    Layer,
    Many,
    Method,
    Own,
    OwnFunction,
    Super,
    flat,
    is_tensor,
    items_of,
    joined,
    kind_of,
    zipped,
)
from kernelgym.retrieval.names import FACTS, FILLS, SAME, family, operator_name
from kernelgym.retrieval.source import aliases_of, method_of, parsed

_MAX_OPERATORS = 2_000
_MAX_STEPS = 100_000
"""Largest number of evaluated expressions, statements, calls and copied container items."""
_MAX_DEPTH = 24


class _TooMuch(Exception):
    """The reference's source is larger than the limits of its reader."""


@lru_cache(maxsize=4096)
def operators(source: str) -> tuple[str, ...]:
    """Return a reference's operators in order; empty if it cannot be read."""
    tree = parsed(source)
    if tree is None:
        return ()
    walk = _Walk(tree)
    try:
        walk.run()
    except _TooMuch:
        pass  # what was found so far tells it apart well enough
    except RecursionError:
        return ()
    return tuple(walk.found)


class _Walk:
    """Evaluates a module by kinds of values, and records the operators in `found`."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[str] = []
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._scope: dict[str, object] = {
            name: Dotted(dotted) for name, dotted in aliases_of(tree).items()
        }
        self._tree = tree
        self._quiet = 0
        self._steps = 0
        self._depth = 0

    def run(self) -> None:
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef):
                self._scope[node.name] = OwnFunction(node)
        with self._silence():
            for node in self._tree.body:
                if isinstance(node, ast.Assign | ast.AnnAssign):
                    self._statement(node, self._scope)
        model = self._classes.get("Model") or next(reversed(self._classes.values()), None)
        if model is not None:
            with self._silence():
                instance = self._construct(model, [], {})
            self._call(instance, [], {})

    @contextmanager
    def _silence(self) -> Iterator[None]:
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def _emit(self, name: str, since: int | None = None) -> None:
        """Record an operator; those of its operands begin at position `since` of `found`."""
        if not name or self._quiet:
            return
        if since is not None:
            spelled = IDIOMS.get((name, *self.found[since:]))
            if spelled is not None:
                del self.found[since:]
                name = spelled
        self.found.append(name)
        if len(self.found) > _MAX_OPERATORS:
            raise _TooMuch

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > _MAX_STEPS:
            raise _TooMuch

    def _block(self, body: Sequence[ast.stmt], scope: dict[str, object]) -> object:
        """Evaluate a block of statements; return a tensor if one of its values is one."""
        result: object = None
        for node in body:
            given = self._statement(node, scope)
            if given is not None and (result is None or is_tensor(given)):
                result = given
        return result

    def _statement(self, node: ast.stmt, scope: dict[str, object]) -> object:
        self._step()
        match node:
            case ast.Return(value=value):
                return OTHER if value is None else self._value(value, scope)
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.Assign(targets=targets, value=value):
                given = self._value(value, scope)
                for target in targets:
                    self._assign(target, given, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value, scope), scope)
            case ast.AugAssign(target=target, op=op, value=value):
                given = self._infix(op, target, value, scope)
                self._assign(target, given, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._value(test, scope)
                return self._block([*body, *orelse], scope)
            case ast.While(body=body):
                return self._block(body, scope)
            case ast.For(target=target, iter=iterated, body=body):
                result: object = None
                for item in items_of(self._value(iterated, scope)):
                    self._assign(target, item, scope)
                    result = self._block(body, scope) or result
                return result
            case ast.With(body=body):
                return self._block(body, scope)
            case ast.Try(body=body, finalbody=last):
                return self._block([*body, *last], scope)
            case ast.FunctionDef(name=name):
                scope[name] = OwnFunction(node, scope=scope)
        return None

    def _assign(self, target: ast.expr, given: object, scope: dict[str, object]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = given
            case ast.Attribute(value=value, attr=attr):
                owner = self._value(value, scope)
                if isinstance(owner, Own):
                    owner.attributes[attr] = given
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values: Sequence[object] = [given] * len(parts)
                if isinstance(given, Many):
                    alike = len(given.values) == len(parts)
                    values = given.values if alike else [kind_of(given)] * len(parts)
                for part, each in zip(parts, values, strict=True):
                    self._assign(part, each, scope)
            case ast.Starred(value=value):
                self._assign(value, given, scope)

    # Expressions.

    def _value(self, node: ast.expr, scope: dict[str, object]) -> object:
        self._step()
        match node:
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=value, attr=attr):
                return self._attribute(self._value(value, scope), attr)
            case ast.Call():
                return self._called(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                return self._infix(op, left, right, scope)
            case ast.UnaryOp(op=op, operand=operand):
                given = self._value(operand, scope)
                if given is TENSOR and isinstance(op, ast.USub):
                    self._emit("neg")
                elif given is TENSOR and isinstance(op, ast.Invert):
                    self._emit("logical_not")
                return given
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._value(side, scope) for side in (left, *others)]
                if any(map(is_tensor, sides)):
                    self._emit(COMPARED.get(type(ops[0]), ""))
                    return TENSOR
                return OTHER
            case ast.Subscript(value=value, slice=index):
                return self._subscript(self._value(value, scope), index, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._value(test, scope)
                first, second = self._value(body, scope), self._value(orelse, scope)
                return first if first is not OTHER else second
            case ast.BoolOp(values=nodes):
                return kind_of(Many([self._value(node, scope) for node in nodes]))
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return Many(self._spread(parts, scope))
            case ast.Dict(keys=keys, values=nodes):
                values = [self._value(node, scope) for node in nodes]
                texts = [getattr(key, "value", "") for key in keys]
                return Many(values, {str(t): v for t, v in zip(texts, values, strict=True) if t})
            case (
                ast.ListComp(elt=elt, generators=loops)
                | ast.GeneratorExp(elt=elt, generators=loops)
                | ast.SetComp(elt=elt, generators=loops)
                | ast.DictComp(value=elt, generators=loops)
            ):
                return self._comprehension(elt, loops, dict(scope))
            case ast.Lambda():
                return OwnFunction(node, scope=scope)
            case ast.NamedExpr(target=target, value=value):
                given = self._value(value, scope)
                self._assign(target, given, scope)
                return given
            case ast.Starred(value=value):
                return self._value(value, scope)
        return OTHER

    def _named(self, name: str, scope: dict[str, object]) -> object:
        for place in (scope, self._scope):
            if name in place:
                return place[name]
        if name in self._classes:
            return self._classes[name]
        return Dotted(f"builtins.{name}")

    def _attribute(self, owner: object, attr: str) -> object:
        match owner:
            case Dotted(name=name):
                return Dotted(f"{name}.{attr}")
            case Own(kind=kind, attributes=attributes):
                if attr in attributes:
                    return attributes[attr]
                method = method_of(self._classes, kind, attr)
                return OTHER if method is None else OwnFunction(method, owner)
            case Super(owner=own):
                for base in own.kind.bases:
                    if isinstance(base, ast.Name) and base.id in self._classes:
                        found = method_of(self._classes, self._classes[base.id], attr)
                        if found is not None:
                            return OwnFunction(found, own)
                return OTHER
            case Many(names=names):
                return names.get(attr, owner)
            case Layer():
                return owner if attr == "forward" else TENSOR  # its weight or bias
        if owner is TENSOR:
            if attr in FACTS:
                return Method(attr, True)
            if attr in SAME:
                return TENSOR
            if len(attr) < 3 and operator_name(attr) == "transpose" and attr != "t":
                self._emit("transpose")
                return TENSOR
        return Method(attr, owner is TENSOR)

    def _infix(
        self, op: ast.operator, left: ast.expr, right: ast.expr, scope: dict[str, object]
    ) -> object:
        since = len(self.found)
        first, second = self._value(left, scope), self._value(right, scope)
        if isinstance(first, Many) and isinstance(second, Many) and isinstance(op, ast.Add):
            return joined(self._step, first, second)
        if not (is_tensor(first) or is_tensor(second)):
            return joined(self._step, first) if isinstance(first, Many) else OTHER
        name = INFIX.get(type(op), "")
        self._emit(*arithmetic(name, (first, second), (left, right), since))
        return TENSOR

    def _subscript(self, owner: object, index: ast.expr, scope: dict[str, object]) -> object:
        given = self._value(index, scope) if not isinstance(index, ast.Slice) else OTHER
        if isinstance(owner, Many):
            place = number(index)
            if isinstance(index, ast.Constant) and index.value in owner.names:
                return owner.names[index.value]
            if isinstance(place, int) and -len(owner.values) <= place < len(owner.values):
                return owner.values[place]
            return owner
        if is_tensor(owner):
            if is_tensor(given):
                self._emit("index_select")
            return TENSOR
        return OTHER

    def _comprehension(
        self, elt: ast.expr, loops: Sequence[ast.comprehension], scope: dict[str, object]
    ) -> object:
        if not loops:
            return Many([self._value(elt, scope)])
        found: list[object] = []
        for item in items_of(self._value(loops[0].iter, scope)):
            self._assign(loops[0].target, item, scope)
            inner = self._comprehension(elt, loops[1:], scope)
            found += inner.values if isinstance(inner, Many) else []
        return Many(found)

    def _spread(self, nodes: Sequence[ast.expr], scope: dict[str, object]) -> list[object]:
        found: list[object] = []
        for node in nodes:
            value = self._value(node, scope)
            starred = isinstance(node, ast.Starred) and isinstance(value, Many)
            found += joined(self._step, value).values if starred else [value]  # type: ignore[arg-type]
        return found

    # Calls.

    def _called(self, node: ast.Call, scope: dict[str, object]) -> object:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            owner = scope.get("self") or next(
                (value for value in scope.values() if isinstance(value, Own)), None
            )
            return Super(owner) if isinstance(owner, Own) else OTHER
        since = len(self.found)
        function = self._value(node.func, scope)
        values = self._spread(node.args, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in FILLS:
            self._fill(self._value(node.func.value, scope), node, values)
            return OTHER
        named = {word.arg or "": self._value(word.value, scope) for word in node.keywords}
        match function:
            case Dotted(name=name):
                return self._library(name, node, values, named, since)
            case Method():
                return self._method(function, node, values, since)
        return self._call(function, values, named)

    def _fill(self, owner: object, node: ast.Call, values: list[object]) -> None:
        """Add the arguments of a call such as ``append`` to a container or an instance."""
        if isinstance(owner, Many):
            owner.values += flat(self._step, values)
        elif isinstance(owner, Own) and len(node.args) > 1:
            named = node.args[0]
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                owner.attributes[named.value] = values[1]

    def _call(self, function: object, values: list[object], named: dict[str, object]) -> object:
        """Call a value that is not a library function; return its result."""
        self._step()
        match function:
            case ast.ClassDef():
                with self._silence():
                    return self._construct(function, values, named)
            case Own():
                method = method_of(self._classes, function.kind, "forward")
                if method is None:
                    return OTHER
                return self._inline(OwnFunction(method, function), values, named)
            case OwnFunction():
                return self._inline(function, values, named)
            case Layer(name=name):
                self._emit(name)
                return TENSOR
            case Many(values=members):
                for member in members:
                    self._call(member, [TENSOR], {})
                return TENSOR
            case Dotted(name=name):
                self._emit(operator_name(name))
                return TENSOR
        return TENSOR if any(map(is_tensor, values)) else OTHER

    def _construct(self, kind: ast.ClassDef, values: list[object], named: dict[str, object]) -> Own:
        instance = Own(kind)
        method = method_of(self._classes, kind, "__init__")
        if method is not None:
            self._inline(OwnFunction(method, instance), values, named)
        return instance

    def _inline(
        self, function: OwnFunction, values: list[object], named: dict[str, object]
    ) -> object:
        """Evaluate a function's body; return its result."""
        if self._depth >= _MAX_DEPTH:
            return TENSOR
        node = function.node
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        # What is not given to a constructor is a size; what is not given to `forward` is a tensor,
        # unless it has a default.
        usual = OTHER if self._quiet else TENSOR
        scope = dict(function.scope)
        optional = names[len(names) - len(node.args.defaults) :]
        if function.owner is not None and names:
            scope[names.pop(0)] = function.owner
        extra = [argument.arg for argument in node.args.kwonlyargs]
        scope |= dict.fromkeys(names, usual) | dict.fromkeys([*optional, *extra], OTHER)
        if node.args.vararg is not None:
            scope[node.args.vararg.arg] = Many(values[len(names) :] or [usual])
        scope |= dict(zip(names, values, strict=False))
        scope |= {name: value for name, value in named.items() if name in (*names, *extra)}
        self._depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self._value(node.body, scope)
            given = self._block(node.body, scope)
        finally:
            self._depth -= 1
        return OTHER if given is None else given

    def _library(
        self,
        dotted: str,
        node: ast.Call,
        values: list[object],
        named: dict[str, object],
        since: int,
    ) -> object:
        """Call an imported object, a layer's constructor or a function; return the result."""
        home, _, last = dotted.rpartition(".")
        if home == "builtins":
            if last in ("enumerate", "zip"):
                return zipped(last, values)
            if last in ("list", "tuple", "reversed", "iter") and values:
                first = values[0]
                return joined(self._step, first) if isinstance(first, Many) else first
            if last == "dict":
                return Many(list(named.values()), named)
            if last in ("range", "len", "int", "float", "print", "isinstance", "getattr"):
                return OTHER
            tensors = any(map(is_tensor, [*values, *named.values()]))
            if last in ("sum", "max", "min", "abs", "pow") and tensors:
                self._emit("add" if last == "sum" else operator_name(last))
            return TENSOR if tensors else OTHER
        if last[:1].isupper() and not home.endswith("Function"):
            members = [*values, *named.values()]
            if last in ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "OrderedDict"):
                names = {
                    name: v for m in values if isinstance(m, Many) for name, v in m.names.items()
                }
                return Many(flat(self._step, members), names)
            if last in ("Parameter", "Buffer", "Tensor", "FloatTensor"):
                return TENSOR
            return Layer(layer(operator_name(dotted), node))
        tensors = any(map(is_tensor, [*values, *named.values()]))
        if home.startswith(("torch.nn.init", "math", "numpy", "typing", "copy", "os")):
            return OTHER
        return self._operation(operator_name(dotted), node.args, values, node, tensors, since)

    def _method(self, method: Method, call: ast.Call, values: list[object], since: int) -> object:
        """Call a method of a tensor, or of a value of unknown kind; return the result."""
        name = operator_name(method.name)
        if method.of_tensor:
            if method.name in FACTS or not isinstance(call.func, ast.Attribute):
                return OTHER
            nodes = [call.func.value, *call.args]
            return self._operation(name, nodes, [TENSOR, *values], call, True, since)
        tensors = any(map(is_tensor, values))
        # The name of something unknown is its author's own choice.
        name = name if not name or family(name) != name else "call"
        return self._operation(name if tensors else "", call.args, values, call, tensors, since)

    def _operation(
        self,
        name: str,
        nodes: Sequence[ast.expr],
        values: Sequence[object],
        node: ast.Call,
        tensors: bool,
        since: int,
    ) -> object:
        """Record a function or method as an operator; return its result."""
        if not name:
            return TENSOR if tensors else OTHER
        words = {word.arg: word.value for word in node.keywords}
        if name in ("max", "min") and len(values) > 1 and is_tensor(values[1]):
            name = f"{name}imum"
        if name in ("clamp", "maximum"):
            name = bounded(name, nodes, words)
        if name in ("mul", "div", "add", "sub", "pow") and len(nodes) == len(values):
            name, begin = arithmetic(name, values, nodes, since)
            self._emit(name, begin)
        else:
            self._emit(name, since if name in ("where", "log1p", "reciprocal") else None)
        return TENSOR
