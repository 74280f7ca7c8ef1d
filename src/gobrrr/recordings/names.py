"""What a category or a name in a profiler trace says: tables, nothing else.

Categories are Kineto's (``libkineto/include/ActivityType.h`` and its ``toString``), and those of
PyTorch 1.8 to 1.9 (``Operator``, ``Runtime``, ``Kernel``, ...).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from gobrrr.timeline.data import HostKind, KernelKind

# Traces of one job have the same names: each is looked at once by a process that reads many.
_of_name = lru_cache(maxsize=1 << 14)


class Route(IntEnum):
    """Which table of the reader an event goes to."""

    DROP = 0
    OP = 1
    RUNTIME = 2
    PYTHON = 3
    ANNOTATION = 4
    KERNEL = 5
    COPY = 6
    MEMSET = 7
    LAUNCH_FLOW = 8
    BACKWARD_FLOW = 9
    FOREIGN = 10
    STALL = 11


_ROUTES = {
    "cpu_op": Route.OP, "operator": Route.OP,
    "cuda_runtime": Route.RUNTIME, "cuda_driver": Route.RUNTIME, "runtime": Route.RUNTIME,
    "hip_runtime": Route.RUNTIME, "hip_driver": Route.RUNTIME, "driver": Route.RUNTIME,
    "xpu_runtime": Route.RUNTIME, "xpu_driver": Route.RUNTIME,
    "privateuse1_runtime": Route.RUNTIME, "privateuse1_driver": Route.RUNTIME,
    "python_function": Route.PYTHON,
    "user_annotation": Route.ANNOTATION, "python_gc": Route.ANNOTATION,
    "kernel": Route.KERNEL, "concurrent_kernel": Route.KERNEL,
    "gpu_memcpy": Route.COPY, "memcpy": Route.COPY,
    "gpu_memset": Route.MEMSET, "memset": Route.MEMSET,
    "ac2g": Route.LAUNCH_FLOW, "async_cpu_to_gpu": Route.LAUNCH_FLOW, "async": Route.LAUNCH_FLOW,
    "fwdbwd": Route.BACKWARD_FLOW, "forward_backward": Route.BACKWARD_FLOW,
    "async_gpu": Route.LAUNCH_FLOW,
    "overhead": Route.STALL,
}  # fmt: skip
# Every category that Kineto or PyTorch writes, as spelled; "" is what PyTorch 1.9 gives to arrows'
# ends and marks.
KNOWN_CATEGORIES: tuple[str, ...] = (
    *_ROUTES, "", "Operator", "Runtime", "Kernel", "Memcpy", "Memset", "Trace",
    "cpu_instant_event", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "External",
    "mtia_runtime", "mtia_ccp_events", "mtia_insight", "mtia_workloadd", "xpu_sync", "hpu_op",
    "glow_runtime", "collective_comm", "fpga_runtime",
)  # fmt: skip
_FOREIGN = ("mtia", "xpu", "hpu", "glow", "ccp", "collective_comm")


def route_of(category: str) -> Route:
    """Where events of a category go; ``FOREIGN`` is another vendor's, ``DROP`` is no span."""
    key = category.lower()
    found = _ROUTES.get(key)
    if found is not None:
        return found
    return Route.FOREIGN if key.startswith(_FOREIGN) else Route.DROP


# Calls that wait for the device. hipMemcpyWithStream copies, then waits (HIP runtime API manual).
# ``ur`` and, before it, ``pi`` begin the calls of SYCL's runtime (Kineto's XPU plugin, the list
# ``correlateRuntimeOps_``; Unified Runtime specification).
_SYNCHRONISE = re.compile(
    r"Synchronize|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|WithStream|DtoH|HtoD|DtoD)?(?:_v\d+)?$"
    r"|^cu(?:Memcpy(?:DtoH|HtoD|DtoD)?|Ctx(?:Synchronize))(?:_v\d+)?$|^hipMemset$|^cudaMemset$"
    r"|^(?:ur|pi)(?:QueueFinish|Events?Wait)$"
)
_LAUNCH = re.compile(
    r"Launch(?!HostFunc)|Memcpy\w*Async|Memset\w*Async|^hipMemcpyPeerAsync|GraphExec\w*Launch"
    r"|^(?:urEnqueueUSM|piextUSMEnqueue)(?:Memcpy|Memset|Fill)|^urEnqueueCommandBuffer"
)
_ALLOCATE = re.compile(
    r"Malloc|(?:cuda|hip|cu)(?:Free|MemFree)|Host(?:Alloc|Register|Unregister|Free)|MemCreate"
    r"|MemRelease|MemMap|MemUnmap|MemAddress(?:Reserve|Free)|MemSetAccess|MemPool\w*(?:Create|Trim)"
    r"|^(?:urUSM|piextUSM)\w*(?:Alloc|Free)|^zeMem(?:Alloc|Free)"
)


@_of_name
def runtime_kind(name: str) -> HostKind:
    """What a runtime or driver call does to the calling thread."""
    if _SYNCHRONISE.search(name):
        return HostKind.SYNCHRONISE
    if _ALLOCATE.search(name):
        return HostKind.ALLOCATE
    if _LAUNCH.search(name):
        return HostKind.LAUNCH
    return HostKind.RUNTIME


# The copies whose call returns only when the bytes are across: pageable host memory is staged by
# the driver (CUDA Runtime API, "API synchronization behavior").
_BLOCKING_COPY = re.compile(r"Memcpy (?:HtoD|DtoH) .*Pageable|Memcpy DtoH \(Device -> Host\)")


@_of_name
def is_blocking_copy(kernel_name: str) -> bool:
    """Whether the call that made this copy waited for it."""
    return _BLOCKING_COPY.search(kernel_name) is not None


# ``cudaGraphLaunch``, ``hipGraphLaunch``, ``cuGraphLaunch``; a command buffer of SYCL's.
_GRAPH_LAUNCH = re.compile(r"^(?:cuda|hip|cu)GraphLaunch|^urEnqueueCommandBuffer")


@_of_name
def is_graph_launch(call_name: str) -> bool:
    """Whether a call of the runtime launches a graph of kernels."""
    return _GRAPH_LAUNCH.search(call_name) is not None


_WITHIN_DEVICE = re.compile(r"Memcpy DtoD|Memcpy AtoA|CopyDeviceToDevice")


def stays(copy_name: str) -> bool:
    """Whether a copy is within one device's memory: a clone, a cache or a buffer filled anew."""
    return _WITHIN_DEVICE.search(copy_name) is not None


_DATA_LOADING = re.compile(
    r"^enumerate\(DataLoader\)|^enumerate\(DataPipe\)|(?:^|/)torch/utils/data/"
)
_COMPILATION = re.compile(
    r"\(dynamo_timed\)|(?:^|/)torch/_dynamo/convert_frame\.py|(?:^|/)torch/_inductor/compile_fx"
    r"|^CompileTime|(?:^|/)triton/compiler/|(?:^|/)torch/_dynamo/output_graph\.py"
)
_COLLECTION = re.compile(r"^(?:Python GC|gc\b)|^<built-in function collect>", re.IGNORECASE)


@_of_name
def special_kind(name: str) -> HostKind | None:
    """Kinds that a name alone gives away, whatever the category; ``None`` for all others."""
    if _DATA_LOADING.search(name):
        return HostKind.DATA_LOADING
    if _COMPILATION.search(name):
        return HostKind.COMPILATION
    if _COLLECTION.search(name):
        return HostKind.GARBAGE_COLLECTION
    return None


STEP_PREFIX = "ProfilerStep#"
OPTIMIZER_PREFIX = "Optimizer."
OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
MODULE_PREFIX = "nn.Module: "


# Autograd's nodes: under their own range since PyTorch 1.10, bare before.
_BACKWARD = re.compile(
    r"^(?:autograd::engine::evaluate_function|torch::autograd::|\w+Backward\d*$)"
)


@_of_name
def is_backward(name: str) -> bool:
    """Whether an operator is a node of the backward graph."""
    return _BACKWARD.search(name) is not None


def is_annotation(name: str) -> bool:
    """Ranges that old versions record as operators."""
    return name.startswith((STEP_PREFIX, OPTIMIZER_PREFIX, "DistributedDataParallel.", "##"))


# Collectives by kernel name: NCCL and RCCL, the one-shot all-reduces of inference engines, NVSHMEM.
_COLLECTIVE = re.compile(
    r"nccl|rccl|^mscclKernel|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce"
    r"|multimem_all_reduce|allreduce_fusion_kernel|quickreduce|nvshmem|deep_ep::",
    re.IGNORECASE,
)


@_of_name
def kernel_kind(name: str) -> KernelKind:
    """Whether a kernel is a collective."""
    return KernelKind.COLLECTIVE if _COLLECTIVE.search(name) else KernelKind.KERNEL


_FRAME = re.compile(r"^(?P<path>.*?)\((?P<line>\d+)\): (?P<function>.*)$")
# Standard library files that show up in profiler stacks as bare names (the profiler cuts
# sys.path off). A list and not sys.stdlib_module_names: a user's code.py or test.py is the user's.
_STANDARD = frozenset((
    "threading.py", "contextlib.py", "inspect.py", "weakref.py", "abc.py", "typing.py",
    "enum.py", "functools.py", "dataclasses.py", "warnings.py", "copy.py", "types.py",
    "random.py", "os.py", "posixpath.py", "genericpath.py", "tempfile.py", "runpy.py",
    "queue.py", "selectors.py", "socket.py", "subprocess.py", "pickle.py", "heapq.py",
    "string.py", "traceback.py", "linecache.py", "textwrap.py", "tokenize.py", "ast.py",
    "bdb.py", "pathlib.py", "stat.py", "shutil.py", "operator.py", "numbers.py", "datetime.py",
    "copyreg.py", "_collections_abc.py", "_weakrefset.py", "ntpath.py", "cProfile.py", "pdb.py",
    "zipfile.py", "glob.py", "fnmatch.py", "signal.py", "struct.py", "uuid.py",
))  # fmt: skip
_STANDARD_PACKAGES = ("collections/", "importlib/", "re/", "json/", "logging/", "asyncio/",
    "concurrent/", "multiprocessing/", "unittest/", "encodings/", "email/", "http/", "urllib/",
    "ctypes/", "xml/")  # fmt: skip
_LIBRARY = re.compile(
    r"(?:^|/)(?:site|dist)-packages/|/lib/python3[^/]*/|^torch/|^torchvision/|^triton/|^numpy/"
    r"|^functorch/|^<|^_pytest/|^gobrrr/|^pkgutil\.py"
)


def frame_source(frame: str) -> str | None:
    """``file:line in function`` of a Python frame as the profiler names it, if it is the user's.

    ``None`` for frames of torch, of installed packages by path, of the standard library, and for
    what is no frame. The line is where the function is defined (that is what is recorded).
    """
    match = _FRAME.match(frame)
    if match is None:
        return None
    path = match["path"].replace("\\", "/")
    if path in _STANDARD or path.startswith(_STANDARD_PACKAGES) or _LIBRARY.search(path):
        return None
    return f"{path}:{match['line']} in {match['function']}"


def stack_source(stack: str) -> str | None:
    """The innermost frame that is the user's in a recorded call stack (innermost first)."""
    for frame in stack.split(";"):
        source = frame_source(frame.strip())
        if source is not None:
            return source
    return None
