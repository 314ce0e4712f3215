"""What a run logs: losses and diagnostics of a call of ``train``; smoothness of its episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor, nn

from damper import metrics
from damper.rules import GradientReport

ENVS = 16  # the first environments are scored: enough for a mean over episodes
STEPS = 10_000  # of a longer episode, the last ones are scored


class Log:
    """Scalars by name, one per gradient step; those on a device are left there until ``write``."""

    def __init__(self) -> None:
        """Make an empty log."""
        self.values: dict[str, list[Tensor | float]] = {}
        self.means: set[str] = {"auxiliary_loss"}

    def add(self, **scalars: Tensor) -> None:
        """Append one value to each of these names."""
        for name, value in scalars.items():
            seen = value.item() if value.device.type == "cpu" else value.detach().reshape(())
            self.values.setdefault(name, []).append(seen)

    def add_report(self, report: GradientReport) -> None:
        """Append a rule's diagnostics: cosine, conflicts, ..."""
        logged = report.logged()
        self.means |= logged.keys()
        self.add(**logged)

    def write(self, logger: Any) -> None:
        """Record means under ``train/``; the only wait for the device.

        SB3's own entries show the last call of ``train``, as in SB3; the method's are means since
        the last dump, so that conflicts become a rate.
        """
        everything = [value for values in self.values.values() for value in values]
        waiting = [value.double() for value in everything if isinstance(value, Tensor)]
        numbers = iter(torch.stack(waiting).tolist() if waiting else ())
        for name, values in self.values.items():
            read = [next(numbers) if isinstance(value, Tensor) else value for value in values]
            record = logger.record_mean if name in self.means else logger.record
            record(f"train/{name}", float(np.mean(read)))


class ActionTrace:
    """Deterministic actions of the running episodes, scored when an episode ends.

    They are caught as they are computed for acting, so no network is evaluated for them. On a GPU
    they stay there until their episode ends. Steps with random actions (SB3's warm-up) have none,
    and an episode with such a step gets no score.
    """

    def __init__(self, space: Any, unscale: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        """``unscale`` maps the policy's actions ``[T, *space.shape]`` to the environment's."""
        self._space, self._unscale = space, unscale
        # Discrete actions have no size of change, and a range of zero no share.
        self._scored = isinstance(space, Box) and bool((space.high > space.low).all())
        self._latest: Tensor | None = None
        self._steps: deque[Tensor | None] = deque(maxlen=STEPS)
        self._lengths = np.zeros(ENVS, np.int64)  # of the running episodes

    @contextmanager
    def watch(self, module: nn.Module) -> Iterator[None]:
        """Within the context, keep the deterministic action of the module's last forward pass."""
        if not self._scored:
            yield
            return

        def keep(module: Any, _: Any, output: Any) -> None:
            distribution = getattr(module, "action_dist", None)
            action = output if distribution is None else distribution.mode()
            self._latest = action.detach()[:ENVS].clone()

        hook = module.register_forward_hook(keep)
        try:
            yield
        finally:
            hook.remove()

    def end_step(self, dones: NDArray[Any], infos: Sequence[dict[str, Any]]) -> bool:
        """Add ``mean_change`` and ``sm`` to the infos of ended episodes; whether any ended."""
        if not self._scored:
            return False
        self._steps.append(self._latest)
        self._latest = None
        self._lengths += 1
        ended = [i for i in np.flatnonzero(dones[:ENVS]).tolist() if "episode" in infos[i]]
        for i in ended:
            infos[i]["episode"].update(self._scores(i))
        running = len(dones[:ENVS])
        self._lengths[:running][np.asarray(dones[:ENVS], bool)] = 0
        while len(self._steps) > self._lengths[:running].max():
            self._steps.popleft()
        return bool(ended)

    def _scores(self, env: int) -> dict[str, float]:
        """Measures of the episode that ended in this environment; none if an action is unknown."""
        first = max(0, len(self._steps) - int(self._lengths[env]))
        steps = [step[env] for step in islice(self._steps, first, None) if step is not None]
        if len(steps) < len(self._steps) - first:
            return {}
        low, high = self._space.low, self._space.high
        actions = torch.stack(steps).cpu().numpy().reshape(-1, *self._space.shape)
        executed = self._unscale(actions).reshape(len(actions), -1)
        return {
            "mean_change": metrics.mean_change(executed, low.ravel(), high.ravel()),
            "sm": metrics.smoothness(executed),
        }
