"""``damper train``."""

from __future__ import annotations

from typing import Any

from damper.cli.options import chosen_seeds, given
from damper.cli.options.train import Train
from damper.engine.settings import METHOD_PARTS
from damper.engine.train import train
from damper.files import check_folder
from damper.terminal import counted, quoted, say


def run(options: Train) -> None:
    """Train, then print where the policies are and the next command."""
    if options.out is not None:
        check_folder("out", options.out)
    settings: dict[str, Any] = given(options.engine, options.settings)
    for part in METHOD_PARTS:
        if (name := getattr(options, part)) is not None:
            settings[part] = name
    run = train(
        options.env,
        options.backbone,
        options.method,
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
