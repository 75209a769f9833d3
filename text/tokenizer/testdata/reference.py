#!/usr/bin/env python3
"""Encodes texts with the reference implementation: reference.py < CASES > RESULTS.

The first line is the tokenizer. A case is a line of JSON: "t", a text, "p", a second one or null, and "n", a limit or 0. A result is a
line with the IDs "i" and their segments "y", or with "e", an error.

"reference.py charsets" prints a hash of what is done to each code point, for each class and each
normalizer.
"""

import hashlib
import json
import sys

from tokenizers import Regex, Tokenizer
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

# Code points that are neither surrogates nor in planes where nothing is assigned.
POINTS = [c for c in range(1, 0x32400) if not 0xD800 <= c < 0xE000] + list(range(0xE0000, 0xE0200))


def charsets():
    """Returns a hash for each class and each normalizer."""
    hashes = {}
    for name in ["L", "N", "M", "P", "S", "Lu", "Ll", "Lm", "Lo", "Nd", "s", "d", "w"]:
        found = p.Split(Regex(r"\%s+" % name if name.islower() else r"\p{%s}+" % name), "removed", invert=True)
        hashes[name] = positions(found)
    for name, changed in [("nfc", n.NFC()), ("nfd", n.NFD()), ("nfkc", n.NFKC()), ("nfkd", n.NFKD()), ("nmt", n.Nmt()),
                          ("lowercase", n.Lowercase()), ("strip-accents", n.StripAccents()), ("bert", n.BertNormalizer())]:
        hashes[name] = digest("\n".join(changed.normalize_str(chr(c)) for c in POINTS))
    for name, splitter in [("punctuation", p.Punctuation()), ("digits", p.Digits(True)), ("words", p.Whitespace())]:
        hashes[name] = digest("".join("01"[len(splitter.pre_tokenize_str("a" + chr(c) + "a")) > 1] for c in POINTS))
    return hashes


def positions(splitter):
    """Returns a hash of which code points a splitter keeps."""
    kept = bytearray(b"0" * len(POINTS))
    for text, (start, end) in splitter.pre_tokenize_str("".join(map(chr, POINTS))):
        kept[start:end] = b"1" * (end - start)
    return digest(kept.decode())


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    t = Tokenizer.from_str(sys.stdin.readline())
    t.no_padding()
    own = t.truncation
    for line in sys.stdin:
        case = json.loads(line)
        if case["n"]:
            settings = dict(own or {}, max_length=case["n"])
            t.enable_truncation(**settings)
        elif own:
            t.enable_truncation(**own)
        else:
            t.no_truncation()
        try:
            e = t.encode(case["t"], case["p"])
            print(json.dumps({"i": e.ids, "y": e.type_ids}, separators=(",", ":")))
        except BaseException as error:  # a panic of the library is no Exception
            print(json.dumps({"e": str(error)}))


if __name__ == "__main__":
    if sys.argv[1:] == ["charsets"]:
        print(json.dumps(charsets(), indent=1))
    else:
        main()
