"""MBPP: small Python tasks whose gold is a list of tests, not a string.

Source: Austin et al., "Program Synthesis with Large Language Models", arXiv:2108.07732; full and sanitized release.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from rewardkit.arrays import whole
from rewardkit.data import sandbox
from rewardkit.data.schema import Example, Layout, MalformedRecordError, content_id
from rewardkit.errors import DataError

LAYOUT = Layout(gold="string", extra={"task_id": "int64", "n_tests": "int64", "reference_code": "string"})

# Pre-compiled, linear: what stands between a fence with an optional language and the next fence.
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Tests:
    """What a solution has to pass.

    Attributes:
        asserts: Statements that raise where the solution is wrong.
        setup: Code to run before the solution.
    """

    __test__ = False  # not a class of tests in pytest's sense

    asserts: tuple[str, ...]
    setup: str = ""

    def to_json(self) -> str:
        """The form in which the tests stand as gold in a data set."""
        return json.dumps({"asserts": list(self.asserts), "setup": self.setup})

    @classmethod
    def from_json(cls, text: str) -> Tests:
        """Reads what :meth:`to_json` wrote.

        Raises:
            DataError: The text is not such a gold, so the data set was not built by ``rewardkit data mbpp``.
        """
        try:
            value = json.loads(text)
            asserts, setup = value["asserts"], value["setup"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("a gold as `rewardkit data mbpp` writes it", text[:80]) from error
        if (
            not isinstance(setup, str)
            or not isinstance(asserts, list)
            or not all(isinstance(one, str) for one in asserts)
        ):
            raise DataError("a gold as `rewardkit data mbpp` writes it", text[:80])
        return cls(tuple(asserts), setup)


def mbpp(record: Mapping[str, Any], *, show_tests: int | None = 1) -> Example:
    """One task; its gold is the tests, as JSON.

    Args:
        record: A record of the full release (``text``, ``test_setup_code``) or the sanitized one (``prompt``,
            ``test_imports``).
        show_tests: How many tests the question shows; at least one is needed to know the function's name. None shows all,
            which a policy can learn to hard-code.

    Raises:
        MalformedRecordError: No task, no tests, tests that are not Python, or a field of another type.
        InvalidArgumentError: ``show_tests`` is below 1.
    """
    if show_tests is not None:
        show_tests = whole("show_tests", show_tests)
    task = record.get("text") or record.get("prompt")
    if not isinstance(task, str) or not task.strip():
        raise MalformedRecordError("a task in 'text' or 'prompt'", repr(task))
    number = _task_number(record.get("task_id"))
    identity = content_id(task) if number is None else str(number)
    asserts = record.get("test_list")
    if not isinstance(asserts, (list, tuple)) or not asserts or not all(isinstance(one, str) for one in asserts):
        raise MalformedRecordError("tests in 'test_list'", repr(asserts)[:80], record=identity)
    setup = _setup(record, identity)
    solution = record.get("code") or ""
    if not isinstance(solution, str):
        raise MalformedRecordError("text in 'code'", repr(solution)[:80], record=identity)
    tests = Tests(tuple(one.strip() for one in asserts), setup)
    for code in (*tests.asserts, tests.setup):
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise MalformedRecordError("tests that are Python", str(error), record=identity) from error
    shown = "\n".join(tests.asserts[:show_tests])
    return Example(
        id=identity,
        question=(
            f"Write Python code for this task: {task.strip()}\n\nThe code must pass "
            f"{'these tests' if show_tests is None else 'tests such as'}:\n{shown}\n\n"
            "Answer with the code alone: imports and definitions, nothing that reads input or prints."
        ),
        gold=tests.to_json(),
        gold_kind="aliases",
        data_source="mbpp",
        ability="code",
        extra={
            "task_id": -1 if number is None else number,
            "n_tests": len(tests.asserts),
            "reference_code": solution,
        },
    )


def _task_number(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value) if len(value) < 19 else value
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) < 2**63:
        raise MalformedRecordError("a whole number in 'task_id'", repr(value)[:80])
    return int(value)


def _setup(record: Mapping[str, Any], identity: str) -> str:
    """The code to run first: text in the full release, lines in the sanitized one."""
    setup, imports = record.get("test_setup_code") or "", record.get("test_imports") or ()
    if not isinstance(setup, str):
        raise MalformedRecordError("text in 'test_setup_code'", repr(setup)[:80], record=identity)
    if not isinstance(imports, (list, tuple)) or not all(isinstance(line, str) for line in imports):
        raise MalformedRecordError("lines in 'test_imports'", repr(imports)[:80], record=identity)
    return setup or "\n".join(imports)


def extract_code(answer: str) -> str:
    """The code in an answer: what stands in the first Markdown fence, or all of it where there is none."""
    fenced = _FENCE.search(answer)
    return (fenced.group(1) if fenced else answer).strip("\r\n")


@dataclass(frozen=True)
class PassesTests:
    """A matcher that runs an answer against its tests in the sandbox: ``rewards.get("rlvr", matcher=PassesTests())``.

    Making one is asking for model-written code to be run; nothing else in rewardkit does.

    Attributes:
        limits: What the code may use.
        allow_unisolated: Run even where neither seccomp nor a network namespace can be had. Off.
    """

    golds_are_answers: ClassVar[bool] = False
    """For the preflight: a gold of tests is not itself an answer that should pass."""

    limits: sandbox.Limits = field(default_factory=sandbox.Limits)
    allow_unisolated: bool = False

    @property
    def __name__(self) -> str:
        return "passes_tests"

    def __call__(self, prediction: str, reference: str) -> bool:
        """Whether the code passes all tests.

        Raises:
            DataError: The gold is not one of tests.
            BackendError: The sandbox cannot be had here.
        """
        return run_tests(
            prediction, Tests.from_json(reference), limits=self.limits, allow_unisolated=self.allow_unisolated
        ).passed


def run_tests(
    answer: str, tests: Tests, *, limits: sandbox.Limits | None = None, allow_unisolated: bool = False
) -> sandbox.Result:
    """Runs an answer's code and then each test in the sandbox; see :func:`rewardkit.data.sandbox.run`."""
    return sandbox.run(
        [tests.setup, extract_code(answer)],
        checks=tests.asserts,
        limits=limits or sandbox.Limits(),
        allow_unisolated=allow_unisolated,
    )


def verify(examples: Sequence[Example], **options: Any) -> list[tuple[Example, sandbox.Result]]:
    """The examples whose own reference code fails their tests, with what went wrong."""
    failed = []
    for example in examples:
        result = run_tests(str(example.extra["reference_code"]), Tests.from_json(str(example.gold)), **options)
        if not result.passed:
            failed.append((example, result))
    return failed
