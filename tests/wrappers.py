"""Two wrappers that flip the action; only one records its arguments as Gymnasium asks."""

from __future__ import annotations

from typing import Any

import gymnasium


class Flip(gymnasium.ActionWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """It says what it was made with."""

    def __init__(self, env: gymnasium.Env[Any, Any], by: float = -1.0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, by=by)
        super().__init__(env)
        self.by = by

    def action(self, action: Any) -> Any:
        return self.by * action


class Silent(gymnasium.ActionWrapper[Any, Any, Any]):
    """It does not."""

    def action(self, action: Any) -> Any:
        return -action
