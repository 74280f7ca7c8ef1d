"""Made by benchmarks/intervals.py --table: do not edit."""

# Measured over predicted time, from the least to the most, and what says so.
INTERVALS: dict[str, tuple[float, float, str]] = {
    "KNOWN_HOST": (
        0.713,
        1.404,
        "42 host-bound steps on an H200, of the programs that the host's constants were fitted on",
    ),
    "ANY_HOST": (
        0.713,
        3.944,
        "81 host-bound steps on two hosts, of an H200 and of A100s",
    ),
    "RECORDED": (
        0.644,
        1.27,
        "6 recorded steps on H100-SXM and MI300X, whose extremes are taken 1.5 times as wide",
    ),
    "COMPILED": (
        0.95,
        1.247,
        "141 networks on an RTX 4090, one half of the families",
    ),
    "PROCESSOR": (
        0.718,
        1.834,
        "36 steps of six networks that the model was not fitted on, on Zen 4, Zen 5, Xeon",
    ),
    "WHOLE_STEPS.any": (
        0.753,
        1.209,
        "9 models of one half, each left out in turn",
    ),
    "WHOLE_STEPS.shards on one host": (
        0.936,
        1.342,
        "4 models of one half, each left out in turn",
    ),
    "WHOLE_STEPS.shards on several hosts": (
        1.0,
        1.34,
        "5 models of one half, each left out in turn",
    ),
    "WHOLE_STEPS.pipeline": (
        0.773,
        1.213,
        "4 models of one half, each left out in turn",
    ),
    "WHOLE_STEPS.tensor": (
        0.842,
        1.135,
        "4 models of one half, each left out in turn",
    ),
}
# The result files of those rows, in benchmarks/results.
FILES: dict[str, list[str]] = {
    "KNOWN_HOST": [
        "prediction_host_2026-11-26.json",
    ],
    "ANY_HOST": [
        "prediction_host_2026-11-26.json",
        "prediction_captured_third-run_2026-11-26.json",
    ],
    "RECORDED": [
        "prediction_traces_fifth-run_2026-11-26.json",
    ],
    "COMPILED": [
        "prediction_rtx4090_2026-11-26.json",
    ],
    "PROCESSOR": [
        "prediction_cpu_amd-epyc_2026-11-24.json",
        "prediction_cpu_amd-epyc_2026-11-26.json",
        "prediction_cpu_xeon_2026-11-25.json",
    ],
    "WHOLE_STEPS": [
        "prediction_captured_third-run_2026-11-26.json",
    ],
}
