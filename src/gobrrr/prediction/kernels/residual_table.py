"""Made by benchmarks/prediction_kernels/run.py --residuals: do not edit."""

SOURCE = "benchmarks/results/prediction_kernels_2026-11-24.json"

# Device -> class of op -> 10th and 90th percentile of measured over predicted, number of rows.
MEASURED: dict[str, dict[str, tuple[float, float, int]]] = {
    "A100-PCIe-40GB": {
        "batched products in float32": (0.902, 1.053, 442),
        "element-wise ops": (0.96, 1.01, 318),
        "layer norm": (0.876, 1.176, 74),
        "products in float32": (0.935, 1.193, 434),
        "softmax": (0.914, 1.549, 52),
    },
    "A100-PCIe-80GB": {
        "convolutions in float32": (0.835, 1.559, 514),
    },
    "A100-SXM-80GB": {
        "fused attention": (0.775, 1.486, 1143),
        "products in 16 bits": (0.92, 1.135, 948),
    },
    "H100-SXM": {
        "other ops": (0.786, 1.204, 18),
        "products in 16 bits": (0.893, 1.114, 1230),
    },
    "L40S": {
        "products in 16 bits": (0.845, 1.187, 1644),
    },
    "P100-PCIe": {
        "batched products in float32": (0.896, 1.129, 419),
        "convolutions in float32": (0.803, 1.61, 509),
        "element-wise ops": (0.955, 1.1, 476),
        "layer norm": (0.865, 1.172, 123),
        "products in float32": (0.86, 1.225, 468),
        "softmax": (1.008, 1.455, 78),
    },
    "P4": {
        "batched products in float32": (0.85, 1.139, 434),
        "convolutions in float32": (0.793, 1.545, 515),
        "element-wise ops": (0.95, 1.0, 887),
        "layer norm": (0.898, 1.226, 170),
        "products in float32": (0.791, 1.23, 512),
        "softmax": (0.973, 1.197, 122),
    },
    "T4": {
        "batched products in float32": (0.824, 1.347, 486),
        "convolutions in float32": (0.856, 1.376, 504),
        "element-wise ops": (0.942, 1.01, 736),
        "layer norm": (0.895, 1.233, 146),
        "products in float32": (0.851, 1.237, 462),
        "softmax": (0.979, 1.265, 105),
    },
    "V100-PCIe": {
        "batched products in float32": (0.925, 1.277, 396),
        "convolutions in float32": (0.822, 1.361, 510),
        "element-wise ops": (0.951, 1.0, 397),
        "layer norm": (0.883, 1.041, 77),
        "products in float32": (0.926, 1.15, 422),
        "softmax": (0.934, 1.189, 62),
    },
}
# Class of op -> the same for another device of a measured architecture, number of chips.
RELATED: dict[str, tuple[float, float, int]] = {
    "batched products in float32": (0.848, 1.161, 5),
    "convolutions in float32": (0.761, 1.382, 5),
    "element-wise ops": (0.939, 1.029, 5),
    "fused attention": (0.724, 1.406, 1),
    "layer norm": (0.889, 1.202, 5),
    "other ops": (0.91, 1.079, 1),
    "products in 16 bits": (0.869, 1.135, 3),
    "products in float32": (0.865, 1.207, 5),
    "softmax": (0.897, 1.255, 5),
}
# Class of op -> the same for a device with another architecture's constants.
BORROWED: dict[str, tuple[float, float, int]] = {
    "batched products in float32": (0.662, 1.756, 5),
    "convolutions in float32": (0.699, 1.683, 5),
    "element-wise ops": (0.81, 1.28, 5),
    "fused attention": (0.573, 1.778, 1),
    "layer norm": (0.818, 1.47, 5),
    "other ops": (0.622, 1.581, 1),
    "products in 16 bits": (0.664, 1.503, 3),
    "products in float32": (0.719, 1.879, 5),
    "softmax": (0.794, 1.538, 5),
}
