package training

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Subject is a model that is to be measured, with the batches to measure.
type Subject struct {
	Model   Model
	Sizes   []int // of batches
	SeqLens []int // none if the model has no sequence length
}

// input is what a model is run on: it decides about memory and kernels.
type input struct {
	model, size, seqLen int
}

func inputOf(s models.Span) input { return input{int(s.Service), s.Size, s.SeqLen} }

// inputs returns everything that the subject at this position is run on.
func (s *Subject) inputs(position int) []input {
	var all []input
	for _, size := range s.Sizes {
		for _, seqLen := range s.seqLens() {
			all = append(all, input{position, size, seqLen})
		}
	}
	return all
}

func (s *Subject) seqLens() []int {
	if len(s.SeqLens) == 0 {
		return []int{0}
	}
	return s.SeqLens
}

// whole returns the span of all operators.
func (s *Subject) whole(in input) models.Span {
	return models.Span{Service: models.ServiceID(in.model), End: s.Model.Operators, Size: in.size, SeqLen: in.seqLen}
}

// checkSubjects refuses what cannot be measured.
func checkSubjects(subjects []Subject) error {
	if len(subjects) == 0 {
		return fmt.Errorf("%w: no model to measure", ErrPlan)
	}
	list := make([]Model, len(subjects))
	for i, s := range subjects {
		list[i] = s.Model
	}
	if err := checkModels(list); err != nil {
		return fmt.Errorf("%w: %w", ErrPlan, err)
	}
	for _, s := range subjects {
		if len(s.Sizes) == 0 || len(s.Sizes) > maxChoices || len(s.SeqLens) > maxChoices {
			return fmt.Errorf("%w: %s has %d batch sizes and %d sequence lengths, the limits are 1 and %d",
				ErrPlan, s.Model.Name, len(s.Sizes), len(s.SeqLens), maxChoices)
		}
		if err := checkChoices(s.Sizes, 1, MaxSize); err != nil {
			return fmt.Errorf("%w: batch sizes of %s: %w", ErrPlan, s.Model.Name, err)
		}
		if err := checkChoices(s.SeqLens, 0, MaxSeqLen); err != nil {
			return fmt.Errorf("%w: sequence lengths of %s: %w", ErrPlan, s.Model.Name, err)
		}
	}
	return nil
}

// checkChoices refuses values out of range or given twice.
func checkChoices(values []int, least, most int) error {
	for i, v := range values {
		if v < least || v > most {
			return fmt.Errorf("%d is not between %d and %d", v, least, most)
		}
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("%d stands twice", v)
		}
	}
	return nil
}
