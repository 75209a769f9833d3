package conformance

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// model is a model with the test data that lie beside it.
type model struct {
	Name   string   `json:"name"`
	Path   string   `json:"path"`
	Sets   []string `json:"sets,omitempty"`   // folders with input_N.pb and output_N.pb
	Output string   `json:"output,omitempty"` // the output for an input that rises evenly from 0 to 1
}

// find returns all models below the folders, sorted in each. Test data are
// found in the two layouts of the ONNX project: sets in test_data_set_N beside
// the model, or one output in NAME_output_0.pb beside NAME.onnx.
func find(folders []string) ([]model, error) {
	var models []model
	for _, root := range folders {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" {
				return err
			}
			m, err := describe(root, path)
			models = append(models, m)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return models, nil
}

func describe(root, path string) (model, error) {
	m := model{Path: path, Name: path}
	if name, err := filepath.Rel(filepath.Dir(filepath.Clean(root)), path); err == nil {
		m.Name = strings.TrimSuffix(strings.TrimSuffix(name, ".onnx"), "/model")
	}
	sets, err := filepath.Glob(filepath.Join(escape(filepath.Dir(path)), "test_data_set_*"))
	if err != nil {
		return m, err
	}
	slices.Sort(sets)
	m.Sets = sets
	output := strings.TrimSuffix(path, ".onnx") + "_output_0.pb"
	if found, _ := filepath.Glob(escape(output)); len(found) == 1 {
		m.Output = output
	}
	return m, nil
}

// escape makes a path a pattern that matches only itself.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
