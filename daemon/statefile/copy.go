package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	copyTries = 20                    // attempts to copy a file that keeps changing
	copyPause = 50 * time.Millisecond // between two attempts
)

// copyBytes copies a file. Tests replace it to change the file meanwhile.
var copyBytes = io.Copy

// Copy copies a state file that another process has open, in the state of its last
// transaction. bbolt writes a transaction to unused pages and then one of the two meta
// pages at the start of the file. If these are the same before and after copying, the copy
// is consistent.
func Copy(from, to string) error {
	in, err := openRegular(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	heads := func() ([]byte, error) {
		both := make([]byte, 2*os.Getpagesize())
		n, err := in.ReadAt(both, 0)
		// A file that is too short is damaged, which opening the copy will report.
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return both[:n], err
	}
	for range copyTries {
		before, err := heads()
		if err == nil {
			err = copyFile(in, to)
		}
		after, aerr := heads()
		if err = errors.Join(err, aerr); err != nil || bytes.Equal(before, after) {
			return err
		}
		time.Sleep(copyPause)
	}
	return fmt.Errorf("%s changed %d times while it was copied; try again when its daemon measures less", from, copyTries)
}

// copyFile copies the current contents of in to a new file.
func copyFile(in *os.File, to string) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := in.Stat()
	if err == nil {
		_, err = copyBytes(out, io.NewSectionReader(in, 0, info.Size()))
	}
	return errors.Join(err, out.Close())
}
