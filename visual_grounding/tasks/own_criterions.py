"""Tasks whose batches can't be read by just any criterion."""

from collections.abc import Sequence
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import FairseqTask

from ..errors import InputError

_FAIRSEQS, _OURS = "fairseq.", f"{__name__.partition('.')[0]}."


class OwnCriterions(FairseqTask):
    """A task that refuses criterions of other tasks before it trains; a mixin, before the task that it derives from.

    One from outside fairseq and this package knows its task itself.

    Attributes:
        criterions: names of those here that read its batches; the first is the one to advise.
        takes_fairseqs: whether fairseq's do, too.
    """

    criterions: Sequence[str] = ()
    takes_fairseqs: bool = False

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """As fairseq's.

        Raises:
            InputError: the criterion is of another task.
        """
        name = str(getattr(cfg, "_name", None) or getattr(cfg, "criterion", None))
        where = getattr(CRITERION_REGISTRY.get(name), "__module__", "")
        others = (_OURS,) if self.takes_fairseqs else (_OURS, _FAIRSEQS)
        if name not in self.criterions and where.startswith(others):
            forgotten = " (fairseq's choice where none is given)" if name == "cross_entropy" else ""
            raise InputError(
                f"--criterion {name}{forgotten} can't read the batches of --task {self.cfg._name}: give --criterion "
                f"{' or '.join(self.criterions)}."
            )
        return super().build_criterion(cfg, from_checkpoint)
