"""What torchrun's environment says about this process."""

import os
import re

import pytest

from visual_grounding.devices import choose_device
from visual_grounding.errors import InputError
from visual_grounding.storage.ranks import local_rank, ranks_here, this_rank

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "a",
    "MASTER_ADDR": "node",
    "MASTER_PORT": "29500",
}


def test_rank_is_a_job_of_its_own_without_torchrun() -> None:
    rank = this_rank({})
    assert (rank.number, rank.world, rank.leads) == (0, 1, True)
    assert str(os.getpid()) in rank.job
    assert (local_rank({}), ranks_here({})) == (None, 1)
    assert this_rank({"WORLD_SIZE": "1", "RANK": "0"}).job == rank.job


def test_rank_shares_its_job_with_the_other_ranks_only() -> None:
    rank = this_rank(TORCHRUN)
    assert (rank.number, rank.world, rank.leads) == (3, 4, False)
    assert (local_rank(TORCHRUN), ranks_here(TORCHRUN)) == (1, 2)
    assert this_rank({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}).job == rank.job
    for name, value in (("WORLD_SIZE", "5"), ("TORCHELASTIC_RUN_ID", "b"), ("MASTER_PORT", "1")):
        assert this_rank({**TORCHRUN, name: value}).job != rank.job


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"RANK": "4"}, "RANK should be 0 to 3, because WORLD_SIZE is 4, but is 4"),
        ({"RANK": "-1"}, "RANK should be a number from 0, as torchrun sets it, but is '-1'"),
        ({"RANK": ""}, "RANK should be a number from 0, as torchrun sets it, but is ''"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE should be a number from 1, as torchrun sets it, but is 'two'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE should be a number from 1, as torchrun sets it, but is '0'"),
    ],
)
def test_rank_refuses_an_environment_that_torchrun_never_made(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        this_rank({**TORCHRUN, **wrong})
    with pytest.raises(InputError, match="LOCAL_RANK should be a number from 0"):
        local_rank({**TORCHRUN, "LOCAL_RANK": "x"})


def test_every_rank_has_a_card_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert str(choose_device(None)) == "cuda"
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert str(choose_device(None)) == str(choose_device("cuda")) == "cuda:1"
    assert str(choose_device("cuda:0")) == "cuda:0"  # asked for by name
    assert str(choose_device("cpu")) == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(
        InputError, match=r"LOCAL_RANK is 2 and there are 2 devices here\. Start with --nproc-per-node 2"
    ):
        choose_device(None)
