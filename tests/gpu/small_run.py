"""Launches every kernel once on small inputs; what `make gpu-check` runs under compute-sanitizer."""

from __future__ import annotations

import torch

from rewardkit import likelihood, matching, metrics


def main() -> None:
    """Runs them."""
    device = torch.device("cuda")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, vocab in ((2, 9001), (40, 333), (2100, 70)):
            x = torch.randn(rows, vocab, device=device).to(dtype).requires_grad_()
            targets = torch.randint(0, vocab, (rows,), device=device)
            targets[0] = -100
            logprob, entropy = likelihood.token_logprobs(x[:, 1:], targets - 1, 0.7, return_entropy=True)
            (logprob.nansum() + entropy.nansum()).backward()
            likelihood.token_logprobs(x.detach(), targets)
        hidden, weight = torch.randn(5, 64, device=device).to(dtype), torch.randn(2500, 64, device=device).to(dtype)
        likelihood.linear_token_logprobs(hidden, weight, torch.arange(5, device=device), return_entropy=True)
        likelihood.linear_token_logprobs(hidden, weight, torch.arange(5, device=device))
    offsets = torch.tensor([0, 3, 3, 40], device=device)
    for real in (torch.float32, torch.float64):
        for how in likelihood.REDUCTIONS:
            likelihood.span_reduce(-torch.rand(40, dtype=real, device=device), offsets, how)
        for groups in (None, 3, 300):
            by = None if groups is None else torch.randint(0, groups, (5000,), device=device)
            correct = torch.rand(5000, device=device) < 0.5
            metrics.calibration_histogram(torch.rand(5000, dtype=real, device=device), correct, 15, by)
    for integer in (torch.int32, torch.int64):
        ids = torch.randint(0, 9, (60,), dtype=integer, device=device)
        matching.bag_f1(
            prediction_ids=ids,
            prediction_offsets=torch.tensor([0, 40, 60], device=device),
            reference_ids=ids,
            reference_offsets=torch.tensor([0, 5, 60], device=device),
            answer_rows=torch.tensor([0, 1, 2], device=device),
            gold_rows=torch.tensor([0, 1, 2], device=device),
        )
    torch.cuda.synchronize()
    print("every kernel has run")


if __name__ == "__main__":
    main()
