package training

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/models"
)

// The columns of a CSV file: slotColumns for each span that a group may have, then timeColumns.
var (
	slotColumns = []string{"model", "start", "end", "bs", "seq_len"}
	timeColumns = []string{"median", "mean", "std"}
)

// deviceColumn is an optional last column: the median by the device's own clock. Its fields may be
// empty.
const deviceColumn = "device"

// oldStd is the name of the standard deviation in files of the original system (Abacus).
const oldStd = "var"

var groupSheet = textfile.Sheet{
	Form:    "the columns " + strings.Join(slotColumns, ",") + " for each model of a group, then " + strings.Join(timeColumns, ","),
	MaxRows: maxRows, Unusable: ErrFormat, TooLarge: ErrLimit,
}

// csvReader reads one file. Until Merge sorts them, its models are in the order of their first
// appearance.
type csvReader struct {
	// slots is the number of spans that a row has room for.
	slots int
	// device is set if the file has deviceColumn.
	device bool
	data   Dataset
	byName map[string]int
}

// readHeader counts the slots in the header and checks the columns.
func (c *csvReader) readHeader(t *textfile.Table) {
	for i, h := range t.Head {
		switch {
		case strings.EqualFold(h, slotColumns[0]):
			c.slots++
		case strings.EqualFold(h, oldStd):
			t.Head[i] = timeColumns[2]
		}
	}
	if c.slots > MaxSpans {
		t.Fault("%d models to a row, the limit is %d; split the file", c.slots, MaxSpans)
	}
	columns := append(slices.Repeat(slotColumns, max(c.slots, 1)), timeColumns...)
	if c.device = len(t.Head) > len(columns) && strings.EqualFold(t.Head[len(columns)], deviceColumn); c.device {
		columns = append(columns, deviceColumn)
	}
	t.Columns(columns...)
}

// readRow parses a row and appends it to the data.
func (c *csvReader) readRow(t *textfile.Table) {
	row := Row{Group: models.Group{Spans: make([]models.Span, 0, c.slots)}}
	for slot := range c.slots {
		c.readSlot(t, slot*len(slotColumns), &row.Group)
	}
	if len(row.Group.Spans) == 0 {
		t.Fault("no slot has operators to run; remove the row")
	}
	at := c.slots * len(slotColumns)
	row.Median, row.Mean, row.Std = timeField(t, at, false), timeField(t, at+1, false), timeField(t, at+2, true)
	if at += len(timeColumns); c.device && t.Fields[at] != "" {
		row.Device = timeField(t, at, true)
	}
	c.data.Rows = append(c.data.Rows, row)
}

// readSlot parses the span of a slot and appends it to g. A slot without a model is empty. So
// is one whose span starts where it ends: the original system measured groups in which a model
// takes part without running anything.
func (c *csvReader) readSlot(t *textfile.Table, at int, g *models.Group) {
	name := t.Fields[at]
	if name == "" {
		for i := at; i < at+len(slotColumns); i++ {
			if f := t.Fields[i]; f != "" && f != "0" {
				t.Refuse(i, "it stands in a slot without a model; name the model or leave all of the slot empty")
			}
		}
		return
	}
	s := models.Span{
		Start: t.Whole(at+1, 0, MaxOperators), End: t.Whole(at+2, 0, MaxOperators),
		Size: t.Whole(at+3, 1, maxSize), SeqLen: t.Whole(at+4, 0, maxSeqLen),
	}
	switch {
	case s.Start > s.End:
		t.Refuse(at+2, "the span [%d, %d) ends before it starts; swap them or remove the row", s.Start, s.End)
	case s.Start < s.End:
		s.Service = c.model(t, at, s.End)
		if slices.ContainsFunc(g.Spans, func(o models.Span) bool { return o.Service == s.Service }) {
			t.Refuse(at, "it stands twice in one group; give the two services' models different names")
		}
		g.Spans = append(g.Spans, s)
	}
}

// model returns the index of the model in a slot, and extends its operators to end.
func (c *csvReader) model(t *textfile.Table, at, end int) models.ServiceID {
	i, seen := c.byName[t.Fields[at]]
	if !seen {
		if len(c.data.Models) == MaxModels {
			t.Refuse(at, "it is beyond %d models; split the file", MaxModels)
		}
		if err := checkName(t.Fields[at]); err != nil {
			t.Refuse(at, "%w", err)
		}
		// Without the clone, the name would keep the whole line in memory.
		name := strings.Clone(t.Fields[at])
		i = len(c.data.Models)
		c.byName[name] = i
		c.data.Models = append(c.data.Models, Model{Name: name})
	}
	m := &c.data.Models[i]
	m.Operators = max(m.Operators, end)
	return models.ServiceID(i)
}

// timeField parses a time in microseconds. Only a standard deviation may be zero.
func timeField(t *textfile.Table, at int, zero bool) float64 {
	v := t.Number(at, 0, MaxMicros)
	if v == 0 && !zero {
		t.Refuse(at, "no run takes so many microseconds; measure the group again or remove the row")
	}
	return v
}

// WriteCSV writes all rows. The number of slots is that of the largest group, and smaller
// groups leave slots empty. deviceColumn is included if any row has that time.
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
	// Flush below reports the first error of the writer.
	_ = out.Write(fields)
	for i := range d.Rows {
		_ = out.Write(d.fields(fields[:0], &d.Rows[i], slots, device))
	}
	out.Flush()
	return out.Error()
}

// fields returns the fields of a row, with unknown ones empty.
func (d *Dataset) fields(fields []string, r *Row, slots int, device bool) []string {
	for _, s := range r.Group.Spans {
		fields = append(fields, d.Models[s.Service].Name, strconv.Itoa(s.Start), strconv.Itoa(s.End), strconv.Itoa(s.Size), strconv.Itoa(s.SeqLen))
	}
	for len(fields) < slots*len(slotColumns) {
		fields = append(fields, "")
	}
	for _, v := range []float64{r.Median, r.Mean, r.Std} {
		fields = append(fields, strconv.FormatFloat(v, 'g', -1, 64))
	}
	switch {
	case device && r.Device > 0:
		fields = append(fields, strconv.FormatFloat(r.Device, 'g', -1, 64))
	case device:
		fields = append(fields, "")
	}
	return fields
}
