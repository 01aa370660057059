"""Groups that begin, end, are consumed and discarded in any order: the counts add up, nothing partial slips through, the guard is exact."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from harness.group import Aborted, AdmissionOptions, Admitted, Cancelled, Group, Slot, admit, partial, wants_retry
from harness.guard import ConsecutiveAborts, Guard
from harness.outcome import DISPOSITIONS, Attribution, Cause, Ending
from harness.record import AttemptRecord
from harness.rollout import Rollout
from harness.rollout_options import RolloutOptions
from harness.tally import Tally
from tests.groups import Attempted, FakeRunner, on, record, task

N = 3
TASKS = st.sampled_from(["a", "c", "d", "e"])
ATTEMPTS = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0]).map(record),
    st.sampled_from(Cause).map(record),
    st.sampled_from([ending for ending in Ending if ending is not Ending.ABORTED]).map(record),
    st.sampled_from([Ending.TIMEOUT, Ending.TRUNCATION, Ending.MAX_STEPS]).map(lambda end: record(end, reward=0.0)),
    st.just(record(Ending.ERROR, reward=0.0, attribution=Attribution.POLICY)),
)
OPTIONS = st.builds(
    AdmissionOptions,
    train_on_zero_advantage=st.booleans(),
    train_on_all_fail=st.booleans(),
    train_on_truncation=st.booleans(),
    train_on_timeout=st.booleans(),
    train_on_error=st.booleans(),
    partial=st.none() | st.integers(1, N).map(partial),
)


def slot_from(attempts: list[AttemptRecord], retries: int) -> Slot:
    """A slot as running the attempts would have made it."""
    slot = [attempts[0]]
    for attempt in attempts[1:]:
        if not wants_retry(slot, retries):
            break
        slot.append(attempt)
    return tuple(slot)


class Groups(RuleBasedStateMachine):
    """Tally and guard, beside a model of what they should say."""

    admitted = Bundle("admitted")

    @initialize(options=OPTIONS, limit=st.integers(0, 4), retries=st.integers(0, 2))
    def begin(self, options: AdmissionOptions, limit: int, retries: int) -> None:
        self.options, self.limit, self.retries = options, limit, retries
        self.tally = Tally()
        self.guard = Guard(max_aborted=limit)
        self.running = self.begun = self.streak = 0
        self.attempts: Counter[Ending] = Counter()
        self.consumed: list[Admitted] = []
        self.waiting: list[Admitted] = []
        self.causes: Counter[Cause] = Counter()

    @rule()
    def group_begins(self) -> None:
        self.tally.group_began()
        self.running += 1
        self.begun += 1

    @precondition(lambda self: self.running)
    @rule(
        target=admitted, name=TASKS, slots=st.lists(st.lists(ATTEMPTS, min_size=1, max_size=3), min_size=N, max_size=N)
    )
    def group_ends(self, name: str, slots: list[list[AttemptRecord]]):
        group = Group("g", task(name), tuple(slot_from(slot, self.retries) for slot in slots))
        for slot in group.slots:
            assert 1 <= len(slot) <= self.retries + 1
            assert all(DISPOSITIONS[attempt.ending].retried and attempt.reward is None for attempt in slot[:-1])
            for attempt in slot:
                self.tally.attempt_began()
                self.tally.attempt_ended(attempt)
                self.attempts[attempt.ending] += 1
        outcome = admit(group, self.options)
        self.tally.group_ended(outcome)
        self.guard.ended(outcome)
        self.running -= 1
        match outcome:
            case Aborted():
                self.streak += 1
                self.causes[outcome.cause] += 1
            case Cancelled():
                pass
            case _:
                self.streak = 0
        if not isinstance(outcome, Admitted):
            return None
        self.check_admitted(outcome)
        self.waiting.append(outcome)
        return outcome

    def check_admitted(self, outcome: Admitted) -> None:
        assert all(attempt.reward is not None for attempt in outcome.attempts), "no reward without a grade"
        if len(outcome.attempts) < N:
            assert self.options.partial is not None, "no partial group without the option"
            assert len(outcome.attempts) >= self.options.partial.min_k
        if outcome.flat is not None:
            assert self.options.train_on_zero_advantage or self.options.train_on_all_fail

    @precondition(lambda self: self.running)
    @rule()
    def group_is_cancelled(self) -> None:
        self.tally.group_cancelled()
        self.running -= 1

    @rule(group=consumes(admitted))
    def trainer_takes_one(self, group: Admitted | None) -> None:
        if group is not None:
            self.tally.consumed(group)
            self.consumed.append(group)
            self.waiting.remove(group)

    @rule(group=consumes(admitted), stale=st.booleans())
    def one_is_discarded(self, group: Admitted | None, stale: bool) -> None:
        if group is not None:
            self.tally.discarded(group, stale=stale)
            self.waiting.remove(group)

    @rule()
    def step_ends(self) -> None:
        before = self.tally.total()
        self.tally.end_step()
        after = self.tally.total()
        assert after == before.model_copy(update={"completed_steps": before.completed_steps + 1})
        empty = self.tally.end_step()
        assert (empty.group_count, empty.trajectory_count, empty.termination_reasons) == (0, 0, {})

    @invariant()
    def counts_add_up(self) -> None:
        total = self.tally.total()
        fates = total.no_signal_groups + total.used_groups + total.discarded_groups + total.pending_groups
        fates += total.aborted_groups + total.ungraded_groups + total.cancelled_groups + total.running_groups
        assert fates == total.group_count == self.begun
        assert total.running_groups == self.running
        assert total.pending_groups == sum(group.flat is None for group in self.waiting)
        assert total.stale_groups + total.filtered_groups <= total.discarded_groups
        assert total.used_groups == sum(group.flat is None for group in self.consumed)
        assert total.consumed_groups == len(self.consumed)
        assert total.aborted == self.causes

    @invariant()
    def attempts_add_up(self) -> None:
        total = self.tally.total()
        assert total.termination_reasons == self.attempts
        graded = total.correct_count + total.partial_count + total.incorrect_count
        assert graded + total.ungraded_count == total.completed_count == self.attempts.total()

    @invariant()
    def the_guard_is_exact(self) -> None:
        assert self.guard.streak == self.streak
        failure = self.guard.failure([])
        assert (failure is not None) == (0 < self.limit <= self.streak)
        if isinstance(failure, ConsecutiveAborts):
            assert failure.count == self.streak == sum(failure.causes.values())


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase


# --- the same of a whole rollout, on a virtual clock

OUTCOMES: list[tuple[Attempted, ...]] = [
    (0.0, 1.0),
    (1.0, 1.0),
    (0.0, 0.0),
    (Cause.SANDBOX_LOST, 1.0),
    (Cause.SERVER_UNREACHABLE, Cause.SERVER_UNREACHABLE),
    (1.0, Ending.ERROR),
    (Ending.HARNESS_FAILED, 0.0),
]


@pytest.mark.parametrize("mode", ["batch", "stream"])
@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 5)), max_size=30),
    in_flight=st.integers(1, 6),
    batch_size=st.integers(1, 4),
    limit=st.none() | st.integers(0, 5),
    pause_s=st.integers(0, 10),
)
def test_whatever_groups_come_to_a_rollout_delivers_each_admitted_one_once_or_fails_by_its_guard(
    mode: str,
    script: list[tuple[tuple[Attempted, ...], int]],
    in_flight: int,
    batch_size: int,
    limit: int | None,
    pause_s: int,
):
    async def body() -> None:
        runner = FakeRunner(
            {f"t{number}": [outcome] for number, (outcome, _) in enumerate(script)},
            takes_s={f"t{number}": float(takes) for number, (_, takes) in enumerate(script)},
        )
        options = RolloutOptions(
            n=2, batch_size=batch_size, max_groups_in_flight=in_flight, max_consecutive_aborted_groups=limit
        )
        rollout = Rollout((task(f"t{number}") for number in range(len(script))), runner, options)
        taken: list[str] = []
        failed = False
        try:
            if mode == "batch":
                while batch := await rollout.batch():
                    taken += [admitted.group.task.name for admitted in batch]
                    await anyio.sleep(pause_s)
            else:
                async with rollout.stream() as groups:
                    async for admitted in groups:
                        taken.append(admitted.group.task.name)
                        await anyio.sleep(pause_s)
        except ConsecutiveAborts as error:
            failed = True
            assert error.count == options.aborted_limit
        total = rollout.summary()
        mixed = {f"t{number}" for number, (outcome, _) in enumerate(script) if outcome == (0.0, 1.0)}
        assert len(taken) == len(set(taken)) == total.used_groups
        assert set(taken) <= mixed
        if not failed:
            assert set(taken) == mixed
        assert runner.most_at_once <= in_flight
        assert len(runner.begun) == len(runner.ended) + len(runner.cancelled) == total.group_count
        assert (total.running_groups, total.pending_groups) == (0, 0)
        fates = total.no_signal_groups + total.used_groups + total.discarded_groups + total.aborted_groups
        assert fates + total.ungraded_groups + total.cancelled_groups == total.group_count

    on("clock", body)
