import pytest

pytestmark = pytest.mark.torch


def test_graph_breaks_and_recompilations_are_counted():
    import torch

    from gobrrr.observe.compiler_counters import compiler_counters, counted_since

    def cosine_of(x):
        y = x.cos()
        torch._dynamo.graph_break()
        return y.sin()

    compiled = torch.compile(cosine_of, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    before = compiler_counters()
    compiled(torch.ones(3))
    assert counted_since(before) == dict.fromkeys(before, 0.0)
    compiled(torch.ones(4))
    # One break; two graphs, before it and after it; each replaces the version for 3 elements.
    assert counted_since(before) == {
        "graph_breaks": 1.0, "compiled_graphs": 2.0, "recompilations": 2.0,
    }  # fmt: skip
