"""Queries and images that are hard to search: to tell apart, to bound, or to compute with."""

from functools import cache

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

PRECISIONS = [torch.bfloat16, torch.float16, torch.float32]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def units(*shape: int, seed: int = 0) -> Tensor:
    return normalize(numbers(*shape, seed=seed), dim=1)


def one_step_apart(count: int, size: int) -> Tensor:
    """Copies of a vector, each with one number changed to the next one in float32, up or down."""
    rows = units(1, size).repeat(count, 1)
    generator = torch.Generator().manual_seed(1)
    at = torch.randint(0, size, (count, 1), generator=generator)
    up = torch.randint(0, 2, (count, 1), generator=generator) * 4.0 - 2
    return rows.scatter(1, at, torch.nextafter(rows.gather(1, at), up))


@cache
def adversaries() -> dict[str, tuple[Tensor, Tensor]]:
    """Queries and images that are hard to tell apart, to bound, or to compute with."""
    queries, images = units(40, 24), units(700, 24, seed=1)
    absent = images.clone()
    absent[torch.rand(700, generator=torch.Generator().manual_seed(2)) < 0.9] = 0
    absent[:100] = 0
    cone = normalize(0.3 * images + torch.ones(24), dim=1)
    # Numbers whose squares are 0 in float32, if they are tiny; in bfloat16 the first image is nearer than the last.
    almost = torch.full((1, 64), 1 + 0.99 * 2.0**-8)
    nearly = torch.ones(62, 64)
    nearly[0, :29] = 1 + 2.0**-7
    nearly[61] = almost
    growing = torch.linspace(0.01, 1, 700).unsqueeze(1) * torch.ones(24)
    similar = one_step_apart(700, 24)
    return {
        "random": (queries, images),
        "copies": (queries, images[:35].repeat(20, 1)),
        "alike": (queries, images[:1] + 0.003 * numbers(700, 24, seed=2)),
        "all equal": (queries, images[:1].repeat(700, 1)),
        "one step apart": (torch.cat([queries, similar[:9]]), similar),
        "pairs one step apart": (queries, torch.cat([images[:350], torch.nextafter(images[:350], images[350:])])),
        "negative": (-cone[:40], cone),
        "few positive": (-cone[:40], torch.cat([cone, -cone[:1]])),
        "rounded to float16": (queries.half().float(), images.half().float()),
        "rounded to float16, tiny": ((queries / 1000).half().float(), (images / 1000).half().float()),
        "small integers": (numbers(40, 24).round(), numbers(700, 24, seed=1).round()),
        "few small integers": (numbers(40, 2).round(), numbers(700, 2, seed=1).round()),
        "tiny": (queries * 1e-30, images * 1e-30),
        "tiny queries": (almost * 2.0**-80, nearly),
        "tiny images": (almost, nearly * 2.0**-80),
        "subnormal products": (queries * 1e-20, images * 1e-19),
        "subnormal": (queries, images * 1e-41),
        "large": (queries * 1e18, images * 1e18),
        "too large for float16": (queries * 300, images * 300),
        "of all sizes": (queries * numbers(40, 1).mul(9).exp(), images * numbers(700, 1, seed=1).mul(9).exp()),
        "absent": (queries, absent),
        "absent and negative": (-cone[:40], cone * absent.any(dim=1, keepdim=True)),
        "all absent": (queries, torch.zeros(700, 24)),
        "empty queries": (queries * (torch.arange(40) % 3 > 0).unsqueeze(1), absent),
        "better and better": (torch.cat([queries, torch.ones(2, 24)]), growing),
        "one image": (queries, images[:1]),
        "one number": (numbers(40, 1), numbers(700, 1, seed=1)),
    }


@st.composite
def collections(draw: st.DrawFn, most: int) -> tuple[Tensor, Tensor]:
    """Queries and up to `most` images, with copies, rounding, absent ones and neighbours."""
    size, images, queries = draw(st.integers(1, 40)), draw(st.integers(1, most)), draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = torch.Generator().manual_seed(seed)
    text, distinct = numbers(queries, size, seed=seed), numbers(draw(st.integers(1, images)), size, seed=seed + 1)
    distinct = distinct + draw(st.sampled_from([0, 1, 30])) * numbers(1, size, seed=seed + 2)  # a cone
    if draw(st.booleans()):
        text, distinct = normalize(text, dim=1), normalize(distinct, dim=1)
    if draw(st.booleans()):
        text, distinct = text.half().float(), distinct.half().float()
    if draw(st.booleans()):
        text, distinct = text.round(), distinct.round()
    embeddings = distinct[torch.randint(0, len(distinct), (images,), generator=generator)]
    if draw(st.booleans()):
        # Not what follows 0: a sum that loses 1e-45 beside 1 depends on its order, in float64 too.
        following = torch.nextafter(embeddings, numbers(images, size, seed=seed + 3))
        embeddings = following.where(embeddings != 0, embeddings)
    embeddings[torch.rand(images, generator=generator) < draw(st.sampled_from([0.0, 0.1, 0.9]))] = 0
    return text * draw(st.sampled_from([1.0, -1.0])), embeddings
