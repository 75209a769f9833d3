package models

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// foreign lists formats that are mistaken for ONNX models, by the bytes they begin with at an
// offset, and what to do about each.
var foreign = []struct {
	at         int
	begins, is string
}{
	{0, "version https://git-lfs.github.com/spec/", "this is a Git LFS pointer, not the file itself: run git lfs pull"},
	{0, "<!doctype html", htmlPage},
	{0, "<html", htmlPage},
	{0, "PK\x03\x04", "this is a zip archive, as PyTorch, Keras and NumPy write: unpack it, or export the model to ONNX"},
	{0, "\x1f\x8b", "this is compressed with gzip: unpack it first"},
	{0, "\x28\xb5\x2f\xfd", "this is compressed with zstd: unpack it first"},
	{0, "\x89HDF", "this is an HDF5 file, as Keras writes them: export the model to ONNX (tf2onnx)"},
	{0, "GGUF", "this is a GGUF file, which has weights and no graph: export the model to ONNX"},
	{8, `{"`, "this is a safetensors file, which has weights and no graph: export the model to ONNX"},
	{4, "TFL3", "this is a TensorFlow Lite model: convert it to ONNX (tf2onnx)"},
	{4, "ORTM", "this is a model in ONNX Runtime's own format: use the ONNX file that it was made from"},
}

const htmlPage = "this is an HTML page, such as a failed download or a login page: download the file itself"

// recognize describes a file that is not an ONNX model. It returns "" for an unknown format.
func recognize(data []byte) string {
	// HTML may begin with white space and is case-insensitive. All other formats match exactly.
	head := data[:min(len(data), 256)]
	text := []byte(strings.ToLower(string(bytes.TrimSpace(head))))
	for _, f := range foreign {
		if len(head) > f.at && bytes.HasPrefix(head[f.at:], []byte(f.begins)) || f.is == htmlPage && bytes.HasPrefix(text, []byte(f.begins)) {
			return f.is
		}
	}
	return ""
}

// domains are the operator domains that ONNX Runtime has built in.
var domains = []string{
	"", "ai.onnx", mlDomain, "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training",
	"com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "com.ms.internal.nhwc",
}

// CheckOperators returns an error that names the custom operators of the model, at any depth:
// those whose domain ONNX Runtime does not have and that are not functions of the model. It
// does not check that a known domain has the operator; only the runtime knows that.
func (f *File) CheckOperators() error {
	defined, made := map[functionKey]bool{}, maps.Clone(f.calls)
	for i := range f.Functions {
		defined[f.Functions[i].key()] = true
		maps.Copy(made, f.Functions[i].calls)
	}
	var unknown []string
	for key := range made {
		if !defined[key] && !slices.Contains(domains, key.domain) {
			unknown = append(unknown, quote(key.name)+" of the domain "+quote(key.domain))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	err := refuse(errOperator, "%s: custom operators need the library that has them: name it in op_libraries, or export the model with ONNX operators only",
		strings.Join(unknown[:min(len(unknown), 10)], ", "))
	err.(*formatError).Path = f.Path
	return err
}
