package zoo

// attributeKind is AttributeProto.AttributeType, as far as the zoo needs it.
type attributeKind uint64

const (
	kindFloat    attributeKind = 1
	kindInteger  attributeKind = 2
	kindIntegers attributeKind = 7
)

// attribute is a fixed parameter of a node.
type attribute struct {
	name     string
	kind     attributeKind
	float    float32
	integers []int64 // one, unless kind is kindIntegers
}

func float(name string, value float32) attribute {
	return attribute{name: name, kind: kindFloat, float: value}
}

func integer(name string, value int64) attribute {
	return attribute{name: name, kind: kindInteger, integers: []int64{value}}
}

func integers(name string, values ...int64) attribute {
	return attribute{name: name, kind: kindIntegers, integers: values}
}
