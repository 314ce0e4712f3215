"""MLflow through a callback: metrics of every agent, and the policies when the run is done.

pip install mlflow; mlflow ui
"""

from __future__ import annotations

from pathlib import Path

import mlflow

import damper


class LogToMlflow:
    """One MLflow run for a population; a metric of agent 3 is called return/agent-3."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def __call__(self, training: damper.Training) -> None:
        if mlflow.active_run() is None:
            self.start(training.run)
        values = {}
        for name, column in training.metrics.items():
            if isinstance(column, list):
                values |= {
                    f"{name}/agent-{i}": value
                    for i, value in enumerate(column)
                    if value is not None
                }
        mlflow.log_metrics(values, step=training.step)

    def start(self, run: damper.Run) -> None:
        # Kept beside the run: whoever goes on with a stopped run goes on with its curves.
        known: Path = run.path / "mlflow_run_id.txt"
        if known.exists():
            mlflow.start_run(run_id=known.read_text())
            return
        known.write_text(mlflow.start_run(run_name=run.path.name).info.run_id)
        mlflow.log_params(self.parameters)

    def finish(self, run: damper.Run) -> None:
        mlflow.log_artifacts(str(run.path / "policies"), "policies")
        mlflow.end_run()


def main(steps: int = 20_000, out: str = "runs/mlflow-pendulum") -> dict[str, float]:
    settings = {"method": "damper", "eta": [0.0, 1.0], "seeds": 2, "steps": steps}
    log = LogToMlflow(env="Pendulum-v1", **settings)
    run = damper.train("Pendulum-v1", **settings, out=out, callbacks=log)
    log.finish(run)
    evaluation = damper.evaluate(run, episodes=2).summary()
    return {label: values["return"]["mean"] for label, values in evaluation.items()}


if __name__ == "__main__":
    main()
