"""Words that say nothing about what a sentence is about.

# Deviation: Zhang et al. (2020) use the English list of stopwords-iso, about 1,300 words. This one is shorter:
# articles, pronouns, prepositions, conjunctions, auxiliaries, common adverbs. Give theirs, or another language's, as a
# file.
"""

from pathlib import Path

from ..storage.lines import read_lines
from .words import split_words

ENGLISH = frozenset(
    split_words(
        """
    a an the this that these those such
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one ones oneself
    who whom whose which what whatever whoever where when why how
    someone somebody something anyone anybody anything everyone everybody everything nobody nothing none
    some any each every either neither both all many much more most few fewer less least several other others another
    own same
    about above across after against along among amid around as at before behind below beneath beside besides between
    beyond by despite down during except for from in inside into like near next of off on onto out outside over past per
    since through throughout till to toward towards under underneath until up upon via with within without
    and but or nor so yet if than though although because while whereas unless whether then else
    be am is are was were been being have has had having do does did doing done will would shall should can could may
    might must ought need dare
    get gets getting got
    not no never always often sometimes ever again once also too very just only even still already almost quite rather
    really now here there away back together else perhaps maybe however therefore thus
    s t d ll m re ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn cannot
    """
    )
)


def read_stop_words(path: str | Path) -> frozenset[str]:
    """Words of a file, one a line, split as captions are: `don't` becomes `don` and `t`.

    Raises:
        InputError: as `read_lines`.
    """
    return frozenset(word for line in read_lines(path) for word in split_words(line))
