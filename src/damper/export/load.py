"""``damper.load``: one call for whatever holds a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from damper.engine.envs import EnvLike
from damper.engine.run.folder import Run
from damper.engine.run.policy import Policy
from damper.export.sources import Source, chosen_agent, find_source, open_source


def load(
    path: str | Path,
    agent: int | str = "best",
    env: EnvLike | None = None,
    vecnormalize: Any = None,
    trust: bool = False,
) -> Policy | Source:
    """The policy in a run's folder, a policy file, a Stable-Baselines3 zip or an exported file.

    A run and a policy file give a ``Policy``, a zip and an exported file a
    ``damper.export.Source``. Both have Stable-Baselines3's ``predict``, and ``damper.evaluate``
    takes both.

    Args:
        path: its path; a zip with or without its ending.
        agent: which agent of a run; "best" is the only one, or of several the one with the highest
            mean return in the run's own evaluation (``damper evaluate RUN``), which must exist.
        env: the environment, if a zip does not record its action bounds.
        vecnormalize: for a zip, SB3's ``VecNormalize`` or its file (a pickle: needs ``trust``).
        trust: allow unpickling what cannot be read otherwise; it runs whatever code the file
            contains.
    """
    found = find_source(path)
    if isinstance(found, Run):
        found = found.policy(chosen_agent(found, agent))
    if isinstance(found, Policy) and vecnormalize is None:
        return found
    return open_source(found, 0, env, vecnormalize, trust)
