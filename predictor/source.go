package predictor

// Source says what a latency is calculated from.
type Source uint8

// The sources.
const (
	SourceSolo    Source = iota // one span: its solo time
	SourceNetwork               // the network
	SourceSum                   // the sum of solo times, because the network does not cover the group
	sources
)

var sourceNames = [sources]string{"solo", "network", "sum"}

// String returns the name of the source.
func (s Source) String() string {
	if s < sources {
		return sourceNames[s]
	}
	return "unknown"
}

// Fallback says why the network does not answer for a group.
type Fallback uint8

// The reasons.
const (
	FallbackNone      Fallback = iota // it does
	FallbackPredictor                 // there is none
	FallbackModel                     // a model is not among those that it was trained on
	FallbackSize                      // a batch or a sequence is larger than those that it was trained on
	FallbackGroup                     // the group has more spans than those that it was trained on, or one model twice
	Fallbacks                         // how many there are
)

var fallbackNames = [Fallbacks]string{"", "no predictor", "model unknown", "size beyond training", "group beyond training"}

// String returns the reason in words, "" if there is none.
func (f Fallback) String() string {
	if f < Fallbacks {
		return fallbackNames[f]
	}
	return "unknown"
}
