#!/usr/bin/env python3
"""Prints unicode_classes.def, the letters and numbers of Unicode 16, for the scanner of tokenizer_split.c:

    pip install unicodedata2==16.0.0 && python3 src/data/unicode_classes.py > src/data/unicode_classes.def

16.0 is the version that `tokenizers` 0.23 knows; tests/reference/check_tokenizers.py compares both."""
import unicodedata2

VERSION = "16.0.0"


def kind(code):
    category = unicodedata2.category(chr(code))
    return {"L": "LETTER", "N": "NUMBER"}.get(category[0])


def ranges():
    first, current = 0, None
    for code in range(0x80, 0x110001):
        now = kind(code) if code < 0x110000 else None
        if now != current:
            if current:
                yield first, code - 1, current
            first, current = code, now


assert unicodedata2.unidata_version == VERSION, unicodedata2.unidata_version
print("/* Made by unicode_classes.py from Unicode " + VERSION + ": letters (categories L*) and numbers (N*) beyond ASCII. */")
print("/* clang-format off */")
line = ""
for first, last, name in ranges():
    item = "{ 0x%x, 0x%x, %s }, " % (first, last, name)
    if len(line) + len(item) > 100:
        print(line.rstrip())
        line = ""
    line += item
print(line.rstrip())
print("/* clang-format on */")
