#!/usr/bin/env python3
"""Makes the tokenizers of this folder, one for each kind of tokenizer.json.

The vocabularies are trained here, on the repository's documents and on made-up words of many scripts.
It needs the packages tokenizers and sentencepiece of PyPI. The golden IDs are made by
"go test ./text/tokenizer -run TestReference -update" afterwards.
"""

import gzip
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
VOCABULARY = 2000

# First and last code point of the letters of a script.
SCRIPTS = [
    (0x61, 0x7A), (0xDF, 0xFF), (0x100, 0x17F), (0x3B1, 0x3C9), (0x430, 0x44F), (0x561, 0x586), (0x5D0, 0x5EA),
    (0x627, 0x64A), (0x905, 0x939), (0x985, 0x9B9), (0xE01, 0xE2E), (0x10D0, 0x10F0), (0x1200, 0x1248),
    (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x1F600, 0x1F640),
]


def corpus():
    """Returns lines: those of the documents, and made-up words in the scripts."""
    lines = []
    for file in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        lines += file.read_text().splitlines()
    r = random.Random(1)
    for low, high in SCRIPTS:
        letters = [chr(c) for c in range(low, high + 1) if unicodedata.category(chr(c)) != "Cn"]
        words = ["".join(r.choices(letters, k=r.randint(1, 6))) for _ in range(60)]
        for _ in range(150):
            count = r.randint(3, 12)
            line = " ".join(words[min(int(r.expovariate(0.1)), 59)] for _ in range(count))
            lines.append(line.title() if r.random() < 0.3 else line + r.choice(["", ".", "!", "…", "。", " 1234"]))
    return lines


def charsmap():
    """Returns a small compiled table of replacements, in the manner of NFKC."""
    rules = {}
    for low, high in [(0xA0, 0xFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x2100, 0x2150), (0x2460, 0x24EA), (0x3000, 0x3003),
                      (0x3131, 0x3163), (0x3300, 0x3357), (0xFB00, 0xFB06), (0xFF01, 0xFFDC)]:
        for c in range(low, high + 1):
            if unicodedata.normalize("NFKC", chr(c)) != chr(c):
                rules[chr(c)] = unicodedata.normalize("NFKC", chr(c))
    for c in list(range(0xC0, 0x17F)) + list(range(0x3041, 0x30FF)) + list(range(0xAC00, 0xAC40)):
        parts = unicodedata.normalize("NFD", chr(c))
        if parts != chr(c):
            rules[parts] = chr(c)
    for c in list(range(1, 9)) + [0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F, 0x200C]:
        rules[chr(c)] = ""
    for c in [9, 10, 12, 13, 0x1680, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF]:
        rules[chr(c)] = " "
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "rules.tsv"
        code = lambda text: " ".join("%X" % ord(c) for c in text)
        table.write_text("".join(f"{code(k)}\t{code(v)}\n" for k, v in rules.items()))
        words = pathlib.Path(folder) / "words.txt"
        words.write_text("\n".join(corpus()[:2000]))
        sentencepiece.SentencePieceTrainer.train(
            input=str(words), model_prefix=folder + "/model", vocab_size=300, hard_vocab_limit=False,
            normalization_rule_tsv=str(table), minloglevel=2)
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(pathlib.Path(folder + "/model.model").read_bytes())
    return model.normalizer_spec.precompiled_charsmap


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def bpe(special, alphabet=None, **options):
    """Returns a model and its trainer."""
    training = {k: v for k, v in options.items() if k in ("end_of_word_suffix", "continuing_subword_prefix")}
    return models.BPE(**options), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet, **training)


def build(model, normalizer, splitter, post, added=()):
    """Trains a tokenizer; post makes the post-processor once the special tokens have IDs."""
    t = Tokenizer(model[0])
    if normalizer:
        t.normalizer = normalizer
    if splitter:
        t.pre_tokenizer = splitter
    t.train_from_iterator(corpus(), model[1])
    for token in added:
        t.add_tokens([token])
    if post:
        t.post_processor = post(t)
    return t


def template(single, pair, *names):
    return lambda t: processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(n, t.token_to_id(n)) for n in names])


def bytes_tokens():
    return ["<0x%02X>" % b for b in range(256)]


def tokenizers():
    """Yields the name and the text of each."""
    n, p = normalizers, pre_tokenizers
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    wordpiece = lambda: (models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100),
                         trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=bert, show_progress=False))

    yield "bert-uncased", build(
        wordpiece(), n.BertNormalizer(), p.BertPreTokenizer(),
        template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS]", "[SEP]"))

    t = build(wordpiece(), n.BertNormalizer(lowercase=False, strip_accents=False), p.BertPreTokenizer(),
              lambda t: processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]"))),
              [AddedToken("domain", single_word=True), AddedToken("[TAG]", lstrip=True, rstrip=True, normalized=False)])
    t.enable_truncation(24, strategy="longest_first")
    t.enable_padding(pad_id=t.token_to_id("[PAD]"), pad_token="[PAD]")
    yield "bert-cased", t

    yield "modernbert", build(
        bpe(["<|padding|>", "<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]"]), n.NFC(), p.ByteLevel(add_prefix_space=False),
        template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", "[CLS]", "[SEP]"),
        [AddedToken("|||PHONE|||", normalized=False)] + [AddedToken(" " * k, normalized=True) for k in range(2, 10)]
        + [AddedToken("[MASK]", lstrip=True, normalized=False, special=True)])

    yield "roberta", build(
        bpe(roberta), None, p.ByteLevel(add_prefix_space=True),
        lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))),
        [AddedToken("<mask>", lstrip=True, normalized=False, special=True)])

    start = template("<|begin|> $A", "<|begin|> $A <|begin|>:1 $B:1", "<|begin|>")
    yield "llama3", build(
        bpe(["<|begin|>", "<|end|>"], ignore_merges=True), None,
        p.Sequence([p.Split(Regex(CL100K % "{1,3}"), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]),
        lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), start(t)]))

    t = build(bpe(["<|endoftext|>", "<|im_start|>"]), n.NFC(),
              p.Sequence([p.Split(Regex(CL100K % ""), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]),
              None)
    t.enable_truncation(17, strategy="only_first", direction="left")
    yield "qwen2", t

    yield "o200k", build(
        bpe(["<|endoftext|>"]), None,
        p.Sequence([p.Split(Regex(O200K), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]), None)

    yield "bloom", build(
        bpe(["<unk>", "<pad>"], unk_token="<unk>"), None,
        p.Sequence([p.Split(Regex(BLOOM), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)]), None)

    yield "clip", build(
        bpe(["<|startoftext|>", "<|endoftext|>"], unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""),
        n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()]),
        p.Sequence([p.Split(Regex(CLIP), "removed", invert=True), p.ByteLevel(add_prefix_space=False)]),
        lambda t: processors.RobertaProcessing(("<|endoftext|>", t.token_to_id("<|endoftext|>")),
                                               ("<|startoftext|>", t.token_to_id("<|startoftext|>")),
                                               trim_offsets=False, add_prefix_space=False))

    sp = ["<unk>", "<s>", "</s>"]
    yield "llama2", build(
        bpe(sp + bytes_tokens(), [], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), p.Split("▁", "merged_with_next"),
        template("<s> $A", "<s> $A <s>:1 $B:1", "<s>"), [AddedToken("</s>", normalized=True, special=True)])

    # No tokens for some bytes, so that the fallback fails for some characters.
    yield "mistral", build(
        bpe(sp + [b for b in bytes_tokens() if b[3] not in "9A"], list("▁abcdefghijk"), unk_token="<unk>", fuse_unk=False, byte_fallback=True),
        None, p.Metaspace(prepend_scheme="first", split=True),
        template("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", "<s>", "</s>"), [AddedToken("[INST]", rstrip=True, normalized=False)])

    table = charsmap()
    unigram = lambda special, **o: (models.Unigram(), trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=special, unk_token="<unk>", show_progress=False))
    t = build(unigram(["<s>", "<pad>", "</s>", "<unk>"]), n.Precompiled(table), p.Metaspace(prepend_scheme="always"),
              template("<s> $A </s>", "<s> $A </s> </s> $B </s>", "<s>", "</s>"),
              [AddedToken("<mask>", lstrip=True, normalized=True, special=True)])
    t.normalizer = n.Sequence([t.normalizer, n.Replace(Regex(" {2,}"), " ")])
    yield "xlm-roberta", t

    yield "albert", build(
        unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]),
        n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), n.Nmt(), n.Strip()]),
        p.Sequence([p.WhitespaceSplit(), p.Metaspace()]),
        template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS]", "[SEP]"))

    t = build((models.Unigram(), trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=["<pad>", "</s>", "<unk>"] + bytes_tokens(), unk_token="<unk>", show_progress=False)),
        n.NFKC(), p.Sequence([p.Digits(individual_digits=True), p.Punctuation("merged_with_previous"), p.Metaspace(prepend_scheme="first")]),
        template("$A </s>", "$A </s> $B </s>", "</s>"))
    spec = json.loads(t.to_str())
    spec["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(spec))
    t.enable_truncation(40, strategy="only_second")
    yield "t5-bytes", t

    yield "wordlevel", build(
        (models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=VOCABULARY, special_tokens=bert, show_progress=False)),
        n.Sequence([n.NFD(), n.StripAccents(), n.Strip(left=True, right=False)]),
        p.Sequence([p.Whitespace(), p.CharDelimiterSplit("_"), p.Digits(individual_digits=False), p.Punctuation("contiguous")]), None)

    yield "bytes-normalizer", build(bpe(["<|endoftext|>"]), n.ByteLevel(), p.Split(Regex("Ġ"), "merged_with_next"), None,
                                    [AddedToken("naïve", normalized=True), AddedToken("<|sep|>", normalized=False)])


def main():
    for name, t in tokenizers():
        text = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":"))
        with open(HERE / (name + ".json.gz"), "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as g:
            g.write(text.encode())
        print(name, t.get_vocab_size(), len(text))


if __name__ == "__main__":
    main()
