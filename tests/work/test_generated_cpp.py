"""Kernels as Inductor writes them (shortened), and what their source says of their work."""

from gobrrr.work.generated_cpp import kernel_name, work_of_cpp_kernel

HEAD = """extern "C"  void  kernel({parameters})
{{
    torch::aot_inductor::{handle} record_graph_0_{name}_("graph_0_{name}", nullptr);
    #pragma omp parallel
    {{
{body}
    }}
}}
"""
LOOP = (
    "for(int64_t {v}=static_cast<int64_t>({a}L); {v}<static_cast<int64_t>({b}L); "
    "{v}+=static_cast<int64_t>({w}L))"
)


def loop(variable: str, end: int, step: int = 1, begin: int = 0) -> str:
    return LOOP.format(v=variable, a=begin, b=end, w=step)


def kernel(parameters: str, *lines: str, name: str = "cpp_fused_cos_0") -> str:
    handle = "RAIIAtenRecordFunctionHandle"
    return HEAD.format(parameters=parameters, name=name, handle=handle, body="\n".join(lines))


COS_OF_COS = kernel(
    "const float* in_ptr0,\n float* out_ptr0",
    loop("x0", 1001, 8),
    "{",
    "if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(1000L)))",
    "{",
    "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), "
    "static_cast<int64_t>(8));",
    "auto tmp1 = tmp0.cos();",
    "auto tmp2 = tmp1.cos();",
    "tmp2.store(out_ptr0 + static_cast<int64_t>(x0));",
    "}",
    "if(C10_UNLIKELY(x0 >= static_cast<int64_t>(1000L) && x0 < static_cast<int64_t>(1001L)))",
    "{",
    "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), "
    "static_cast<int64_t>(1));",
    "auto tmp1 = tmp0.cos();",
    "auto tmp2 = tmp1.cos();",
    "tmp2.store(out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(1));",
    "}",
    "}",
)


def test_body_and_tail_of_a_vector_loop_add_up_to_its_elements() -> None:
    work = work_of_cpp_kernel(COS_OF_COS)
    assert kernel_name(COS_OF_COS) == "graph_0_cpp_fused_cos_0"
    assert (work.bytes_read, work.bytes_written) == (4004, 4004)  # 1001 * 4
    assert work.vector_flops == 16016  # two cosines of 8 for each of 1001
    assert work.special == 2002
    assert work.op_class == "elementwise"


def test_what_is_read_again_by_a_second_loop_is_read_once() -> None:
    access = "in_ptr0 + static_cast<int64_t>(x1 + 64L*x0)"
    row = [
        loop("x1", 64, 8),
        "{",
        f"auto tmp0 = at::vec::Vectorized<float>::loadu({access}, static_cast<int64_t>(8));",
        "tmp_acc0_vec = tmp_acc0_vec + tmp0;",
        "}",
    ]
    work = work_of_cpp_kernel(
        kernel(
            "const float* in_ptr0, float* out_ptr0",
            loop("x0", 32),
            "{",
            *row,
            *row,
            "out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0);",
            "}",
        )
    )
    assert (work.bytes_read, work.bytes_written) == (32 * 64 * 4, 32 * 4)
    assert work.vector_flops == 2 * 32 * 64
    assert work.op_class == "normalisation"


def test_what_the_kernel_wrote_itself_is_not_fetched() -> None:
    work = work_of_cpp_kernel(
        kernel(
            "const float* in_ptr0, float* out_ptr0",
            loop("x0", 32),
            "{",
            "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];",
            "out_ptr0[static_cast<int64_t>(x0)] = tmp0;",
            "auto tmp1 = out_ptr0[static_cast<int64_t>(x0)];",
            "}",
        )
    )
    assert (work.bytes_read, work.bytes_written, work.vector_flops) == (128, 128, 0)
    assert work.op_class == "movement"


def test_quotients_in_an_index_are_evaluated() -> None:
    # repeat_interleave(2): 16 rows of 4 written from 8 rows read.
    index = "4L*(c10::div_floor_integer(static_cast<int64_t>(x0), static_cast<int64_t>(2L))) + x1"
    work = work_of_cpp_kernel(
        kernel(
            "const float* in_ptr0, float* out_ptr0",
            loop("x0", 16),
            "{",
            loop("x1", 4),
            "{",
            f"auto tmp0 = in_ptr0[static_cast<int64_t>({index})];",
            "out_ptr0[static_cast<int64_t>(x1 + 4L*x0)] = tmp0;",
            "}",
            "}",
        )
    )
    assert (work.bytes_read, work.bytes_written) == (8 * 4 * 4, 16 * 4 * 4)


def test_loops_inside_a_tile_count_its_elements_once() -> None:
    work = work_of_cpp_kernel(
        kernel(
            "const float* in_ptr0, float* out_ptr0",
            loop("x0", 16, 8),
            "{",
            "for (int64_t x0_inner = static_cast<int64_t>(0L); "
            "x0_inner < static_cast<int64_t>(8L); x0_inner++)",
            "{",
            "auto tmp0 = in_ptr0[static_cast<int64_t>(x0 + x0_inner)];",
            "auto tmp1 = tmp0 + tmp0;",
            "out_ptr0[static_cast<int64_t>(x0 + x0_inner)] = tmp1;",
            "}",
            "}",
        )
    )
    assert (work.bytes_read, work.bytes_written, work.vector_flops) == (64, 64, 16)


def test_bounds_that_are_known_only_at_run_time_leave_the_work_unknown() -> None:
    source = kernel("const float* in_ptr0, float* out_ptr0, const int64_t ks0", loop("x0", 4))
    assert work_of_cpp_kernel(source) is None
    dynamic = "for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(s0); x0+=1)"
    assert work_of_cpp_kernel(kernel("float* out_ptr0", dynamic)) is None
    assert work_of_cpp_kernel("int main() {}") is None
