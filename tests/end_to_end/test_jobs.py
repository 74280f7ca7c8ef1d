"""Jobs of several processes on this machine, as a user would start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gobrrr

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="no gloo",
    ),
]
# Stands once in a whole report, and not in the gist.
SPLIT = "\n  overhead "

TRAIN = """
import sys, time, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(32, 64)
def train(steps, extra=lambda: None):
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        extra()
        optimizer.step()
"""
# Few steps in every phase.
FEW = ("--quiet", "--warmup", "2", "--steps", "8")


def job(
    folder: Path,
    program: str,
    *arguments: str,
    launcher: tuple[str, ...] = (),
    timeout: float = 240,
    head: str = TRAIN,
) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(head + textwrap.dedent(program))
    command = (
        [sys.executable, "-m", *launcher, "-m", "gobrrr", "run", *arguments, "script.py"]
        if launcher
        else [sys.executable, "-m", "gobrrr", "run", *arguments, "script.py"]
    )
    # The package under test, wherever the command runs.
    source_root = str(Path(gobrrr.__file__).resolve().parents[1])
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONPATH": source_root,
    }  # fmt: skip
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout, env=environment
    )


def test_the_rank_that_is_slow_is_named_with_its_line(tmp_path: Path) -> None:
    done = job(
        tmp_path,
        """
        def slow():
            end = time.perf_counter() + 0.2
            while time.perf_counter() < end and rank == 1:
                pass
        train(40, slow)
        dist.destroy_process_group()
        """,
        *FEW, "--stop", "--json", "d.json", "--perfetto", "trace.json",
        launcher=("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    diagnosis = gobrrr.load(tmp_path / "d.json")
    job_found = diagnosis.job
    assert job_found is not None
    assert (job_found.world_size, job_found.missing) == (2, {})
    assert (job_found.slowest, job_found.cause) == (1, "overhead.python")
    assert job_found.place is not None
    assert job_found.place.endswith(" in slow")
    first, second = diagnosis.ranks or []
    # The other sleeps meanwhile, in its all-reduce: it does not burn Python.
    assert first.leaves["overhead.python"] < 0.5 * second.leaves["overhead.python"]
    assert first.leaves["memory.network_wait"] > 0.5 * first.step_s
    row = diagnosis.collectives[0]
    # Two layers of 64 x 64 weights and 64 biases, in one bucket.
    assert (row.name, row.bytes, row.group_size) == ("all_reduce", 2 * (64 * 64 + 64) * 4, 2)
    assert row.transfer_s is not None
    assert (diagnosis.exposed[0].phase, diagnosis.exposed[0].group) == ("backward", "world")
    assert "The other ranks wait for rank 1" in " ".join(done.stdout.split())
    assert "same ops" not in done.stdout
    lanes = diagnosis.lanes
    assert lanes is not None
    assert (lanes.ranks, lanes.one_clock) == (2, True)
    early, late = lanes.lanes
    assert (early.rank, late.rank, 1 in early.call_waits_for) == (0, 1, True)
    # Rank 1 spends 200 ms in Python before its all-reduce.
    assert max(wait or 0 for wait in early.call_wait_ns) > 100_000_000
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events if event.get("name") == "all_reduce"} == {0, 1}
    assert any(event["name"] == "aten::addmm" for event in events)
    # One report of all, and each rank's own on request.
    assert done.stdout.count(SPLIT) == 1
    own = gobrrr.load(tmp_path / "d.rank1.json")
    assert own.source["rank"] == 1
    assert not list(tmp_path.glob("gobrrr-job-*"))


def each_for_itself(
    folder: Path, long: int
) -> tuple[subprocess.CompletedProcess[str], gobrrr.Diagnosis]:
    """Two ranks that do not wait for each other: ``long`` runs 60 steps, the other 3."""
    done = job(
        folder,
        f"""
        # What one rank does the other does not wait for.
        model = net
        train(60 if rank == {long} else 3)
        """,
        *FEW, "--nproc-per-node", "2", "--json", "d.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done, gobrrr.load(folder / "d.json")


def test_ranks_that_end_at_different_steps_are_diagnosed_without_each_other(
    tmp_path: Path,
) -> None:
    _, diagnosis = each_for_itself(tmp_path, long=0)
    assert diagnosis.job is not None
    assert list(diagnosis.job.missing) == ["1"]
    assert any("rank 1 has ended" in notice for notice in diagnosis.notices)


def test_the_others_are_reported_where_the_first_rank_has_too_few_steps(tmp_path: Path) -> None:
    done, diagnosis = each_for_itself(tmp_path, long=1)
    assert diagnosis.job is not None
    assert list(diagnosis.job.missing) == ["0"]
    assert "too few steps" in diagnosis.job.missing["0"]
    assert diagnosis.source["rank"] == 1
    assert done.stdout.count(SPLIT) == 1
    assert not list(tmp_path.glob("gobrrr-job-*"))


def by_hand(
    folder: Path, program: str, *arguments: str, timeout: float = 240
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of two ranks whose launcher sets no more than torch needs."""
    (folder / "script.py").write_text(TRAIN + textwrap.dedent(program))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {name: value for name, value in os.environ.items() if not name.startswith("LOCAL_")}
    environment = {
        **known, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "WORLD_SIZE": "2",
        "PYTHONPATH": str(Path(gobrrr.__file__).resolve().parents[1]),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "gobrrr", "run", *arguments, "script.py"],
            cwd=folder, env={**environment, "RANK": rank}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in "01"
    ]  # fmt: skip
    try:
        told = [rank.communicate(timeout=timeout) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, told)]


def test_ranks_of_which_nobody_says_that_they_share_a_host_meet_in_their_store(
    tmp_path: Path,
) -> None:
    first, second = by_hand(tmp_path, "train(40)", *FEW, "--stop", "--json", "d.json")
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    diagnosis = gobrrr.load(tmp_path / "d.json")
    assert diagnosis.job is not None
    assert (diagnosis.job.missing, diagnosis.job.hosts) == ({}, 1)
    assert diagnosis.job.same_steps
    assert any("LOCAL_WORLD_SIZE" in notice for notice in diagnosis.notices)
    assert SPLIT not in second[1]
    assert not list(tmp_path.glob("gobrrr-job-*"))


def test_a_rank_whose_store_has_gone_shows_its_own_diagnosis(tmp_path: Path) -> None:
    first, second = by_hand(
        tmp_path,
        """
        import os
        model = net
        train(5)
        if rank == 0:
            os.kill(os.getpid(), 9)
        train(60)
        # Nothing more is to be said to a process group that has no store.
        sys.stdout.flush()
        os._exit(0)
        """,
        *FEW, "--json", "d.json",
    )  # fmt: skip
    assert (first[0], second[0]) == (-9, 0), second[2]
    assert "bug" not in second[2]
    own = gobrrr.load(tmp_path / "d.rank1.json")
    (told,) = [notice for notice in own.notices if "store is gone" in notice]
    assert told.startswith("Rank 1 was measured on its own: the job's store is gone, probably ")
    assert second[1].count(SPLIT) == 1


def test_a_rank_that_raises_ends_the_job_as_it_does_without_gobrrr(tmp_path: Path) -> None:
    done = job(
        tmp_path,
        """
        train(3)
        if rank == 1:
            raise KeyError("lost")
        train(60)
        """,
        *FEW, "--nproc-per-node", "2",
    )  # fmt: skip
    assert done.returncode == 1
    assert "KeyError: 'lost'" in done.stderr


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        ("raise RuntimeError('boom')", "its script ended with RuntimeError: boom"),
        ("sys.exit(5)", "its script ended with exit code 5"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "its script was ended by SIGTERM"),
    ],
)
def test_what_was_timed_is_told_of_a_job_in_which_a_rank_ends(
    tmp_path: Path, ending: str, how: str
) -> None:
    done = job(
        tmp_path,
        f"""
        import os, signal
        train(90)
        if rank == 1:
            {ending}
        train(5000)
        """,
        "--quiet", "--warmup", "2", "--steps", "3000", "--nproc-per-node", "2", "--json", "d.json",
    )  # fmt: skip
    # The launcher's, as without gobrrr.
    assert done.returncode == 1, done.stderr[-3000:]
    assert ("RuntimeError: boom" in done.stderr) == ("boom" in ending)
    assert "bug in gobrrr" not in done.stderr
    found = gobrrr.load(tmp_path / "d.json")
    assert found.job is not None
    # The other one fails in its all-reduce, or its launcher ends it.
    assert (found.job.missing, set(found.job.ended)) == ({}, {"0", "1"})
    assert found.job.ended["1"] == how
    assert [row.rank for row in found.ranks or []] == [0, 1]
    assert any(notice.startswith("Ended before all was measured: ") for notice in found.notices)
    assert done.stdout.count(SPLIT) == 1
    own = gobrrr.load(tmp_path / "d.rank1.json")
    assert any("during timing" in notice for notice in own.notices)
    assert not list(tmp_path.glob("gobrrr-job-*"))


def test_a_rank_that_fails_too_soon_is_missing_with_its_error(tmp_path: Path) -> None:
    first, second = by_hand(
        tmp_path,
        """
        # Each for itself: what one rank does the other does not wait for.
        model = net
        train(3)
        if rank == 1:
            raise KeyError("lost")
        train(60)
        """,
        *FEW, "--json", "d.json",
    )  # fmt: skip
    assert (first[0], second[0]) == (0, 3), first[2] + second[2]
    found = gobrrr.load(tmp_path / "d.json")
    assert found.job is not None
    how = "its script ended with KeyError: 'lost'"
    assert found.job.missing == {"1": f"rank 1 has no diagnosis ({how})"}
    assert f"Rank 0 was measured on its own (rank 1 has ended ({how})" in " ".join(found.notices)


def test_a_rank_that_never_comes_is_named_with_its_line(tmp_path: Path) -> None:
    done = job(
        tmp_path,
        """
        import datetime
        import gobrrr.jobs.absent_rank_watch as watch
        watch.LIMIT_S = 6.0
        # As a job ends in which a rank hangs: gloo gives up.
        mine = dist.new_group(timeout=datetime.timedelta(seconds=30))
        model = DDP(net, process_group=mine)
        def hang():
            if rank == 1:
                time.sleep(1000)
        train(3)
        def never():
            optimizer.zero_grad()
            hang()
            model(data).square().mean().backward()
        never()
        """,
        *FEW, "--nproc-per-node", "2",
    )  # fmt: skip
    # As without gobrrr: what gloo raises ends rank 0, and the launcher the job.
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if " waited for " in line]
    assert len(told) == 1
    assert told[0].startswith("gobrrr: rank 0 has waited for ")
    assert " in backward at script.py:" in told[0]
    assert " for rank 1 (asleep at script.py:" in told[0]
    assert told[0].endswith(" in hang).")


def test_sends_and_receives_are_told_with_their_peer(tmp_path: Path) -> None:
    done = job(
        tmp_path,
        """
        from gobrrr import step
        sent, got = torch.ones(1000), torch.empty(1000)
        large = torch.ones(50_000)
        for _ in range(40):
            with step():
                net(data)
                if rank == 1:
                    time.sleep(0.1)
                    dist.send(large, 0)
                else:
                    dist.recv(large, 1)
                peer = 1 - rank
                both = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, peer)]
                for each in dist.batch_isend_irecv(both):
                    each.wait()
        dist.destroy_process_group()
        """,
        *FEW, "--nproc-per-node", "2", "--stop", "--json", "d.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {(row.name, row.bytes): row for row in gobrrr.load(tmp_path / "d.json").collectives}
    late = rows["send from rank 1 to 0", 200_000]
    assert (late.group_size, late.calls, late.last_rank) == (2, 1.0, 1)
    # The receiver waits for the sender's 0.1 s, which are no transfer.
    assert late.skew_s is not None
    assert late.transfer_s is not None
    assert late.transfer_s < late.skew_s
    for pair in ("0 to 1", "1 to 0"):
        assert rows[f"send from rank {pair}", 4000].calls == 1.0
    assert "send from rank 1 to 0" in done.stdout


# What one rank does longer than the other, in Python.
SLOW = """
import time, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
def slow():
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end and rank == 1:
        pass
"""


def test_tensor_parallelism_is_told_with_its_collectives(tmp_path: Path) -> None:
    done = job(
        tmp_path,
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module,
        )
        net = nn.Sequential(
            nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)
        )
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        parallelize_module(net, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.randn(32, 64)
        for _ in range(40):
            optimizer.zero_grad()
            slow()
            net(data).square().mean().backward()
            optimizer.step()
        dist.destroy_process_group()
        """,
        *FEW, "--stop", "--json", "d.json",
        launcher=("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        head=SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    diagnosis = gobrrr.load(tmp_path / "d.json")
    assert diagnosis.job is not None
    assert (diagnosis.job.world_size, diagnosis.job.missing) == (2, {})
    assert (diagnosis.job.slowest, diagnosis.job.cause) == (1, "overhead.python")
    # Activations forward, their gradients backward: 32 rows of 64 floats.
    rows = [row for row in diagnosis.collectives if row.name == "all_reduce"]
    assert {(row.bytes, row.group_size) for row in rows} == {(32 * 64 * 4, 2)}
    assert sum(row.calls for row in rows) == 2
    # A mesh of all ranks has the group of all ranks.
    assert {row.group for row in diagnosis.exposed} == {"world"}
    assert "forward" in {row.phase for row in diagnosis.exposed}
    waits_for_python_of(diagnosis, 1)
    # Lines are broken where the width ends.
    assert "The other ranks wait for rank 1" in " ".join(done.stdout.split())


def test_a_pipeline_of_torch_is_told_with_its_sends(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.pipelining")
    done = job(
        tmp_path,
        """
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        stage = PipelineStage(net, rank, 2, torch.device("cpu"))
        schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data, target = torch.randn(32, 64), torch.randn(32, 64)
        for _ in range(40):
            optimizer.zero_grad()
            slow()
            if rank == 0:
                schedule.step(data)
            else:
                schedule.step(target=target, losses=[])
            optimizer.step()
        dist.destroy_process_group()
        """,
        *FEW, "--stop", "--json", "d.json",
        launcher=("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        head=SLOW,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    diagnosis = gobrrr.load(tmp_path / "d.json")
    assert diagnosis.job is not None
    assert (diagnosis.job.world_size, diagnosis.job.missing) == (2, {})
    assert (diagnosis.job.slowest, diagnosis.job.cause) == (1, "overhead.python")
    # Four microbatches of 8 rows of 64 floats, and their gradients back.
    rows = {row.name: row for row in diagnosis.collectives}
    for pair in ("0 to 1", "1 to 0"):
        row = rows[f"send from rank {pair}"]
        assert (row.bytes, row.group_size, row.calls) == (8 * 64 * 4, 2, 4.0)
    waits_for_python_of(diagnosis, 1)
    assert "The other ranks wait for rank 1" in " ".join(done.stdout.split())


def waits_for_python_of(diagnosis: gobrrr.Diagnosis, slow: int) -> None:
    """The other of two ranks waits for this one's Python, and has none of its own."""
    leaves = [rank.leaves for rank in diagnosis.ranks or []]
    other = leaves[1 - slow]
    assert other["memory.network_wait"] > 0.05
    assert other["overhead.python"] < 0.5 * leaves[slow]["overhead.python"]
