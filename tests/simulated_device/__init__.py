"""An accelerator that exists in tests alone: its clock is a number, so its truth is known.

A program runs on CPU tensors while a dispatch mode lets a host clock and the clocks of streams
advance: what an op costs on the host and how long its kernels take is what the test says. Profiled
steps are written as PyTorch's profiler writes a trace. The program's tensors stay CPU tensors; the
backend claims them as its own.
"""

from simulated_device.accelerator import Accelerator as Accelerator
from simulated_device.backend import SimulatedBackend as SimulatedBackend
from simulated_device.hostility import Flips as Flips
from simulated_device.hostility import Hostility as Hostility
from simulated_device.hostility import Profiling as Profiling
from simulated_device.kernels import AMD as AMD
from simulated_device.kernels import AMD_MODULES as AMD_MODULES
from simulated_device.kernels import INTEL as INTEL
from simulated_device.kernels import NVIDIA as NVIDIA
from simulated_device.kernels import Kernel as Kernel
from simulated_device.kernels import Op as Op
from simulated_device.kernels import Vendor as Vendor
from simulated_device.kernels import slow as slow
from simulated_device.machine import HostCosts as HostCosts
