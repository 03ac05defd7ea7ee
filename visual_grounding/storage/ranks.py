"""Which of several processes this is, where one command runs in all of them: `torchrun --no-python visual-grounding …`.

They share the work and one output by files alone, so nothing has to be initialised and any device will do.
"""

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import InputError


class Rank(NamedTuple):
    """This process among those of its job.

    Attributes:
        number: 0 to `world` - 1.
        world: how many there are; 1 for a process by itself.
        job: the same for all processes of a job, and for no others.
    """

    number: int
    world: int
    job: str

    @property
    def leads(self) -> bool:
        """Whether this process speaks for the job: it shows the progress, prints the result, and publishes."""
        return self.number == 0


def this_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Read what torchrun tells its processes: RANK, WORLD_SIZE, and what names the job.

    Raises:
        InputError: RANK and WORLD_SIZE aren't numbers that fit.
    """
    world = _number(environment, "WORLD_SIZE", 1, lowest=1)
    if world == 1:
        return Rank(0, 1, f"{socket.gethostname()} {os.getpid()}")
    number = _number(environment, "RANK", None, lowest=0)
    if number >= world:
        raise InputError(f"RANK should be 0 to {world - 1}, because WORLD_SIZE is {world}, but is {number}.")
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    return Rank(number, world, " ".join([f"{world} ranks", *(environment.get(name, "") for name in names)]).strip())


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The place of this process among those of its job on this machine; None for a process by itself.

    Raises:
        InputError: LOCAL_RANK isn't a number.
    """
    if this_rank(environment).world == 1:
        return None
    return _number(environment, "LOCAL_RANK", 0, lowest=0)


def ranks_here(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes of this job share this machine.

    Raises:
        InputError: LOCAL_WORLD_SIZE isn't a number.
    """
    return 1 if this_rank(environment).world == 1 else _number(environment, "LOCAL_WORLD_SIZE", 1, lowest=1)


def _number(environment: Mapping[str, str], name: str, default: int | None, lowest: int) -> int:
    value = environment.get(name, "" if default is None else str(default))
    if not value.isdecimal() or int(value) < lowest:
        raise InputError(
            f"the environment variable {name} should be a number from {lowest}, as torchrun sets it, but is {value!r}. "
            "Start several processes with: torchrun --nproc-per-node N --no-python visual-grounding …"
        )
    return int(value)
