package training

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
)

// WriteCSV writes all rows. There are as many slots as the largest group has
// spans; smaller groups leave slots empty. There is a column for the device's own
// clock if that is known of any row.
func WriteCSV(w io.Writer, d *Dataset) error {
	if err := d.Check(); err != nil {
		return err
	}
	slots, device := 1, false
	for i := range d.Rows {
		slots = max(slots, len(d.Rows[i].Group.Spans))
		device = device || d.Rows[i].Device > 0
	}
	out := csv.NewWriter(w)
	fields := append(slices.Repeat(slotColumns, slots), timeColumns...)
	if device {
		fields = append(fields, deviceColumn)
	}
	_ = out.Write(fields) // Error tells
	for i := range d.Rows {
		fields = d.fields(fields[:0], &d.Rows[i], slots)
		if device {
			fields = append(fields, deviceField(d.Rows[i].Device))
		}
		_ = out.Write(fields)
	}
	out.Flush()
	return out.Error()
}

func (d *Dataset) fields(fields []string, r *Row, slots int) []string {
	for _, s := range r.Group.Spans {
		fields = append(fields, d.Models[s.Service].Name, strconv.Itoa(s.Start), strconv.Itoa(s.End), strconv.Itoa(s.Size), strconv.Itoa(s.SeqLen))
	}
	for len(fields) < slots*len(slotColumns) {
		fields = append(fields, "")
	}
	for _, v := range []float64{r.Median, r.Mean, r.Std} {
		fields = append(fields, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return fields
}

// deviceField leaves empty what is unknown.
func deviceField(micros float64) string {
	if micros == 0 {
		return ""
	}
	return strconv.FormatFloat(micros, 'g', -1, 64)
}
