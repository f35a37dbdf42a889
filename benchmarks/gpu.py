"""What the kernels do on this GPU: a table, and ``benchmarks/results/<gpu>.csv``. Run by `make gpu-bench`.

Every figure is measured in this run, on random data, with CUDA events: the median of many repeats, the contestants taking
turns. Inputs are larger than the cache, or several of them rotate. Bandwidth counts the bytes that a perfect kernel must
move (each input read once, each output written once), and stands beside what a device-to-device copy reaches in the same
run. Peers are checked for equality before they are timed, and those that are not installed are named as such.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import importlib.metadata
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
VOCAB = 151936
Run = Callable[[int], Any]
"""Does the work once, on input set number i."""


def main() -> int:
    """Measures, prints and writes; returns 2 where there is nothing to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows and a third of the repeats")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("gpu-bench: PyTorch is not installed; nothing was measured", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("gpu-bench: no CUDA device; nothing was measured", file=sys.stderr)
        return 2
    bench = Bench(repeats=10 if arguments.quick else 30, rows=400 if arguments.quick else 8192)
    for part in (bench.copy, bench.logprobs, bench.gradient, bench.linear, bench.spans, bench.histogram, bench.bags):
        part()
    bench.rewards()
    bench.report()
    return 0


class Bench:
    """One run on one device."""

    def __init__(self, *, repeats: int, rows: int):
        import torch

        self.torch = torch
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name(self.device)
        self.repeats, self.rows = repeats, rows
        self.copy_rate = float("nan")
        self.lines: list[dict[str, Any]] = []
        self.absent: list[str] = []
        torch.manual_seed(0)

    # ---- measuring ----------------------------------------------------------------------------------

    def times(self, contestants: dict[str, Run], sets: int = 1) -> dict[str, float]:
        """Milliseconds per call, the median; contestants take turns and input sets rotate."""
        torch = self.torch
        measured: dict[str, list[float]] = {name: [] for name in contestants}
        for run in contestants.values():
            for i in range(3):
                run(i % sets)
            torch.cuda.synchronize()
        for repeat in range(self.repeats):
            for name, run in contestants.items():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                run(repeat % sets)
                end.record()
                end.synchronize()
                measured[name].append(begin.elapsed_time(end))
        return {name: statistics.median(values) for name, values in measured.items()}

    def record(self, what: str, size: str, who: str, milliseconds: float, **facts: float) -> None:
        """Adds a line: ``gigabytes`` to move gives a bandwidth, ``teraflop`` a rate, ``items`` a throughput."""
        seconds = milliseconds / 1e3
        line: dict[str, Any] = {"what": what, "size": size, "who": who, "ms": milliseconds}
        if "gigabytes" in facts:
            line["GB/s"] = facts["gigabytes"] / seconds
            line["share of copy"] = line["GB/s"] / self.copy_rate
        if "teraflop" in facts:
            line["TFLOP/s"] = facts["teraflop"] / seconds
        if "items" in facts:
            line["items/s"] = facts["items"] / seconds
        self.lines.append(line)
        print(f"  {what:24} {size:22} {who:28} {milliseconds:9.3f} ms", flush=True)

    def peer(self, name: str, module: str) -> Any:
        """A peer's module, or ``None``, noted, where it is not installed."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            self.absent.append(f"{name}: {error}")
            return None

    # ---- what is measured -----------------------------------------------------------------------------

    def copy(self) -> None:
        """The device's own copy, bytes read and written: what "share of copy" refers to."""
        torch = self.torch
        amount = min(4 * 2**30, torch.cuda.mem_get_info()[0] // 4)
        source = torch.randint(0, 255, (amount,), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        milliseconds = self.times({"copy": lambda _: target.copy_(source)})["copy"]
        gigabytes = 2 * amount / 1e9
        self.copy_rate = gigabytes / (milliseconds / 1e3)
        self.record("device copy", f"{amount / 2**30:.0f} GiB", "torch", milliseconds, gigabytes=gigabytes)

    def logprobs(self) -> None:
        """Log-probabilities, with and without the entropy, against every peer that is installed."""
        torch = self.torch
        from rewardkit import likelihood

        eager = _eager(torch)
        compiled, compiled_entropy = torch.compile(eager), torch.compile(_eager_with_entropy(torch))
        flash = self.peer("flash-attn", "flash_attn.ops.triton.cross_entropy")
        liger = self.peer("Liger", "liger_kernel.ops.cross_entropy")
        for dtype, rows, vocab in (
            (torch.bfloat16, self.rows, VOCAB),
            (torch.float32, self.rows, VOCAB),
            (torch.bfloat16, self.rows, 129920),
            (torch.bfloat16, self.rows, 50257),
            (torch.bfloat16, 64, VOCAB),
            (torch.bfloat16, 1, VOCAB),
        ):
            itemsize = dtype.itemsize
            if rows * vocab * itemsize * 4 > torch.cuda.mem_get_info()[0]:
                self.absent.append(f"[{rows}, {vocab}] {dtype}: more than this device's memory")
                continue
            sets = max(1, min(32, -(-(1 << 28) // (rows * vocab * itemsize))))
            xs = [(torch.randn(rows, vocab, device=self.device) * 3).to(dtype) for _ in range(sets)]
            ts = [torch.randint(0, vocab, (rows,), device=self.device) for _ in range(sets)]
            some = slice(0, min(rows, 64))
            want = torch.log_softmax(xs[0][some].double(), -1).gather(1, ts[0][some, None])[:, 0]

            contestants: dict[str, Run] = {
                "rewardkit": lambda i, xs=xs, ts=ts: likelihood.token_logprobs(xs[i], ts[i]),
                "torch eager": lambda i, xs=xs, ts=ts: eager(xs[i], ts[i]),
                "torch.compile": lambda i, xs=xs, ts=ts: compiled(xs[i], ts[i]),
            }
            if flash is not None:
                contestants["flash-attn"] = lambda i, xs=xs, ts=ts: -flash.cross_entropy_loss(xs[i], ts[i])[0]
            if liger is not None:
                contestants["Liger"] = lambda i, xs=xs, ts=ts: _liger(liger, xs[i], ts[i])
            errors = {}
            for name, run in list(contestants.items()):
                try:
                    found = run(0)
                except Exception as error:
                    if name == "rewardkit":
                        raise
                    self.absent.append(f"{name} on [{rows}, {vocab}]: {type(error).__name__}: {error}")
                    del contestants[name]
                    continue
                errors[name] = (found[some].double() - want).abs().max().item()
            if not errors["rewardkit"] < 1e-4:
                raise SystemExit(f"gpu-bench: rewardkit is off by {errors['rewardkit']} on [{rows}, {vocab}] {dtype}")
            contestants["rewardkit, and entropy"] = lambda i, xs=xs, ts=ts: likelihood.token_logprobs(
                xs[i], ts[i], return_entropy=True
            )
            contestants["torch.compile, and entropy"] = lambda i, xs=xs, ts=ts: compiled_entropy(xs[i], ts[i])
            size = f"[{rows}, {vocab}] {str(dtype).removeprefix('torch.')}"
            gigabytes = (rows * vocab * itemsize + rows * 12) / 1e9
            for name, milliseconds in self.times(contestants, sets).items():
                self.record("token_logprobs", size, name, milliseconds, gigabytes=gigabytes)
                if name in errors:
                    self.lines[-1]["max error"] = errors[name]
            del xs, ts

    def gradient(self) -> None:
        """Forward and backward."""
        torch = self.torch
        from rewardkit import likelihood

        rows = self.rows // 4
        x = (torch.randn(rows, VOCAB, device=self.device) * 3).to(torch.bfloat16).requires_grad_()
        targets = torch.randint(0, VOCAB, (rows,), device=self.device)
        compiled = torch.compile(_eager(torch))

        def through(function: Callable[..., Any]) -> Run:
            def run(_: int) -> None:
                x.grad = None
                function(x, targets).sum().backward()

            return run

        contestants = {"rewardkit": through(likelihood.token_logprobs), "torch.compile": through(compiled)}
        moved = 3 * rows * VOCAB * 2 / 1e9  # read twice, written once
        for name, milliseconds in self.times(contestants).items():
            self.record("forward and backward", f"[{rows}, {VOCAB}] bfloat16", name, milliseconds, gigabytes=moved)

    def linear(self) -> None:
        """From hidden states, without logits, against a product and a log-softmax."""
        torch = self.torch
        from rewardkit import likelihood

        width, vocab = 4096, 131072
        eager = _eager(torch)
        weight = torch.randn(vocab, width, device=self.device, dtype=torch.bfloat16) / 64
        for rows in (self.rows, 256):
            hidden = torch.randn(rows, width, device=self.device, dtype=torch.bfloat16)
            targets = torch.randint(0, vocab, (rows,), device=self.device)
            contestants: dict[str, Run] = {
                "rewardkit": lambda _, h=hidden, t=targets: likelihood.linear_token_logprobs(h, weight, t),
                "product, then torch eager": lambda _, h=hidden, t=targets: eager(h @ weight.t(), t),
                "product, then rewardkit": lambda _, h=hidden, t=targets: likelihood.token_logprobs(h @ weight.t(), t),
            }
            for name, milliseconds in self.times(contestants).items():
                size = f"[{rows}, {width}] x {vocab}"
                self.record("linear_token_logprobs", size, name, milliseconds, teraflop=2 * rows * width * vocab / 1e12)

    def spans(self) -> None:
        """One number per span."""
        torch = self.torch
        from rewardkit import likelihood

        lengths = torch.randint(1, 64, (1 << 20,))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(self.device)
        logprobs = -torch.rand(int(lengths.sum()), device=self.device)
        milliseconds = self.times({"": lambda _: likelihood.span_reduce(logprobs, offsets, "mean_prob")})[""]
        gigabytes = (len(logprobs) * 4 + len(offsets) * 16) / 1e9
        self.record("span_reduce", f"{len(lengths)} spans", "rewardkit", milliseconds, gigabytes=gigabytes)

    def histogram(self) -> None:
        """ECE's histogram, the fetch of its counts included."""
        torch = self.torch
        from rewardkit import metrics

        size = 100_000_000 if self.rows > 1000 else 5_000_000
        confidence = torch.rand(size, device=self.device)
        correct = torch.rand(size, device=self.device) < confidence
        milliseconds = self.times({"": lambda _: metrics.calibration_histogram(confidence, correct, 15)})[""]
        self.record("calibration_histogram", f"{size}", "rewardkit", milliseconds, gigabytes=size * 5 / 1e9, items=size)

    def bags(self) -> None:
        """Token F1 of 8 answers and 4 golds per rollout."""
        torch = self.torch
        from rewardkit import matching

        rollouts = 100_000 if self.rows > 1000 else 5_000
        answers, golds, length = 8, 4, 12

        def ids(count: int) -> Any:
            return torch.randint(0, 500, (count * length,), device=self.device)

        def every(step: int, count: int) -> Any:
            return torch.arange(0, count + 1, device=self.device) * step

        arguments = {
            "prediction_ids": ids(rollouts * answers),
            "prediction_offsets": every(length, rollouts * answers),
            "reference_ids": ids(rollouts * golds),
            "reference_offsets": every(length, rollouts * golds),
            "answer_rows": every(answers, rollouts),
            "gold_rows": every(golds, rollouts),
        }
        milliseconds = self.times({"": lambda _: matching.bag_f1(**arguments)})[""]
        size = f"{rollouts} x {answers} x {golds}"
        self.record("bag_f1", size, "rewardkit", milliseconds, items=rollouts * answers * golds)

    def rewards(self) -> None:
        """Rollouts per second from span log-probabilities to rewards, host clock: 8,192 rollouts of about 16 tokens."""
        torch = self.torch
        from rewardkit import likelihood, rewards

        rollouts = 8192
        rng = np.random.default_rng(0)
        rows = [(-rng.random(n)).astype(np.float32) for n in rng.integers(1, 32, rollouts)]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        flat = torch.from_numpy(np.concatenate(rows)).to(self.device)
        bounds = torch.from_numpy(offsets).to(self.device)
        baseline = rng.random(rollouts) * 0.2
        on_device = torch.from_numpy(baseline).to(self.device)
        reward = rewards.get("rlpr", debias=True)

        def by_columns() -> Any:
            return reward(reference_logprobs=rows, reference_status=["ok"] * rollouts, baseline=baseline).values

        def by_spans() -> Any:
            scores = likelihood.span_reduce(flat, bounds, "mean_prob")
            return (scores - on_device).clamp(0.0, 1.0).cpu().numpy()

        np.testing.assert_allclose(by_spans(), by_columns(), rtol=1e-9, atol=1e-9)
        ways = (("a list per row, to the reward", by_columns), ("spans on the device, to the host", by_spans))
        for name, run in ways:
            taken = []
            for _ in range(self.repeats):
                begin = time.perf_counter()
                run()
                taken.append(time.perf_counter() - begin)
            milliseconds = statistics.median(taken) * 1e3
            self.record("RLPR end to end", f"{rollouts} rollouts", name, milliseconds, items=rollouts)

    # ---- telling --------------------------------------------------------------------------------------

    def report(self) -> None:
        """Prints the table, writes the CSV."""
        torch = self.torch
        versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, rewardkit {_version('rewardkit')}"
        columns = ("what", "size", "who", "ms", "GB/s", "share of copy", "TFLOP/s", "items/s", "max error")
        print(f"\n{self.name}; {versions}; {datetime.date.today().isoformat()}\n")
        print("| " + " | ".join(columns) + " |")
        print("|" + " --- |" * len(columns))
        for line in self.lines:
            print("| " + " | ".join(_text(line.get(column, "")) for column in columns) + " |")
        for note in self.absent:
            print(f"not measured: {note}")
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / (re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") + ".csv")
        partial = path.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=(*columns, "device", "versions", "date"))
            writer.writeheader()
            for line in self.lines:
                writer.writerow(
                    {**line, "device": self.name, "versions": versions, "date": datetime.date.today().isoformat()}
                )
        partial.replace(path)
        print(f"\nwritten to {path}")


def _eager(torch: Any) -> Callable[..., Any]:
    def logprobs(x: Any, targets: Any) -> Any:
        return torch.log_softmax(x, -1, dtype=torch.float32).gather(1, targets[:, None])[:, 0]

    return logprobs


def _eager_with_entropy(torch: Any) -> Callable[..., Any]:
    def logprobs(x: Any, targets: Any) -> Any:
        log_p = torch.log_softmax(x, -1, dtype=torch.float32)
        return log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)

    return logprobs


def _liger(module: Any, x: Any, targets: Any) -> Any:
    """Its forward writes the gradient into the logits, so it needs a copy when they are used again; that is its price."""
    found = module.LigerCrossEntropyFunction.apply(x.clone(), targets, None, -100, 0.0, 0.0, "none")
    return -(found[0] if isinstance(found, tuple) else found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "from the source tree"


if __name__ == "__main__":
    sys.exit(main())
