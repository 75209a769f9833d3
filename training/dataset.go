package training

import "github.com/overlapd/overlapd/models"

// Dataset is operator groups measured on one device.
type Dataset struct {
	Device string  // in words, "" if unknown
	Models []Model // Row.Group names a model by its position, as its Service
	Rows   []Row
}

// Model is what a dataset knows of a model.
type Model struct {
	Name      string `json:"name"`
	Hash      string `json:"hash,omitempty"` // models.Model.Hash, "" if unknown
	Operators int    `json:"operators"`
}

// Row is one measured group.
type Row struct {
	Group   models.Group // spans in the order of Dataset.Models
	Repeats int          // how often it was run, 0 if unknown
	Median  float64      // of the runs, microseconds
	Mean    float64      // microseconds
	Std     float64      // standard deviation, microseconds
}
