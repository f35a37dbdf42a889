"""Parity rows of the match kernels."""

from __future__ import annotations

from tests.parity import Row

ROWS: list[Row] = []
