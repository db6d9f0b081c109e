"""An alarm: second looks no longer confirm the rewards of an environment.

It is raised by a watch (`gym_runtime.client.reward_watch`), and is told in the heartbeat of the run's client.
When the run is over, it stays in its `gym_runtime.messages.stored_records.RunInfo`.
"""

from __future__ import annotations

import msgspec

MOST = 5
"""So many alarms of a run are told: the last ones."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards of an environment that second looks no longer confirm.

    Attributes:
        since_version: of the weights with which it began; empty where versions are unknown.
        since_rollout: the first look after the onset.
        looks, disagree: since the onset.
        low, high: the 95 % interval of their share (Wilson).
        usual: the share that was assumed at most.
        rollouts: the clearest, at most ten.
    """

    environment: str
    since_version: str
    since_rollout: str
    looks: int
    disagree: int
    low: float
    high: float
    usual: float
    rollouts: list[str]

    def __str__(self) -> str:
        since = f"since weights {self.since_version}" if self.since_version else f"since {self.since_rollout}"
        return (
            f"alarm: {self.environment}: {self.disagree} of {self.looks} second looks at rewarded rollouts "
            f"disagree {since} ({self.low:.0%}-{self.high:.0%}; usual: at most {self.usual:.0%}); "
            f"look at {', '.join(self.rollouts[:3])}"
        )


encode_alarms = msgspec.json.Encoder().encode
decode_alarms = msgspec.json.Decoder(list[Alarm]).decode
