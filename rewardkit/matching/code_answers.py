"""Answers that are Python programs: the same program, whatever its layout. Parsed, never run."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from dataclasses import dataclass

from rewardkit.matching.relations import JudgedRelation

MAX_CHARS = 100_000
"""A longer text is compared as text: it bounds how deep CPython's parser can nest."""

_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class CodeRelation(JudgedRelation):
    """Equal syntax trees. Comments, layout, brackets that change nothing and kinds of quotes vanish; names and docstrings do not.

    The program is the first fenced block of an answer, or all of it. What is no Python is compared as text.

    Attributes:
        strip_docstrings: Docstrings vanish too.
        rename_locals: The names that a function binds (parameters, variables) count by their order, not by how they are
            spelled; except where a name is more than that (``global``, ``eval``, a class or ``match`` inside, a keyword of
            a call).
    """

    strip_docstrings: bool = False
    rename_locals: bool = False

    def judge(self, prediction: str, reference: str) -> bool:
        """See :meth:`~rewardkit.matching.relations.JudgedRelation.judge`."""
        one, other = (program_key(text, self.strip_docstrings, self.rename_locals) for text in (prediction, reference))
        return one == other and bool(one[1])


@functools.lru_cache(maxsize=4096)
def program_key(text: str, strip_docstrings: bool = False, rename_locals: bool = False) -> tuple[str, str]:
    """What two answers have in common when they are the same program.

    Returns:
        ("ast", dump of the tree), or ("text", the stripped source) for what is no Python.
    """
    fenced = _FENCE.search(text)
    source = (fenced[1] if fenced else text).strip()
    if len(source) > MAX_CHARS:
        return "text", source
    try:
        with warnings.catch_warnings():  # an invalid escape in an answer is the answer's business
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        if not tree.body:
            return "text", source
        if strip_docstrings:
            _strip_docstrings(tree)
        if rename_locals:
            _rename_locals(tree)
        return "ast", ast.dump(tree)
    except (SyntaxError, RecursionError, ValueError, MemoryError):
        return "text", source


_HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _strip_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, _HOLDERS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]


def _rename_locals(tree: ast.Module) -> None:
    """Renames what outermost functions bind; names bound in functions inside them are theirs as well."""
    inner = {
        child
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS)
        for child in ast.walk(node)
        if child is not node
    }
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    for function in [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) and node not in inner]:
        nodes = list(ast.walk(function))
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        if called & {"exec", "eval", "locals", "vars"} or any(
            isinstance(n, (ast.Global, ast.Nonlocal, ast.ClassDef, ast.Match)) for n in nodes
        ):
            continue
        bound: dict[str, str] = {}
        for node in _in_order(function):
            name = (
                node.arg
                if isinstance(node, ast.arg)
                else node.id
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                else node.name
                if isinstance(node, ast.ExceptHandler) or (isinstance(node, _FUNCTIONS) and node is not function)
                else None
            )
            if name is not None:
                bound.setdefault(name, f"${len(bound)}")
        if bound.keys() & keywords:  # a call gives a parameter by its name
            continue
        for node in nodes:
            if isinstance(node, ast.arg):
                node.arg = bound[node.arg]
            elif isinstance(node, ast.Name):
                node.id = bound.get(node.id, node.id)
            elif isinstance(node, ast.ExceptHandler) or (isinstance(node, _FUNCTIONS) and node is not function):
                node.name = bound.get(node.name or "", node.name)  # type: ignore[assignment]


def _in_order(node: ast.AST) -> list[ast.AST]:
    """The tree in the order of the source, without recursion."""
    ordered, waiting = [], [node]
    while waiting:
        current = waiting.pop()
        ordered.append(current)
        waiting.extend(reversed(list(ast.iter_child_nodes(current))))
    return ordered
