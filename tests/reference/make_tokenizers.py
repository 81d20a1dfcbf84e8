#!/usr/bin/env python3
"""Makes tokenizers with Hugging Face's `tokenizers`, and what they answer: make_tokenizers.py FOLDER [LINES]

Trained on Debian's licence texts: gpt2.json and llama3.json, with the pre-tokenizers of these models, added tokens, and
for Llama 3 `ignore_merges` with tokens that no merge makes; pair/vocab.json and pair/merges.txt. NAME.cases.json has
LINES (default 150) random lines of Unicode with their ids, and random ids with their text. `make tokenizers` runs
tests/data/test_tokenizers.c on 10,000 lines of each; tests/reference/tokenizers has the sample for `make test`."""
import glob
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FILES = sorted(glob.glob("/usr/share/common-licenses/*"))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|end|>", "<|endo", "<pad>", "<pad>x"]


def train(rule, merges):
    tokenizer = Tokenizer(models.BPE())
    if rule == "llama3":
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train(FILES, trainer)
    for content in SPECIAL:
        tokenizer.add_special_tokens([AddedToken(content, special=True, normalized=content == "<|endo")])
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<sep>", rstrip=True)])
    return tokenizer


def make(folder, rule, merges):
    data = json.loads(train(rule, merges).to_str())
    if rule == "llama3":
        data["model"]["ignore_merges"] = True
        kept = [m for i, m in enumerate(data["model"]["merges"]) if i % 20 != 19]
        data["model"]["merges"] = [" ".join(m) for m in kept]  # the older form of a merge
    path = os.path.join(folder, rule + ".json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(data, out, ensure_ascii=False, separators=(",", ":"))
    return Tokenizer.from_file(path)


def make_pair(folder):
    os.makedirs(os.path.join(folder, "pair"), exist_ok=True)
    tokenizer = train("gpt2", 200)
    tokenizer.model.save(os.path.join(folder, "pair"))
    again = Tokenizer(models.BPE.from_file(os.path.join(folder, "pair", "vocab.json"),
                                           os.path.join(folder, "pair", "merges.txt")))
    again.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    again.decoder = decoders.ByteLevel()
    return again


SPACES = "\t\n\x0b\x0c\r     \x85\xa0\u1680\u2000\u2009\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff"
POOLS = [(0x20, 0x7f), (0x20, 0x7f), (0x01, 0x250), (0x250, 0x700), (0x900, 0x1000), (0x1000, 0x2000), (0x2000, 0x2c00),
         (0x2c00, 0x3400), (0x3400, 0xd800), (0xe000, 0x10000), (0x10000, 0x11000), (0x11000, 0x18000), (0x1d000, 0x1fc00),
         (0x20000, 0x33500), (0x1, 0x110000)]
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "vE", "M", "Ll", "LL", "D", "\u017f", "x", "r", "l"]


def char(rng):
    while True:
        code = rng.randrange(*rng.choice(POOLS))
        if not 0xd800 <= code < 0xe000:
            return chr(code)


def piece(rng, words):
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(["", " ", " "]) + rng.choice(words)
    if kind == 3:
        return "".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 6)))
    if kind == 4:
        return rng.choice(["'", "'", "\u2019"]) + rng.choice(ENDINGS)
    if kind == 5:
        return rng.choice(["", " "]) + str(rng.randrange(10 ** rng.randrange(1, 9)))
    if kind == 6:
        return rng.choice(SPECIAL + ["<mask>", "<sep>", "<|endoftext", "<|", "<ma", ">"])
    if kind == 7:
        return rng.choice(["", " "]) + rng.choice(".,;:!?()*#/\\-_=\u2026\u00bf") * rng.randrange(1, 9)
    return "".join(char(rng) for _ in range(rng.randrange(1, 8)))


def lines(rng, count, words):
    for _ in range(count):
        yield "".join(piece(rng, words) for _ in range(rng.randrange(0, 12)))


def write_cases(folder, name, tokenizer, count, words):
    rng = random.Random(name)
    cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
             for text in lines(rng, count, words)]
    decoded = []
    known = sorted(tokenizer.get_vocab().values())
    while len(decoded) < count // 5:
        ids = [rng.choice(known) for _ in range(rng.randrange(1, 9))]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if "\ufffd" not in text and "\0" not in text:
            decoded.append({"text": text, "ids": ids})
    with open(os.path.join(folder, name + ".cases.json"), "w", encoding="utf-8") as out:
        json.dump({"size": max(known) + 1, "lines": cases, "decoded": decoded}, out, ensure_ascii=False,
                  separators=(",", ":"))


def main():
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 150
    os.makedirs(folder, exist_ok=True)
    words = " ".join(open(f, encoding="utf-8", errors="replace").read() for f in FILES).split()
    for rule, merges in (("gpt2", 2000), ("llama3", 1000)):
        write_cases(folder, rule, make(folder, rule, merges), count, words)
    write_cases(folder, "pair", make_pair(folder), count, words)


if __name__ == "__main__":
    main()
