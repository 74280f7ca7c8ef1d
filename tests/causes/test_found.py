"""Each cause on made-up facts: there with its bound, and not there."""

from __future__ import annotations

import pytest

from fixes.facts import facts, op
from gobrrr.causes import catalogue
from gobrrr.causes.naming import LEAST_OF_WALL, causes_of
from gobrrr.diagnosis.facts import IdleFact, LoaderFact
from gobrrr.live.watch.loader_watch import ENDING_WORKERS, STARTING_WORKERS
from gobrrr.observe.program_facts import (
    CallFact,
    CollectionsFact,
    MadeFact,
    MarkFact,
    NoteFact,
    ProgramFacts,
    ThreadFact,
)
from gobrrr.timeline.step_kinds import WallTime

LINE = "train.py:7 in <module>"
LOADING = {"overhead.data_loading": 0.6, "compute.matrix.roof": 0.4}
IDLE = (IdleFact("data_loading", 0.6, LINE),)
IN_MEMORY = {
    "in_memory": True,
    "only_indexes": True,
    "dataset": "TensorDataset",
    "sample_bytes": 256,
}


def program(**more):
    return ProgramFacts(**({"plain_s": 10.0, "windows": 100, "notes_taken": 100} | more))


def making(fact):
    """One call in the recorded step, and too few looks to say that it was slow there alone."""
    return program(made=(fact,), recorded=1, notes_taken=9)


def note(share, line=LINE, callee="", inner="", within=""):
    return NoteFact(line, callee, inner, within, round(100 * share), share)


def call(training, gradients, share=0.3, index=0, went_back=None):
    return CallFact("Net", index, training, gradients, LINE, 10, 3.0, share, went_back=went_back)


def torchrun(ranks):
    return {
        "TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(ranks)
    }  # fmt: skip


PRESENT = {
    "workers_each_epoch": {
        "program": program(
            marks=(
                MarkFact(STARTING_WORKERS, LINE, 25, 3.0, 0.3),
                MarkFact(ENDING_WORKERS, LINE, 25, 1.0, 0.1),
            )
        )
    },
    "workers_for_memory": {
        "leaves": LOADING, "idle": IDLE, "loaders": (LoaderFact(2, False, 16, **IN_MEMORY),)
    },
    "sample_by_sample": {
        "leaves": LOADING, "idle": IDLE, "loaders": (LoaderFact(0, False, 256, **IN_MEMORY),)
    },
    "no_loader_workers": {
        "leaves": LOADING, "idle": IDLE, "loaders": (LoaderFact(0, False, 16),), "processors": 8
    },
    "image_decoding": {
        "loaders": (LoaderFact(0, False, 16),),
        "program": program(notes=(note(0.4, inner="PIL.ImageFile"),)),
    },
    "tokenizer_forks": {
        "leaves": LOADING, "idle": IDLE, "loaders": (LoaderFact(2, False, 16, tokenizes=True),),
        "program": program(),
    },
    "tensor_of_arrays": {
        "leaves": {"overhead.python": 0.8},
        "program": program(
            made=(MadeFact("tensor", LINE, "list of arrays", 1000, 0.5),), recorded=1, notes_taken=9
        ),
    },
    "tensor_of_tensor": {
        "program": making(MadeFact("tensor", LINE, "tensor", 1000, 0.5))
    },
    "garbage_collector": {
        "program": program(collections=(CollectionsFact(2, 10, 3.0, 0.4, 0.3, (LINE,), steps=40),))
    },
    "gc_collect_each_step": {
        "program": program(
            collections=(CollectionsFact(2, 100, 3.0, 0.4, 0.3, (LINE,), by_hand=True),)
        )
    },
    "more_threads_than_cores": {
        "leaves": {"compute.matrix.below": 0.9}, "threads": 16, "processors": 2
    },
    "one_thread_by_launcher": {
        "leaves": {"compute.matrix.roof": 0.9}, "threads": 1, "processors": 8,
        "program": program(environment=torchrun(2)),
    },
    "interpreter_lock": {
        "program": program(threads=(ThreadFact("featurizer", LINE, 0.7),), slept=0.4)
    },
    "progress_bar": {"program": program(notes=(note(0.2, inner="tqdm.std"),))},
    "logging_each_step": {"program": program(notes=(note(0.2, callee="logging.info"),))},
    "evaluation_with_gradients": {
        "trains": True,
        "program": program(calls=(call(True, True), call(False, True, went_back=False))),
    },
}  # fmt: skip
# The same without what makes it the cause.
ABSENT = {
    "workers_each_epoch": {
        "program": program(marks=(MarkFact(STARTING_WORKERS, LINE, 1, 3.0, 0.3),))
    },
    # Loaders for validation and for a test, begun at one line.
    "workers_each_epoch, persistent": {
        "program": program(
            marks=(MarkFact(STARTING_WORKERS, LINE, 2, 3.0, 0.3),),
            loaders=(LoaderFact(2, False, 16, True), LoaderFact(2, False, 8, True)),
        )
    },
    "workers_for_memory": {
        "leaves": LOADING,
        "loaders": (LoaderFact(2, False, 16, in_memory=True, only_indexes=False),),
    },
    "workers_for_memory, that collate": {
        "leaves": LOADING, "loaders": (LoaderFact(2, False, 16, collates=True, **IN_MEMORY),),
    },
    "workers_for_memory, of large samples": {
        "leaves": LOADING,
        "loaders": (LoaderFact(2, False, 16, **{**IN_MEMORY, "sample_bytes": 64e6}),),
    },
    "sample_by_sample": {
        "leaves": {"overhead.data_loading": 0.2, "compute.matrix.roof": 0.8},
        "loaders": (LoaderFact(0, False, None, **IN_MEMORY),),
    },
    "no_loader_workers": {
        "leaves": {"overhead.data_loading": 0.1, "compute.matrix.roof": 0.9},
        "loaders": (LoaderFact(0, False, 16),), "processors": 8,
    },
    "image_decoding": {"program": program(notes=(note(0.01, inner="PIL.ImageFile"),))},
    # Pictures that a program makes and writes.
    "image_decoding, saved": {"program": program(notes=(
        note(0.4, callee="PIL.Image.save", inner="PIL.ImageFile"),
    )), "loaders": (LoaderFact(0, False, 16),)},
    "image_decoding, made": {"program": program(notes=(note(0.4, inner="PIL.Image"),))},
    "tokenizer_forks": {
        "leaves": LOADING, "loaders": (LoaderFact(2, False, 16, tokenizes=True),),
        "program": program(environment={"TOKENIZERS_PARALLELISM": "false"}),
    },
    "tensor_of_arrays": {
        "leaves": {"overhead.python": 0.8},
        "program": program(
            made=(MadeFact("tensor", LINE, "list of numbers", 900, 0.5),), recorded=1, notes_taken=9
        ),
    },
    "tensor_of_tensor": {
        "program": making(MadeFact("as_tensor", LINE, "array", 1000, 0.5))
    },
    "tensor_of_tensor, as_tensor": {
        "program": making(MadeFact("as_tensor", LINE, "tensor", 1000, 0.5))
    },
    "tensor_of_tensor, converted": {
        "program": making(MadeFact("tensor", LINE, "tensor", 9, 0.5, True))
    },
    "garbage_collector, of two": {
        "program": program(collections=(CollectionsFact(2, 2, 3.0, 2.0, 0.3, (LINE,)),))
    },
    "garbage_collector": {
        "program": program(collections=(CollectionsFact(2, 1, 0.1, 0.1, 0.01, (LINE,)),))
    },
    "more_threads_than_cores": {
        "leaves": {"compute.matrix.below": 0.9}, "threads": 2, "processors": 2
    },
    # Four ranks, each with processors of its own.
    "more_threads_than_cores, pinned": {
        "leaves": {"compute.matrix.below": 0.9}, "threads": 8, "processors": 8,
        "program": program(environment={"LOCAL_WORLD_SIZE": "4"}, flags={"pinned": True}),
    },
    # Each rank has a processor of its own, and no more.
    "one_thread_by_launcher": {
        "leaves": {"compute.matrix.roof": 0.9}, "threads": 1, "processors": 2,
        "program": program(environment=torchrun(2)),
    },
    "one_thread_by_launcher, meant so": {
        "leaves": {"compute.matrix.roof": 0.1, "overhead.python": 0.9}, "threads": 1,
        "processors": 8, "program": program(environment={"OMP_NUM_THREADS": "1"}),
    },
    # The steps' thread sleeps because it waits for data.
    "interpreter_lock": {
        "leaves": LOADING,
        "program": program(threads=(ThreadFact("featurizer", LINE, 0.7),), slept=0.6),
    },
    # A bar that waits for a loader.
    "progress_bar": {
        "program": program(
            notes=(note(0.9, callee="tqdm.std.__iter__", inner="torch.utils.data.dataloader"),)
        )
    },
    "logging_each_step": {
        "program": program(notes=(note(0.2, callee="logging.info", within="torch.utils.data.x"),))
    },
    "evaluation_with_gradients": {
        "trains": True, "program": program(calls=(call(True, True), call(False, False)))
    },
    # An attack: the gradient of its input is what it is for.
    "evaluation_with_gradients, attacked": {
        "trains": True,
        "program": program(calls=(call(True, True), call(False, True, went_back=True))),
    },
    "evaluation_with_gradients, unknown": {
        "trains": True, "program": program(calls=(call(True, True), call(False, True)))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PRESENT)
def test_it_is_told_with_a_bound(name):
    (finding,) = causes_of(facts(**PRESENT[name]))
    assert finding.fix == name
    assert finding.words and finding.remedy and finding.because.endswith(".")
    saved = finding.of_wall or finding.prediction
    if name != "tokenizer_forks":
        low, high = (saved.low, saved.high) if finding.of_wall else (saved.low_s, saved.high_s)
        assert 0 <= low <= high <= 1.0
        assert 0 < finding.cause_share <= 1.0
    if "threads" not in PRESENT[name]:
        assert finding.sources == [LINE]


@pytest.mark.parametrize("name", ABSENT)
def test_it_is_not_told_where_it_is_not(name):
    assert [finding.fix for finding in causes_of(facts(**ABSENT[name]))] == []


@pytest.mark.parametrize("name", ["logging_each_step", "progress_bar"])
def test_of_a_device_no_more_is_saved_than_it_idles(name):
    given = {**PRESENT[name], "device_kind": "cuda"}
    (found,) = causes_of(facts(**given, leaves={"overhead.python": 0.05}))
    assert found.of_wall.high == found.cause_share == pytest.approx(0.05)
    assert causes_of(facts(**given, leaves={"overhead.python": 0.02})) == []
    # What stands between steps runs on no device.
    wall = WallTime(0.9, (), 100)
    (found,) = causes_of(facts(**given, wall=wall))
    assert found.of_wall.high == pytest.approx(0.1)


def test_workers_of_an_iterable_take_their_own_parts():
    given = PRESENT["no_loader_workers"]
    (found,) = causes_of(facts(**given))
    assert "get_worker_info" not in found.because
    (found,) = causes_of(facts(**given | {"loaders": (LoaderFact(0, False, 16, iterable=True),)}))
    assert found.fix == "no_loader_workers" and "get_worker_info" in found.because


def test_workers_of_another_loader_decode_nothing_here():
    given = PRESENT["image_decoding"]
    both = {"loaders": (*given["loaders"], LoaderFact(2, False, 16))}
    assert [found.fix for found in causes_of(facts(**given | both))] == ["image_decoding"]
    workers = {"loaders": (LoaderFact(2, False, 16),)}
    assert causes_of(facts(**given | workers)) == []


def test_without_a_cause_nothing_is_told():
    assert causes_of(facts(leaves={"compute.matrix.roof": 1.0}, program=program())) == []
    assert causes_of(facts(leaves={"compute.matrix.roof": 1.0})) == []


def test_on_a_gpu_a_lock_takes_no_more_than_the_device_waits_for_python():
    """A thread that waits for kernels sleeps as well."""
    known = program(threads=(ThreadFact("prefetch", LINE, 0.7),), slept=0.4)
    gpu = {"device_kind": "cuda", "program": known}
    bound = {"overhead.dispatch": 0.02, "compute.matrix.roof": 0.95}
    assert causes_of(facts(leaves=bound, **gpu)) == []
    (found,) = causes_of(facts(leaves={"overhead.python": 0.2, "memory.device": 0.7}, **gpu))
    assert found.fix == "interpreter_lock" and found.of_wall.high == pytest.approx(0.2)


def test_the_largest_saving_comes_first():
    """Of the wall time: what is saved of a step counts as far as steps are the wall time."""
    marks = (MarkFact(STARTING_WORKERS, LINE, 25, 4.0, 0.4),)
    arrays = (MadeFact("tensor", LINE, "list of arrays", 1000, 0.5),)
    known = program(marks=marks, made=arrays, recorded=1, notes_taken=9)
    both = {"leaves": {"overhead.python": 0.8}, "program": known}
    assert [f.fix for f in causes_of(facts(**both))] == ["tensor_of_arrays", "workers_each_epoch"]
    wall = WallTime(0.5, (), 100)
    assert [f.fix for f in causes_of(facts(**both, wall=wall))] == [
        "workers_each_epoch", "tensor_of_arrays"
    ]  # fmt: skip


def test_what_saves_little_is_left_out():
    small = program(marks=(MarkFact(STARTING_WORKERS, LINE, 25, 0.1, 0.9 * LEAST_OF_WALL),))
    assert causes_of(facts(program=small)) == []


def test_of_a_few_collections_less_is_certain_than_of_many():
    def low(count):
        known = program(collections=(CollectionsFact(2, count, 3.0, 0.4, 0.3, (LINE,)),))
        return causes_of(facts(program=known))[0].of_wall.low

    assert low(3) == 0 < low(10) < low(100) == pytest.approx(0.7 * 0.3)


def test_times_of_a_busy_machine_give_no_saving():
    (finding,) = causes_of(facts(**PRESENT["sample_by_sample"]), trusted=False)
    assert finding.prediction is None and finding.of_wall is None
    assert finding.cause_share is None
    assert finding.sources == [LINE]


def test_names_are_unique_and_told_in_full():
    names = [cause.name for cause in catalogue.CAUSES]
    assert len(set(names)) == len(names)
    for cause in catalogue.CAUSES:
        assert cause.words and cause.title and cause.remedy, cause.name


def test_ops_that_make_a_batch_are_a_part_of_loading():
    made = op("aten::sub", kernel_s=0.2, host_s=0.2, phase="loading")
    waits = {"overhead.data_loading": 0.1}
    alone = facts([made], leaves=waits, loaders=(LoaderFact(0, False, 16),), processors=8)
    assert alone.loading_s == pytest.approx(0.3)
    assert [found.fix for found in causes_of(alone)] == ["no_loader_workers"]
