"""A case's process may die or hang; the sweep says which stage did and does the others."""

from __future__ import annotations

import os
import time

import pytest
from benchmarks.breadth.watching import Say, watch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
STAGES = ("first", "second", "third")


def _misbehaving(in_stage: str, misbehave: object):
    def work(stages: tuple[str, ...], say: Say) -> None:
        say("build", None)
        say("build", {"outcome": "runs"})
        for stage in stages:
            say(stage, None)
            if stage == in_stage:
                misbehave()
            say(stage, {"outcome": "predicted"})

    return work


def _outcomes(work, **options) -> dict[str, str]:
    return {stage: record["outcome"] for stage, record in watch(work, STAGES, **options).items()}


def test_all_stages_of_one_process():
    found = _outcomes(_misbehaving("none", print))
    assert found == {"build": "runs", **dict.fromkeys(STAGES, "predicted")}


def test_a_death_is_one_stage_and_the_others_are_done():
    records = watch(_misbehaving("second", os.abort), STAGES)
    assert records["second"] == {"outcome": "died", "sentence": "SIGABRT"}
    assert records["first"]["outcome"] == records["third"]["outcome"] == "predicted"


def test_an_exit_is_a_death():
    records = watch(_misbehaving("first", lambda: os._exit(3)), STAGES)
    assert records["first"] == {"outcome": "died", "sentence": "exit code 3"}


def _spin() -> None:
    while True:
        pass


def test_what_spins_is_ended():
    records = watch(_misbehaving("second", _spin), STAGES, limit_s=0.3)
    assert records["second"]["outcome"] == "timed out"
    assert "processor time" in records["second"]["sentence"]
    assert records["third"]["outcome"] == "predicted"


def test_what_sleeps_is_ended():
    started = time.monotonic()
    found = _outcomes(_misbehaving("third", lambda: time.sleep(600)), limit_s=0.1)
    assert found["third"] == "timed out"
    assert time.monotonic() - started < 60


def test_a_death_before_the_stages_ends_the_case():
    def work(stages: tuple[str, ...], say: Say) -> None:
        say("build", None)
        os.abort()

    assert _outcomes(work) == {"build": "died"}


def test_a_build_that_fails_is_told_once():
    def work(stages: tuple[str, ...], say: Say) -> None:
        say("build", None)
        say("build", {"outcome": "fails in PyTorch"})

    assert _outcomes(work) == {"build": "fails in PyTorch"}
