"""The files that the runtime writes."""

from __future__ import annotations

from docstrings import fields_table, parsed, prose, table
from gym_faces.recordings.calls_file import CallEntry
from gym_runtime.errors import Fault
from gym_runtime.files.results import Manifest
from gym_runtime.messages.calls import WeightSpan

INTRODUCTION = """# File formats

`run` writes these beside each other. `collect` writes the rollouts, the failures and the aggregate metrics;
`merge` writes the inputs, too. JSONL files hold one JSON object per line. New versions add fields and
never change the meaning of old ones.

A crash may leave the last line torn: `run --resume` and `collect` cut it off, and it does not count for other
commands. Of several rows of a rollout with a verdict the first counts.

| file | what |
|---|---|
| `OUT.jsonl` | rollouts with a verdict, in the order of completion |
| `OUT_failures.jsonl` | rollouts without one, and why; later attempts add lines |
| `OUT_materialized_inputs.jsonl` | what was asked for: each rollout's row, settings and numbers |
| `OUT_aggregate_metrics.json` | per agent: statistics over rollouts and over groups |
| `OUT_reward_profiling.jsonl` | of `gym-runtime profile`: per task, its row and statistics of its rollouts |
| `OUT_fork.jsonl` | of `gym-runtime fork`: the row that is run, with the shared turns |
| `OUT_images/` | of `run --images files`: each image of the rows once, named by its SHA-256 |
| `OUT_alarms.jsonl` | of `--watch-rewards`: each [alarm](../how-to/watch-rewards.md) |
| `OUT_labels.json` | labels and notes of a person, by `TASK.ROLLOUT` |
| `OUT_run.json` | the manifest, which `--resume` compares |

## A rollout

NeMo Gym's rollout row. `reward` is a number only when a verifier returned it.
"""
ROW = [
    ["responses_create_params", "what the model was asked, with every field of the Responses API"],
    [
        "response",
        "a Responses API response; its `output` is the transcript: the model's items and the tools' outputs",
    ],
    ["reward", "the verdict; not there in a failure's row"],
    ["reward_components", "named parts of the reward, where the verifier gave some"],
    ["the dataset's fields", "as they came in"],
    ["the verifier's fields", "such as `extracted_answer`"],
    ["_ng_task_index, _ng_rollout_index", "which task, and which repeat of it, from 0"],
    ["agent_ref", "which environment; as in the row that came in"],
    ["_gym", "what only this runtime knows; see below"],
]
ITEM = [
    ["prompt_token_ids", "what the engine saw"],
    ["generation_token_ids", "what it produced"],
    ["generation_log_probs", "natural logarithms of their probabilities, as sampled"],
    [
        "token_segment",
        "from the second segment on: where a template rewrote the history, a new sequence begins",
    ],
    ["weight_versions", "which version of the weights sampled which tokens"],
]
GYM = [
    ["rollout_id", "`RUN.TASK.ROLLOUT`"],
    ["environment", "the environment that judged it"],
    ["attempt", "which attempt is the one that counts, from 1"],
    ["outcome", "`completed`, `truncated` with its reason, `failed` with its fault, `cancelled`"],
    ["turns, tool_calls", "model calls and tool calls of this attempt"],
    ["resumed_turns", "turns that were taken from the journal of an attempt whose worker died"],
    [
        "rebuilt_sessions, repeated_calls",
        "sessions that were rebuilt on another worker, and the calls that were made again for that",
    ],
    [
        "drifted_calls",
        "calls of a program that got a recorded answer although their tools' outputs or instructions differ "
        "([how](../how-to/resume-agents.md))",
    ],
    ["duration_s", "of this attempt, in seconds"],
    [
        "timing",
        "in seconds, how long the rollout waited for an agent worker, and how long each turn's model call "
        "and tools took, and the verification, and roles within",
    ],
    [
        "fork",
        "of a fork: the rollout and the turn that it begins with, how many items of the transcript it "
        "shares, what was changed, after which turns the environment answered differently, and how many "
        "turns were restored instead of repeated",
    ],
    [
        "saved",
        "the states with which forks may begin, by turn, and the rollouts to whose parts they refer; only "
        "with `GYM_SAVED_KEPT_S`",
    ],
    ["started_anew", "why earlier attempts were given up with all that they had done"],
    ["weight_versions", "the versions of the weights that sampled this rollout"],
    ["token_segments", "how many sequences the tokens of its transcript make"],
    [
        "tokens_resampled",
        "sampled tokens that a later prompt of their conversation has not, where they stood",
    ],
    [
        "calls",
        "all calls, if they are not one line: [what is trained on](../explanation/what-is-trained-on.md)",
    ],
    ["seat, rewards", "of a rollout with several trained seats: the main one, and the reward of each"],
    ["roles", "what the models in roles cost, by role: calls, tokens, seconds"],
    [
        "role_answers",
        "their answers, and what each was asked: `reverify` reads these in place of asking again",
    ],
    ["role_sampling", "what the run said of how they sample, if anything"],
    ["compared", "the rollouts that were compared with each other, where the reward comes from that"],
]
FAILURE = [
    [
        "_ng_failure_class",
        "`timeout_exceeded`, `judge_failed`, `cancelled`, or whose fault it was: `task`, `model`, …",
    ],
    ["_ng_failure_terminal", "true: making it again changes nothing, and `--resume` does not"],
    ["_ng_attempt_index", "which attempt, from 0"],
    ["_ng_failure", "the fault, see below"],
    ["_ng_failure_judge_error", "the message, of a judge's failure"],
]

METRICS = """## Aggregate metrics

A list with one object per agent: `agent_ref`; `agent_metrics` (`mean/FIELD`, `max/FIELD`, `min/FIELD`,
`median/FIELD`, `std/FIELD` of every numeric field, and `pass@K`); `key_metrics`; `group_level_metrics`.

With several repeats, `…/std_dev_across_runs` and `…/std_err_across_runs` say in percent how far the repeats'
means differ. Where rows have an `extracted_answer`, `majority@K/reward` is the reward of a task's most
frequent answer, and `…/no_answer` the share of rollouts without one. Where rows have
`subset_for_metrics`, `SUBSET/mean/reward`, and `SUBSET/pass@K/reward` with several rollouts per task, are
those of each subset, 200 at most.

pass@K of a task whose rewards are all 0 or 1 is the chance that one of K of its rollouts is right, estimated
from all of them; of a task with other rewards it is the best reward of its first K rollouts, as NeMo Gym
defines it. So pass@1 of fractional rewards is the mean reward of repeat 0 alone; `mean/reward` is over all.

`standard_errors` has those of the means and of pass@k, clustered by task; `tasks` says how many tasks there
are (`all`), how many have a reward (`rated`), and over how many each pass@k is: those with K rewards. A value
that is undefined, or larger than a double, is `null`. With `--failures-as-zero` failed rollouts count with a
reward of 0, and `failures_as_zero` is true. NeMo Gym's files have none of these three.
Failed and cancelled rollouts are counted; their numbers enter no statistic but the totals of tokens, turns
and tool calls.

## Reward profiles

`gym-runtime profile OUT.jsonl` writes one line per task, with its input row and the statistics of its
rollouts. Tasks without a reward are left out. A run does not write them, because they repeat all rows."""
RECORDED = """## Recorded calls

`--model record/PROVIDER/NAME` and `gym-runtime gateway -o FILE` write one line per model call;
`--model replay/FILE` reads them."""


def _named(rows: list[list[str]]) -> str:
    return table(
        ["field", "meaning"],
        [
            [", ".join(f"`{one}`" if "'" not in one else one for one in name.split(", ")), text]
            for name, text in rows
        ],
    )


def page() -> str:
    """The page."""
    return "\n\n".join(
        [
            INTRODUCTION,
            _named(ROW),
            "With `--return-token-ids` the last output item of each model call has:",
            _named(ITEM),
            "`weight_versions` there is a list of:",
            fields_table(WeightSpan),
            "`_gym` has:",
            _named(GYM),
            "## A failure\n\nThe same row without a reward, with the transcript up to the failure, and:",
            _named(FAILURE),
            "`_ng_failure` is:",
            fields_table(Fault),
            f"## The manifest\n\n{prose(parsed(Manifest))}",
            fields_table(Manifest),
            METRICS,
            RECORDED,
            fields_table(CallEntry),
        ]
    )
