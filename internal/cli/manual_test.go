package cli

import "testing"

// TestHelpInColumns keeps what a help lays out in columns as it is.
func TestHelpInColumns(t *testing.T) {
	got := asMarkdown("One\ntwo.\n\n  fixed  text\n  .more\nThree:\nStart with:  overlapd   it\n")
	want := "One\ntwo.\n\n\n      fixed  text\n      .more\n\nThree:\n\n    Start with:  overlapd   it\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
