package modelconfig

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestGenerated compares the fields and values of model_config.proto with those of the
// generated code.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("model_config.proto")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^ .*?(\w+ = \d+);`).FindAllStringSubmatch(string(text), -1) {
		want = append(want, m[1])
	}
	have := append(messages(File_model_config_proto.Messages()), values(File_model_config_proto.Enums())...)
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) || len(want) < 50 {
		t.Errorf("generate it again: it has\n%v, the file\n%v", have, want)
	}
}

func messages(list protoreflect.MessageDescriptors) (all []string) {
	for i := range list.Len() {
		m := list.Get(i)
		if m.IsMapEntry() {
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			all = append(all, fmt.Sprintf("%s = %d", f.Name(), f.Number()))
		}
		all = append(append(all, messages(m.Messages())...), values(m.Enums())...)
	}
	return all
}

func values(list protoreflect.EnumDescriptors) (all []string) {
	for i := range list.Len() {
		for j := range list.Get(i).Values().Len() {
			v := list.Get(i).Values().Get(j)
			all = append(all, fmt.Sprintf("%s = %d", v.Name(), v.Number()))
		}
	}
	return all
}
