"""Policies from a learner's actors, for files, checkpoints and callbacks."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.engine.networks.layout import Layout
from damper.engine.run.policy import Policy, PolicyInfo, policy_header
from damper.engine.run.provenance import versions
from damper.engine.update.learner import Learner
from damper.methods import find_method


def current_policies(learner: Learner, step: int) -> list[Policy]:
    """Each agent's current policy, after ``step`` steps; a copy that training does not change."""
    infos, params = policy_params(learner, step)
    return [Policy(info, own.clone()) for info, own in zip(infos, params, strict=True)]


def policy_params(learner: Learner, step: int) -> tuple[list[PolicyInfo], Tensor]:
    """Each agent's ``PolicyInfo``, and the parameters of all agents, ``[P, n]`` on the CPU."""
    settings, (layout, params) = learner.settings, actor_params(learner)
    shared = {"versions": versions(), **policy_header(learner.spec, layout)}
    infos, rms = [], learner.obs_rms
    normalisers = [one.to_dict() for one in rms.normalisers()] if rms else [None] * learner.n_agents
    for agent, normaliser in zip(settings.agents(), normalisers, strict=True):
        method = find_method(agent.get("method", settings.method))
        given = {
            name: value
            for name, value in settings.method_settings.items()
            if name in method.settings()
        }
        given |= {name: value for name, value in agent.items() if name not in ("seed", "method")}
        info = PolicyInfo(
            backbone=settings.backbone,
            method=method.name,
            seed=agent["seed"],
            steps=step,
            activation=settings.activation,
            settings=method.settings(given),
            normaliser=normaliser,
            backend=settings.backend,
            **shared,
        )
        infos.append(info)
    return infos, params


def actor_params(learner: Learner) -> tuple[Layout, Tensor]:
    """Layout and parameters ``[P, n]`` of the actors on the CPU, without padding and without the prediction head."""
    trained = learner.networks.actor_layout
    weights = trained.unflatten(learner.state()["actor"].to("cpu", torch.float32))
    layout = Layout(tuple(layer for layer in trained.layers if layer[0] != "prediction"))
    return layout, layout.flatten(
        [tensor for name, _, _ in layout.layers for tensor in weights[name]]
    )
