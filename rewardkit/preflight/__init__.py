"""Preflight: what would spoil a training run, found before it starts.

A wrong reward fails silently: the run goes on, and a week later the model states 1.0 for everything. Each check here is one
small object that knows one such fault; :func:`run` puts data set, tokenizer, reward and trainer's config before all of them.

>>> from rewardkit import parsing, preflight
>>> prompt = [{"role": "system", "content": parsing.prompt("tac")}, {"role": "user", "content": "2 + 2?"}]
>>> report = preflight.run(rows=[{"prompt": prompt, "answer": "4"}], reward="rlcr")
>>> report.exit_code(strict=True)
0
"""

from rewardkit.preflight.check import CHECKS, Check, check_names
from rewardkit.preflight.findings import Finding, PreflightError, Report
from rewardkit.preflight.job import Config, Job, Term
from rewardkit.preflight.runner import run

__all__ = ["CHECKS", "Check", "Config", "Finding", "Job", "PreflightError", "Report", "Term", "check_names", "run"]
