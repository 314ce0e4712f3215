"""``damper export``."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.registration import EnvSpec

from damper.cli.options.export import Export
from damper.engine.envs.env_spec_json import missing_part
from damper.engine.run.folder import Run
from damper.errors import DamperError
from damper.export import export
from damper.export.files import contract_path
from damper.terminal import counted, quoted, say


def run(options: Export) -> None:
    """Write the file, check it and print what it contains."""
    if options.episodes < 0:
        given = f"{options.episodes} was given"
        raise DamperError(f"episodes must be at least 0, but {given}: 0 measures nothing.")
    contract = export(
        options.source,
        options.to,
        int(options.agent) if options.agent.isdecimal() else options.agent,
        options.env,
        options.vecnormalize,
        options.check,
        options.trust,
        options.episodes,
        options.force,
    )
    inputs, outputs = (int(contract[part]["shape"][1]) for part in ("observation", "action"))
    numbers = f"{counted(inputs, 'number')} in, {outputs} out"
    say(f"{quoted(options.to)}: {numbers}; contract in {quoted(contract_path(options.to))}")
    _tell_agent(options, contract["training"])
    if options.check:
        seen = contract["check"]
        worst, count = seen["largest_difference"], seen["observations"]
        say(f"largest difference from the original on {counted(count, 'observation')}: {worst:.1e}")
    say(_smoothness(options, contract))


def _tell_agent(options: Export, training: dict[str, Any]) -> None:
    """Say which agent of several was exported, and whether it was frozen during training."""
    if "agent" not in training:
        return
    agent, agents = training["agent"], Run(options.source).agents
    if len(agents) > 1:
        row = ", ".join(f"{name}={value}" for name, value in agents[agent].items())
        best = ", the best by its evaluation" if options.agent == "best" else ""
        say(f"agent {agent} of {len(agents)}, {row}{best}; --agent chooses another")
    if "frozen_at_update" in training:
        update = training["frozen_at_update"]
        say(f"agent {agent} was frozen at update {update}: its gradient was not finite", "yellow")


def _smoothness(options: Export, contract: dict[str, Any]) -> str:
    """The contract's smoothness in words, or why it has none."""
    measured = contract["smoothness"]
    if measured is not None:
        form = "{env}: return {return:.1f}, mean |Δa| {mean_change:.4f}, sm {sm:.3f}"
        return f"{counted(measured['episodes'], 'episode')} of {form.format(**measured)}"
    if options.episodes == 0:
        return "smoothness in the contract is null, because of --episodes 0."
    named = f"{options.source} records no environment that fits"
    if contract["env_spec"]:
        spec = EnvSpec.from_json(contract["env_spec"])
        missing = f"{part} is not recorded, so " if (part := missing_part(spec)) else ""
        named = f"{missing}{spec.id} cannot be made here"
    null = f"smoothness in the contract is null, because {named}"
    return f"{null}: name one with --env to have it measured."
