"""Which test holds each promise about boxes: what is killed at which step, and what must be reached.

Each row names its tests, and what is not reached or was not tried. A test that is gone fails here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
KILLED = "faults/test_killed_programs.py"
SAVED = "runtime/workers/agent_worker/test_saved_sessions.py"
BUCKET = "runtime/workers/test_saved_in_a_bucket.py"
FILES = "sandbox/test_saved_files.py"
LOST = "resources/swe/test_lost_containers.py"
RESUMED = "agents/black_box/test_resumed_programs.py"
LEASES = "boxes/test_leases.py"
FORKS = "runtime/client/test_forks.py"
UNANSWERED = f"{SAVED}::test_the_worker_dies_before_it_answers_and_the_call_is_made_again_on_the_state_before"
STATES = "runtime/client/test_forks_from_saved_states.py"


class Row(NamedTuple):
    what: str
    tests: tuple[str, ...]
    lacks: str = ""


FAULTS = (
    Row("before files are read that were changed", (UNANSWERED,)),
    Row(
        "while they are packed",
        (
            f"{FILES}::test_what_reads_the_files_stays_for_the_next_time_and_may_be_killed",
            f"{SAVED}::test_a_call_whose_effects_are_lost_while_they_are_saved_is_made_again",
            f"{LOST}::test_without_its_files_the_session_is_lost",
        ),
    ),
    Row(
        "a layer is stored in part",
        (f"{FILES}::test_what_reads_the_files_stays_for_the_next_time_and_may_be_killed",),
    ),
    Row("a state is stored, and nothing names it", (UNANSWERED,)),
    Row(
        "a state is named by an answer, and its turn is not stored",
        (
            f"{SAVED}::test_both_workers_die_and_the_journal_knows_the_state",
            f"{SAVED}::test_only_the_calls_after_the_last_state_are_repeated",
        ),
    ),
    Row(
        "the store is full, slow or gone",
        (
            f"{FILES}::test_what_cannot_be_saved_leaves_the_older_state_and_a_container_that_works",
            f"{BUCKET}::test_a_frozen_store_is_given_up_and_an_unknown_one_refused",
        ),
    ),
    Row(
        "the agent worker dies", ("faults/test_journal.py::test_another_agent_worker_goes_on_where_one_died",)
    ),
    Row(
        "the resource worker dies, also while it restores",
        (
            f"{STATES}::test_a_fork_whose_worker_dies_is_restored_again",
            f"{LOST}::test_one_that_is_killed_while_it_is_prepared_or_restored_is_made_again",
        ),
    ),
    Row(
        "both die",
        (
            f"{SAVED}::test_both_workers_die_and_the_journal_knows_the_state",
            f"{KILLED}::test_a_box_goes_on_with_its_files_when_it_and_its_workers_are_killed",
        ),
    ),
    Row(
        "a frozen worker wakes",
        (
            f"{KILLED}::test_another_worker_takes_over_from_one_that_is_frozen",
            "faults/test_journal.py::test_an_agent_worker_that_was_frozen_is_overtaken_and_stops",
        ),
    ),
    Row(
        "what was saved is damaged or gone",
        (
            f"{SAVED}::test_parts_are_checked_and_stay_in_their_folder",
            f"{SAVED}::test_without_what_was_saved_the_rollout_starts_anew_and_says_why",
            f"{STATES}::test_without_the_saved_state_the_calls_are_repeated",
        ),
    ),
    Row(
        "the base has changed",
        (f"{FILES}::test_another_container_gets_the_files_and_only_changes_are_stored",),
    ),
    Row(
        "a server ran in the background",
        (
            f"{SAVED}::test_only_the_calls_after_the_last_state_are_repeated",
            f"{LOST}::test_what_ran_in_a_lost_container_is_named",
        ),
        "environments start it again in on_restore; the rows of mini_swe_agent name what was lost, if its "
        "command said that it goes on; the model is not told, for repeated calls must answer as they did",
    ),
    Row("the disk of a cache is full", (), "layers are not cached: each is read from the store"),
    Row(
        "hostile files",
        (
            f"{FILES}::test_hostile_files_reach_nothing_outside_and_cost_no_memory",
            f"{FILES}::test_a_forged_layer_reaches_nothing_but_its_own_container",
        ),
    ),
    Row(
        "the box is killed during a command",
        (
            f"{LOST}::test_a_command_whose_container_is_killed_runs_again_with_the_same_files",
            f"{LOST}::test_a_command_that_ends_its_container_is_told_so",
        ),
    ),
    Row(
        "the box is killed while it is judged",
        (
            "sandbox/test_killed_sandboxes.py::test_a_patch_is_judged_though_the_box_of_its_tests_is_killed",
            "sandbox/test_killed_sandboxes.py::test_podman_kill_is_no_end_of_tests",
        ),
    ),
    Row(
        "a program dies while it is fed",
        (
            f"{RESUMED}::test_one_that_is_killed_while_it_is_fed_begins_again",
            f"{RESUMED}::test_one_that_is_killed_again_and_again_fails",
        ),
    ),
    Row("a program diverges", (f"{RESUMED}::test_one_that_does_not_repeat_itself",)),
    Row(
        "a question more beside the conversation",
        (f"{RESUMED}::test_a_new_question_beside_a_conversation_is_asked",),
    ),
    Row(
        "a fork whose parent's turns are gone",
        (f"{FORKS}::test_what_cannot_be_forked_is_refused_in_one_line",),
    ),
    Row(
        "before, during and after a create",
        (
            f"{LEASES}::test_no_box_is_lost_and_the_budget_holds",
            "boxes/test_killed_workers.py::test_no_box_is_lost_when_workers_are_killed",
        ),
    ),
    Row(
        "the service ends a box, or its renewal is lost",
        (
            "boxes/test_containers.py::test_a_box_that_is_gone_is_the_end_of_its_container",
            f"{LEASES}::test_a_later_owner_gets_the_box_and_the_earlier_one_is_fenced",
        ),
    ),
    Row(
        "the reaper dies",
        (f"{LEASES}::test_what_a_reaper_decides", f"{LEASES}::test_no_box_is_lost_and_the_budget_holds"),
    ),
)
CHECKS = (
    Row(
        "1 an overlay of 64 layers costs no more than 5 ms of CPU",
        ("boxes/test_providers.py::test_sixty_four_layers_cost_no_processor_time",),
    ),
    Row(
        "2 saving 1 MB of 1 GB: 30 ms of CPU; nothing: 5 ms",
        (f"{FILES}::test_without_changes_nothing_is_stored_and_the_end_of_the_container_is_seen",),
        "reached with an image; without one 50 and 40 ms: all files are looked at (tests/bench/saving.py)",
    ),
    Row(
        "3 saving 100 MB: 1 s of CPU; restoring from the store: 1 s",
        (f"{FILES}::test_large_changes_are_stored_in_parts",),
        "0.4 s and 0.8 s (tests/bench/saving.py); 32 MiB are the most where a container packs by itself",
    ),
    Row(
        "4 64 forks of 100 MB: 1 s, 0.3 s of CPU, 20 KB each",
        ("boxes/test_providers.py::test_forks_on_this_machine_copy_nothing_and_cannot_reach_each_other",),
        "0.8 s, and 0.6 s of CPU with their ends (tests/bench/boxes.py)",
    ),
    Row(
        "5 200 rollouts in containers, a worker killed every 5 s",
        (
            f"{KILLED}::test_harnesses_go_on_whatever_is_killed",
            "faults/test_killed_containers.py::test_hardly_a_call_is_repeated_in_a_box_whose_worker_is_killed",
        ),
        "CPU is 4 ms a turn: 5 % where a turn costs 80 ms, 11 % of these (test_cost_of_durability.py)",
    ),
    Row(
        "6 each fault is a test; schedules of kills in virtual time",
        (
            "runtime/workers/test_simulation.py::test_whatever_befalls_a_system_every_rollout_ends_once_and_nothing_is_left",
            "runtime/workers/test_simulation.py::test_lost_sessions_go_on_from_what_they_have_saved",
            f"{LEASES}::test_no_box_is_lost_and_the_budget_holds",
        ),
    ),
    Row(
        "7 a hostile box reaches nothing, and costs the worker 64 MB at most",
        (f"{FILES}::test_hostile_files_reach_nothing_outside_and_cost_no_memory",),
    ),
    Row(
        "8 no path of the worker is seen in a box",
        (
            "sandbox/test_containers.py::test_files_variables_descriptors_and_processes_of_the_worker_are_hidden",
            "boxes/test_providers.py::test_forks_on_this_machine_copy_nothing_and_cannot_reach_each_other",
        ),
    ),
    Row(
        "9 Claude Code and Codex, killed at any call, ask and read what they did before",
        (
            f"{KILLED}::test_harnesses_go_on_whatever_is_killed",
            f"{RESUMED}::test_what_the_model_reads_of_the_past_is_what_it_read_before",
            "faces/recordings/test_past_calls.py::test_what_differs_between_any_two_runs_is_left_out",
        ),
    ),
    Row(
        "10 a store that is away fails no rollout; nothing is left",
        (
            f"{BUCKET}::test_a_frozen_store_is_given_up_and_an_unknown_one_refused",
            f"{BUCKET}::test_parts_are_checked_and_deleted_with_their_rollout",
            "faults/test_residue.py::test_nothing_is_left_of_a_finished_run",
        ),
    ),
    Row(
        "11 leases at a service with faults",
        (
            f"{LEASES}::test_no_box_is_lost_and_the_budget_holds",
            "boxes/test_killed_workers.py::test_no_box_is_lost_when_workers_are_killed",
        ),
    ),
    Row(
        "12 forks share what they begin with; advantages are as defined",
        (
            "runtime/messages/test_branches.py::test_a_tree_is_stored_once",
            f"{FORKS}::test_the_tokens_of_shared_turns_come_along_and_can_be_masked",
            "runtime/rollout/test_trees.py::test_steps_are_differences_of_values",
            "runtime/rollout/test_trees.py::test_a_tree_without_forks_is_a_group",
        ),
    ),
    Row(
        "13 what saves nothing is as before on the wire",
        ("runtime/messages/test_bytes.py::test_every_message_has_golden_bytes",),
    ),
)


@pytest.mark.parametrize("row", [*FAULTS, *CHECKS], ids=lambda row: row.what)
def test_each_promise_has_its_test_or_says_what_it_lacks(row: Row) -> None:
    assert row.tests or row.lacks
    for test in row.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / path).read_text(), test
