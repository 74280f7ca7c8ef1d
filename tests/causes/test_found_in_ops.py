"""Causes that the ops of a step show, on made-up facts: there with their bound, and not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixes.facts import facts, op, product
from gobrrr.causes.naming import causes_of
from gobrrr.diagnosis.facts import RankFact
from gobrrr.observe.program_facts import (
    CallFact,
    DataParallelFact,
    MadeFact,
    NoteFact,
    PaddingFact,
    ProgramFacts,
)

DECODING = "def decode(cache, k):\n    return torch.cat([cache, k], 1)\n"
READING = "for row in rows:\n    total += row.item()\n"
TRAINING = "for x in data:\n    x = checkpoint(layer, x)\n    loss.backward()\n"


def program(**more):
    return ProgramFacts(**({"plain_s": 10.0, "windows": 10, "notes_taken": 100} | more))


@pytest.fixture
def line(tmp_path, monkeypatch):
    """A file with these lines; gives ``file.py:2 in f`` of a line."""
    monkeypatch.chdir(tmp_path)

    def written(text, number=2):
        (tmp_path / "train.py").write_text(text)
        return f"{tmp_path / 'train.py'}:{number} in f"

    return written


def names(given):
    return [finding.fix for finding in causes_of(given)]


def only(given):
    (finding,) = causes_of(given)
    assert finding.words and finding.remedy and finding.because.endswith(".")
    return finding


# Padding


def padded(share, calls=10, given="mask"):
    return tuple(PaddingFact(given, "train.py:3 in f", round(1000 * share), 1000)
                 for _ in range(calls))  # fmt: skip


WORK = (product(kernel_s=0.8), op("aten::add_", phase="optimizer", kernel_s=0.2))


def test_padding_saves_its_share_of_the_kernels_without_the_optimizer():
    found = only(facts(WORK, program=program(padding=padded(0.6))))
    assert found.fix == "padding" and found.sources == ["train.py:3 in f"]
    assert "60 %" in found.because
    assert found.prediction.high_s == pytest.approx(0.6 * 0.8)
    # A mask says more than what tokens look like.
    both = padded(0.0) + padded(0.6, given="tokens")
    assert names(facts(WORK, program=program(padding=both))) == []


def test_little_padding_or_packed_sequences_are_no_cause():
    assert names(facts(WORK, program=program(padding=padded(0.1)))) == []
    assert names(facts(WORK, program=program(padding=padded(0.6, calls=2)))) == []
    packed = (*WORK, op("aten::_nested_tensor_from_mask"))
    assert names(facts(packed, program=program(padding=padded(0.6)))) == []


# A cache that is concatenated


def cats(lengths, source, varies=None, in_module="attention"):
    ops = []
    for number, length in enumerate(lengths):
        given = ((8, length, 64), (8, 1, 64))
        made = op("aten::cat", given, source=source, module=in_module, kernel_s=0.05,
                  varies=varies, writes=((900 + number, 4.0 * 8 * (length + 1) * 64),))  # fmt: skip
        ops.append(made)
    return tuple(ops)


def test_a_cache_that_grows_within_a_step_is_named(line):
    where = line(DECODING)
    found = only(facts(cats(range(50, 60), where)))
    assert found.fix == "concatenated_cache" and found.sources == [where]
    assert 0.45 < found.prediction.high_s < 0.5
    # Windows of one length, and a training step, are none.
    assert names(facts(cats([50] * 10, where))) == []
    assert names(facts((*cats(range(50, 60), where), op("aten::mm", phase="backward")))) == []


def test_a_cache_of_the_step_before_is_named_where_a_step_is_one_token(line):
    where = line(DECODING)
    assert names(facts(cats([50], where, varies=True))) == ["concatenated_cache"]
    assert names(facts(cats([50], where, varies=False))) == []


def test_tensors_of_like_sizes_are_no_cache(line):
    ops = tuple(
        op("aten::cat", ((8, n, 64), (8, n, 64)), source=line(DECODING), kernel_s=0.1, varies=True)
        for n in range(8)
    )
    assert names(facts(ops)) == []


def test_features_that_are_put_beside_others_are_no_cache(line):
    def beside(*shapes):
        return (op("aten::cat", shapes, source=line(DECODING), kernel_s=0.1, varies=True),)

    assert names(facts(beside((900, 64), (900, 3)))) == []
    assert names(facts(beside((8, 900, 64), (8, 900, 3)))) == []
    assert names(facts(beside((900, 64), (3, 64)))) == []
    assert names(facts(beside((0,), (8, 900, 64), (8, 1, 64)))) == ["concatenated_cache"]


# A history that is concatenated


def history(**more):
    return op("aten::cat", ((5_000_000,), (500_000,)), source="train.py:61 in main", kernel_s=0.3,
              **more)  # fmt: skip


def test_what_grows_from_step_to_step_is_named_in_training_too():
    step = (op("aten::mm", phase="backward", kernel_s=0.5), history(grows=True))
    found = only(facts(step))
    assert found.fix == "concatenated_history" and found.sources == ["train.py:61 in main"]
    assert "5,000,000 values (20.0 MB)" in found.because and "500,000" in found.because
    assert found.prediction.expected_s == pytest.approx(0.3 * 10 / 11)
    assert names(facts((step[0], history(varies=True)))) == []
    # Where the times are not the program's, neither is what it takes.
    (told,) = causes_of(facts(step), trusted=False)
    assert "300 ms" in found.because and "300 ms" not in told.because
    assert "cannot be told" in told.because and told.prediction is told.cause_share is None


# Experts


def experts(number, chained=False, path="moe.experts.{}"):
    ops = []
    for i in range(number):
        read = 100 + i if chained else 100
        ops.append(
            product("aten::addmm", kernel_s=0.01, roof_s=0.001, reads=((read, 4e4),),
                    writes=((101 + i, 4e4),), module=path.format(i), source="moe.py:9 in forward",
                    host_s=0.03, fixed_s=0.01)
        )  # fmt: skip
    return tuple(ops)


def test_experts_in_a_loop_are_named_with_what_their_number_costs():
    found = only(facts(experts(8)))
    assert found.fix == "loop_over_modules" and found.sources == ["moe.py:9 in forward"]
    fewer = 8 * 0.04 * 7 / 8
    assert found.prediction.expected_s >= 0.8 * fewer
    assert found.prediction.high_s == pytest.approx(fewer + 8 * 0.009)


def test_layers_one_after_the_other_and_few_experts_are_none():
    assert names(facts(experts(8, chained=True))) == []
    assert names(facts(experts(3))) == []


def test_a_projection_of_each_layer_is_no_expert():
    """Each of one thing that is there for all, within layers that need each other."""
    ops = []
    for i in range(8):
        inner = {"source": "dit.py:9 in forward", "kernel_s": 0.01, "host_s": 0.03}
        ops += [
            product("aten::addmm", roof_s=0.001, reads=((99, 4e4),),
                    writes=((300 + i, 4e4),), module=f"blocks.{i}.modulation", **inner),
            op("aten::add", reads=((100 + i, 4e4), (300 + i, 4e4)), writes=((101 + i, 4e4),),
               module=f"blocks.{i}", phase="forward"),
        ]  # fmt: skip
    assert names(facts(ops)) == []


def test_modules_of_other_shapes_are_no_experts():
    def heads(name, *shapes):
        return [product(name, shapes=shape, module=f"heads.{i}", kernel_s=0.01, roof_s=0.001,
                        host_s=0.03, writes=((400 + i, 4e4),), source="ssd.py:9 in forward")
                for i, shape in enumerate(shapes)]  # fmt: skip

    tokens = [((8 + i, 64), (64, 64)) for i in range(8)]
    assert names(facts(heads("aten::mm", *tokens))) == ["loop_over_modules"]
    assert names(facts(heads("aten::mm", *(((8, 64), (64, 8 + i)) for i in range(8))))) == []
    maps = [((8, 64, 2**i, 2**i), (64, 64, 3, 3)) for i in range(1, 9)]
    assert names(facts(heads("aten::convolution", *maps))) == []


# One call for each sample


def called(number, *, chained=False, between=()):
    ops = []
    for i in range(number):
        read = 100 + i if chained else 100
        ops += [
            *(between if i == number // 2 else ()),
            product("aten::addmm", kernel_s=0.01, roof_s=0.001, reads=((read, 4e4),),
                    writes=((101 + i, 4e4),), module="head", source="train.py:9 in f",
                    host_s=0.03, fixed_s=0.01),
        ]  # fmt: skip
    return tuple(ops)


def test_a_module_called_for_each_sample_is_named():
    found = only(facts(called(16)))
    assert found.fix == "per_sample_loop" and found.sources == ["train.py:9 in f"]
    assert found.verify == "gobrrr fix --only vectorise_loop"
    assert found.prediction.high_s == pytest.approx(16 * 0.04 * 15 / 16 + 16 * 0.009)


def test_a_recurrence_micro_batches_and_a_few_calls_are_none():
    assert names(facts(called(16, chained=True))) == []
    assert names(facts(called(4))) == []
    backward = product("aten::mm", kernel_s=0.0, phase="backward")
    assert names(facts(called(16, between=(backward,)))) == []


# Numbers from Python


def made(given="list of numbers", elements=10_000):
    return program(
        made=(MadeFact("tensor", "train.py:5 in f", given, elements, 0.3),),
        recorded=1,
        notes_taken=9,
    )


def test_numbers_counted_out_by_python_are_named():
    found = only(facts(leaves={"overhead.python": 0.8}, program=made()))
    assert found.fix == "tensor_from_python" and found.sources == ["train.py:5 in f"]
    assert found.prediction.high_s == pytest.approx(0.3)
    few = made(elements=200)
    assert names(facts(leaves={"overhead.python": 0.8}, program=few)) == []
    arrays = made("array")
    assert names(facts(leaves={"overhead.python": 0.8}, program=arrays)) == []


def test_what_no_look_has_seen_takes_no_part_of_the_step():
    """The recorded step was interrupted there."""
    known = replace(made(), notes_taken=100)
    assert names(facts(leaves={"overhead.python": 0.8}, program=known)) == []
    seen = (NoteFact("train.py:5 in g", "", "", "", 20, 0.2),)
    found = only(facts(leaves={"overhead.python": 0.8}, program=replace(known, notes=seen)))
    assert found.prediction.high_s == pytest.approx(0.21)


def test_looks_see_the_lists_that_are_given_ready(line):
    where = line("rows = [\n    [j > i for j in range(9)]\n]\nmask = torch.tensor(rows)\n", 4)
    notes = (NoteFact(where.replace(":4", ":2"), "", "", "", 50, 0.5),)
    known = program(
        made=(MadeFact("tensor", where, "list of numbers", 10_000, 0.1),),
        recorded=1,
        notes_taken=9,
        notes=notes,
    )
    found = only(facts(leaves={"overhead.python": 0.8}, program=known))
    assert found.prediction.high_s == pytest.approx(0.5)


# Values read in a loop


def reads(source, number, **more):
    one = op("aten::_local_scalar_dense", ((),), source=source, host_s=0.004, fixed_s=0.001, **more)
    return (one,) * number


def test_values_read_one_by_one_are_named(line):
    where = line(READING)
    found = only(facts(reads(where, 100)))
    assert found.fix == "sync_in_loop" and found.sources == [where]
    assert found.prediction.high_s == pytest.approx(0.5 * 99 / 100)


def test_a_few_reads_or_an_optimizer_s_are_none(line):
    where = line(READING)
    assert names(facts(reads(where, 4))) == []
    assert names(facts(reads(where, 100, phase="optimizer"))) == []
    assert names(facts(reads(line("x = 1\noptimizer.update()\n"), 100))) == []


# Activation checkpointing


def trained(source, *, again, twice=False):
    """One layer; ``twice``: its gradient is to be differentiated."""

    def layer(name, phase, shapes=((512, 512), (512, 512)), **more):
        return product(name, kernel_s=0.2, roof_s=0.2, phase=phase, source=source, shapes=shapes,
                       **more)  # fmt: skip

    transposed = ((64, 512), (512, 512))
    return (
        layer("aten::addmm", "forward"),
        *((layer("aten::addmm", "backward", records=True),) if again else ()),
        layer("aten::mm", "backward", transposed, records=twice),
        layer("aten::mm", "backward", transposed, records=twice),
    )


def test_what_is_computed_again_is_named_where_memory_would_hold_it(line):
    where = line(TRAINING)
    known = {"program": program(max_rss_bytes=10**9), "trains": True}
    found = only(facts(trained(where, again=True), memory_bytes=10**10, **known))
    assert found.fix == "needless_checkpointing"
    assert found.sources == [where.replace(" in f", " in <module>")]
    assert found.prediction.high_s == pytest.approx(0.2)
    assert found.verify == "gobrrr fix --only no_checkpointing"
    assert names(facts(trained(where, again=False), memory_bytes=10**10, **known)) == []
    # Memory is nearly full: it is needed.
    assert names(facts(trained(where, again=True), memory_bytes=1.2 * 10**9, **known)) == []


ROOM = {"program": program(max_rss_bytes=10**9), "trains": True, "memory_bytes": 10**10}


def test_of_checkpoints_those_that_save_a_file_are_not_meant(line):
    where = line("save_checkpoint(model)\nloss = step(x)\nx = checkpoint(layer, x)\n")
    at_third = [where.replace(":2 in f", ":3 in <module>")]
    assert only(facts(trained(where, again=True), **ROOM)).sources == at_third


def test_in_another_file_only_what_turns_checkpoints_on_is_meant(line, tmp_path):
    (tmp_path / "other.py").write_text("checkpoint(model)\nnet.gradient_checkpointing_enable()\n")
    where = line("loss = step(x)\nx = layer(x)\n")
    other = op("aten::mul", source=f"{tmp_path / 'other.py'}:1 in f", phase="forward")
    found = only(facts((other, *trained(where, again=True)), **ROOM))
    assert found.sources == [f"{tmp_path / 'other.py'}:2 in <module>"]


def test_of_a_gpu_what_its_tensors_held_tells(line):
    ops = trained(line(TRAINING), again=True)
    known = {"trains": True, "device_kind": "cuda", "memory_bytes": 10**10}
    held = {"max_rss_bytes": 10**12, "max_device_bytes": 10**9}
    assert names(facts(ops, program=program(**held), **known)) == ["needless_checkpointing"]
    full = program(max_device_bytes=9 * 10**9)
    assert names(facts(ops, program=full, **known)) == []
    assert names(facts(ops, program=program(), **known)) == []


def test_a_gradient_that_is_differentiated_again_is_not_computed_again(line):
    ops = trained(line(TRAINING), again=True, twice=True)
    known = {"program": program(max_rss_bytes=10**9), "trains": True}
    assert names(facts(ops, memory_bytes=10**10, **known)) == []


# Ranks


def accumulated(passes, *, calls=None, unused=None, find=False, n_bytes=10_000, buffers=False,
                python_s=0.0, **more):  # fmt: skip
    wrapped = DataParallelFact("Net", find, unused, n_bytes, 1, 2, syncs_buffers=buffers)
    kinds = (CallFact("DistributedDataParallel", 0, True, True, "train.py:9 in f",
                      10 * (calls or passes), 1.0, 0.1),)  # fmt: skip
    ops = ([product(), product(phase="backward")] * passes) + [op("aten::add_", phase="optimizer")]
    known = program(data_parallel=(wrapped,), calls=kinds, **more)
    leaves = {"memory.network": 0.3, "memory.network_wait": 0.1, "overhead.python": python_s}
    return facts(ops, leaves=leaves, program=known)


def test_all_but_the_last_average_of_an_accumulation_are_saved(line):
    where = line(TRAINING, 3)
    found = only(accumulated(4, notes=(NoteFact(where, "", "", "", 9, 0.5),)))
    assert found.fix == "no_sync" and found.sources == [where]
    assert found.prediction.high_s == pytest.approx(0.4 * 3 / 4)
    # For a rank that is slow the others wait at the last average as well.
    assert found.prediction.expected_s == pytest.approx(0.9 * 0.3 * 3 / 4)
    assert names(accumulated(1)) == []


def test_calls_inside_no_sync_or_before_one_backward_pass_are_none():
    kinds = (
        CallFact("DistributedDataParallel", 0, True, True, "train.py:9 in f", 30, 1.0, 0.1, False),
        CallFact("DistributedDataParallel", 0, True, True, "train.py:9 in f", 10, 1.0, 0.1),
    )
    given = accumulated(4)
    quiet = program(data_parallel=given.program.data_parallel, calls=kinds)
    assert names(facts(given.ops, leaves=given.leaves, program=quiet)) == []
    assert names(accumulated(1, calls=2)) == []


def test_two_modules_with_a_backward_pass_each_are_no_accumulation():
    calls = [CallFact("DistributedDataParallel", n, True, True, "gan.py:9 in f", 10, 1.0, 0.1)
             for n in (0, 1)]  # fmt: skip
    wraps = [DataParallelFact("Net", False, None, size, 1, 2, n) for n, size in ((0, 10), (1, 70))]
    given = accumulated(2)
    pair = program(data_parallel=tuple(wraps), calls=tuple(calls))
    assert names(facts(given.ops, leaves=given.leaves, program=pair)) == []
    # One of them twice before an update: its bytes.
    calls[1] = CallFact("DistributedDataParallel", 1, True, True, "gan.py:9 in f", 20, 1.0, 0.1)
    twice = program(data_parallel=tuple(wraps), calls=tuple(calls))
    assert "(70.0 B)" in only(facts(given.ops, leaves=given.leaves, program=twice)).because


def test_looking_for_unused_parameters_is_named_where_there_are_none(line):
    where = line("import x\nmodel = DDP(net, find_unused_parameters=True)\n")
    notes = (NoteFact(where.replace(":2", ":1"), "", "torch.nn.parallel.distributed", "", 20, 0.2),)
    found = only(accumulated(1, find=True, unused=0, notes=notes))
    assert found.fix == "find_unused_parameters"
    assert found.sources == [where.replace(" in f", " in <module>")]
    # A fifth of a second for each step, and one of two all-reduces.
    assert found.prediction.high_s == pytest.approx(0.2 + 0.4 / 2)
    large = only(accumulated(1, find=True, unused=0, n_bytes=10**8, notes=notes))
    assert large.prediction.high_s == pytest.approx(0.2)
    assert names(accumulated(1, find=True, unused=0, n_bytes=10**8)) == []
    # Buffers are sent around by the same file: that is a wait for the network.
    sends = {"find": True, "unused": 0, "n_bytes": 10**8, "buffers": True, "notes": notes}
    assert names(accumulated(1, **sends)) == []
    assert names(accumulated(1, python_s=0.1, **sends)) == ["find_unused_parameters"]
    assert names(accumulated(1, find=True, unused=400, notes=notes)) == []
    assert names(accumulated(1, find=False, unused=0, notes=notes)) == []


def turns(waits, uneven_s=0.15, **more):
    ranks = tuple(RankFact(n, 1.0, wait) for n, wait in enumerate(waits))
    return facts(ranks=ranks, uneven_s=uneven_s, **more)


def test_ranks_that_take_turns_are_named_without_a_culprit():
    found = only(turns((0.2, 0.1)))
    assert found.fix == "unequal_work" and found.sources == []
    assert found.prediction.high_s == pytest.approx(0.15)
    assert "rank 0 200 ms, rank 1 100 ms" in found.because
    # One is late in most steps; all have as much to do; nobody knows.
    assert names(turns((0.2, 0.1), slowest_rank=1)) == []
    assert names(turns((0.2, 0.1), uneven_s=0.02)) == []
    assert names(turns((0.2, 0.1), uneven_s=None)) == []


def test_of_devices_sizes_that_differ_tell_of_unequal_work():
    on_gpu = {"device_kind": "cuda", "uneven_s": 0.0}
    assert names(turns((0.2, 0.2), varying=True, **on_gpu)) == ["unequal_work"]
    assert names(turns((0.2, 0.2), **on_gpu)) == []
