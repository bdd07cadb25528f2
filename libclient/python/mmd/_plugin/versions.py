# SPDX-License-Identifier: Apache-2.0
"""The releases of an engine that a plugin knows, and what it touches in them.

An engine promises none of it from one release to the next, so a plugin compares the parameters of
each function with those that it was written for, and does nothing in a release where one differs.
The sources are read for that, not imported: a plugin's entry point runs in every process of its
engine, at its start.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib
from collections.abc import Mapping

Touched = Mapping[str, Mapping[str, str]]
"""Per release: where a function is, and how it is called: parameters, what their absence means."""


class Unsupported(RuntimeError):
    """A release of an engine, or a way of running it, that its plugin refuses."""


def release(version: str) -> str:
    """A version without what its builder added to it, such as "+cpu"."""
    return version.split("+")[0]


@functools.cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise Unsupported(f"it has no module {module}")
    return ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))


def _definition(place: str) -> ast.FunctionDef:
    module, _, path = place.partition(":")
    scope: ast.Module | ast.ClassDef = _tree(module)
    *owners, name = path.split(".")
    for owner in owners:
        found = [node for node in scope.body if isinstance(node, ast.ClassDef) and
                 node.name == owner]
        if not found:
            raise Unsupported(f"it has no {path} in {module}")
        scope = found[-1]
    functions = [node for node in scope.body if isinstance(node, ast.FunctionDef) and
                 node.name == name]
    if not functions:
        raise Unsupported(f"it has no {path} in {module}")
    return functions[-1]


def parameters(place: str) -> str:
    """The parameters of a function as its source has them, without their types."""
    arguments = _definition(place).args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg,
                arguments.kwarg):
        if one is not None:
            one.annotation = None
    # Written as a lambda's, so that defaults have no spaces around them.
    return ast.unparse(arguments)


def check(engine: str, plugin: str, touched: Touched, version: str) -> None:
    """Raises Unsupported unless this release of the engine is one that the plugin knows."""
    known = touched.get(release(version))
    if known is None:
        raise Unsupported(f"{engine} {version} is not supported by {plugin}, which knows "
                          f"{', '.join(touched)}")
    for place, expected in known.items():
        try:
            found = parameters(place)
        except Unsupported as error:
            raise Unsupported(f"this {engine} {version} is not the one that {plugin} knows: "
                              f"{error}") from None
        if found != expected:
            raise Unsupported(f"this {engine} {version} is not the one that {plugin} knows: "
                              f"{place} takes ({found}), not ({expected})")
