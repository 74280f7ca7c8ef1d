"""Work of the C++ kernels that Inductor generates for CPUs, read off their source.

A generated kernel is loops with constant bounds around loads, arithmetic and stores, one statement
a line (``torch/_inductor/codegen/cpp.py``). Elements of a statement are the product of the loops
around it; bytes of a pointer those of the different elements that its index names. FLOPs count what
is written there, each function by its weight in ``work.weights``; what the compiler's vector
library does inside a function is not, so they are the least.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.weights import BASIC, NORMAL, TRANSCENDENTALS, UNIFORM, WEIGHTS

_NAME = re.compile(r"RAIIAtenRecordFunctionHandle record_\w+?\(\"([^\"]+)\"")
_SIGNATURE = re.compile(r'extern "C"[^(]*?\(([^)]*)\)\s*\{', re.DOTALL)
_PARAMETER = re.compile(r"(const\s+)?([\w:]+)\*\s*(?:__restrict__\s*)?(\w+)")
_NUMBER = r"(?:static_cast<int64_t>\()?(\d+)L?\)?"
_FOR = re.compile(
    rf"for\s*\(\s*\w+ (\w+)\s*=\s*{_NUMBER};\s*\1\s*<\s*{_NUMBER};"
    rf"\s*\1(?:\+\+|\s*\+=\s*{_NUMBER})\s*\)"
)
_RANGE = re.compile(rf"\b(\w+) >= {_NUMBER} && \1 < {_NUMBER}")
_ACCESS = re.compile(r"(&?)\b((?:in|out|in_out)_ptr\d+)\s*(?:\+\s*(static_cast<int64_t>\()|(\[))")
_ALIAS = re.compile(r"auto ((?:in|out|in_out)_ptr\d+) = ((?:in|out|in_out)_ptr\d+);")
_BINARY = re.compile(r" ([-+*/]|[<>]=?|[=!]=) ")
_CALL = re.compile(r"(?:\.|\b(?:std|at::vec)::|\b)([A-Za-z_]\w*)\(")
_TERM = re.compile(r"(?:(\d+)L\*)?(x\d+\w*)|(\d+)L")

# The generated names of functions, as ``work.weights`` calls them.
_FUNCTIONS = {
    "exp": "exp", "exp_u20": "exp", "fexp_u20": "exp", "expm1": "exp", "exp2": "exp",
    "log": "log", "log1p": "log", "log2": "log", "log10": "log", "sin": "sin", "cos": "sin",
    "tan": "tan", "tanh": "tanh", "erf": "erf", "erfc": "erf", "pow": "pow", "atan2": "atan2",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "lgamma": "gamma", "digamma": "gamma", "reciprocal": "div",
}  # fmt: skip
_COMPARING = frozenset(
    ("maximum", "minimum", "max_propagate_nan", "min_propagate_nan", "clamp_min", "clamp_max",
     "clamp", "abs", "neg", "blendv", "ceil", "floor", "round", "trunc", "cascade_sum_combine")
)  # fmt: skip
# Welford's update of mean and variance: two differences, a division, two products, two sums.
_WELFORD = 2 + WEIGHTS["div"] + 2 + 2
_DTYPES = {
    "float": ("float32", 4), "double": ("float64", 8), "at::Half": ("float16", 2),
    "half": ("float16", 2), "at::BFloat16": ("bfloat16", 2), "bfloat16": ("bfloat16", 2),
    "int64_t": ("int64", 8), "int32_t": ("int32", 4), "int16_t": ("int16", 2),
    "int8_t": ("int8", 1), "uint8_t": ("uint8", 1), "bool": ("bool", 1),
}  # fmt: skip
_RANDOM = {"normalized_rand_cpu": UNIFORM, "randn_cpu": NORMAL}
# Kernels that are no such loops, and bounds that are known only when the kernel runs.
_BEYOND = ("micro_gemm", "ks0", "ks1", "mkl_")
# Loops inside a tile go through elements that the tile's own loop counts already.
_INSIDE_A_TILE = ("_inner", "_tail", "_idx")
# Index arithmetic with quotients and remainders is evaluated, up to so many points.
_MOST_POINTS = 8_000_000
_INDEX_ONLY = re.compile(r"[\dxL_\s+\-*/%(),]*")


class _UnreadableError(Exception):
    pass


@dataclass
class _Pointer:
    dtype: str
    item_bytes: int
    # Different index expressions with the ranges of their loops -> elements.
    read: dict[tuple[object, ...], int] = field(default_factory=dict)
    written: dict[tuple[object, ...], int] = field(default_factory=dict)
    span: int = 0
    begins_written: bool | None = None

    def elements(self, accesses: dict[tuple[object, ...], int]) -> int:
        # Two loop nests may name the same elements differently: no more than the span exist.
        return min(sum(accesses.values()), self.span) if self.span else sum(accesses.values())


def kernel_name(source: str) -> str | None:
    """The name under which the profiler shows a kernel; ``None`` if it was built without."""
    found = _NAME.search(source)
    return found.group(1) if found else None


def work_of_cpp_kernel(source: str) -> Work | None:
    """Work of one call of a generated kernel; ``None`` where its source does not tell."""
    try:
        return _Reader(source).work()
    except _UnreadableError:
        return None


class _Reader:
    def __init__(self, source: str) -> None:
        signature = _SIGNATURE.search(source)
        if signature is None:
            raise _UnreadableError
        self.body = source[signature.end() :]
        if any(mark in self.body for mark in _BEYOND):
            raise _UnreadableError
        self.pointers: dict[str, _Pointer] = {}
        for parameter in signature.group(1).split(","):
            found = _PARAMETER.search(parameter)
            if found is None or found.group(2) not in _DTYPES:
                raise _UnreadableError
            self.pointers[found.group(3)] = _Pointer(*_DTYPES[found.group(2)])
        self.flops = 0.0
        self.special = 0.0
        self.reduces = "tmp_acc" in self.body or "welford" in self.body
        # One dictionary of loop variables (name -> range) per open brace.
        self.scopes: list[dict[str, tuple[int, int]]] = [{}]
        self.pending: dict[str, tuple[int, int]] = {}

    def work(self) -> Work:
        for raw in self.body.splitlines():
            line = raw.strip()
            if line and not line.startswith(("#", "//")):
                self._line(line)
        read = written = unique = 0
        for pointer in {id(each): each for each in self.pointers.values()}.values():
            # What the kernel has written itself it need not fetch again.
            reads = 0 if pointer.begins_written else pointer.elements(pointer.read)
            writes = pointer.elements(pointer.written)
            read += reads * pointer.item_bytes
            written += writes * pointer.item_bytes
            unique += max(reads, writes) * pointer.item_bytes
        op_class: OpClass = "normalisation" if self.reduces else "elementwise"
        return Work(
            matrix_flops=0.0,
            vector_flops=self.flops,
            bytes_read=read,
            bytes_written=written,
            unique_bytes=unique,
            compute_dtype=self._dtype(),
            op_class=op_class if self.flops else "movement",
            special=self.special,
        )

    def _dtype(self) -> str:
        # Half types are converted to float32 as they are loaded.
        kinds = {pointer.dtype for pointer in self.pointers.values()}
        if "float64" in kinds:
            return "float64"
        return "float32" if any("float" in kind for kind in kinds) else min(kinds)

    def _line(self, line: str) -> None:
        alias = _ALIAS.search(line)
        if alias is not None:
            self.pointers[alias.group(1)] = self.pointers[alias.group(2)]
            return
        if line.startswith("for"):
            loop = _FOR.match(line)
            if loop is None:
                raise _UnreadableError
            if not loop.group(1).endswith(_INSIDE_A_TILE):
                self.pending = {loop.group(1): (int(loop.group(2)), int(loop.group(3)))}
        elif line.startswith("if"):
            self.pending = {
                found.group(1): (int(found.group(2)), int(found.group(3)))
                for found in _RANGE.finditer(line)
            }
        elif line.strip("{}"):
            self._statement(line)
        for character in line:
            if character == "{":
                self.scopes.append({**self.scopes[-1], **self.pending})
                self.pending = {}
            elif character == "}":
                if len(self.scopes) == 1:
                    return
                self.scopes.pop()

    def _statement(self, line: str) -> None:
        ranges = {**self.scopes[-1], **self.pending}
        self.pending = {}
        touches = False
        for found in _ACCESS.finditer(line):
            touches = True
            opening = found.end() - 1
            index = line[opening + 1 : _closing(line, opening)]
            index = index.replace("static_cast<int64_t>", "")
            store = ".store(" in line or (found.group(4) is not None and found.start() == 0)
            if found.group(1) == "&":  # atomic_add(&out_ptr0[...], tmp3)
                self._access(found.group(2), index, ranges, False)
                self.flops += BASIC * _points(ranges)
                store = True
            self._access(found.group(2), index, ranges, store)
        if " = " not in line or (touches and "static_cast<float>" not in line):
            return
        expression = line.partition(" = ")[2].partition("[](")[0]
        self._arithmetic(expression, _points(ranges))

    def _access(
        self, name: str, index: str, ranges: dict[str, tuple[int, int]], store: bool
    ) -> None:
        pointer = self.pointers.get(name)
        if pointer is None:
            raise _UnreadableError
        used = ranges if "tmp" in index else {v: r for v, r in ranges.items() if _names(index, v)}
        elements, last = _points(used), 0
        if "%" in index or "div_floor" in index:
            elements = _different(index, used)
        elif "tmp" not in index:
            for factor, variable, constant in _TERM.findall(index):
                if constant:
                    last += int(constant)
                elif variable in ranges:
                    last += int(factor or 1) * (ranges[variable][1] - 1)
            pointer.span = max(pointer.span, last + 1)
        if pointer.begins_written is None:
            pointer.begins_written = store
        accesses = pointer.written if store else pointer.read
        accesses[(index, tuple(sorted(used.items())))] = elements

    def _arithmetic(self, expression: str, elements: int) -> None:
        for operator in _BINARY.findall(expression):
            self.flops += elements * (WEIGHTS["div"] if operator == "/" else BASIC)
        for name in _CALL.findall(expression):
            if name in _FUNCTIONS:
                function = _FUNCTIONS[name]
                self.flops += elements * WEIGHTS[function]
                self.special += elements * TRANSCENDENTALS.get(function, 0)
            elif name in _COMPARING:
                self.flops += elements * BASIC
            elif name in _RANDOM:
                self.flops += elements * _RANDOM[name]
            elif name.startswith("welford_combine"):
                self.flops += elements * _WELFORD


def _points(ranges: dict[str, tuple[int, int]]) -> int:
    count = 1
    for low, high in ranges.values():
        count *= high - low
    return count


def _different(index: str, ranges: dict[str, tuple[int, int]]) -> int:
    """How many different values an index expression takes over its loops."""
    text = index.replace("c10::div_floor_integer", "quotient")
    plain = text.replace("quotient", "")
    if _points(ranges) > _MOST_POINTS or not _INDEX_ONLY.fullmatch(plain):
        raise _UnreadableError
    grid = np.meshgrid(*(np.arange(*each) for each in ranges.values()), indexing="ij", sparse=True)
    names: dict[str, object] = dict(zip(ranges, grid))
    names["quotient"] = lambda a, b: a // b
    try:
        values = np.asarray(eval(re.sub(r"(\d)L", r"\1", text), {"__builtins__": {}}, names))
    except (NameError, SyntaxError, TypeError):
        raise _UnreadableError from None
    seen = np.zeros(int(values.max()) + 1, bool)
    seen[values.ravel()] = True
    return int(seen.sum())


def _names(index: str, variable: str) -> bool:
    return re.search(rf"\b{re.escape(variable)}\b", index) is not None


def _closing(line: str, opening: int) -> int:
    close = {"(": ")", "[": "]"}[line[opening]]
    depth = 0
    for place in range(opening, len(line)):
        if line[place] == line[opening]:
            depth += 1
        elif line[place] == close:
            depth -= 1
            if depth == 0:
                return place
    raise _UnreadableError
