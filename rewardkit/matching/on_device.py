"""F1 of bags of tokens that live on a CUDA device."""

from __future__ import annotations

import sys
from typing import Any

from rewardkit import _device
from rewardkit.errors import InvalidArgumentError


def bag_f1(
    *,
    prediction_ids: Any,
    prediction_offsets: Any,
    reference_ids: Any,
    reference_offsets: Any,
    answer_rows: Any,
    gold_rows: Any,
) -> Any:
    """As :func:`rewardkit.matching.bag_f1`, of tensors on one device; the result stays there.

    Runs on the current stream of the device. It waits for it once: the size of the result depends on the offsets.
    """
    torch = sys.modules["torch"]
    p = _device.dense_vector("prediction_ids", prediction_ids, ("int32", "int64"))
    kind = str(p.dtype).removeprefix("torch.")
    r = _device.dense_vector("reference_ids", reference_ids, (kind,), like=p)
    given = {
        "prediction_offsets": (prediction_offsets, len(p)),
        "reference_offsets": (reference_offsets, len(r)),
        "answer_rows": (answer_rows, len(prediction_offsets) - 1),
        "gold_rows": (gold_rows, len(reference_offsets) - 1),
    }
    offsets = {name: _device.dense_vector(name, value, ("int64",), like=p) for name, (value, _) in given.items()}
    for name, value in offsets.items():
        if len(value) == 0:
            raise InvalidArgumentError(name, expected="at least one entry", got="none")
    if len(gold_rows) != len(answer_rows):
        raise InvalidArgumentError(
            "gold_rows", expected=f"{len(answer_rows)} entries, as answer_rows", got=len(gold_rows)
        )

    rises = [
        (value[0] == 0) & (value[-1] == end) & (value.diff() >= 0).all()
        for value, (_, end) in zip(offsets.values(), given.values(), strict=True)
    ]
    pairs_of = offsets["answer_rows"].diff() * offsets["gold_rows"].diff()
    pair_rows = torch.cat([pairs_of.new_zeros(1), pairs_of.cumsum(0)])
    *sound, pairs = torch.stack([*(rise.to(torch.int64) for rise in rises), pair_rows[-1]]).tolist()
    for name, good, (_, end) in zip(offsets, sound, given.values(), strict=True):
        if not good:
            raise InvalidArgumentError(name, expected=f"offsets that rise from 0 to {end}", got="others")

    out = torch.empty(pairs, dtype=torch.float64, device=p.device)
    _device.kernel("bag_f1_into", p)(
        p.data_ptr(),
        offsets["prediction_offsets"].data_ptr(),
        r.data_ptr(),
        offsets["reference_offsets"].data_ptr(),
        kind,
        offsets["answer_rows"].data_ptr(),
        offsets["gold_rows"].data_ptr(),
        pair_rows.data_ptr(),
        len(pairs_of),
        pairs,
        out.data_ptr(),
        *_device.place(p),
    )
    return out
