"""``damper.train``: train seeds × settings as one population."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from damper.engine.custom_code import has_source, has_stable_name
from damper.engine.device.precision import check_tf32, device_context
from damper.engine.device.threads import fitting_threads, torch_threads
from damper.engine.envs.gymnasium_pool import import_module_of
from damper.engine.loop.callbacks import Callback, as_callbacks
from damper.engine.loop.trainer import MetricsWriter, Trainer
from damper.engine.run.folder import Run, left_to_train, open_finished
from damper.engine.run.lock import run_lock
from damper.engine.run.progress import Progress
from damper.engine.run.tensorboard import TensorBoard, find_writer
from damper.engine.settings import DEFAULT_SEEDS, Settings, resolve
from damper.errors import DamperError
from damper.methods import Method
from damper.settings import Kind, deciding
from damper.terminal import quoted, say

LOG = logging.getLogger("damper")


def train(
    env: str | Callable[[], Any],
    backbone: str = "td3",
    method: str | Method = "damper",
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    steps: int | None = None,
    protocol: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    callbacks: Callback | Sequence[Callback] | None = None,
    **settings: Any,
) -> Run:
    """Train one agent per seed and combination of the settings given as lists, all as one batch.

    The same call on the same folder resumes a killed run, and returns a finished one at once.

    Args:
        env: a Gymnasium id, a task of the paper ("Hopper"), or a callable that makes an
            environment.
        backbone: "td3" or "sac".
        method: a name in ``damper.METHODS`` or a ``Method``.
        seeds: the agents' seeds, or how many (the protocol's first ones, or 0, 1, ...); ``seed=3``
            for one agent.
        steps: environment steps per agent; default: the paper's budget for its tasks. Also called
            ``total_timesteps``.
        protocol: "pave" or "authors": published settings to start from.
        out: the run's folder; by default a name under ``runs/`` made from the settings.
        progress: show a live table.
        tensorboard: write TensorBoard files into the folder.
        env_kwargs: the environment's own arguments, for ``gymnasium.make`` or for ``env`` if that
            is a callable.
        callbacks: one function or several, called with a ``damper.Training`` whenever metrics are
            logged, that is every ``log_every`` steps. Returning False stops the run at its next
            step, with a checkpoint, and this call returns; the same call resumes it, callbacks
            included. An exception in a callback is raised here after everything is saved.
        **settings: any setting that ``damper.settings`` declares and any of the method; lists make
            a population of their product. ``learning_rate`` and the method's numbers may
            be schedules: functions of ``progress_remaining`` as in Stable-Baselines3, or
            ``"linear:3e-4:0"``. ``eval_every=10_000`` evaluates each agent at that interval and
            keeps its best policy (``run.policy(agent, best=True)``). ``device="auto"``,
            ``backend="auto"`` and ``compile="auto"``, the defaults, use a GPU if there is one, and
            on a GPU EnvPool for the tasks of ``damper.tasks.TASKS`` that it has, and compiled
            updates if the run is long enough to gain.
    """
    called = as_callbacks(callbacks)
    import_module_of(env)  # first, since the module may register the method
    resolved = resolve(
        env, backbone, method, seeds, steps, protocol, env_kwargs=env_kwargs, **settings
    )
    check_tf32(resolved.device, resolved.tf32)
    folder = Path(out) if out else default_folder(resolved)
    with run_lock(folder):
        return run_settings(resolved, folder, progress, tensorboard, called)


def run_settings(
    settings: Settings,
    out: Path,
    progress: bool = True,
    tensorboard: bool = False,
    callbacks: tuple[Callback, ...] = (),
) -> Run:
    """Train complete settings into a folder whose lock the caller holds, unless it is finished."""
    import_module_of(settings.env)  # in a worker process too: the module may register the method
    if not left_to_train(Run(out), settings):
        run = open_finished(out, settings)
        if progress:
            say(f"{quoted(out)} is already finished: nothing is trained.")
        return run
    rows = len(settings.agents()) * settings.batch_size if settings.device == "cpu" else 0
    with ExitStack() as stack:
        stack.enter_context(torch_threads(fitting_threads(rows, settings.net_arch)))
        stack.enter_context(device_context(settings.device, settings.tf32))
        if tensorboard:
            find_writer()  # raises where TensorBoard is missing, before anything starts
        metrics_writers: list[MetricsWriter] = []
        trainer = Trainer(settings, out, callbacks=callbacks)
        _warn(settings)
        if progress:
            if settings.backend == "envpool":
                off = "--backend gymnasium (backend='gymnasium')"
                say(f"EnvPool steps the environments; {off} switches it off.")
            if settings.compile:
                off = "--no-compile (compile=False)"
                say(f"Compiling the update, up to a minute; {off} switches it off.")
            shown = stack.enter_context(closing(Progress(settings)))
            metrics_writers.append(shown)
            trainer.after_step = shown.after_step
        if tensorboard:  # it purges what was written after the step from which the run resumes
            board = TensorBoard(settings, out / "tensorboard", trainer.step)
            stack.enter_context(closing(board))
            metrics_writers.append(board)
            trainer.evaluations.writers = (board.evaluated,)
        trainer.metrics_writers = tuple(metrics_writers)
        return trainer.train()


def _warn(settings: Settings) -> None:
    first = (settings.learning_starts // settings.train_freq + 1) * settings.train_freq
    if settings.steps < first:
        LOG.warning(
            "nothing is learned in %s steps: with learning_starts=%s and train_freq=%s the first "
            "update comes at step %s; give more steps, or a smaller learning_starts.",
            *(f"{n:,}" for n in (settings.steps, settings.learning_starts, settings.train_freq)),
            f"{first:,}",
        )
    if unused := settings.unused_settings:
        sentence = "backbone %r does not use %s: leave out what has no effect."
        LOG.warning(sentence, settings.backbone, " and ".join(unused))


def default_folder(settings: Settings) -> Path:
    """``runs/<env>-<backbone>-<method>-<digest>``, the same for the same settings and code."""
    return Path("runs") / default_name(settings)


def default_name(settings: Settings) -> str:
    """The last part of ``default_folder``, with a digest of all settings but those of execution."""
    check_named(settings)
    # Evaluations during training are part of the run only if there are any.
    kinds: list[Kind] = ["task", "training", "numerics"]
    kinds += ["evaluation"] if settings.eval_every else []
    facts = deciding({**vars(settings), "env": settings.env_id}, settings.backbone, *kinds)
    text = json.dumps([facts, settings.custom_code()], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return f"{settings.env_in_paths}-{settings.backbone}-{settings.method}-{digest}"


def check_named(settings: Settings) -> None:
    """Raise if the default folder would depend on code that cannot be told from other code."""
    for part, function in settings.custom_functions.items():
        registered = part == "env" and isinstance(settings.env, str)
        if not ((registered or has_stable_name(function)) and has_source(function)):
            raise DamperError(
                f"out must be given when {part} is a lambda, a local function or an object, or has "
                f"no file, since {function!r} gives the folder no stable name: name a folder, or "
                "define a function at the top level of a module."
            )
