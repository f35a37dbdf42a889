"""A ``cpu`` platform for verl: what verl asks of an accelerator, answered for the host."""

# ruff: noqa: D102  (PlatformBase documents each method)

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _CpuDevice(ModuleType):
    """``torch.cpu``, with the memory calls of ``torch.cuda`` that verl makes unconditionally."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith(("memory_", "max_memory_")):
            return lambda *args, **kwargs: 0
        if name.startswith(("reset_", "empty_cache", "ipc_collect", "set_per_process")):
            return lambda *args, **kwargs: None
        return getattr(torch.cpu, name)

    def set_device(self, device: Any) -> None:
        del device

    def synchronize(self, device: Any = None) -> None:
        del device

    def get_device_name(self, device: Any = None) -> str:
        del device
        return "CPU"

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        del device
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """The host as verl's device."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return _DEVICE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"  # verl passes it to tensor.to()

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        # verl builds the backend "cpu:gloo,<device>:<backend>", which torch refuses for a CPU ("Duplicate device type").
        # It makes no group where one exists, and asks for this name on the very line before: so make it here.
        if not torch.distributed.is_initialized() and {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
            torch.distributed.init_process_group("gloo")
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"  # verl's resource pools count nothing else: give Ray num_gpus=1

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


_DEVICE = _CpuDevice("rewardkit_cpu_device")
