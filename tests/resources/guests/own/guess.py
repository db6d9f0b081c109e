"""An environment for skyrl-gym: guess the secret, in some turns; and one whose step raises."""

from __future__ import annotations

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput


class Guess(BaseTextEnv):
    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.secret = extras["reward_spec"]["ground_truth"]
        self.max_turns = extras.get("max_turns", 4)
        self.hint = env_config.get("hint", "Again?")

    def init(self, prompt: Any) -> Any:
        return [*prompt, {"role": "user", "content": "Guess!"}], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        right = action.strip() == self.secret
        done = right or self.turns >= self.max_turns
        said = [] if done else [{"role": "user", "content": f"No. {self.hint}"}]
        return BaseTextEnvStepOutput(observations=said, reward=1.0 if right else -0.1, done=done, metadata={})

    def get_metrics(self) -> dict[str, Any]:
        return {"steps": self.turns, "note": "no number"}


class Broken(Guess):
    def step(self, action: str) -> BaseTextEnvStepOutput:
        raise RuntimeError("the scorer is broken")


class Trusting(Guess):
    """Executes what the model says."""

    def step(self, action: str) -> BaseTextEnvStepOutput:
        exec(action, {"env": self, "kind": type(self)})
        return super().step(self.secret if "right" in vars(type(self)) else action)
