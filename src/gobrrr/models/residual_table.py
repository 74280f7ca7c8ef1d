"""Made by benchmarks/prediction_kernels/run.py --residuals: do not edit."""

SOURCE = "benchmarks/results/prediction_kernels_2026-11-22.json"

# Device -> class of op -> 10th and 90th percentile of measured over predicted, number of rows.
MEASURED: dict[str, dict[str, tuple[float, float, int]]] = {
    "A100-PCIe-40GB": {
        "batched products in float32": (0.909, 1.037, 442),
        "element-wise ops": (0.926, 1.006, 318),
        "layer norm": (1.022, 1.312, 74),
        "products in float32": (0.968, 1.216, 434),
        "softmax": (0.95, 1.508, 52),
    },
    "A100-PCIe-80GB": {
        "convolutions in float32": (0.707, 1.515, 514),
    },
    "A100-SXM-80GB": {
        "fused attention": (0.765, 1.486, 1143),
        "products in 16 bits": (0.895, 1.234, 948),
    },
    "H100-SXM": {
        "other ops": (0.841, 1.409, 18),
        "products in 16 bits": (0.807, 1.139, 1230),
    },
    "L40S": {
        "products in 16 bits": (0.846, 1.251, 1644),
    },
    "P100-PCIe": {
        "batched products in float32": (0.892, 1.142, 419),
        "convolutions in float32": (0.707, 1.714, 509),
        "element-wise ops": (0.944, 1.079, 476),
        "layer norm": (1.082, 1.538, 123),
        "products in float32": (0.839, 1.304, 468),
        "softmax": (0.97, 1.611, 78),
    },
    "P4": {
        "batched products in float32": (0.745, 1.1, 434),
        "convolutions in float32": (0.7, 1.474, 515),
        "element-wise ops": (0.939, 0.998, 887),
        "layer norm": (0.986, 1.438, 170),
        "products in float32": (0.641, 1.589, 512),
        "softmax": (0.974, 1.2, 122),
    },
    "T4": {
        "batched products in float32": (0.763, 1.321, 486),
        "convolutions in float32": (0.701, 1.49, 504),
        "element-wise ops": (0.929, 1.003, 736),
        "layer norm": (0.94, 1.413, 146),
        "products in float32": (0.8, 1.233, 462),
        "softmax": (1.0, 1.282, 105),
    },
    "V100-PCIe": {
        "batched products in float32": (0.914, 1.245, 396),
        "convolutions in float32": (0.693, 1.405, 510),
        "element-wise ops": (0.921, 0.996, 397),
        "layer norm": (0.901, 1.067, 77),
        "products in float32": (0.912, 1.128, 422),
        "softmax": (1.018, 1.226, 62),
    },
}
