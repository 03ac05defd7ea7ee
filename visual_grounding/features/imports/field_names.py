"""Names by which published files of region features call what they hold.

Of Open Images' detector (VTLM): detection_features, detection_boxes (ymin, xmin, ymax, xmax in 0..1),
detection_classes, detection_scores. Of bottom-up attention and what followed it: features, boxes or bbox in pixels of a
picture of image_w x image_h, objects_id, objects_conf, attrs_id (LXMERT); image_features, image_bb, spatial_features
(six numbers, of which the first four are the box in 0..1) and pos_boxes in HDF5.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..blocks import SIZES
from ..columns import COLUMNS, NAMES

FEATURES = "array"  # the choice of which array is the features
COUNT = "count"  # how many regions there are, where arrays are filled up
Y_FIRST = ("detection_boxes",)  # TensorFlow's detectors write ymin, xmin, ymax, xmax
OF_THE_PICTURE = ("spatial_features", "detection_boxes")  # in 0..1 already, whatever sizes stand beside them
WIDTHS = ("image_w", "img_w", "image_width", "width_image", "width")
HEIGHTS = ("image_h", "img_h", "image_height", "height_image", "height")
KEYS = ("image_id", "img_id", "image_ids", "img_ids", "ids", "keys")
# Per choice, the first that is there.
KNOWN = {
    FEATURES: ("detection_features", "features", "image_features"),
    "boxes": ("detection_boxes", "spatial_features", "boxes", "bbox", "image_bb"),
    "labels": ("detection_classes", "objects_id"),
    "attributes": ("attrs_id",),
    "scores": ("detection_scores", "objects_conf"),
    COUNT: ("num_detections", "num_boxes"),
}


class Fields(NamedTuple):
    """Which array of an image is what.

    Attributes:
        features: its name; None for the only one that there is.
        columns: column -> name.
        sizes: names of the picture's width and height, or of one array of both; none where boxes are in 0..1.
        number: name of the number of regions; None where all count.
    """

    features: str | None
    columns: dict[str, str]
    sizes: tuple[str, ...] = ()
    number: str | None = None

    def asked(self) -> list[tuple[str, str | None]]:
        """Every array, behind the choice that it is."""
        sizes = [(SIZES, name) for name in self.sizes]
        count = [(COUNT, self.number)] if self.number else []
        return [(FEATURES, self.features), *self.columns.items(), *sizes, *count]

    @property
    def box_format(self) -> str:
        """How boxes of this name are written."""
        return "yxyx" if self.columns.get("boxes") in Y_FIRST else "xyxy"

    def said(self) -> str:
        """Which array is what, in a line.

        >>> Fields("features", {"boxes": "bbox"}, ("image_w", "image_h"), "num_boxes").said()
        'features: features, boxes: bbox (xyxy, in pixels of image_w x image_h), number of regions: num_boxes'
        """
        pixels = f", in pixels of {' x '.join(self.sizes)}" if self.sizes else ""
        form = {"boxes": f" ({self.box_format}{pixels})"}
        columns = [f"{column}: {name}{form.get(column, '')}" for column, name in self.columns.items()]
        count = [f"number of regions: {self.number}"] if self.number else []
        return ", ".join([f"features: {self.features}", *columns, *count])

    def described(self) -> dict[str, object]:
        """For a plan; nothing where nothing was chosen, as plans always were."""
        sizes = {SIZES: list(self.sizes)} if self.sizes else {}
        count = {COUNT: self.number} if self.number else {}
        return {**({FEATURES: self.features} if self.features else {}), **self.columns, **sizes, **count}


class Wanted(NamedTuple):
    """What was chosen, before a file was looked into.

    Attributes:
        features: name of the array of features; None to find it.
        columns: column -> name.
        sizes: names of the picture's width and height, or of one array of both.
        named: columns of numbers whose names are known; others are found only where they were chosen.
        columns_elsewhere: a table has all columns, so none is looked for.
    """

    features: str | None = None
    columns: Mapping[str, str] = {}
    sizes: tuple[str, ...] = ()
    named: Collection[str] = ()
    columns_elsewhere: bool = False


def find_fields(wanted: Wanted, present: Collection[str]) -> tuple[Fields, list[str]]:
    """Which arrays are what: what was chosen, and the rest by the names in use.

    Whoever chooses the features chooses everything: nothing else is found beside them.

    Returns:
        the fields; and what was found but left out, since nothing says what its numbers stand for.

    >>> fields, left_out = find_fields(Wanted(), ["bbox", "features", "image_w", "image_h", "objects_id"])
    >>> fields.columns, fields.sizes, left_out
    ({'boxes': 'bbox'}, ('image_w', 'image_h'), ['labels (objects_id)'])
    """
    chosen = dict(wanted.columns)
    found = {role: next((name for name in names if name in present), None) for role, names in KNOWN.items()}
    if wanted.features is not None or len(present) == 1 or found[FEATURES] is None:
        return Fields(wanted.features, _in_order(chosen), wanted.sizes), []
    left_out = []
    for column in COLUMNS:
        name = found[column]
        if name is None or column in chosen or wanted.columns_elsewhere:
            continue
        if column in NAMES and column not in wanted.named:
            left_out.append(f"{column} ({name})")
        else:
            chosen[column] = name
    sides = [next((name for name in names if name in present), None) for names in (WIDTHS, HEIGHTS)]
    sizes = wanted.sizes
    if not sizes and "boxes" in chosen and chosen["boxes"] not in OF_THE_PICTURE:
        sizes = tuple(side for side in sides if side is not None) if None not in sides else ()
    return Fields(found[FEATURES], _in_order(chosen), sizes, found[COUNT]), left_out


def _in_order(columns: Mapping[str, str]) -> dict[str, str]:
    return {name: columns[name] for name in COLUMNS if name in columns}
