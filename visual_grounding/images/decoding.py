"""Bytes of an image file -> upright RGB pixels.

Whatever is wrong with a single file is a reason, not a crash: web collections always hold some files that are missing,
empty, cut off, or no picture at all.
"""

import io
import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Only these: for others Pillow would start programs (EPS runs Ghostscript).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
# Pillow warns from here on and refuses at twice this size; here both are unreadable, so its warning says nothing new.
MAX_PIXELS = 89_478_485
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class UnreadableImage(Exception):
    """One file that can't be turned into pixels; the message is the reason, short enough for a table."""


def decode(content: bytes) -> Image.Image:
    """Turn a file's bytes into upright RGB.

    Palettes, grey, CMYK and 16-bit grey are converted; transparency is dropped; of an animation the first frame counts.

    Raises:
        UnreadableImage: with the reason.
    """
    if not content:
        raise UnreadableImage("empty file")
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UnreadableImage(f"{image.width}x{image.height} pixels, more than {MAX_PIXELS} in all")
            image.load()
            return _to_rgb(_upright(image))
    except UnreadableImage:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImage("not an image") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"more than {MAX_PIXELS} pixels") from error
    except (
        Exception
    ) as error:  # Pillow's decoders fail in many ways on broken files: OSError, SyntaxError, struct.error, …
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableImage(f"broken or truncated: {reason}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # Pillow would clip 16 bits at 255: nearly everything white
        return Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UnreadableImage("pixels are floating-point numbers of unknown range")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    try:
        image.getexif()  # Pillow remembers it, and
        image.info.pop("exif", None)  # doesn't write it anew without the orientation, which fails where a tag is odd
        return ImageOps.exif_transpose(image)
    except Exception:  # broken EXIF in a sound picture: it is shown as it lies
        return image
