"""How many random cases are tried, and from which seed.

`make test` tries a few, the same each time; `make campaign` sets FRACDNN_CAMPAIGN=full and tries many, from a new seed.
FRACDNN_CAMPAIGN_SEED, which the campaign prints, repeats it.
"""

import os
import secrets
import zlib

SEED = "FRACDNN_CAMPAIGN_SEED"


def full() -> bool:
    return os.environ.get("FRACDNN_CAMPAIGN") == "full"


def cases(quick: int, all_of_them: int) -> int:
    return all_of_them if full() else quick


def seed() -> int:
    """One number for the whole run: processes started from here find it in their environment."""
    if SEED not in os.environ:
        os.environ[SEED] = str(secrets.randbelow(2**31) if full() else 0)
    return int(os.environ[SEED])


def seed_of(name: str) -> int:
    """A seed for one test, so that no two of them try the same numbers."""
    return zlib.crc32(f"{seed()} {name}".encode())


def say_tried(name: str, count: int) -> None:
    """A line that conftest.py shows at the end of the campaign."""
    print(f"campaign: {name}: {count} cases, seed {seed()}")
