import pytest

from gobrrr.diagnosis.tables import module_pattern


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["h.0.attn", "h.1.attn"], "h.*.attn"),
        (["h.0.attn", "h.0.mlp"], "h.0.*"),
        (["encoder"], "encoder"),
        (["encoder", "decoder"], None),
        (["h.0", "h.0.attn"], None),
        ([""], None),
    ],
)
def test_modules_of_one_op_are_named_by_what_they_share(paths, pattern):
    assert module_pattern(paths) == pattern
