"""Causes of single lines: what else the line or its function does is no part of them."""

from __future__ import annotations

import pytest

from causes.test_found_in_ops import line, names, only, program, reads
from fixes.facts import facts, op
from gobrrr.observe.program_facts import MadeFact, NoteFact

__all__ = ["line"]

ROLLOUT = """def f():
    for t in range(128):
        outs = [env.step(a) for env, a in zip(envs, acts)]
        rewards.append([o[1] for o in outs])
    return torch.tensor(rewards)
"""
APPENDED = """def f(n):
    rows = []
    for i in range(n):
        rows.append([float(j > i) for j in range(n)])
    return torch.tensor(rows)
"""


def looked_at(where, *notes):
    made = (MadeFact("tensor", where, "list of numbers", 10_000, 0.1),)
    return facts(leaves={"overhead.python": 0.8}, program=program(
        made=made, recorded=1, notes_taken=9, notes=notes))  # fmt: skip


def test_what_an_environment_takes_is_no_counting(line):
    where = line(ROLLOUT, 5)
    found = only(looked_at(where, NoteFact(where.replace(":5", ":3"), "", "", "", 60, 0.6)))
    assert found.prediction.high_s == pytest.approx(0.1)
    assert "counts out" not in found.because


def test_what_a_library_takes_is_no_counting(line):
    where = line("ids = torch.tensor(tokenizer(texts).input_ids[range(3)])\n", 1)
    callee = "transformers.tokenization_utils_base.__call__"
    note = NoteFact(where, callee, "transformers", "", 60, 0.6)
    assert only(looked_at(where, note)).prediction.high_s == pytest.approx(0.1)


def test_a_list_that_is_appended_to_is_counted_out(line):
    where = line(APPENDED, 5)
    found = only(looked_at(where, NoteFact(where.replace(":5", ":4"), "", "", "", 50, 0.5)))
    assert found.prediction.high_s == pytest.approx(0.5)
    assert "Python counts out 10,000 numbers" in found.because


def test_a_comprehension_in_the_call_is_counted_out(line):
    where = line("x = torch.tensor([[j > i for j in range(n)] for i in range(n)])\n", 1)
    found = only(looked_at(where, NoteFact(where, "", "", "", 50, 0.5)))
    assert "counts out" in found.because and found.prediction.high_s == pytest.approx(0.5)


# Values read in a loop


def layers(source, number, path="{}", **more):
    ops = (op("aten::addmm", ((4, 4), (4, 4)), source=source, module=path.format(i),
              phase="forward", kernel_s=0.03, host_s=0.005, **more)
           for i in range(number))  # fmt: skip
    return tuple(ops)


READING_BATCHES = "for x, y in batches:\n    total += crit(model(x), y).item()\n"


def test_a_network_that_is_read_once_is_no_loop_of_reads(line):
    assert names(facts(layers(line("x = 1\npred = model(x).cpu()\n"), 20))) == []
    on_gpu = {"device_kind": "cuda", "leaves": {"overhead": 0.5}}
    assert names(facts(layers(line("x = 1\npred = model(x).cpu()\n"), 20, "0"), **on_gpu)) == []


def test_what_the_line_of_a_read_computes_is_not_saved(line):
    where = line(READING_BATCHES)
    notes = (NoteFact(where, "", "", "", 90, 0.9),)
    found = only(facts((*layers(where, 16, "0"), *reads(where, 16)), program=program(notes=notes)))
    assert found.fix == "sync_in_loop"
    assert found.prediction.high_s == pytest.approx(16 * 0.005 * 15 / 16)


def test_of_a_device_no_wait_for_kernels_is_saved(line):
    where = line("for x in batches:\n    total += loss.item()\n")
    notes = (NoteFact(where, "", "", "", 90, 0.9),)
    given = {"device_kind": "cuda", "program": program(notes=notes)}
    found = only(facts(reads(where, 16), leaves={"overhead.python": 0.05}, **given))
    assert found.prediction.high_s == pytest.approx(0.05 * 15 / 16)
    assert names(facts(reads(where, 16), leaves={"overhead.python": 0.02}, **given)) == []


def test_whole_tensors_read_in_a_loop_are_named(line):
    where = line("for i in range(64):\n    rows.append(x[i].tolist())\n")
    one = op("aten::select", ((64, 8),), source=where, host_s=0.004)
    assert names(facts((one,) * 64)) == ["sync_in_loop"]
    copy = op("aten::_to_copy", ((8,),), source=where, host_s=0.004)
    on_gpu = {"device_kind": "cuda", "leaves": {"memory.copies": 0.3}}
    assert names(facts((one, copy) * 64, **on_gpu)) == ["sync_in_loop"]
