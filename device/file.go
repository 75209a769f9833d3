package device

import (
	"fmt"
	"io"

	"github.com/overlapd/overlapd/intake"
)

// MaxFileBytes limits a device profile.
const MaxFileBytes = 32 << 20

// kind is that of device profiles.
var kind = intake.Kind{Format: Format, MaxBytes: MaxFileBytes, Foreign: ErrFormat, Damaged: ErrDamaged}

// ReadFile reads a device profile and validates it. Its errors name the path
// and what to do.
func ReadFile(path string) (*Profile, error) {
	p := new(Profile)
	if err := kind.ReadFile(path, p); err != nil {
		return nil, remedy(err)
	}
	if err := p.Validate(); err != nil {
		return nil, remedy(&intake.Fault{File: path, Err: err})
	}
	return p, nil
}

func remedy(err error) error {
	return fmt.Errorf("%w; overlapd device fit makes a device profile", err)
}

// Read reads a device profile to the end of r and validates it. It returns an
// error that wraps [ErrFormat] or [ErrDamaged] if it is not one.
func Read(r io.Reader) (*Profile, error) {
	p := new(Profile)
	if err := kind.Read(r, "", p); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// WriteFile validates a profile and writes it. Whoever reads the path finds
// the old file or the whole new one, also after a crash.
func (p *Profile) WriteFile(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return kind.WriteFile(path, p)
}
