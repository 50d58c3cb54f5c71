"""Which names in a function are its own, and which come from outside: Python's rules of scope, over its tree.

The same word may mean a parameter in one place and a constant of the module in another: `(lambda n: n > 1)(n)`. To
write values in the places of names, one has to know which is which.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Scope = Mapping[str, str | None]
"""The new name of each name that belongs to a scope; None for one that the scope declares to be global."""


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Returns all of them, in the order in which they are written."""
    several = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several]


def bound_by(statements: Iterable[ast.AST]) -> set[str]:
    """Returns the names that a function with this body binds, parameters apart: not those of functions inside of it."""
    found, declared = set(), set()
    for node in _of_this_scope(statements):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            declared.update(node.names)
        elif name := _name_bound(node):
            found.add(name)
    return found - declared


def declared_global(statements: Iterable[ast.AST]) -> set[str]:
    """Returns the names that a function with this body takes from its module by `global`."""
    return {name for node in _of_this_scope(statements) if isinstance(node, ast.Global) for name in node.names}


def words_in(tree: ast.AST) -> set[str]:
    """Returns every name that is written in it, whatever it means."""
    found = {name for node in ast.walk(tree) if (name := _name_bound(node))}
    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _of_this_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yields all nodes of one scope. Of a comprehension only `:=`, whose target belongs to the function around it."""
    for node in nodes:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _of_this_scope([*node.decorator_list, *_defaults(node.args)])
        elif isinstance(node, ast.ClassDef):
            yield from _of_this_scope([*node.decorator_list, *node.bases, *node.keywords])
        elif isinstance(node, ast.Lambda):
            yield from _of_this_scope(_defaults(node.args))
        elif isinstance(node, _COMPREHENSIONS):
            inside = list(_of_this_scope(ast.iter_child_nodes(node)))
            yield from (one for one in inside if isinstance(one, ast.NamedExpr))
        else:
            yield from _of_this_scope(ast.iter_child_nodes(node))


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]


def _name_bound(node: ast.AST) -> str | None:
    """Returns the name that this node by itself binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.NamedExpr():
            return node.target.id
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return node.name
        case ast.MatchMapping():
            return node.rest
        case ast.alias():
            return node.asname or node.name.partition(".")[0]
    return None


class NamesByScope(ast.NodeTransformer):
    """Gives names of the function's own other names, and hands those from outside to `from_outside`.

    It changes the tree that it visits. Bodies of classes are left as they are: no compiled function has any.
    """

    def __init__(self, scope: Scope) -> None:
        """Begins in `scope`, that of the function whose statements are to be visited."""
        self._scopes: list[Scope] = [scope]

    def called(self, name: str) -> str:
        """Returns what a name that is bound inside is to be called; itself, unless a subclass knows better."""
        return name

    def from_outside(self, path: str, node: ast.Name | ast.Attribute) -> ast.AST | None:
        """Returns the replacement of a name, or of its attributes, that is read from outside; None if it stays."""
        raise NotImplementedError

    def _own(self, name: str) -> str | None:
        """Returns what a name is called that is the function's own; None if it comes from outside."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _renamed(self, name: str) -> str:
        return self._own(name) or name

    # ------------------------------------------------------------------ names that are used

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replaces a name of the function by its new name, a name from outside by its value."""
        if own := self._own(node.id):
            return ast.copy_location(ast.Name(own, node.ctx), node)
        found = self.from_outside(node.id, node) if isinstance(node.ctx, ast.Load) else None
        return node if found is None else found

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Returns the value of a module's constant, or what it was."""
        root, path = _path(node)
        is_read = bool(root) and self._own(root) is None and isinstance(node.ctx, ast.Load)
        found = self.from_outside(path, node) if is_read else None
        return self.generic_visit(node) if found is None else found

    # ------------------------------------------------------------------ scopes inside

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Visits a lambda, whose parameters are its own."""
        self._visit_signature(node.args)
        self._scopes.append(self._scope(node.args, [node.body]))
        self._rename_parameters(node.args)
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        """Visits a function: its parameters and variables are its own, its name belongs to the function around it."""
        node.name = self._renamed(node.name)
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        self._visit_signature(node.args)
        self._scopes.append(self._scope(node.args, node.body))
        self._rename_parameters(node.args)
        node.body = [self.visit(one) for one in node.body]
        self._scopes.pop()
        return node  # type: ignore[no-any-return]

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Renames a class and leaves the rest of it as it is."""
        node.name = self._renamed(node.name)
        return node

    def _visit_comprehension(self, node: Any) -> ast.AST:
        """Visits a comprehension: its first iterable belongs to the function around it, the targets are its own."""
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        targets = bound_by([one.target for one in node.generators])
        self._scopes.append({name: self.called(name) for name in targets})
        for one in node.generators:
            one.target = self.visit(one.target)
            one.iter = one.iter if one is first else self.visit(one.iter)
            one.ifs = [self.visit(condition) for condition in one.ifs]
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self._scopes.pop()
        return node  # type: ignore[no-any-return]

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _scope(self, arguments: ast.arguments, body: list[Any]) -> Scope:
        names = {a.arg for a in parameters_of(arguments)} | bound_by(body)
        return {name: self.called(name) for name in names} | dict.fromkeys(declared_global(body))

    def _visit_signature(self, arguments: ast.arguments) -> None:
        """Defaults are computed by the function around it; what annotations say is nothing that is computed."""
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [None if one is None else self.visit(one) for one in arguments.kw_defaults]

    def _rename_parameters(self, arguments: ast.arguments) -> None:
        for one in parameters_of(arguments):
            one.arg = self._renamed(one.arg)

    # ------------------------------------------------------------------ names that are written otherwise

    def _visit_named(self, node: Any) -> ast.AST:
        if node.name is not None:
            node.name = self._renamed(node.name)
        return self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _visit_named

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        """Renames the rest of a mapping pattern."""
        node.rest = node.rest and self._renamed(node.rest)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        """Renames an import."""
        bound = _name_bound(node) or node.name
        if self._renamed(bound) != bound:
            node.asname = self._renamed(bound)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        """Renames nonlocal names."""
        node.names = [self._renamed(name) for name in node.names]
        return node


def _path(node: ast.expr) -> tuple[str, str]:
    """Returns a name and the whole path of attributes from it; empty if it does not begin with a name."""
    if isinstance(node, ast.Name):
        return node.id, node.id
    root, path = _path(node.value) if isinstance(node, ast.Attribute) else ("", "")
    return root, f"{path}.{node.attr}" if root else ""  # type: ignore[attr-defined]
