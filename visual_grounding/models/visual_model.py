"""What all models with images share."""

from collections.abc import Mapping

from torch import Tensor, nn

from ..storage.weights import check_weights_fit


def check_checkpoint_fits(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Refuse a checkpoint whose weights aren't the model's, and name them: fairseq only says that they differ.

    Raises:
        InputError: weights are missing, superfluous, or of another shape.
    """
    check_weights_fit(
        model.state_dict(),
        state,
        "the checkpoint",
        "this model",
        "It was made with other model flags: give those that it was trained with, or another --save-dir to start "
        "afresh.",
    )
