"""The GPU's kernels compute what the plain layers do: interpreted, or compiled on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from damper.engine.fused import layer_ops, triton_layers
from damper.engine.fused.tape import Tape
from damper.engine.networks.agent_networks import NetworkSizes, layouts
from damper.methods import find_method
from tests.engine import interpreted_updates, kernel_cases

ROOT = Path(__file__).parents[3]
FULL, ROUNDED = 1e-5, 1e-2


def check(found: dict[str, float], names: Iterable[str], tolerance: float) -> None:
    assert {name.split(":")[0] for name in found} == set(names)
    assert {name: value for name, value in found.items() if not value <= tolerance} == {}
    assert all(value == 0.0 for name, value in found.items() if "gaps" in name)


def interpreted(module: str) -> dict[str, float]:
    """What a module prints with Triton's interpreter in the place of its compiler."""
    # Triton reads the variable when it is imported, which other tests may have done already.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "1",
    }
    command = [sys.executable, "-W", "error", "-m", module]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    printed: dict[str, float] = json.loads(ended.stdout)
    return printed


def test_the_interpreted_kernels_are_the_plain_layers() -> None:
    check(interpreted("tests.engine.kernel_cases"), kernel_cases.CASES, FULL)


def test_updates_with_the_interpreted_kernels_are_autograd_s() -> None:
    found = interpreted("tests.engine.interpreted_updates")
    assert {tuple(name.split()[:2]) for name in found} == set(interpreted_updates.CASES)
    assert {name: value for name, value in found.items() if not value <= FULL} == {}


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def on_the_device(
    networks: int, names: tuple[str, ...], precision: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    torch.set_float32_matmul_precision(precision)
    monkeypatch.setattr(layer_ops, "alloc_grads", kernel_cases.spoiled_alloc_grads)
    assert layer_ops._kernels(torch.zeros(1, device="cuda")) is not None
    return kernel_cases.differences(kernel_cases.Sizes("cuda", (400, 300), 256, networks), names)


# Networks enough to fill the device, and so few that rows are summed in groups. Every shape is
# compiled anew, so not all that the interpreter tries is tried again.
@pytest.mark.gpu
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(
    ("networks", "names"),
    [(70, ("heads", "shared", "every second")), (6, ("heads", "shared", "relu"))],
)
def test_kernels_keep_float32(
    networks: int, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(on_the_device(networks, names, "highest", monkeypatch), names, FULL)


@pytest.mark.gpu
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(("networks", "names"), [(70, ("heads",)), (6, ("shared",))])
def test_kernels_round_where_tf32_is_allowed(
    networks: int, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_the_device(networks, names, "high", monkeypatch)
    check(found, names, ROUNDED)
    assert all(value > FULL for name, value in found.items() if name.endswith("output")), (
        "they do round"
    )


# --- compiled without a GPU -----------------------------------------------------------------------


class CompiledOnly:
    """A kernel that is compiled for a GPU with the arguments of each launch, and not run."""

    def __init__(self, kernel: Any, capability: int) -> None:
        self.kernel, self.target, self.programs = kernel, GPUTarget("cuda", capability, 32), []
        self.bind = create_function_from_signature(
            kernel.signature, kernel.params, make_backend(self.target)
        )

    def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
        assert all(count > 0 for count in grid)

        def launch(
            *tensors: torch.Tensor, num_warps: int, num_stages: int, **constants: Any
        ) -> None:
            names = self.kernel.arg_names
            bound, _, options = self.bind(
                *tensors, **constants, num_warps=num_warps, num_stages=num_stages
            )
            assert list(bound) == names and all(
                bound[name] is tensor for name, tensor in zip(names, tensors, strict=False)
            )
            source = ASTSource(
                fn=self.kernel,
                signature={name: "constexpr" if name in constants else "*fp32" for name in names},
                constexprs={(names.index(name),): value for name, value in constants.items()},
                attrs={(i,): [["tt.divisibility", 16]] for i in range(len(tensors))},
            )
            self.programs.append(triton.compile(source, self.target, options))

        return launch


@pytest.mark.parametrize(
    ("capability", "tf32"), [(90, True), pytest.param(80, False, marks=pytest.mark.slow)]
)
def test_the_kernels_compile_for_gpus(
    capability: int, tf32: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    forward, backward = (
        CompiledOnly(k, capability)
        for k in (triton_layers.forward_kernel, triton_layers.backward_kernel)
    )
    monkeypatch.setattr(triton_layers, "forward_kernel", forward)
    monkeypatch.setattr(triton_layers, "backward_kernel", backward)
    monkeypatch.setattr(triton_layers, "tf32", lambda: tf32)
    monkeypatch.setattr(layer_ops, "_kernels", lambda rows, activation=None: triton_layers)
    actor, critic = layouts("sac", find_method("asap"), NetworkSizes(11, 3, (400, 300)))
    actors, critics = (torch.zeros(2 * layout.size).view(2, -1) for layout in (actor, critic))
    x = torch.zeros(2, 512, 11)
    Tape(actor, actors, "silu", x).gradients([torch.zeros(2, 256, 9), torch.zeros(2, 512, 9)], 256)
    kept = Tape(critic, critics, "relu", torch.zeros(1, 256, 14))
    kept.gradients([torch.zeros(2, 256, 1)], 256)
    kept.input_gradients()
    Tape(critic, critics, "relu", torch.zeros(1, 256, 14), for_backward=False)
    assert len(forward.programs) == 3 + 2 + 2 and len(backward.programs) == 3 + 2 + 2
    for program in (*forward.programs, *backward.programs):
        assert "mma.sync" in program.asm["ptx"], "on tensor cores, as the tiles were chosen for"
