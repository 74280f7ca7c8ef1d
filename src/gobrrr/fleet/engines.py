"""Where traces are mapped: in processes of this machine, or as tasks of a Ray cluster.

An engine takes tasks and gives back their results as they come, in any order. It holds no more than
two tasks for each worker, so that results wait for nobody and memory stays bounded.
"""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from gobrrr.fleet.extras import package
from gobrrr.fleet.mapping import MappedFile, MapTask, map_file
from gobrrr.measure.load import usable_processors
from gobrrr.measure.process_memory import keep_freed_memory
from gobrrr.timeline.errors import InputError

_TASKS_PER_WORKER = 2
ENDED = (
    "{path}: the process that read it was ended by the system, most likely because memory ran out; "
    "use fewer --workers, or a machine with more memory"
)


def map_here(tasks: Sequence[MapTask], workers: int | None = None) -> Iterator[MappedFile]:
    """Maps tasks in ``workers`` processes (default: one per core); with one of each, in this one.

    A process that dies takes no other file with it: those that it may have died of are read again,
    each in a process of its own.
    """
    workers = min(len(tasks), workers or usable_processors())
    if workers <= 1:
        yield from map(map_file, tasks)
        return
    waiting = deque(tasks)
    while waiting:
        suspects: list[MapTask] = []
        with _pool(workers) as pool:
            running: dict[Future[MappedFile], MapTask] = {}
            while (waiting or running) and not suspects:
                while waiting and len(running) < _TASKS_PER_WORKER * workers:
                    task = waiting.popleft()
                    try:
                        running[pool.submit(map_file, task)] = task
                    except BrokenProcessPool:
                        # A process has died since: the futures of what it had say so.
                        waiting.appendleft(task)
                        break
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    try:
                        mapped = future.result()
                    except BrokenProcessPool:
                        suspects.append(task)
                    else:
                        yield mapped
            suspects += running.values()
        for task in suspects:
            yield _alone(task)


def _alone(task: MapTask) -> MappedFile:
    with _pool(1) as pool:
        try:
            return pool.submit(map_file, task).result()
        except BrokenProcessPool:
            return _ended(task)


def _ended(task: MapTask) -> MappedFile:
    return MappedFile(task.source, error=ENDED.format(path=task.source.path), retry=True)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the caller does not get to its end."""
    # fork: a script without a main guard would run again in every spawned process.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    before = {child.pid for child in multiprocessing.active_children()}
    with warnings.catch_warnings():
        # Of forking beside threads: those of Arrow and rich hold nothing that a reader needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context(method), initializer=_begin_worker
        )
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                if child.pid not in before:
                    child.terminate()
            raise
        pool.shutdown()


def _begin_worker() -> None:
    # Ctrl-C reaches the whole group of processes; the parent is the one that deals with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()


def map_on_ray(tasks: Sequence[MapTask], address: str | None) -> Iterator[MappedFile]:
    """Maps tasks on a Ray cluster, by the same function; gobrrr has to be installed there.

    Args:
        tasks: whose paths every node can read.
        address: of the cluster, ``"auto"`` for the one that this machine belongs to; ``None``: a
            cluster of this machine alone, for as long as it takes.

    Raises:
        InputError: ray is not installed, or there is no cluster at the address.
    """
    ray: Any = package("ray", "--engine ray")
    started = not ray.is_initialized()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if started:
        try:
            if address is None:
                quiet["include_dashboard"] = False
            ray.init(address=address, **quiet)
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            where = (
                "no Ray cluster starts here" if address is None else f"no Ray cluster at {address}"
            )
            raise InputError(f"{where}: {said}") from None
    try:
        yield from _ray_results(ray, tasks)
    finally:
        if started:
            ray.shutdown()


def _ray_results(ray: Any, tasks: Sequence[MapTask]) -> Iterator[MappedFile]:
    # A reader that dies would die again; its file is a row that says so.
    mapping = ray.remote(max_retries=0)(map_file)
    most = _TASKS_PER_WORKER * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = deque(tasks)
    running: dict[Any, MapTask] = {}
    while waiting or running:
        while waiting and len(running) < most:
            task = waiting.popleft()
            running[mapping.remote(task)] = task
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            task = running.pop(reference)
            try:
                yield ray.get(reference)
            except _deaths(ray):
                yield _ended(task)
            except ray.exceptions.RayError as error:
                yield MappedFile(
                    task.source,
                    error=f"{task.source.path}: Ray could not run the task that reads it "
                    f"({type(error).__name__}); are gobrrr and Ray of one version on all nodes?",
                    retry=True,
                )


def _deaths(ray: Any) -> tuple[type[BaseException], ...]:
    """What Ray raises where the process of a task, or its machine, is gone."""
    names = ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError")
    return tuple(getattr(ray.exceptions, name) for name in names if hasattr(ray.exceptions, name))
