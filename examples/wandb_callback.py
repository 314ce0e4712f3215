"""Weights & Biases through a callback: metrics of every agent, then the best policies.

pip install wandb; wandb login
"""

from __future__ import annotations

from pathlib import Path

import wandb

import damper


class LogToWandb:
    """One W&B run for a population; a metric of agent 3 is called return/agent-3."""

    def __init__(self, project: str, out: str, **config):
        # The folder names the run: whoever goes on with a stopped run goes on with its curves.
        name = Path(out).name
        self.run = wandb.init(project=project, id=name, name=name, resume="allow", config=config)

    def __call__(self, training: damper.Training) -> None:
        values = {}
        for name, column in training.metrics.items():
            if isinstance(column, list):
                values |= {
                    f"{name}/agent-{i}": value
                    for i, value in enumerate(column)
                    if value is not None
                }
        if training.evaluation and training.evaluation["step"] == training.step:
            values |= {
                f"evaluation/agent-{i}": value
                for i, value in enumerate(training.evaluation["return"])
            }
        self.run.log(values, step=training.step)

    def finish(self, run: damper.Run) -> None:
        for path in sorted(run.path.glob("policies/best-*.safetensors")):
            self.run.save(str(path), base_path=str(run.path))
        self.run.finish()


def main(steps: int = 20_000, out: str = "runs/wandb-pendulum") -> dict[str, float]:
    settings = {"method": "damper", "eta": [0.0, 1.0], "seeds": 2, "steps": steps}
    log = LogToWandb("damper", out, env="Pendulum-v1", **settings)
    run = damper.train(
        "Pendulum-v1", **settings, eval_every=steps // 2, eval_episodes=2, out=out, callbacks=log
    )
    log.finish(run)
    return {agent: best["return"] for agent, best in run.manifest["best"].items()}


if __name__ == "__main__":
    main()
