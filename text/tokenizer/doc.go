// Package tokenizer turns text into token IDs by a tokenizer.json of Hugging Face, exactly as the reference
// implementation does: the package tokenizers on PyPI.
//
// Read and Parse make a Tokenizer. Encode turns a text or a pair of texts into IDs, with special
// tokens, and truncates them. The caller pads, with the token that Pad returns.
//
// # What is supported
//
//   - Models: BPE (byte-level, and as SentencePiece has it, with byte_fallback, fuse_unk, ignore_merges,
//     continuing_subword_prefix and end_of_word_suffix), Unigram, WordPiece and WordLevel.
//   - Normalizers: BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend,
//     Replace, Sequence, Strip and StripAccents.
//   - Pre-tokenizers: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation,
//     Sequence, Split, Whitespace and WhitespaceSplit.
//   - Post-processors: BertProcessing, ByteLevel, RobertaProcessing, Sequence and TemplateProcessing.
//   - Added tokens with all their options, and truncation by each strategy, on both sides.
//
// Decoders are ignored, because this package does not turn IDs into text. So are strides, because what
// truncation drops is not returned.
//
// # What is rejected
//
// Parse rejects what it would not do exactly, and names it:
//
//   - The pre-tokenizers UnicodeScripts and FixedLength.
//   - BPE with dropout, which makes IDs random.
//   - A Sequence in which several post-processors add tokens.
//   - Regular expressions with look-around, anchors, possessive quantifiers or sets within sets that are
//     negated or intersected, and those that match the empty text. The look-ahead \s+(?!\S)|\s+ at the
//     end of an expression is supported: nearly every byte-level vocabulary has it.
//
// # The reference
//
// TestGolden compares with recorded IDs of some thousand texts. TestReference runs the reference itself, if
// it is given a Python with that package, on any number of random texts for each of the sixteen
// tokenizers in testdata, which testdata/make.py trained:
//
//	OVERLAPD_TEST_PYTHON=python3 go test ./text/tokenizer -run TestReference -v -texts 100000
//
// Of the libraries in Go, none was exact. github.com/sugarme/tokenizer v0.3.0 cannot read six of the
// sixteen, panics on every text with another, differs on 1 to 56 of 100 texts with six, and takes
// quadratic time for long words; github.com/gomlx/go-huggingface v0.3.1 reads no tokenizer.json. Others
// link the reference itself, which has to be compiled from Rust.
//
// # Time and memory
//
// A text is tokenized in portions of about four kilobytes (portion.go) until there are as many tokens as
// the limit, so that the rest of a longer text costs nothing. Portions end where nothing on one side
// depends on the other. Where no such place is found, the rest of the text is one portion: a word of a
// megabyte, or a text without spaces whose tokenizer divides texts only there.
//
// The time of a portion is in proportion to its length: a long word is merged with a heap, and words
// are found in a trie, whose depth is the longest word of the vocabulary. Expressions other than those of
// GPT-2, Llama 3 and Qwen run on Go's package regexp, which is linear for one match; an expression whose
// matches are short and take long to tell apart can make it quadratic. If both texts of a pair are
// longer than the limit and it is odd, both are tokenized whole, because the longer one gets a token more.
//
// Encode asks its context every few thousand steps, so that it ends soon after its caller has gone. It
// keeps no text.
package tokenizer
