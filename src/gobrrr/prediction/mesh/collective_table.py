"""Made by benchmarks/prediction_collectives/run.py --table: do not edit."""

# Device -> protocol -> coefficients of ``collective_protocols.terms``: microseconds, and
# the last one of the seconds on the link.
COEFFICIENTS: dict[str, dict[str, tuple[float, ...]]] = {
    "A100-SXM-80GB": {
        "LL": (7.542, 0.996, 3.331, 1.79),
        "LL128": (21.516, 0.0, 1.68),
        "P2P": (9.975, 1.158, 3.111, 36.641, 1.046),
        "SIMPLE": (25.903, 19.502, 1.052),
    },
    "H100-SXM": {
        "LL": (4.3, 0.865, 1.321, 1.546),
        "LL128": (6.226, 5.416, 1.131),
        "NVLS": (31.142, 85.911, 1.209),
        "P2P": (6.238, 0.415, 5.842, 6.02, 1.051),
        "SIMPLE": (11.043, 19.826, 1.009),
    },
}
# The same -> 10th and 90th percentile of measured over predicted.
BANDS: dict[str, dict[str, tuple[float, float]]] = {
    "A100-SXM-80GB": {
        "LL": (0.945, 1.076),
        "LL128": (0.97, 1.032),
        "P2P": (0.933, 1.108),
        "SIMPLE": (0.94, 1.063),
    },
    "H100-SXM": {
        "LL": (0.944, 1.109),
        "LL128": (0.976, 1.028),
        "NVLS": (0.983, 1.014),
        "P2P": (0.887, 1.196),
        "SIMPLE": (0.938, 1.097),
    },
}
# Of a device with the other one's coefficients: what an unmeasured one is told.
UNMEASURED: dict[str, tuple[float, float]] = {
    "LL": (0.568, 1.725),
    "LL128": (0.736, 1.37),
    "NVLS": (0.565, 1.725),
    "P2P": (0.565, 1.715),
    "SIMPLE": (0.619, 1.594),
}
