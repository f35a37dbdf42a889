"""The CUDA module on a machine without a GPU: what is in the binary, that it imports, and that a launch says what is wrong."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rewardkit import _device, _kernels
from rewardkit.cli.info import collect
from rewardkit.errors import BackendError, InvalidArgumentError

ROOT = Path(__file__).resolve().parent.parent
BUILT = _kernels.built_modules()["_cuda"] is None
needs_cuda = pytest.mark.skipif(not BUILT, reason="no CUDA kernels in this build (REWARDKIT_CUDA)")
needs_binutils = pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed")


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr


def devices() -> int:
    return len(_kernels.kernel("cuda_info", "cuda")()["devices"])


@needs_cuda
def test_info_says_what_is_built_and_why_it_cannot_run() -> None:
    facts = collect()
    assert facts["cuda"]["runtime"] >= 12000
    assert facts["cuda"]["architectures"]
    if not facts["cuda"]["devices"]:
        assert not facts["native"]["_cuda"]["usable"]
        assert "no device" in facts["native"]["_cuda"]["reason"]
        assert facts["cuda"]["reason"]


@needs_cuda
def test_a_launch_without_a_device_is_a_backend_error() -> None:
    if devices():
        pytest.skip("there is a device")
    launch = _kernels.kernel("token_logprobs", "cuda")
    with pytest.raises(BackendError, match=r"^token_logprobs: CUDA error \d+ \(.+\) on device 0"):
        launch(16, "float32", 1, 8, 8, 16, 1.0, -100, 16, 0, 0, 1, 0, 0)
    with pytest.raises(ValueError, match="dtype"):
        launch(16, "int8", 1, 8, 8, 16, 1.0, -100, 16, 0, 0, 1, 0, 0)


@needs_cuda
def test_the_same_functions_with_the_same_arguments_as_on_the_cpu() -> None:
    cuda, cpu = _kernels._module("_cuda"), _kernels._module("_cpu")
    shared = {"token_logprobs", "token_logprobs_backward", "online_softmax_update", "span_reduce"}
    for name in shared:
        arguments = [re.findall(r"(\w+): ", getattr(module, name).__doc__) for module in (cuda, cpu)]
        assert arguments[0][: len(arguments[1])] == arguments[1], name


@needs_cuda
@needs_binutils
def test_needs_neither_torch_nor_cuda_libraries() -> None:
    path = str(_kernels._module("_cuda").__file__)
    needed = re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "--wide", "--dynamic", path))
    assert not [name for name in needed if re.match(r"lib(torch|c10|cuda|cudart|stdc\+\+|nvidia)", name)], needed
    symbols = run("readelf", "--wide", "--dyn-syms", path)
    assert not re.search(r"UND .*\b(cuda[A-Z]|cu[A-Z]\w+|_ZN2at|_ZN3c10|aoti_torch)", symbols)
    assert re.findall(r"PyInit_\w+", symbols) == ["PyInit__cuda"]
    # No function of ours, of the runtime's or of libstdc++'s can clash with another library's copy.
    exported = re.findall(r"FUNC\s+GLOBAL\s+DEFAULT\s+\d+ (\w+)", symbols)
    assert exported == ["PyInit__cuda"]


@needs_cuda
def test_small_enough_for_a_wheel_of_two_megabytes() -> None:
    folder = Path(str(_kernels._module("_cuda").__file__))
    assert folder.stat().st_size < 3_000_000  # stripped and compressed it is about half of that


@needs_cuda
def test_imports_where_the_toolkit_and_the_driver_are_out_of_reach() -> None:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("CUDA")},
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": "",
        "CUDA_VISIBLE_DEVICES": "",
    }
    out = run(
        sys.executable,
        "-c",
        "import sys; from rewardkit import _kernels; m = _kernels._module('_cuda'); i = m.cuda_info();"
        "print(i['devices'], i['reason']); assert 'torch' not in sys.modules",
        cwd=ROOT,
        env=environment,
    )
    assert out.startswith("[]")


def test_without_the_module_a_cuda_kernel_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    if BUILT:
        pytest.skip("it is built here")
    with pytest.raises(BackendError, match="install with nvcc at hand and REWARDKIT_CUDA=ON"):
        _kernels.kernel("token_logprobs", "cuda")


def test_only_tensors_of_one_device_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    assert not _device.is_for_device(np.zeros(3))
    assert not _device.is_for_device(torch.zeros(3))
    monkeypatch.setenv("REWARDKIT_BACKEND", "emulator")
    assert _device.is_for_device(torch.zeros(3))
    assert _device.place(torch.zeros(3)) == (-1, 0)
    with pytest.raises(InvalidArgumentError, match="correct: expected a tensor on cpu, got one on meta"):
        _device.dense_vector("correct", torch.zeros(3, device="meta"), ("float32",), like=torch.zeros(3))
    with pytest.raises(InvalidArgumentError, match="correct: expected a flat float32 tensor"):
        _device.dense_vector("correct", torch.zeros(3, 1), ("float32",))


def _nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def _configure(source: Path, build: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    pybind11 = importlib.util.find_spec("pybind11")
    if pybind11 is None or pybind11.submodule_search_locations is None or shutil.which("cmake") is None:
        pytest.skip("cmake or pybind11 is not installed")
    return subprocess.run(
        [
            "cmake",
            *("-S", str(source), "-B", str(build), f"-DPython_EXECUTABLE={sys.executable}", *options),
            f"-Dpybind11_DIR={pybind11.submodule_search_locations[0]}/share/cmake/pybind11",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_without_a_working_nvcc_auto_builds_without_and_on_fails(tmp_path: Path) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho this compiler is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    auto = _configure(ROOT, tmp_path / "auto", "-DREWARDKIT_CUDA=AUTO", "-DSKBUILD=2", CUDACXX=str(broken))
    assert auto.returncode == 0, auto.stderr
    assert "building without CUDA: this compiler is broken" in " ".join(auto.stderr.split())
    on = _configure(ROOT, tmp_path / "on", "-DREWARDKIT_CUDA=ON", CUDACXX=str(broken))
    assert on.returncode != 0
    assert "cannot compile a kernel: this compiler is broken" in " ".join(on.stderr.split())
    off = _configure(ROOT, tmp_path / "off", "-DREWARDKIT_CUDA=OFF", CUDACXX=str(broken))
    assert off.returncode == 0, off.stderr


@pytest.mark.slow
def test_no_kernel_spills_or_takes_too_many_registers(tmp_path: Path) -> None:
    """Builds all kernels for all architectures with ptxas's warnings as errors, and reads its report."""
    if _nvcc() is None:
        pytest.skip("no nvcc")
    done = _configure(
        ROOT,
        tmp_path,
        "-DREWARDKIT_CUDA=ON",
        "-DREWARDKIT_CUDA_STRICT=ON",
        "-DREWARDKIT_CUDA_ARCHS=75;80;90;100;120;53",
    )
    assert done.returncode == 0, done.stderr
    assert "cannot build for 53" in done.stdout
    log = run("cmake", "--build", str(tmp_path), "--target", "rewardkit_cuda_kernels", "--parallel", "2", "--verbose")
    compiled = re.findall(r"Compiling entry function '(\w+)' for 'sm_(\d+)'", log)
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    architectures = {architecture for _, architecture in compiled}
    assert {"80", "90"} <= architectures
    kernels = {name for name, _ in compiled}
    assert len(compiled) == len(kernels) * len(architectures) == len(registers)
    assert all(numbers == ("0", "0", "0") for numbers in spills)
    # 256 threads of 64 registers: four blocks to a multiprocessor, which keeps enough loads in flight.
    assert max(registers) <= 64
    cuobjdump = shutil.which("cuobjdump")
    if cuobjdump:
        listed = run(cuobjdump, "--list-elf", "--list-ptx", str(next(tmp_path.glob("librewardkit_cuda_kernels.a"))))
        assert architectures <= set(re.findall(r"sm_(\d+)", listed))
