package device

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxFileBytes limits a device profile.
const MaxFileBytes = 32 << 20

// fileMode is that of a new file: whoever may look at the host may read it.
const fileMode = 0o644

// ReadFile reads a device profile and validates it.
func ReadFile(path string) (*Profile, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Read reads a device profile to the end of r and validates it. It returns an
// error that wraps [ErrFormat] or [ErrDamaged] if it is not one.
func Read(r io.Reader) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDamaged, MaxFileBytes)
	}
	if err := checkFormat(data); err != nil {
		return nil, err
	}
	p := new(Profile)
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more follows its end", ErrDamaged)
	}
	if at := findNull(data); at >= 0 {
		return nil, fmt.Errorf("%w: byte %d: null in place of a value", ErrDamaged, at)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// findNull returns where valid JSON holds a null, or -1. The decoder takes one
// for a zero, but it is how many a tool writes NaN.
func findNull(data []byte) int64 {
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		switch {
		case err != nil:
			return -1
		case token == nil:
			return d.InputOffset()
		}
	}
}

// checkFormat looks at nothing but the format, so that a file of another
// version is not blamed for its fields.
func checkFormat(data []byte) error {
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrFormat)
	}
	var head struct {
		Format string `json:"format"`
	}
	err := json.Unmarshal(data, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return fmt.Errorf("%w: truncated after %d bytes", ErrDamaged, len(data))
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: byte %d: %w", ErrDamaged, syntax.Offset, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFormat, err)
	case head.Format != Format:
		return fmt.Errorf("%w: its format is %.40q, want %q", ErrFormat, head.Format, Format)
	}
	return nil
}

// WriteFile validates a profile and writes it. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (p *Profile) WriteFile(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(data) >= MaxFileBytes {
		return fmt.Errorf("%w: larger than %d bytes", ErrDamaged, MaxFileBytes)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(append(data, '\n'))
	if err = errors.Join(err, temp.Chmod(fileMode), temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename last.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
