"""``damper train``."""

from __future__ import annotations

from typing import Any

from damper.cli.options import chosen_seeds, given
from damper.cli.options.train import Train
from damper.engine.run.files import check_folder
from damper.engine.train import train
from damper.errors import DamperError
from damper.methods import components, compose
from damper.terminal import counted, quoted, say


def _method(options: Train) -> str:
    """The method with the parts named instead of its own."""
    named = {"auxiliary": options.auxiliary, "rule": options.rule, "critic": options.critic}
    changed = {part: value for part, value in named.items() if value is not None}
    if not changed:
        return options.method
    auxiliary, rule, critic = components(options.method)._replace(**changed)
    if auxiliary is None and rule is None:
        raise DamperError(
            f"critic must join an actor loss, but method {options.method!r} has none: use --method {critic}, or name "
            "an auxiliary too."
        )
    return compose(auxiliary or "temporal", rule, critic).name


def run(options: Train) -> None:
    """Train, then say what to do next."""
    if options.out is not None:
        check_folder("out", options.out)
    settings: dict[str, Any] = given(options.engine, options.settings)
    run = train(
        options.env,
        options.backbone,
        _method(options),
        chosen_seeds(options.seeds, options.seed_list, Train.seeds),
        options.steps,
        options.protocol,
        options.out,
        tensorboard=options.tensorboard,
        preset_name=options.preset,
        **settings,
    )
    for agent, update in run.manifest.get("frozen", {}).items():
        say(f"agent {agent} was frozen at update {update}: its gradient was not finite", "yellow")
    policies = counted(len(run.agents), "policy", "policies")
    say(f"{policies} in {quoted(run.path)}; next: damper evaluate {quoted(run.path)}")
