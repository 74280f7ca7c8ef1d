"""How a predicted step is to run on its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from gobrrr.measure.progress import Progress
from gobrrr.prediction.mesh.mesh import MeshOptions, parse_link, parse_mesh
from gobrrr.prediction.mesh.pipeline_schedule import Schedule
from gobrrr.symbolic.op_graph import CaptureOptions
from gobrrr.timeline.errors import InputError

# ``torch.compile``'s mode that launches kernels as CUDA graphs.
REDUCE_OVERHEAD = "reduce-overhead"
COMPILE_MODES = ("default", REDUCE_OVERHEAD)
# Microbatches for each stage of a pipeline where nothing is said: a bubble of a fifth.
USUAL_MICROBATCHES = 4
_DTYPES = {"fp16": "float16", "half": "float16", "float16": "float16",
           "bf16": "bfloat16", "bfloat16": "bfloat16"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """How the step is to run on the device, as of ``gobrrr.predict``; ``tf32`` as if allowed.

    ``host_overhead``: the program's host time over the one assumed; ``None``: not known.

    ``compile`` may be one of ``torch.compile``'s modes, of which ``for_capture`` refuses those that
    are not predicted.
    """

    compile: bool | str = False
    autocast: str | None = None
    inference_mode: bool = False
    channels_last: bool = False
    size_hint: int | None = None
    tf32: bool = False
    mesh: MeshOptions | None = None
    host_overhead: float | None = None

    @property
    def cuda_graphs(self) -> bool:
        """Whether the kernels of the compiled step are launched as CUDA graphs."""
        return self.compile == REDUCE_OVERHEAD

    def for_capture(self) -> CaptureOptions:
        """What of it the program is captured with.

        Raises InputError for a size that is none, and for a mode that is not predicted.
        """
        if self.compile not in (False, True, *COMPILE_MODES):
            raise InputError(
                f"no prediction of torch.compile's mode {self.compile!r}: the modes are "
                f"{' and '.join(COMPILE_MODES)}"
            )
        if self.cuda_graphs and self.mesh is not None:
            raise InputError(
                f"{REDUCE_OVERHEAD} on a mesh is not predicted: leave out the mesh, or the mode"
            )
        if self.size_hint is not None and self.size_hint < 0:
            raise InputError(f"a size hint is a number of elements, not {self.size_hint}")
        return CaptureOptions(
            self.autocast,
            self.inference_mode,
            self.channels_last,
            self.size_hint,
            model=self.mesh is not None,
            compiled=bool(self.compile),
            tensor_parallel=1 if self.mesh is None else self.mesh.mesh.tp,
            ranks=1 if self.mesh is None else self.mesh.mesh.devices,
            ranks_per_host=1 if self.mesh is None else self.mesh.mesh.per_host,
        )


class PredictKeywords(TypedDict, total=False):
    """The keywords of ``gobrrr.predict``, which says what they mean."""

    compile: bool | str
    autocast: Any
    inference_mode: bool
    channels_last: bool
    size_hint: int | None
    mesh: str | None
    hosts: int
    link: str | None
    microbatches: int | None
    schedule: str | None
    host_overhead: float | None
    name: str | None
    progress: Progress | bool | None


def mesh_options(
    mesh: str | None,
    hosts: int,
    link: str | None,
    *,
    compiled: bool | str,
    microbatches: int | None = None,
    schedule: str | None = None,
) -> MeshOptions | None:
    """What is wished of a mesh; ``None`` without one.

    Raises InputError for what is no mesh, and for options that go with none.
    """
    if mesh is None:
        wished = {
            "hosts": hosts != 1, "link": link is not None,
            "microbatches": microbatches is not None, "schedule": schedule is not None,
        }  # fmt: skip
        given = [name for name, is_given in wished.items() if is_given]
        if given:
            raise InputError(f"--{given[0]} applies to a mesh: it goes with --mesh, such as dp=8")
        return None
    found = parse_mesh(mesh, hosts)
    if link is not None and found.hosts == 1:
        raise InputError(
            "--link is the bandwidth between hosts, and the mesh is on one host: give --hosts N, "
            "or leave out --link"
        )
    if microbatches is not None and microbatches < 1:
        raise InputError(f"a step has at least one microbatch, not {microbatches}")
    if found.pp == 1 and (microbatches is not None or schedule is not None):
        option = "microbatches" if microbatches is not None else "schedule"
        raise InputError(f"--{option} applies to a pipeline: it goes with --mesh pp=N")
    if schedule is not None and schedule not in list(Schedule):
        raise InputError(f"no schedule {schedule!r}; schedules are {', '.join(Schedule)}")
    return MeshOptions(
        found,
        None if link is None else parse_link(link),
        microbatches or (USUAL_MICROBATCHES * found.pp if found.pp > 1 else 1),
        Schedule.ONE_F_ONE_B if schedule is None else Schedule(schedule),
        bool(compiled),
    )


def dtype_name(dtype: Any) -> str | None:
    """``torch.float16`` or ``"fp16"`` -> ``"float16"``.

    Raises InputError for a dtype that autocast does not take.
    """
    if dtype is None:
        return None
    name = _DTYPES.get(str(dtype).removeprefix("torch."))
    if name is None:
        raise InputError(f"autocast takes fp16 or bf16, not {dtype}")
    return name
