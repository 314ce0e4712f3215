"""Policies from a learner's actors, for files, checkpoints and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from damper.engine.envs.env_spec_json import to_json
from damper.engine.networks.layout import Layout, weight_list
from damper.engine.settings import Settings
from damper.engine.update.learner import Learner
from damper.methods import find_method
from damper.policies.policy import Policy, PolicyInfo
from damper.provenance import versions


def current_policies(learner: Learner, step: int) -> list[Policy]:
    """Each agent's current policy, after ``step`` steps; a copy that training does not change."""
    infos, params = policy_params(learner, step)
    return [Policy(info, row.clone()) for info, row in zip(infos, params, strict=True)]


def policy_params(learner: Learner, step: int) -> tuple[list[PolicyInfo], Tensor]:
    """Each agent's ``PolicyInfo``, and the parameters of all agents, ``[P, n]`` on the CPU."""
    settings, spec = learner.settings, learner.spec
    layout, params = actor_params(learner)
    normalisers: list[dict[str, Any] | None] = [None] * learner.n_agents
    if learner.obs_rms:
        normalisers = [normaliser.to_dict() for normaliser in learner.obs_rms.normalisers()]
    library_versions, env_spec = versions(), to_json(spec.env_spec)
    infos = []
    for agent, normaliser in zip(settings.agents(), normalisers, strict=True):
        infos.append(
            PolicyInfo(
                env=spec.id,
                env_spec=env_spec,
                backbone=settings.backbone,
                method=find_method(agent.get("method", settings.method)).name,
                seed=agent["seed"],
                steps=step,
                activation=settings.activation,
                low=[float(bound) for bound in spec.low],
                high=[float(bound) for bound in spec.high],
                layers=[list(layer) for layer in layout.layers],  # type: ignore[misc]
                settings=_method_settings(settings, agent),
                normaliser=normaliser,
                backend=settings.backend,
                versions=library_versions,
            )
        )
    return infos, params


def _method_settings(settings: Settings, agent: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of an agent's method: the run's, the agent's own, and defaults."""
    method = find_method(agent.get("method", settings.method))
    names = method.settings()
    given = {name: value for name, value in settings.method_settings.items() if name in names}
    given |= {name: value for name, value in agent.items() if name not in ("seed", "method")}
    return method.settings(given)


def actor_params(learner: Learner) -> tuple[Layout, Tensor]:
    """Layout and parameters ``[P, n]`` of the actors on the CPU, without the prediction head."""
    trained = learner.networks.actor_layout
    weights = trained.unflatten(learner.state()["actor"].to("cpu", torch.float32))
    weights.pop("prediction", None)
    layout = Layout(tuple(layer for layer in trained.layers if layer[0] in weights))
    return layout, layout.flatten(weight_list(weights))
