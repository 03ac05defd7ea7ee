"""A detector in an ONNX file, small enough to be worked by hand: it finds what its constants say, in every picture."""

from pathlib import Path

import numpy as np

BOXES = [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.5, 0.4], [-0.25, 0.5, 0.5, 1.125], [0.5, 0, 0.5, 1]]
LABELS = [0, 1, 0, 2, 1]
SCORES = [0.5, 0.75, 0.4, 0.3, 0.2]  # the last box has no area; the third lies in the first, of the same class
NAMES = ["cat", "dog", "bird"]


def write_detector(
    path: Path,
    boxes: list[list[float]] = BOXES,
    labels: list[int] = LABELS,
    scores: list[float] = SCORES,
    attributes: list[int] | None = None,
    maps: bool = True,
    sizes: bool = True,
    colours: int = 3,
    batch: int | str = "N",
    side: int | str = 8,
    rename: dict[str, str] | None = None,
) -> Path:
    """Write one. `map_fine` (3, 4, 4) is the picture, halved; `map_mean` (3, 2, 2) its means over quarters.

    Args:
        sizes: whether it has the input of sizes, by which it multiplies boxes.
        batch: pictures at once; a name for any.
        side: of the pictures; a name for any.
        rename: outputs to call otherwise.
    """
    import onnx  # not where scripts/gpu.sh runs, which only collects these tests
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "found_boxes": np.array([boxes], np.float32),
        "found_labels": np.array([labels], np.int64),
        "found_scores": np.array([scores], np.float32),
        "first": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "many": np.array([len(boxes)], np.int64),
        "wide": np.array([len(boxes[0])], np.int64),
        "scored": np.array([len(scores)], np.int64),
        "middle": np.array([1], np.int64),
    }
    if attributes is not None:
        constants["found_attributes"] = np.array([attributes], np.int64)
    called = rename or {}
    nodes = [
        helper.make_node("Shape", ["images"], ["shape"]),
        helper.make_node("Slice", ["shape", "first", "one"], ["n"]),
        helper.make_node("Concat", ["n", "many"], ["n_q"], axis=0),
        helper.make_node("Concat", ["n", "many", "wide"], ["n_q_wide"], axis=0),
        helper.make_node("Expand", ["found_labels", "n_q"], [called.get("labels", "labels")]),
        helper.make_node("Concat", ["n", "scored"], ["n_s"], axis=0),
        helper.make_node("Expand", ["found_scores", "n_s"], [called.get("scores", "scores")]),
        helper.make_node(
            "Expand", ["found_boxes", "n_q_wide"], ["boxes_of_1" if sizes else called.get("boxes", "boxes")]
        ),
        helper.make_node("AveragePool", ["images"], ["map_fine"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["images"], ["map_mean"], kernel_shape=[4, 4], strides=[4, 4]),
    ]
    inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, colours, side, side])]
    if sizes:
        nodes += [
            helper.make_node("Cast", ["orig_target_sizes"], ["sizes"], to=TensorProto.FLOAT),
            helper.make_node("Tile", ["sizes", "two_sides"], ["corners"]),
            helper.make_node("Unsqueeze", ["corners", "middle"], ["scales"]),
            helper.make_node("Mul", ["boxes_of_1", "scales"], [called.get("boxes", "boxes")]),
        ]
        constants["two_sides"] = np.array([1, 2], np.int64)
        inputs.append(helper.make_tensor_value_info("orig_target_sizes", TensorProto.INT64, ["N", 2]))
    outputs = [
        helper.make_tensor_value_info(called.get("labels", "labels"), TensorProto.INT64, ["N", len(boxes)]),
        helper.make_tensor_value_info(called.get("boxes", "boxes"), TensorProto.FLOAT, ["N", len(boxes), "C"]),
        helper.make_tensor_value_info(called.get("scores", "scores"), TensorProto.FLOAT, ["N", len(scores)]),
    ]
    if attributes is not None:
        nodes.append(helper.make_node("Expand", ["found_attributes", "n_q"], ["attributes"]))
        outputs.append(helper.make_tensor_value_info("attributes", TensorProto.INT64, ["N", len(boxes)]))
    if maps:
        outputs.append(helper.make_tensor_value_info("map_fine", TensorProto.FLOAT, ["N", colours, 4, 4]))
        outputs.append(helper.make_tensor_value_info("map_mean", TensorProto.FLOAT, ["N", colours, 2, 2]))
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    onnx.save(model, str(path))
    return path
