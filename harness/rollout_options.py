"""What a rollout is told, and what is refused before it begins."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from harness.group import AdmissionOptions
from harness.outcome import Record

STREAK_BATCHES = 4
"""So many batches' worth of groups in a row may abort, unless the options say otherwise."""


class RolloutOptions(Record):
    """Raises pydantic's ValidationError, a ValueError, which names each bad value.

    n: attempts of a group. batch_size: groups of an optimiser step. retries: of an attempt that ended aborted or ungraded.
    max_groups_in_flight: groups that run at a time, and in a stream also those that wait for the trainer; None: the batch size.
    max_consecutive_aborted_groups: None: 4 × the batch size; 0 disables it.
    max_consecutive_unused_groups: groups in a row without use for the trainer, also those without a signal; 0 disables it.
    quarantine_after: groups in a row of one task that have no grade, while other tasks' have; 0 disables it.
    max_attempts: the rollout's budget: no group begins that would exceed it; retries count. None: none.
    """

    n: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    retries: int = Field(default=1, ge=0)
    admission: AdmissionOptions = AdmissionOptions()
    max_groups_in_flight: int | None = Field(default=None, ge=1)
    max_consecutive_aborted_groups: int | None = Field(default=None, ge=0)
    max_consecutive_unused_groups: int = Field(default=0, ge=0)
    quarantine_after: int = Field(default=3, ge=0)
    max_attempts: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _can_yield(self) -> Self:
        admission = self.admission
        if admission.partial is not None and admission.partial.min_k > self.n:
            raise ValueError(f"partial: min_k {admission.partial.min_k} is more than the {self.n} attempts of a group")
        if self.n == 1 and not (admission.train_on_zero_advantage and admission.train_on_all_fail):
            raise ValueError(
                "a group of one attempt has nothing to be compared with, so none would be admitted. Raise n, "
                "or set train_on_zero_advantage and train_on_all_fail"
            )
        return self

    @property
    def groups_in_flight(self) -> int:
        return self.max_groups_in_flight or self.batch_size

    @property
    def aborted_limit(self) -> int:
        """How many groups in a row may abort, resolved; 0: any number."""
        if self.max_consecutive_aborted_groups is None:
            return STREAK_BATCHES * self.batch_size
        return self.max_consecutive_aborted_groups
