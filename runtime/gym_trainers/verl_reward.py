"""verl: a reward manager, for answers that verl's own single-turn loop samples.

Source: verl 0.9.1, ``experimental/reward_loop/reward_manager/base.py``.
"""

from __future__ import annotations

from typing import Any

from anyio import to_thread

from gym_trainers.rollout_source import shared_client
from gym_trainers.training_rollouts import ROW, base_class

REWARDS = "verl.experimental.reward_loop.reward_manager.base"


class GymRewardManager(base_class(REWARDS, "RewardManagerBase")):
    """The verdict of a row's verifier on an answer of verl's own single-turn loop::

        reward.reward_manager: {source: importlib, name: GymRewardManager, module: {path: FILE}}

    The dataset's column ``gym_row`` holds the row, which names its environment. The system is that of
    ``GYM_NATS_URL``. What fails raises, and is never a reward of 0.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **more: Any) -> None:
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The verdict on the last sequence.

        Raises:
            GymError: there is no verdict.
        """
        item = data[-1]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-ids.shape[-1] :].sum())
        text = self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        row = str(item.non_tensor_batch[ROW])
        verdict = await to_thread.run_sync(lambda: shared_client().verify(row, text))
        return {"reward_score": verdict.reward, "reward_extra_info": {"acc": verdict.reward}}
