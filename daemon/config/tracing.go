package config

import "github.com/overlapd/overlapd/daemon/observe/tracing"

// Tracing says which queries are traced, and where their spans go.
type Tracing struct {
	Endpoint    string  // URL of a collector, "" for that of the environment, or none
	Sample      float64 // share of the queries whose client does not say, 0 to 1
	HeadersFile string  // sent with every export, "" for none
	CAFile      string  // that signed the collector's certificate, "" for the system's
	CertFile    string  // of the daemon, "" for none
	KeyFile     string
	Service     string // service.name
	Instance    string // service.instance.id, "" for the GPU's UUID or the address
}

// maxNameBytes limits the names of a daemon in traces.
const maxNameBytes = 256

func (t *Tracing) keys(k keys) {
	k.text("endpoint", &t.Endpoint)
	k.ratio("sample", &t.Sample)
	k.text("headers_file", &t.HeadersFile)
	k.text("ca_file", &t.CAFile)
	k.text("cert_file", &t.CertFile)
	k.text("key_file", &t.KeyFile)
	k.text("service", &t.Service)
	k.text("instance", &t.Instance)
}

func (t *Tracing) check(k *checker) {
	if t.Endpoint != "" {
		if _, err := tracing.CheckEndpoint(t.Endpoint); err != nil {
			k.fault("endpoint", "%v", err)
		}
	}
	if !(t.Sample >= 0 && t.Sample <= 1) {
		k.fault("sample", "must be in [0, 1], not %v", t.Sample)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		k.fault("cert_file", "cert_file and key_file belong together: set both or none")
	}
	if t.Service == "" || len(t.Service) > maxNameBytes {
		k.fault("service", "must have 1 to %d bytes", maxNameBytes)
	}
	if len(t.Instance) > maxNameBytes {
		k.fault("instance", "must have at most %d bytes", maxNameBytes)
	}
}

// files are those of which the paths are relative to the configuration.
func (t *Tracing) files() []*string {
	return []*string{&t.HeadersFile, &t.CAFile, &t.CertFile, &t.KeyFile}
}
