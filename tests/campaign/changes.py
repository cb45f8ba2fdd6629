"""What changed files of every kind have in common: changes to their bytes, and how an error is told."""

import struct
from pathlib import Path

BYTES = ("flip", "cut", "append", "swap", "put", "drop", "length")


def drawn(chosen, kind):
    """A change of a kind: numbers that find their place by a remainder, so that smaller ones are good too."""
    big = 2**30
    if kind in ("put", "append"):
        return [kind, chosen.randrange(big), chosen.randbytes(chosen.choice([1, 2, 8, 300])).hex()]
    if kind == "length":
        return [kind, chosen.choice([0, 1, 7, 2**31, 2**62, 2**64 - 1, chosen.randrange(9999)])]
    return [kind, chosen.randrange(big), chosen.randrange(big), chosen.randrange(big)]


def with_bytes(good, kind, a, b=0, c=0):
    """The bytes with one change; "length" is the number that a safetensors file begins with."""
    data = bytearray(good)
    n = max(1, len(data))
    at = a % n
    if kind == "length":
        return struct.pack("<Q", a) + good[8:]
    if kind == "cut":
        return good[:at]
    if kind == "append":
        return good + bytes.fromhex(b)
    if kind == "put":
        data[at : at + len(b) // 2] = bytes.fromhex(b)
    elif not data:
        return good
    elif kind == "flip":
        data[at] ^= 1 << b % 8
    elif kind == "swap":
        data[at], data[b % n] = data[b % n], data[at]
    elif kind == "drop":
        del data[at : at + 1 + b % 40]
    return bytes(data)


def unclear(error, path=None):
    """None for a message of one line that begins with the file's name, where one is given."""
    text = str(error)
    if not text.strip() or (path and not text.startswith(str(path))) or len(text) > 2000 or "\n" in text.strip():
        return f"says it unclearly: {text[:100]!r}\n{len(text)} characters, {text.count(chr(10)) + 1} lines"
    return None


def raised(error):
    """The kind of an error and the last place of ours that it came through, then its text."""
    places, trace = [], error.__traceback__
    while trace is not None:
        places.append((Path(trace.tb_frame.f_code.co_filename), trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    ours = [f"{path.parent.name}/{path.name}:{name}" for path, name in places if "fracdnn" in path.parts]
    return f"raises {type(error).__name__} in {ours[-1] if ours else places[-1]}\n{str(error)[:300]}"
