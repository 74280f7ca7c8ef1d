"""Fixes that take work away give the same numbers, and prove that they changed something."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from gobrrr import Workload  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from gobrrr.fixes.rewriting.rewrite import rewrite  # noqa: E402
from gobrrr.measure.summary import Interval  # noqa: E402
from gobrrr.verification.copies import private_copy  # noqa: E402
from gobrrr.verification.timing import Null  # noqa: E402
from gobrrr.verification.workloads import verify_workload  # noqa: E402

pytestmark = pytest.mark.torch
BY_NAME = {fix.name: fix for fix in FIXES}
QUIET = Null(Interval(1.0, 0.99, 1.01), True, 1e-3)


def trial(work, name):
    return verify_workload(work, [BY_NAME[name]], null=QUIET, budget_s=0.2)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5000, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.words(tokens).mean(dim=1))


def test_sparse_gradients_move_the_same_rows():
    torch.manual_seed(0)
    model = Words()
    work = Workload(
        model, torch.randint(5000, (4, 6)), loss=functional.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), 0.1), targets=torch.randint(3, (4,)),
    )  # fmt: skip
    done = trial(work, "sparse_gradients")
    assert (
        done.numerics["verdict"] == "passed"
        if isinstance(done.numerics, dict)
        else (done.numerics.verdict == "passed")
    )
    assert "no effect" not in done.reason
    assert not model.words.sparse


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, torch.nn.utils.spectral_norm])
def test_weights_are_fixed_in_evaluation(norm):
    torch.manual_seed(0)
    model = nn.Sequential(norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 2)).eval()
    done = trial(Workload(model, torch.randn(3, 6)), "fixed_parametrizations")
    assert done.verdict in ("faster", "same", "slower", "incomparable")
    assert "no effect" not in done.reason


def test_a_model_without_norms_is_not_changed_by_fixing_its_weights():
    done = trial(Workload(nn.Linear(3, 3).eval(), torch.randn(2, 3)), "fixed_parametrizations")
    assert "no effect" in done.reason


def test_float32_reaches_the_parts_behind_constants_in_float64():
    torch.manual_seed(0)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4).double()
            self.mean = torch.randn(4, dtype=torch.float64)

        def forward(self, x):
            return self.layer(x - self.mean)

    work = Workload(Scaled().eval(), torch.randn(3, 4))
    done = trial(work, "float32")
    assert done.verdict != "failed"
    assert "no effect" not in done.reason
    assert work.model.layer.weight.dtype == torch.float64


class Biased(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.bias = nn.Parameter(torch.randn(2, tokens, tokens))

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (layer(x).view(n, t, 2, 8) for layer in (self.q, self.k, self.v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / 8**0.5
        weights = (scores + self.bias).softmax(dim=-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).reshape(n, t, 16)


def test_attention_in_einsum_with_a_bias_is_fused():
    torch.manual_seed(0)
    done = trial(Workload(Biased(12).eval(), torch.randn(2, 12, 16)), "fused_attention")
    assert done.verdict != "failed", done.reason
    assert "no effect" not in done.reason


def test_an_einsum_that_is_no_attention_is_left_alone():
    class Other(nn.Module):
        def forward(self, x):
            weights = torch.einsum("bid,bjd->bij", x, x).softmax(dim=-1)
            # The weights' rows run over the keys: summed over the other dimension.
            return torch.einsum("bji,bjd->bid", weights, x)

    done = trial(Workload(Other().eval(), torch.randn(2, 5, 4)), "fused_attention")
    assert "no effect" in done.reason


def test_every_fix_that_is_applied_proves_that_it_took_effect():
    silent = {fix.name for fix in FIXES if fix.can_be_applied and fix.changes_made is None}
    # What is set when a process starts is counted by no process.
    assert silent == {fix.name for fix in FIXES if fix.environment}


def test_a_layout_that_a_model_has_already_is_no_effect():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert "no effect" in trial(Workload(model, x), "channels_last").reason
    assert (
        "no effect"
        not in trial(
            Workload(nn.Conv2d(3, 4, 3).eval(), torch.randn(2, 3, 8, 8)), "channels_last"
        ).reason
    )


def test_an_optimizer_of_the_users_own_is_copied_with_its_attributes():
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})
            self.scale = 2.0

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * self.scale * group["lr"])

    model = nn.Linear(3, 3)
    work = Workload(model, torch.randn(2, 3), loss=torch.sum, optimizer=Own(model.parameters()))
    made = private_copy(work)
    made.step()
    assert made.optimizer.scale == 2.0
    assert made.optimizer.param_groups[0]["params"][0] is made.model.weight
    assert model.weight.grad is None


def test_threads_hold_whatever_number_a_script_sets():
    before, fix = torch.get_num_threads(), BY_NAME["one_thread"]
    made = fix.changes_made()
    with fix.in_script():
        torch.set_num_threads(2)
        assert torch.get_num_threads() == 1
        assert fix.changes_made() > made
    torch.set_num_threads(before)
    script = "import torch\ntorch.set_num_threads(4)\n"
    written = rewrite(script, [fix], 2.0).text
    assert "set_num_threads(4)" not in written
    assert written.count("torch.set_num_threads(1)") == 2
