// Package fakeca is a certificate authority for tests: a [CA] writes pairs of
// certificate and key for servers and clients into files.
package fakeca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA is a certificate authority whose files lie in one folder. Its methods
// panic where something fails, which only a test can cause.
type CA struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// New makes an authority with its certificate in dir.
func New(dir string) *CA {
	ca := &CA{dir: dir, key: newKey()}
	t := ca.template("test authority", time.Now().Add(time.Hour))
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der := must(x509.CreateCertificate(rand.Reader, t, t, &ca.key.PublicKey, ca.key))
	ca.cert = must(x509.ParseCertificate(der))
	ca.write("ca.pem", "CERTIFICATE", der)
	return ca
}

// File is the certificate of the authority.
func (ca *CA) File() string { return filepath.Join(ca.dir, "ca.pem") }

// Pool holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Pair writes NAME.pem and NAME.key, of a certificate that lasts for some time
// and serves for loopback addresses as well as for clients.
func (ca *CA) Pair(name string, lasts time.Duration) (cert, key string) {
	t := ca.template(name, time.Now().Add(lasts))
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	k := newKey()
	der := must(x509.CreateCertificate(rand.Reader, t, ca.cert, &k.PublicKey, ca.key))
	return ca.write(name+".pem", "CERTIFICATE", der), ca.write(name+".key", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(k)))
}

// Client returns how a client connects that trusts the authority alone, and
// shows a certificate of it if it has a name.
func (ca *CA) Client(name string) *tls.Config {
	c := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if name != "" {
		cert, key := ca.Pair(name, time.Hour)
		c.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(cert, key))}
	}
	return c
}

func (ca *CA) template(name string, ends time.Time) *x509.Certificate {
	ca.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends,
	}
}

func (ca *CA) write(name, kind string, der []byte) string {
	path := filepath.Join(ca.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		panic(err)
	}
	return path
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
