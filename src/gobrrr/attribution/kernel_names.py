"""What a device kernel is, from its name alone: for kernels whose work is unknown.

A family says which resource such a kernel lives on, never how much of it: FLOPs and bytes stay
unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from gobrrr.attribution.leaves import COMPUTE_UNMODELLED, MEMORY_UNMODELLED, UNMODELLED
from gobrrr.work.estimate import Work


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of kernel: its name for reports, and the regime it counts under without a roof."""

    name: str
    regime: int


# Of a tensor of images, from one order of its dimensions into another.
_LAYOUTS = r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|batched_transpose"
# The first match wins, so the specific stand before the general: a reduction that belongs to a
# split GEMM before GEMM, a batch-norm before the element-wise templates it may be built from.
_FAMILIES: tuple[tuple[Family, str], ...] = (
    (Family("elementwise", MEMORY_UNMODELLED), r"^triton_poi_"),
    (
        Family("reduction", MEMORY_UNMODELLED),
        r"^triton_(?:red|per)_|splitk_?reduce|split_?k_?reduction|cublasLt.*reduce|postGSU|_PostGSU",
    ),
    (
        Family("layout change", MEMORY_UNMODELLED),
        rf"{_LAYOUTS}|im2col|col2im|vol2col"
        r"|transpose_readWrite|SubTensorOp|compute\w*Offsets|reshape_and_cache",
    ),
    (
        Family("attention", COMPUTE_UNMODELLED),
        r"flash|fmha|attn_(?:fwd|bwd)|attention|\bmha_|_mha_|bwd_preprocess.*dot_do_o|sdpa",
    ),
    (
        Family("normalisation", MEMORY_UNMODELLED),
        r"layer_?norm|rms_?norm|batch_?norm|\bbn_(?:fw|bw)|group_?norm|instance_?norm|miopenbatchnorm"
        r"|softmax|RowwiseMoments|GammaBeta|weight_norm",
    ),
    (
        Family("convolution", COMPUTE_UNMODELLED),
        r"convol|conv\d?d?_|_conv|scudnn|[dw]grad_|winograd|implicit_gemm|igemm_(?:fwd|bwd|wrw)"
        r"|xmma_(?:fprop|dgrad|wgrad)|miopenSp3|naive_conv|gridwise_.*conv|fprop|cudnn_infer",
    ),
    (
        Family("gemv", MEMORY_UNMODELLED),
        r"^aten::(?:mv|dot|addmv)$|gemv|_dot_kernel|dot_kernel|reduce_1Block",
    ),
    (
        Family("gemm", COMPUTE_UNMODELLED),
        r"^aten::(?:mm|addmm|bmm|baddbmm|addbmm|linear|matmul|mkldnn_linear|einsum)$"
        r"|gemm|cutlass|^Cijk_|nvjet|cublas|wgmma|matmul|triton_tem_|_mm_|ck::.*tensor_operation"
        r"|tensor_operation6device|\brocblas_(?:ge|sy)|\bmm_kernel|marlin|machete|fused_moe",
    ),
    (
        Family("optimizer", MEMORY_UNMODELLED),
        r"multi_tensor_apply|fused_adam|adam_?w?functor|sgd_kernel|lamb_",
    ),
    (
        Family("embedding", MEMORY_UNMODELLED),
        r"embedding|index_?select|gather|scatter|index_(?:put|elementwise|copy|add|fill|kernel)"
        r"|indexing_|take_|permute_\d?d?_?|permute_pooled|permute_indices|bounds_check_indices"
        r"|linearize_index",
    ),
    (
        Family("sort or scan", MEMORY_UNMODELLED),
        r"cub::|rocprim|hipcub|thrust|radix|sort|scan|top_?k|bitonic|unique|compact",
    ),
    (
        Family("reduction", MEMORY_UNMODELLED),
        r"^aten::(?:sum|mean|amax|amin|max|min|norm)$|reduce|reduction|nll_?(?:loss|criterion)|cross_entropy|argmax|argmin|_sum_",
    ),
    (
        Family("pooling", MEMORY_UNMODELLED),
        r"pool|upsample|interpolate|grid_sampl|roi_align",
    ),
    (
        Family("copy", MEMORY_UNMODELLED),
        r"CatArray|copy|concat|fill|memcpy|memset|pad_|roll_|flip_|arange|tri[ul]_|transpose"
        r"|opaque|cast_|dequant|quant",
    ),
    (
        Family("elementwise", MEMORY_UNMODELLED),
        r"^aten::(?:add|sub|mul|div|pow|sqrt|rsqrt|exp|neg|threshold_backward|erf|where)_?$"
        r"|elementwise|pointwise|unrolled|dropout|silu|gelu|relu|sigmoid|tanh|rotary"
        r"|rope|act_and_mul|activation|scale|bias|philox|distribution|op_tensor|OpTensor|fp8|where"
        r"|CUDAFunctor",
    ),
)
OTHER = Family("other", UNMODELLED)


@lru_cache(maxsize=8192)
def family_of(kernel_name: str) -> Family:
    """The family of a kernel; ``OTHER`` if its name does not tell.

    The template's own name decides before what it is instantiated with, so
    ``reduce_kernel<..., sum_functor>`` is a reduction.
    """
    # The library of embeddings has a GEMM in its own name.
    kernel_name = kernel_name.replace("fbgemm_gpu::", "")
    head = _template_name(kernel_name)
    for text in (head, kernel_name):
        for family, pattern in _FAMILIES:
            if _compiled(pattern).search(text):
                return family
    return OTHER


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when a kernel first needs it: all of them take longer than reading a short trace."""
    return re.compile(pattern, re.IGNORECASE)


def regime_without_roof(work: Work | None, family: Family) -> int:
    """The regime of a kernel without a roof: its formula's class, else the family of its name."""
    if work is None or work.op_class == "other":
        return family.regime
    return COMPUTE_UNMODELLED if work.op_class == "contraction" else MEMORY_UNMODELLED


def _template_name(name: str) -> str:
    """The name up to its template arguments, without its return type."""
    name = name.replace("(anonymous namespace)::", "")
    if name.startswith("void "):
        name = name[5:]
    cut = len(name)
    for stop in "<(":
        at = name.find(stop)
        if 0 < at < cut:
            cut = at
    return name[:cut]


# cuBLAS and CUTLASS name the instruction: s1688 multiplies TF32 and adds FP32 on tensor cores,
# where fp16 and bf16 variants say so in the name (CUTLASS 3 documentation, "Profiler").
_TF32 = re.compile(r"tf32|(?<!f16_)(?<!fp16_)(?<!bf16_)s1688(?:gemm|fprop|dgrad|wgrad)|_s1688_")


@lru_cache(maxsize=1 << 14)
def uses_tf32(kernel_name: str) -> bool:
    """Whether a float32 kernel says that it multiplies in TF32."""
    return _TF32.search(kernel_name) is not None


@lru_cache(maxsize=1 << 14)
def is_layout_change(kernel_name: str) -> bool:
    """Whether a kernel lays images out in another order of their dimensions, and does no more."""
    return _compiled(_LAYOUTS).search(_template_name(kernel_name)) is not None


_DTYPE_TOKENS = re.compile(
    r"(?P<bfloat16>c10::BFloat16|__(?:nv|hip)_bfloat16|\bbfloat16)|(?P<float16>c10::Half|__half\b)"
    r"|OpaqueType<(?P<bytes>\d+)u?>|(?P<float64>\bdouble\b)|(?P<float32>\bfloat\b)"
)


def element_of(kernel_name: str) -> str | int | None:
    """What a template kernel's name says of its elements: a dtype, or only their bytes.

    The first type among the template's arguments: that of the tensors in PyTorch's own kernels.
    ``None`` if the name does not tell.
    """
    match = _DTYPE_TOKENS.search(kernel_name)
    if match is None:
        return None
    return int(match["bytes"]) if match["bytes"] else match.lastgroup
