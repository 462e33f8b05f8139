"""Values made by columns are as if each had been made by itself."""

from dataclasses import FrozenInstanceError
from itertools import repeat

import pytest

from gpuctl.model.columns import of_columns, of_rows
from gpuctl.model.decision import Pending, Reason, RunRecord
from gpuctl.model.ids import JobId, ProjectName

JOBS = [JobId(ProjectName("a"), "x"), JobId(ProjectName("a"), "y")]
RECORDS = [RunRecord(1), RunRecord(2)]
WHY = Reason(code="GPU6001")


def test_many_are_equal_to_those_made_one_by_one_and_as_immutable() -> None:
    made = of_columns(Pending, 2, job=JOBS, reason=repeat(WHY), record=RECORDS, reserved=repeat(None))
    assert made == [Pending(job=job, reason=WHY, record=record) for job, record in zip(JOBS, RECORDS, strict=True)]
    with pytest.raises(FrozenInstanceError):
        made[0].reason = WHY  # type: ignore[misc]


def test_none_is_made_without_one_of_its_fields() -> None:
    with pytest.raises(ValueError, match="not the fields of Pending"):
        of_columns(Pending, 2, job=JOBS, reason=repeat(WHY), record=RECORDS)


def test_named_tuples_of_rows_are_equal_to_those_made_one_by_one() -> None:
    made = of_rows(RunRecord, [(1, 2, 3, None), RECORDS[1]])
    assert made == [RunRecord(1, 2, 3), RunRecord(2)]
    assert all(type(each) is RunRecord for each in made)
